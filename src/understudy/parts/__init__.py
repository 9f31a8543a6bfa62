"""Pieces of an update, shared by composition."""
