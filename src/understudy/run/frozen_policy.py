"""A policy that takes part in a run and does not learn, in words."""

import re
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from understudy.core.settings import Settings


def _choice(name: str) -> str:
    if not re.fullmatch(r"last|best|\d{1,18}", name):
        raise PydanticCustomError("checkpoint", "Input should be last, best or a number of updates")
    return name


CheckpointName = Annotated[str, AfterValidator(_choice)]


class FrozenPolicySettings(Settings):
    """A policy that takes part in a run and does not learn."""

    path: str
    """A run directory, a policy folder, or a policy that was exported to an ONNX file."""
    checkpoint: CheckpointName = "last"
    """Of a run directory: last, best, or a number of updates."""
    fingerprint: str = ""
    """sha256 of the policy, filled in when the run starts; a run never starts or resumes with another one."""
