"""Ourselves: IQL with its defaults."""

from _understudy_loop import measure

from understudy.algorithms import iql

if __name__ == "__main__":
    measure(iql)
