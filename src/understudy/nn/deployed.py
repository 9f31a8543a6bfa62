"""What a run trains and a policy file holds."""

from understudy.nn.committee import Memoryless
from understudy.nn.exploring_policy import ExploringPolicy

Deployed = Memoryless | ExploringPolicy
"""Networks that act, with a spec and settings to rebuild them from."""
