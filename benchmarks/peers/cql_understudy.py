"""Ourselves: CQL with its defaults."""

from _understudy_loop import measure

from understudy.algorithms import cql

if __name__ == "__main__":
    measure(cql)
