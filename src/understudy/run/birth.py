"""The birth of a run: it and its stages are built once before the first step, so that nothing is found wrong later."""

from pathlib import Path

from understudy.run.build import Learner, build_learner
from understudy.run.config import RunConfig
from understudy.run.dataset.loading import Prepared
from understudy.run.inherit import check_heir
from understudy.run.policies import load_policy
from understudy.run.progress import Reporter
from understudy.run.stages import stage_folder


def birth(config: RunConfig, reporter: Reporter, prepared: Prepared | None) -> tuple[RunConfig, Learner]:
    """The config with its data's fingerprints written in, and the learner. Each policy fits the one it starts from."""
    learner = build_learner(config, reporter, prepared)
    ancestor, where = (load_policy(config.init_from) if config.init_from else None), f"init_from '{config.init_from}'"
    sealed = []
    for number, stage in enumerate(config.stages):
        begun = build_learner(stage, reporter, learner.prepared if shares_data(stage, config) else None)
        if ancestor is not None:
            check_heir(begun.policy, ancestor, where)
        ancestor, where = begun.policy, f"stages.{number}"
        sealed.append(_sealed(stage, begun))
    if ancestor is not None:
        check_heir(learner.policy, ancestor, where)
    return _sealed(config, learner).model_copy(update={"stages": tuple(sealed)}), learner


def stage_runs(config: RunConfig, run: Path) -> list[RunConfig]:
    """The stages as runs of their own inside a run's directory, each starting where the one before ends."""
    runs: list[RunConfig] = []
    for number, stage in enumerate(config.stages, 1):
        origin = runs[-1].out if runs else config.init_from
        out = stage_folder(run, number, stage.algorithm)
        runs.append(stage.model_copy(update={"out": str(out), "init_from": origin}))
    return runs


def shares_data(one: RunConfig, other: RunConfig) -> bool:
    """They learn from the same data, so that these need be in memory only once."""
    return one.env.id == other.env.id and one.data == other.data


def _sealed(config: RunConfig, learner: Learner) -> RunConfig:
    data = config.data.model_copy(update={"fingerprint": learner.prepared.fingerprint})
    return config.model_copy(update={"data": data})
