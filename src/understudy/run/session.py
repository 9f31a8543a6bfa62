"""Train, resume, evaluate, predict: what the command line and `import understudy` both call."""

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, final

import torch
from numpy.typing import ArrayLike, NDArray

from understudy.core.errors import ConfigError, RunError
from understudy.core.files import read_json, write_json
from understudy.core.protocols import MAIN
from understudy.core.state import restore
from understudy.data.corruption import corruption_facts
from understudy.data.experience import LoggedExperience
from understudy.data.stores.store import is_store, store_recipe
from understudy.nn.deployed import Deployed
from understudy.run.build import build_learner, settled_data
from understudy.run.checkpoint import Checkpoint, newest_checkpoint, point_latest
from understudy.run.compiler import settle_compile
from understudy.run.config import MOST_EPISODES, EnvSettings, RunConfig, load_config, parse_config
from understudy.run.environments import MakeEnvs
from understudy.run.evaluate import Evaluation, Evaluator, headline
from understudy.run.history import recall
from understudy.run.identity import Record, code_digests, config_digest, identity, seal_line
from understudy.run.learner import Learner
from understudy.run.loading import Prepared
from understudy.run.loop import InterruptedRunError, Loop, Watcher
from understudy.run.meta import describe_run
from understudy.run.policies import find_checkpoint, load_policy
from understudy.run.prediction import predict
from understudy.run.preflight import preflight, shared_data, stage_runs
from understudy.run.progress import SILENT, Reporter
from understudy.run.rundir import RunDir
from understudy.run.warm_start import take_over


@final
class Run:
    """A run directory, ready to be asked."""

    def __init__(self, path: Path | str) -> None:
        self._dir = RunDir.open(path)
        self.path = self._dir.path
        self.config: RunConfig = self._dir.config

    @property
    def finished(self) -> bool:
        return self._dir.finished

    @property
    def result(self) -> dict[str, Any]:
        return self._dir.result

    def evaluations(self) -> list[dict[str, Any]]:
        return self._dir.evaluations()

    def metrics(self) -> list[dict[str, Any]]:
        return self._dir.metrics()

    def policy(self, checkpoint: str | int = "last") -> Deployed:
        return load_policy(self.path, checkpoint)

    def evaluate(
        self,
        episodes: int | None = None,
        *,
        checkpoint: str | int = "last",
        greedy: bool = True,
        reporter: Reporter = SILENT,
        make_envs: MakeEnvs | None = None,
        env: str | None = None,
    ) -> Evaluation:
        """Play episodes with a checkpoint's policy, always from the same start states, in the run's environment or in
        another one, `env`."""
        config = self.config
        if env is not None:
            config = config.model_copy(update={"env": EnvSettings(id=env)})
        if config.env is None:
            raise RunError(
                f"run '{self.path}'",
                "was trained without an environment, so there is nothing to play in",
                do="What held-out episodes say of it stands in eval.jsonl. To play, give an environment: --env ID "
                "(from Python: env='ID').",
            )
        torch.set_num_threads(self.config.threads)
        count = self.config.eval_episodes if episodes is None else episodes
        if count < 1:
            raise ConfigError("episodes", "nothing to play", got=count, expected="at least 1")
        if count > MOST_EPISODES:
            raise ConfigError(
                "episodes", "too many to play side by side", got=count, expected=f"at most {MOST_EPISODES}"
            )
        policy = self.policy(checkpoint)
        with reporter.task("evaluating", count, "episodes") as advance:

            def told(done: int, total: int) -> None:
                advance(done, "")

            with closing(Evaluator(config, make_envs)) as evaluator:
                return evaluator.evaluate(policy, count, greedy=greedy, on_step=told)

    def predict(
        self,
        obs: ArrayLike | Mapping[str, ArrayLike],
        *,
        checkpoint: str | int = "last",
        greedy: bool = True,
        seed: int = 0,
    ) -> NDArray[Any]:
        """Actions in environment units for one observation or a batch of them."""
        return predict(self.policy(checkpoint), obs, greedy=greedy, seed=seed)


def train(
    config: str | Path | RunConfig,
    *,
    reporter: Reporter = SILENT,
    make_envs: MakeEnvs | None = None,
    watch: Watcher | None = None,
    **settings: Any,
) -> Run:
    """Train from a config's name, a YAML file or a RunConfig: `train("iql/pendulum", seed=1, **{"algo.beta": 1})`.

    `make_envs` makes environments of your own, `world(count)`, where the config says env.simulator=custom.
    `watch(updates, evaluation)` is called after every evaluation of the run (not of its stages); when it answers True,
    the run is saved and a StoppedRunError raised.
    """
    return _begin(resolve_config(config, settings), reporter, {}, make_envs, watch)


