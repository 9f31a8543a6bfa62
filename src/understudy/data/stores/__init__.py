"""The native store and how it is written."""
