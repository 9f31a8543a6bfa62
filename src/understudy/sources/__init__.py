"""How data arrives."""
