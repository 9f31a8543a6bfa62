"""Small environments of this library's own, and scripted controllers that know them."""
