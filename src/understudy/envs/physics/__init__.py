"""Stepping from stored states: for checks of data, and for resuming to the bit."""
