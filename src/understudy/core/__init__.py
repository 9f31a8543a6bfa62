"""Words every room uses; imports nothing else of the library."""
