"""Who plays when data is collected: words, paths or objects → players, with what a dataset's card says of them.

    random  scripted  runs/x  runs/x@best  runs/x@20000  runs/x@medium-replay  exported/policy.onnx

A share behind a colon (`random:0.2`) is a part of the episodes, or of the steps, relative to those of the others.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from understudy.core.arguments import as_number, kind_of
from understudy.core.errors import ConfigError, DataError, did_you_mean
from understudy.core.protocols import Policy
from understudy.core.spec import Box, Spec
from understudy.data.recipes import LEVELS
from understudy.envs.builtin.controllers import find_controller
from understudy.nn.deployed import Deployed
from understudy.run.dataset_tiers import level_checkpoints
from understudy.run.given_env import name_of
from understudy.run.onnx_policy import OnnxPolicy
from understudy.run.policies import load_policy, updates_of
from understudy.run.policy_file import CARD
from understudy.run.run import Run
from understudy.sources.playing.players import (
    FunctionPlayer,
    NoisyPlayer,
    Player,
    PolicyPlayer,
    RandomPlayer,
    ScriptedPlayer,
)
from understudy.tools.export import policy_digest

RANDOM, SCRIPTED = "random", "scripted"
SHARE = re.compile(r"(.+):([^:/]+)", re.DOTALL)
CHECKPOINT = re.compile(rf"(.+)@({'|'.join(LEVELS)}|\d+)", re.DOTALL)
EXPECTED = "random, scripted, a run, a policy folder, an .onnx file, a policy or a function"


@final
@dataclass(frozen=True)
class Manner:
    """How every policy is played; what is random already is played as it is."""

    greedy: bool = True
    noise: float = 0.0
    epsilon: float = 0.0
    skill: float = 1.0


@final
@dataclass(frozen=True)
class Behaviour:
    """Somebody who plays a share of the data."""

    share: float
    facts: dict[str, Any]
    """What the dataset's card says of it."""
    player: Callable[[int], Player]
    """Makes one that plays in so many environments."""


def find_behaviours(policy: object, env: str, spec: Spec, manner: Manner) -> list[Behaviour]:
    """All that play, in order; each fits what the environment emits and accepts."""
    if manner.noise > 0 and not isinstance(spec.action, Box):
        raise ConfigError("noise", f"is for continuous actions, '{env}' has none", do="Use epsilon.")
    given = policy if isinstance(policy, (list, tuple)) and not _is_pair(policy) else [policy]
    if not given:
        raise ConfigError("policy", "nobody plays", expected=EXPECTED)
    return [found for one in given for found in _behaviours(*_with_share(one), env, spec, manner)]


def _is_pair(given: Sequence[object]) -> bool:
    return len(given) == 2 and isinstance(given[1], (int, float)) and not isinstance(given[1], bool)


def _with_share(given: object) -> tuple[object, float]:
    """A policy and its share: a pair, or a word with a number behind its last colon."""
    share: object = 1.0
    if isinstance(given, (list, tuple)):
        if len(given) != 2:
            raise ConfigError("policy", "not a policy and its share", got=given, expected='("runs/x", 0.8)')
        given, share = given
    elif isinstance(given, str) and not Path(given).exists() and (found := SHARE.fullmatch(given)):
        given, share = found[1], _number(found[2])
    value = as_number(share, f"share of policy '{given}'")
    if not 0 < value < math.inf:
        raise ConfigError(f"share of policy '{given}'", "not positive", got=value, expected="a number above 0")
    return given, value


def _number(word: str) -> object:
    try:
        return float(word)
    except ValueError:
        return word


def _behaviours(given: object, share: float, env: str, spec: Spec, manner: Manner) -> Iterator[Behaviour]:
    if isinstance(given, (str, Path, Run)):
        word = str(given.path) if isinstance(given, Run) else str(given)
        if word == RANDOM:
            yield Behaviour(share, {"policy": RANDOM}, lambda count: RandomPlayer(spec, count))
        elif word == SCRIPTED:
            yield _scripted(share, env, spec, manner)
        elif word.endswith(".onnx"):
            yield _onnx(word, share, env, spec, manner)
        else:
            yield from _of_run(word, share, env, spec, manner)
    elif isinstance(given, Policy) and not isinstance(given, type):
        facts = {"policy": kind_of(given)}
        if isinstance(given, Deployed):
            check_fits(given, spec, env, f"policy {kind_of(given)}")
            facts["sha256"] = policy_digest(given)
        yield _acting(given, share, facts, spec, manner)
    elif callable(given) and not isinstance(given, type):
        act, name = given, name_of(given)
        name = "function" if name == "environment" else name
        yield _noisy(share, {"policy": name}, lambda count: FunctionPlayer(act, spec, count, name), spec, manner)
    else:
        raise ConfigError("policy", "nobody who could play", got=kind_of(given), expected=EXPECTED)


