"""Worlds: environments and the scripted players that know them."""

from understudy.envs import builtin as builtin
