"""Pieces of PPO."""
