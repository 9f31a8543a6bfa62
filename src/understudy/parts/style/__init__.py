"""Pieces of learning a style: what a rollout looked like, frame by frame."""
