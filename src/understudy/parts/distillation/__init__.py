"""Pieces of learning from a teacher: who it is, which rows count, and labels of earlier rollouts."""
