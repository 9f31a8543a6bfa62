"""How candidates are judged offline: one set of numbers for all of them."""

import math
from dataclasses import dataclass
from typing import Literal, final, get_args

from understudy.algorithms import fqe
from understudy.core.arguments import as_count, as_number, as_text, as_truth
from understudy.core.errors import ConfigError, did_you_mean

Method = Literal["fqe", "is", "wis", "pdis", "wpdis", "dr", "wdr", "initial"]
WEIGHING, ROBUST = ("is", "wis", "pdis", "wpdis"), ("dr", "wdr")


@final
@dataclass(frozen=True)
class Settings:
    """How candidates are judged; the same for all of them."""

    method: str = "fqe"
    gamma: float = 0.99
    seeds: int = 5
    updates: int = 20_000
    batch_size: int = 256
    learning_rate: float = 3e-4
    polyak: float = 0.02
    hidden: tuple[int, ...] = (256, 256)
    stochastic: bool = False
    samples: int = 10

    @property
    def trains(self) -> bool:
        return self.method in ("fqe", *ROBUST)

    @property
    def weighs(self) -> bool:
        return self.method in (*WEIGHING, *ROBUST)

    def checked(self) -> "Settings":
        """Or an error about the first that is wrong."""
        as_text(self.method, "method")
        known = get_args(Method)
        if self.method not in known:
            raise ConfigError("method", "no such estimator", got=self.method, do=did_you_mean(self.method, known))
        for name in ("seeds", "updates", "batch_size", "samples"):
            as_count(vars(self)[name], name)
        for name in ("gamma", "learning_rate", "polyak"):
            if not 0 < as_number(vars(self)[name], name) <= 1:
                raise ConfigError(name, "out of range", got=vars(self)[name], expected="above 0 and at most 1")
        as_truth(self.stochastic, "stochastic")
        self.fqe()
        return self

    def fqe(self) -> fqe.Config:
        """As one candidate alone would be judged."""
        words = {"gamma": self.gamma, "critic_learning_rate": self.learning_rate, "polyak": self.polyak}
        draws = {"stochastic": self.stochastic, "samples": self.samples, "critic": {"hidden": self.hidden}}
        return fqe.Config.parse({**words, **draws}, "ope")

    def missing(self, longest: int) -> float:
        """The share of what is far ahead that targets, which move a little at a time, cannot have reached; without
        discount, of the steps of the `longest` episode."""
        reached = self.updates * self.polyak
        return math.exp(-reached * (1 - self.gamma)) if self.gamma < 1 else max(0.0, 1 - reached / longest)

    @property
    def draws(self) -> int:
        """Of each continuous action; 0 is greedy."""
        return self.samples if self.stochastic else 0
