"""Tuning: a search over settings whose every trial is a run, and its best again on seeds that it never saw."""
