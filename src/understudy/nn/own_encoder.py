"""A network of one's own as an encoder: any torch.nn.Module that makes a vector of an input.

A config names it by a word, never by an import path: `encoders: {state: {kind: own, name: tower, size: 64}}`. Who makes
it is registered in the script that trains (`us.register_network`), or offered by a module that an entry point
`understudy.networks` names. What it learns is in checkpoints and policy files like everything else; whoever loads them
must know the word, too. With `hidden: []` it is all of the network but its last layer.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from understudy.core.arguments import as_text, kind_of
from understudy.core.errors import ConfigError
from understudy.core.plugins import Plugins
from understudy.core.settings import Count, Options, Settings

MakeNetwork = Callable[[tuple[int, ...], int, Mapping[str, Any]], nn.Module]
"""(shape of the input, size of the latent, options) → a module [B, *shape] → [B, size]."""
PLUGINS = Plugins(
    "understudy.networks",
    __name__,
    (),
    "encoders.name",
    "network",
    calls=(("build", ("shape", "size", "options")),),
)
_REGISTERED: dict[str, MakeNetwork] = {}


class OwnEncoderSettings(Settings):
    """A module that is registered under a name."""

    kind: Literal["own"] = "own"
    """A network of one's own."""
    name: str
    """What it is registered as."""
    size: Count = 64
    """Of the latent."""
    options: Options = Field(default_factory=dict)
    """Handed to who makes it."""
    l2_normalize: bool = False
    """The latent is divided by its length (L2)."""


def register_network(name: str, make: MakeNetwork) -> None:
    """From here on `encoders: {…: {kind: own, name: …}}` means what `make(shape, size, options)` gives."""
    if not callable(make):
        raise ConfigError(
            "register_network", "cannot be called", got=kind_of(make), expected="make(shape, size, options)"
        )
    if not as_text(name, "register_network").isidentifier():
        raise ConfigError("register_network", "not a name", got=repr(name), expected="letters, digits and _")
    _REGISTERED[name] = make


def find_network(name: str, where: str) -> MakeNetwork:
    """Who makes the network of this name."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in PLUGINS.names():
        known = ", ".join(sorted({*_REGISTERED, *PLUGINS.names()})) or "none"
        raise ConfigError(
            f"{where}.name",
            f"no network '{name}' is registered",
            expected=f"one of: {known}",
            do=f"Say understudy.register_network('{name}', …) first, or install the package that offers it.",
        )
    made: MakeNetwork = vars(PLUGINS.find(name, ("build",)))["build"]
    return made


class OwnEncoder(nn.Module):
    """[B, …] → [B, size]. Bytes are taken as 0 to 1."""

    def __init__(self, shape: tuple[int, ...], settings: OwnEncoderSettings, rng: torch.Generator, where: str) -> None:
        super().__init__()
        self.size, self.shape, self.l2_normalize = settings.size, shape, settings.l2_normalize
        make = find_network(settings.name, where)
        with torch.random.fork_rng(devices=()):  # its first numbers are the run's, and nobody else's are moved
            torch.manual_seed(int(torch.randint(1 << 62, (), generator=rng, device="cpu")))
            self.network = make(shape, settings.size, settings.options)
        if not isinstance(self.network, nn.Module):
            raise ConfigError(where, f"'{settings.name}' gives no torch.nn.Module", got=type(self.network).__name__)
        with torch.no_grad():
            found = tuple(self(torch.zeros(2, *shape)).shape)
        if found != (2, settings.size):
            raise ConfigError(where, f"'{settings.name}' gives another shape", got=found, expected=(2, settings.size))

    def forward(self, values: Tensor) -> Tensor:
        numbers = values.float() / 255.0 if values.dtype == torch.uint8 else values.float()
        latent: Tensor = self.network(numbers)
        return F.normalize(latent, dim=-1) if self.l2_normalize else latent
