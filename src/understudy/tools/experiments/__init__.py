"""Experiments: many runs that answer one question, and what they say together."""
