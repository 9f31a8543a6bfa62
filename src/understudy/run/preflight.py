"""The birth of a run: it and its stages are built once before the first step, so that nothing is found wrong later."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from understudy.core.errors import told_with
from understudy.core.ranks import ALL, Share
from understudy.run.build import build_learner
from understudy.run.config import RunConfig
from understudy.run.environments import MakeEnvs
from understudy.run.evaluate import Evaluator
from understudy.run.git_state import check_repositories
from understudy.run.given_env import GivenEnvs
from understudy.run.handed_normalizers import with_handed_normalizers
from understudy.run.learner import Learner
from understudy.run.loading import Prepared
from understudy.run.motions import sealed_motions
from understudy.run.progress import Reporter
from understudy.run.skill_env import sealed_skills
from understudy.run.stages import stage_folder, told_of_stage
from understudy.run.warm_start import Ancestor, check_same, frozen_fingerprint, load_frozen
from understudy.sources import Act


def preflight(
    config: RunConfig,
    reporter: Reporter,
    ready: Mapping[str, Prepared],
    make_envs: MakeEnvs | None = None,
    teacher: Act | None = None,
    share: Share = ALL,
) -> tuple[RunConfig, Learner]:
    """The config with fingerprints of its data and its ancestor and the form of its normalisers written in, and the
    learner.

    Each policy fits the one it starts from.
    """
    check_repositories(config.git_repositories, "git_repositories")
    config = with_handed_normalizers(config, reporter.say)
    learner = build_learner(config, reporter, ready, make_envs, teacher=teacher, share=share)
    try:
        _try_environment(config, learner, make_envs)
        return _with_stages(config, learner, reporter, make_envs, teacher, share), learner
    except BaseException:
        learner.close()
        raise


def _try_environment(config: RunConfig, learner: Learner, make_envs: MakeEnvs | None) -> None:
    """One step of an evaluation, where nothing is played before the first one: an environment that cannot be played in
    is told now, and not after hours. Simulators of one's own may take long to be made, and are not."""
    if config.env is None or not config.eval_every or config.source_needs.envs:
        return
    if config.env.simulator == "gymnasium" or isinstance(make_envs, GivenEnvs):
        shortest = config.model_copy(update={"eval_max_steps": 1, "eval_info": {}})
        with closing(Evaluator(shortest, make_envs, learner.motions)) as evaluator:
            evaluator.evaluate(learner.policy, 1)


def _with_stages(
    config: RunConfig,
    learner: Learner,
    reporter: Reporter,
    make_envs: MakeEnvs | None,
    teacher: Act | None,
    share: Share,
) -> RunConfig:
    """The sealed config, once every stage has been built and found to fit the one before."""
    first = config.stages[0] if config.stages else config
    with told_with("init_from"):
        ancestor = Ancestor.load(config.init_from, first) if config.init_from else None
    where, fingerprint = f"init_from '{config.init_from}'", "" if ancestor is None else ancestor.fingerprint
    if config.init_fingerprint and ancestor is not None:
        check_same(fingerprint, config.init_fingerprint, where, "init_fingerprint")
    sealed = []
    for number, stage in enumerate(config.stages):
        shared = shared_data(learner, stage, config)
        with told_of_stage(number, RunConfig):
            built = build_learner(stage, reporter, shared, make_envs, teacher=teacher, share=share)
        with closing(built) as begun:
            if ancestor is not None:
                ancestor.check(begun.algorithm, stage, where)
            heir = config.stages[number + 1] if number + 1 < len(config.stages) else config
            ancestor, where = Ancestor.of(begun, stage.algorithm, heir), f"stages.{number}"
            sealed.append(_sealed(stage, begun))
    if ancestor is not None:
        ancestor.check(learner.algorithm, config, where)
    return _sealed(config, learner).model_copy(update={"stages": tuple(sealed), "init_fingerprint": fingerprint})


def stage_runs(config: RunConfig, run: Path) -> list[RunConfig]:
    """The stages as runs of their own inside a run's directory, each starting where the one before ends."""
    runs: list[RunConfig] = []
    for number, stage in enumerate(config.stages, 1):
        origin, fingerprint = (runs[-1].out, "") if runs else (config.init_from, config.init_fingerprint)
        place = {"out": str(stage_folder(run, number, stage.algorithm)), "init_from": origin}
        runs.append(stage.model_copy(update={**place, "init_fingerprint": fingerprint}))
    return runs


def shared_data(learner: Learner, stage: RunConfig, config: RunConfig) -> dict[str, Prepared]:
    """The run's datasets where a stage learns from the same, so that they need be in memory only once."""
    if stage.env != config.env:
        return {}
    mine, others = config.data_by_role, stage.data_by_role
    return {role: _prepared(learner, role) for role, data in mine.items() if others.get(role) == data}


def _prepared(learner: Learner, role: str) -> Prepared:
    data = learner.data[role]
    return Prepared(data.recorded, data.held_out[0] if data.held_out else None)


def _sealed(config: RunConfig, learner: Learner) -> RunConfig:
    """With the fingerprints of its data and of the policies that take part."""
    data = {
        role: settings.model_copy(update={"fingerprint": _prepared(learner, role).fingerprint})
        for role, settings in config.data_by_role.items()
    }
    policies = {
        role: named.model_copy(update={"fingerprint": frozen_fingerprint(load_frozen(role, named))})
        for role, named in config.policies.items()
    }
    env = sealed_skills(config.env)
    motions = sealed_motions(config.motions, learner.motions)
    return config.with_data(data).model_copy(update={"policies": policies, "env": env, "motions": motions})
