"""Ourselves: TD3+BC with its defaults."""

from _understudy_loop import measure

from understudy.algorithms import td3bc

if __name__ == "__main__":
    measure(td3bc)
