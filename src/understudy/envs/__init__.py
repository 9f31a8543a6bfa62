"""Worlds: environments and the scripted players that know them."""

from understudy.envs.builtin import registered as registered
