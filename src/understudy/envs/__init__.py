"""Worlds: environments and the scripted players that know them."""
