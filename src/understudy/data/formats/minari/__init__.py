"""Minari datasets, read and written by our own code."""
