"""Environments that step together: the contract, and an adapter for each kind of simulator."""
