"""What a recording holds and what is wrong with it, in one streaming pass."""
