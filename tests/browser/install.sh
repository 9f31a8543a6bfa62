#!/bin/sh
# Debian's chromium and its driver, for tests that look at pages. Where they are there already, nothing happens; where
# they cannot be had, those tests say so and are skipped.
if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "no chromium here, and nobody who may install it: tests in a browser will be skipped"
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if timeout 120 apt-get -qq update >/dev/null && \
   timeout 600 apt-get -qq install -y --no-install-recommends chromium chromium-driver fonts-dejavu-core >/dev/null; then
  exit 0
fi
echo "chromium could not be installed: tests in a browser will be skipped"
