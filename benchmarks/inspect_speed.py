"""How long it takes to look at a million steps.

    python benchmarks/inspect_speed.py                  # a few seconds
    python benchmarks/inspect_speed.py --length 1       # a million episodes of one step: the worst case

One pass over a recording in memory (17 observations, 6 actions, float32), on one core: survey and findings, the whole
of `understudy dataset inspect` but reading the file and printing. Target: 4 seconds for episodes of 1000 steps; memory
beyond the data under 100 MB.
"""

import argparse
import resource
import time
from collections.abc import Iterator

import numpy as np
import torch

from understudy import Box, Episode
from understudy.data.recording import Recording
from understudy.tools.dataset.inspection import inspect_recording

OBSERVATION, ACTION = 17, 6
TARGET_SECONDS, TARGET_MEGABYTES = 4.0, 100.0


def made(steps: int, length: int) -> Recording:
    """Random episodes, views of three arrays."""
    rng = np.random.default_rng(0)
    episodes = steps // length
    states = rng.standard_normal((episodes, length + 1, OBSERVATION), np.float32)
    actions = rng.random((episodes, length, ACTION), np.float32) * 2 - 1
    rewards = rng.standard_normal((episodes, length), np.float32)

    def play() -> Iterator[Episode]:
        for number in range(episodes):
            yield Episode({"state": states[number]}, actions[number], rewards[number], False, True)

    return Recording("random", episodes * length, play)


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--length", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    recording = made(options.steps, options.length)
    before, started, busy = peak_megabytes(), time.perf_counter(), time.process_time()
    seen = inspect_recording(recording, Box((-1.0,) * ACTION, (1.0,) * ACTION))
    seconds, cpu, memory = time.perf_counter() - started, time.process_time() - busy, peak_megabytes() - before
    print(f"{seen.survey.steps:,} steps in {seen.survey.episodes:,} episodes: {seconds:.2f} s ({cpu:.2f} s of CPU)")
    print(f"memory beyond the data: {memory:.0f} MB")
    if options.length >= 100:
        met = seconds <= TARGET_SECONDS and memory <= TARGET_MEGABYTES
        print(f"target {TARGET_SECONDS:g} s and {TARGET_MEGABYTES:g} MB: {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    main()
