"""Networks only."""
