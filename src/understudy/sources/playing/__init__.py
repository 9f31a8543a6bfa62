"""Policies that play in environments: what they draw, what is kept of it, and whole episodes for datasets."""
