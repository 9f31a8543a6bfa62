"""An algorithm's outline: built without memory, so that it can be measured and compared before it is built.

On torch's `meta` device tensors have shapes and no numbers. A config can ask for any network, and may come from a
stranger together with a checkpoint of another.
"""

from dataclasses import replace
from typing import Any

import torch

from understudy.core.errors import ConfigError, PluginError
from understudy.core.machine_memory import check_room
from understudy.core.protocols import Algorithm, BuildContext
from understudy.core.state import check_fits, footprint
from understudy.run.checkpoint import Checkpoint
from understudy.run.config import RunConfig
from understudy.run.strangers import call_build

META = torch.device("meta")
ALGORITHM = "algorithm"
"""The part of a learner that is outlined."""


def build_algorithm(config: RunConfig, context: BuildContext, checkpoint: Checkpoint | None = None) -> Algorithm[Any]:
    """The algorithm, if it has room in this machine and `checkpoint`, which it goes on from, is one of its own."""
    check_outline(config, context, checkpoint)
    return call_build(config, context)


def check_outline(config: RunConfig, context: BuildContext, checkpoint: Checkpoint | None = None) -> None:
    """Everything that can be wrong with an algorithm's settings, before memory is spent on them."""
    outline = _outline(config, context)
    needed = footprint(outline)
    check_room("algo", f"{config.algorithm}'s networks", needed, "Use fewer or smaller layers (hidden), or members.")
    if checkpoint is not None:
        state = {path: leaf for path, leaf in checkpoint.state.items() if path.startswith(f"{ALGORITHM}.")}
        check_fits({ALGORITHM: outline}, state, f"checkpoint '{checkpoint.path}'")


def _outline(config: RunConfig, context: BuildContext) -> Algorithm[Any]:
    """Without memory; or with it, of an algorithm of another package that reads its own numbers while it is built."""
    try:
        with META:
            return call_build(config, replace(context, device=META))
    except (RuntimeError, NotImplementedError, PluginError):
        pass
    try:
        return call_build(config, context)
    except RuntimeError as error:
        told = str(error).partition("\n")[0]
        raise ConfigError("algo", f"{config.algorithm} cannot be built ({told})") from error