def resolve_config(config: str | Path | RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """The config that is meant, complete and with a place of its own."""
    if isinstance(config, (str, Path)):
        return load_config(str(config), [f"{key}={_text(value)}" for key, value in settings.items()])
    if settings:
        raise ConfigError("train", "settings go into the RunConfig itself when one is given", got=sorted(settings))
    if not config.out:
        raise ConfigError("out", "is required when a RunConfig is given")
    return config


def _begin(
    config: RunConfig,
    reporter: Reporter,
    ready: Mapping[str, Prepared],
    make_envs: MakeEnvs | None,
    watch: Watcher | None = None,
) -> Run:
    """A run from its birth to its end. `ready`: datasets by role that are in memory already."""
    run = RunDir(config.out)
    run.check_free()
    with run.locked():
        run.check_free()
        code_digests(config)  # as they are now: data may take long to collect, and files change
        config = settle_compile(settled_data(config), reporter.say)
        config, learner = preflight(config, reporter, ready, make_envs)
        with closing(learner):
            run.clear_leftovers()
            run.create(config, run_facts(config, learner))
            _inherit(config, run, learner, reporter, make_envs, accept_versions=False)
            Loop(config, run, learner, 0, reporter, make_envs, watch).train()
    return Run(run.path)


def _inherit(
    config: RunConfig,
    run: RunDir,
    learner: Learner,
    reporter: Reporter,
    make_envs: MakeEnvs | None,
    *,
    accept_versions: bool,
) -> None:
    """Give a run that has not begun the policy it starts from, after the stages that come first."""
    origin, fingerprint = config.init_from, config.init_fingerprint
    for number, stage in enumerate(stage_runs(config, run.path), 1):
        reporter.say(f"stage {number} of {len(config.stages) + 1}: {stage.algorithm}, {stage.updates:,} updates")
        try:
            done = _finish(
                stage, reporter, shared_data(learner, stage, config), make_envs, accept_versions=accept_versions
            )
        except InterruptedRunError as error:
            raise error.of(run.path) from None
        reporter.say(f"stage {number} ended: {headline(done.result)}")
        origin, fingerprint = str(done.path), ""
    if origin:
        take_over(learner.algorithm, config, origin, fingerprint, reporter)


def _finish(
    stage: RunConfig,
    reporter: Reporter,
    ready: Mapping[str, Prepared],
    make_envs: MakeEnvs | None,
    *,
    accept_versions: bool,
) -> Run:
    """A stage that has ended, whatever it takes, and as the run that it is a stage of says."""
    run = RunDir(stage.out)
    if not run.config_file.exists():
        return _begin(stage, reporter, ready, make_envs)
    if not run.finished:
        resume(run.path, reporter=reporter, make_envs=make_envs, accept_versions=accept_versions)
    done = Run(run.path)
    fingerprint = stage.init_fingerprint or done.config.init_fingerprint  # of the stage before, which had yet to end
    planned = stage.model_copy(update={"init_fingerprint": fingerprint})
    if changed := _checkpoint_record(find_checkpoint(run, "last")).differences(planned):
        raise RunError(
            f"stage '{run.path}'",
            f"is not the one this run's config.yaml says: {'; '.join(changed.values())}",
            do="To train it again, remove its folder.",
        )
    return done


def resume(
    path: str | Path,
    *,
    updates: int | None = None,
    reporter: Reporter = SILENT,
    accept_versions: bool = False,
    make_envs: MakeEnvs | None = None,
    watch: Watcher | None = None,
) -> Run:
    """Go on from the newest whole checkpoint, to the bit; `updates` extends (or, before the end, shortens) the run.

    `watch`, as in `train`, is told of the evaluations that are still to come.
    """
    run = RunDir.open(path)
    with run.locked():
        config = run.config
        if run.finished and (updates is None or updates == run.result.get("updates")):
            raise RunError(
                f"run '{path}'", "is finished", do=f"To train on, give more: understudy resume {path} updates=…"
            )
        checkpoint, broken = newest_checkpoint(run.checkpoints)
        for sentence in broken:
            reporter.say(f"passed over: {sentence}")
        if checkpoint is None and broken:
            raise RunError(
                f"run '{path}'",
                "every checkpoint is broken",
                do=f"To start over from the first update, remove {run.checkpoints}.",
            )
        done = 0 if checkpoint is None else checkpoint.updates
        record = _record(run, checkpoint)
        if record is not None:
            record.check_versions(config, reporter.say, accept=accept_versions)
            record.check_settings(config)
        if record is None or updates is None:
            _check_sealed(config, run, record)
        config = _with_updates(config, updates, record, done, reporter)
        history = recall(checkpoint)
        learner = build_learner(config, reporter, make_envs=make_envs, checkpoint=checkpoint)
        with closing(learner):
            run.clear_leftovers()
            if checkpoint is None:
                _inherit(config, run, learner, reporter, make_envs, accept_versions=accept_versions)
            else:
                restore(learner, checkpoint.state, f"checkpoint '{checkpoint.path}'")
                point_latest(run.checkpoints, done)
            run.result_file.unlink(missing_ok=True)  # first, so that a death from here on leaves an unfinished run
            run.write_config(config)
            if not run.meta_file.exists():
                write_json(run.meta_file, run_facts(config, learner))
            reporter.say(f"resuming {path} at update {done:,} of {config.updates:,}")
            if not learner.exact:
                reporter.say("these simulators cannot be put back where they stood: new episodes begin")
            Loop(config, run, learner, done, reporter, make_envs, watch, history).train()
    return Run(run.path)


def run_facts(config: RunConfig, learner: Learner) -> dict[str, Any]:
    """What meta.json holds."""
    told = {**learner.source.describe(), **describe_data(config, learner.data)}
    return {**describe_run(told), **identity(config), "config_sha256": config_digest(config)}


def describe_data(config: RunConfig, data: Mapping[str, LoggedExperience]) -> dict[str, Any]:
    """The datasets of a run, the main one first."""
    told = {}
    for role, experience in data.items():
        path = Path(config.data_by_role[role].path)
        corruption = corruption_facts(store_recipe(path)) if path.name and is_store(path) else {}
        told[role] = {**experience.describe(), **corruption}
    further = {role: facts for role, facts in told.items() if role != MAIN}
    return {**({"dataset": told[MAIN]} if MAIN in told else {}), **({"datasets": further} if further else {})}


def _record(run: RunDir, checkpoint: Checkpoint | None) -> Record | None:
    """What the run was when it was last written down; None if it was killed while its birth was."""
    if checkpoint is not None:
        return _checkpoint_record(checkpoint)
    return Record(f"run '{run.path}'", "meta.json", read_json(run.meta_file)) if run.meta_file.exists() else None


def _checkpoint_record(checkpoint: Checkpoint) -> Record:
    return Record(f"checkpoint '{checkpoint.path}'", "the checkpoint", checkpoint.facts)


def _check_sealed(config: RunConfig, run: RunDir, record: Record | None) -> None:
    """A file that was edited by hand may hold any number of updates; only the seal says which one was agreed."""
    if run.config_file.read_text(encoding="utf-8").startswith(seal_line(config)):
        return
    changed = [] if record is None else record.differences(config).values()
    raise RunError(
        f"run '{run.path}'",
        f"config.yaml was edited by hand: {'; '.join(changed) or 'the seal in its first line does not fit'}",
        do=f"Restore config.yaml; to change updates: understudy resume {run.path} updates={config.updates}",
    )


def _with_updates(
    config: RunConfig, updates: int | None, record: Record | None, done: int, reporter: Reporter
) -> RunConfig:
    planned = config.updates if record is None else record.updates
    if updates is None or updates == planned == config.updates:
        return config
    if updates <= done:
        raise ConfigError("updates", "not beyond what is already done", got=updates, expected=f"more than {done}")
    reporter.say(
        f"updates: {planned:,} → {updates:,}. Schedules (a falling learning rate) follow the new horizon from update "
        f"{done:,} on, so this is not the run that {updates:,} updates from the start would have been."
    )
    return parse_config({**config.model_dump(mode="json"), "updates": updates})


def _text(value: Any) -> str:
    """A Python value as the text a command line would carry; the one parser reads both."""
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except (TypeError, ValueError) as error:  # a number of thousands of digits, or what no YAML file could say
        raise ConfigError("train", f"a setting that cannot be written down ({error})") from error
