"""Which of the library's baselines suit data of one's own: those for numbers, or those for choices."""

from collections.abc import Sequence
from typing import Any

from understudy.core.errors import ConfigError
from understudy.core.spec import ActionSpace, Box
from understudy.data.formats.readers import open_recording
from understudy.run.loading import space_of, space_of_env
from understudy.run.overrides import apply_override

CONTINUOUS, DISCRETE = "baselines", "baselines-discrete"


def baselines_for(overrides: Sequence[str]) -> str:
    """The suite for what is said of data and environment; both are looked at, and nothing is read in whole."""
    said: dict[str, Any] = {}
    for word in overrides:
        apply_override(said, word)
    data, env = said.get("data"), said.get("env")
    if not isinstance(data, dict) or not data.get("path"):
        do = "Example: understudy compare data.path=logs.npz env.id=Pendulum-v1"
        raise ConfigError("data.path", "is what is compared on: give it", do=do)
    return CONTINUOUS if isinstance(_space(data, env), Box) else DISCRETE


def _space(data: dict[str, Any], env: object) -> ActionSpace:
    if isinstance(env, dict) and env.get("id"):
        return space_of_env(str(env["id"]))
    return space_of(open_recording(str(data["path"]), columns=data.get("columns", "")), measure=True)
