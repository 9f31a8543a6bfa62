"""Motions looked at and checked."""
