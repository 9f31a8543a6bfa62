"""A turn-based battle of two teams, where not every action is always legal."""
