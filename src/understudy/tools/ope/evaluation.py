"""From candidates and data to a ranking: `understudy ope`, `us.evaluate_offline`.

Everything that can be wrong is found before anything is trained. What a seed of FQE says of a candidate lies in the out
folder under the digest of everything it depends on: whoever is killed, adds a candidate or adds a seed goes on with
what is there.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from understudy.core.arguments import as_path
from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import Box, MultiDiscrete
from understudy.data.dataset import Dataset
from understudy.data.formats.column_map import ColumnMap
from understudy.data.formats.readers import Origin
from understudy.nn.deployed import Deployed
from understudy.parts.frozen_choices import check_candidate
from understudy.run.loading import load_dataset, resolve_dataset
from understudy.run.progress import Reporter, reporter_for
from understudy.run.rundir import RunDir
from understudy.run.warm_start import experience_of
from understudy.tools.experiments.statistics import Estimate
from understudy.tools.ope.candidates import Candidate, find_candidates
from understudy.tools.ope.judge import Judge
from understudy.tools.ope.likelihoods import check_density
from understudy.tools.ope.ranking import Ranking
from understudy.tools.ope.settings import Settings


def evaluate_offline(
    candidates: object,
    data: Origin | None = None,
    *,
    method: str = "fqe",
    checkpoints: str | int = "last",
    gamma: float = 0.99,
    seeds: int = 5,
    updates: int = 20_000,
    batch_size: int = 256,
    learning_rate: float = 3e-4,
    polyak: float = 0.02,
    hidden: Sequence[int] = (256, 256),
    stochastic: bool = False,
    samples: int = 10,
    columns: ColumnMap = "",
    out: str | Path = "",
    progress: bool = True,
    reporter: Reporter | None = None,
) -> Ranking:
    """What policies are worth that never acted, from data of others, the best lower bound first.

    `candidates`: runs, folders of runs, `RUN@UPDATES`, policy folders, exported policies, policies, or a list of such;
    `checkpoints="all"` takes every kept checkpoint of runs. `data` is whatever `load_dataset` takes; without it that of
    the first run. Each of `seeds` learns by `fqe` from its own resample of the episodes: of one there is no interval.
    `method`: `fqe`, `is`, `wis`, `pdis`, `wpdis`, `dr`, `wdr`, or `initial`: what a run's own critics
    expect. In the folder `out` it keeps what is done; the same call goes on there.
    """
    given = (method, gamma, seeds, updates, batch_size, learning_rate, polyak, tuple(hidden), stochastic, samples)
    settings = Settings(*given).checked()
    notes: list[str] = []
    told, found = reporter_for(progress, reporter), find_candidates(candidates, str(checkpoints), notes.append)
    dataset = _dataset(data, found, columns, told)
    _check(settings, found, dataset)
    if data is None and (others := [one.name for one in found if _learned_from_other(one, dataset)]):
        notes.append(f"{', '.join(others)} learned from other data than '{dataset.name}', by which all are judged.")
    return Judge(settings, found, dataset, Path(as_path(out, "out")) if out else None, told, notes).rank()


def offline_value(run: object, data: Origin | None = None, **settings: Any) -> Estimate:
    """Of one policy, as `evaluate_offline` finds it: an objective for a search that has no environment.

    All is NaN where critics diverged: what they say is no value. Of `seeds=1` there is no interval: its limits are NaN.
    """
    ranking = evaluate_offline(run, data, **{"progress": False, **settings})
    if len(ranking.judged) > 1:
        do = "Rank several by us.evaluate_offline."
        raise ConfigError("offline_value", "of more than one policy", got=len(ranking.judged), expected=1, do=do)
    return Estimate(math.nan, math.nan, math.nan) if ranking.best.diverged else ranking.best.estimate


def _dataset(data: Origin | None, candidates: Sequence[Candidate], columns: ColumnMap, reporter: Reporter) -> Dataset:
    if data is not None:
        spec = next((one.policy.spec for one in candidates if isinstance(one.policy, Deployed)), None)
        space = None if spec is None or isinstance(data, Dataset) else spec.action
        return load_dataset(data, columns=columns, action_space=space, reporter=reporter)
    run = next((one.run for one in candidates if one.run is not None), None)
    config = None if run is None else RunDir.open(run).config
    if config is None or config.data is None:
        raise ConfigError("data", "is missing", expected="episodes of somebody else", do="Give --data (data=…).")
    return resolve_dataset(config.data, None if config.env is None else config.env.id, reporter).train


def _learned_from_other(candidate: Candidate, dataset: Dataset) -> bool:
    """Its run says so."""
    told = [] if candidate.run is None else experience_of(RunDir.open(candidate.run))
    return any(one.get("fingerprint", dataset.fingerprint) != dataset.fingerprint for one in told)


def _check(settings: Settings, candidates: Sequence[Candidate], dataset: Dataset) -> None:
    """Everything that can be wrong, before anything is trained."""
    check_data(settings, dataset)
    for candidate in candidates:
        check_candidate(candidate.policy, dataset.spec, candidate.name, stochastic=settings.stochastic)
        if settings.stochastic and not isinstance(candidate.policy, Deployed):
            do = "Leave out --stochastic (stochastic=False)."
            raise ConfigError(candidate.name, "is greedy: an exported file does not sample", do=do)
        if settings.weighs and isinstance(dataset.spec.action, Box):
            check_density(candidate.policy, candidate.name, greedy=not settings.stochastic)


def check_data(settings: Settings, dataset: Dataset) -> None:
    """An error if nobody could be judged by it."""
    where, index, spec = f"dataset '{dataset.name}'", dataset.index, dataset.spec
    if not dataset.has_rewards:
        raise DataError(where, "has no rewards: there is nothing to judge by")
    if not bool(dataset.rewards.any()):
        raise DataError(where, "every reward is 0: there is nothing to judge by")
    if isinstance(spec.action, MultiDiscrete):
        raise ConfigError(where, "actions of several factors are not judged yet", got=spec.action.describe())
    images = [name for name, group in spec.observation.items() if group.dtype == "uint8" or len(group.shape) > 1]
    if settings.trains and images:
        do = "Train one critic with an encoder for each: understudy train fqe data.path=… policies.target.path=…."
        raise ConfigError(where, f"critics here see vectors only, and '{images[0]}' is an image", do=do)
    if settings.method != "initial" and bool((index.lengths == 1).all()) and not bool(index.terminated.all()):
        raise DataError(
            where,
            "every episode is one step that was cut: nobody knows where episodes began",
            do="Give data of whole episodes.",
        )
    if settings.gamma == 1 and not bool(index.terminated.any()):
        raise DataError(
            where,
            "no episode terminates, and undiscounted (gamma 1) values of such a world have no end",
            do="Give a gamma below 1.",
        )