def _scripted(share: float, env: str, spec: Spec, manner: Manner) -> Behaviour:
    controller = find_controller(env)
    facts = {"policy": SCRIPTED, "skill": manner.skill}
    return _noisy(share, facts, lambda count: ScriptedPlayer(controller, manner.skill), spec, manner)


def _onnx(word: str, share: float, env: str, spec: Spec, manner: Manner) -> Behaviour:
    if not Path(word).is_file():
        raise ConfigError(f"policy '{word}'", "no such file")
    if not manner.greedy:
        raise ConfigError(f"policy '{word}'", "is greedy: an exported file does not sample", do="Use noise or epsilon.")
    policy = OnnxPolicy(Path(word))
    policy.check_fits(spec, env)
    return _acting(policy, share, {"policy": word, "sha256": policy.sha256}, spec, manner)


def _of_run(word: str, share: float, env: str, spec: Spec, manner: Manner) -> Iterator[Behaviour]:
    """The policies of a run or a policy folder; a level of several checkpoints is played in equal parts."""
    named = None if Path(word).exists() else CHECKPOINT.fullmatch(word)
    path, name = (named[1], named[2]) if named else (word, "last")
    if not Path(path).exists():
        before, _, level = word.rpartition("@")
        if before and Path(before).is_dir():
            raise ConfigError(f"policy '{before}'", f"has no level '{level}'", do=did_you_mean(level, LEVELS))
        raise ConfigError(f"policy '{word}'", "no such run, folder or file", expected=EXPECTED)
    checkpoints: list[int] | list[str] = [name]
    if not name.isdecimal() and (name != "last" or not (Path(path) / CARD).is_file()):
        checkpoints = level_checkpoints(path, name)
    for checkpoint in checkpoints:
        policy = load_policy(path, checkpoint)
        check_fits(policy, spec, env, f"policy '{word}'")
        updates = updates_of(Path(path)) if checkpoint == "last" else int(checkpoint)
        facts = {"policy": path, **({} if updates is None else {"updates": updates}), "sha256": policy_digest(policy)}
        yield _acting(policy, share / len(checkpoints), facts, spec, manner)


def _acting(policy: Policy, share: float, facts: dict[str, Any], spec: Spec, manner: Manner) -> Behaviour:
    told = {**facts, "greedy": manner.greedy}
    return _noisy(share, told, lambda count: PolicyPlayer(policy, count, greedy=manner.greedy), spec, manner)


def _noisy(
    share: float, facts: dict[str, Any], player: Callable[[int], Player], spec: Spec, manner: Manner
) -> Behaviour:
    noise, epsilon = manner.noise, manner.epsilon
    if not noise and not epsilon:
        return Behaviour(share, facts, player)
    told = {name: value for name, value in (("noise", noise), ("epsilon", epsilon)) if value}
    return Behaviour(share, facts | told, lambda count: NoisyPlayer(player(count), spec, count, noise, epsilon))


def check_fits(policy: Deployed, spec: Spec, env: str, where: str) -> None:
    """The policy was made for what the environment emits and accepts; every difference is told."""
    if policy.spec.fits(spec):
        return
    mine, there = ({**one.observation, "action": one.action, "mask": one.masked} for one in (policy.spec, spec))
    apart = [
        f"{name}: {_told(mine.get(name))}, there {_told(there.get(name))}"
        for name in sorted({*mine, *there})
        if mine.get(name) != there.get(name)
    ]
    raise DataError(where, f"does not fit environment '{env}' ({'; '.join(apart)})")


def _told(part: object) -> str:
    return "none" if part is None else str(part)
