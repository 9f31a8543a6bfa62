"""Train and resume: what the command line and `import understudy` both call."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, final

from understudy.core.arguments import as_count, as_path, as_truth
from understudy.core.errors import ConfigError, RunError
from understudy.core.files import discard, read_json, write_json
from understudy.core.lock import is_locked
from understudy.core.spec import ActionSpace
from understudy.core.state import restore
from understudy.core.stopping import StoppedError
from understudy.data.formats.column_map import ColumnMap
from understudy.run.agreed import check_sealed, checkpoint_record, record_of, run_facts, with_updates
from understudy.run.build import build_learner, settled_data
from understudy.run.callbacks import Callbacks
from understudy.run.checkpoint import MANIFEST, newest_checkpoint, point_latest
from understudy.run.compiler import settle_compile
from understudy.run.config import ConfigLike, RunConfig, load_config
from understudy.run.crew import ALONE, Crew, crew_of_process
from understudy.run.environments import MakeEnvs, spec_of
from understudy.run.evaluation import headline
from understudy.run.following import follow, follows
from understudy.run.given_data import data_words, found_again, is_held, keep_data
from understudy.run.given_env import GivenEnvs, env_words, in_given_envs, own_worlds, worlds_of
from understudy.run.given_teacher import own_teacher, teacher_of, with_teacher
from understudy.run.handed_networks import POLICY
from understudy.run.history import recall
from understudy.run.identity import NoWayOnError, code_digests
from understudy.run.learner import Learner
from understudy.run.loading import Prepared
from understudy.run.loop import NOBODY, InterruptedRunError, Loop
from understudy.run.overrides import override_words
from understudy.run.parts import updates_within
from understudy.run.policies import find_checkpoint
from understudy.run.preflight import preflight, shared_data, stage_runs
from understudy.run.progress import Reporter, reporter_for
from understudy.run.run import Run
from understudy.run.rundir import RunDir
from understudy.run.sinks import Logger, check_loggers
from understudy.run.warm_start import compare_rewards, take_over
from understudy.run.yaml_text import read_yaml
from understudy.sources import Act


@final
@dataclass(frozen=True)
class Surroundings:
    """What a run is given beside its config: none of it decides a number, but for simulator and teacher."""

    reporter: Reporter
    make_envs: MakeEnvs | None = None
    teacher: Act | None = None
    callbacks: Callbacks = NOBODY
    loggers: tuple[Logger, ...] = ()
    crew: Crew = ALONE

    def of_a_stage(self) -> "Surroundings":
        """Its updates are counted from the start again: nobody hears of them."""
        return replace(self, callbacks=NOBODY, loggers=())


def train(
    config: ConfigLike,
    *,
    data: object = None,
    columns: ColumnMap = "",
    env: object = None,
    teacher: object = None,
    callbacks: Iterable[object] = (),
    loggers: Sequence[Logger] = (),
    progress: bool = True,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    make_envs: MakeEnvs | None = None,
    **settings: Any,
) -> Run:
    """Train from a config's name, a YAML file, a dict or a RunConfig: `train("iql", algo={"beta": 1}, seed=1)`.

    `data` is a path, or experience in memory: a Dataset, a DataFrame, a dict of arrays or a list of episodes, which the
    run keeps in its directory; `columns` tells what a table's columns are: `obs=temp,humidity,action=valve,reward=r`,
    or a dict. `env` is a registered id, or an environment of your own: a gymnasium.Env, a class or a function that
    makes one, or a vector of them; a run of such a one is resumed with it. `teacher` labels what a student meets
    (DAgger): a function of observations [N, …] that gives actions [N, …], a `Run`, or its path.

    `callbacks` are called at logs, evaluations, checkpoints and the end (`Callback`); True from one at an evaluation
    ends the run, saved. `loggers` get every number (`Logger`). `progress=False` is quiet. A run takes the next free
    number where the default place is taken; `overwrite=True` replaces the run that lies there. `make_envs` makes
    environments of your own, as many as it is asked for: `make_envs(count)`.
    """
    overwrite, worlds = as_truth(overwrite, "overwrite"), own_worlds(env, make_envs)
    if follows():
        return follow(worlds).of_python(env, make_envs)
    heard = Callbacks(callbacks), check_loggers(loggers)
    around = Surroundings(reporter_for(progress, reporter), worlds, own_teacher(teacher), *heard)
    settings = {**({"data.columns": columns} if columns else {}), **settings}
    settings = with_teacher(settings, teacher, config)
    resolved = resolve_given(config, data, env, worlds, settings)
    if isinstance(worlds, GivenEnvs):
        resolved = in_given_envs(resolved, worlds)
    if not overwrite and not names_place(config, settings):
        resolved = in_free_place(resolved, around.reporter.say)
    with crew_of_process() as crew:
        done = begin(resolved, replace(around, crew=crew), overwrite=overwrite, held=data if is_held(data) else None)
        crew.run = str(done.path)
    return Run(done.path, env=None if worlds is None else env, make_envs=make_envs, teacher=around.teacher)


def resolve_given(
    config: ConfigLike, data: object, env: object, worlds: MakeEnvs | None, settings: Mapping[str, Any]
) -> RunConfig:
    """The config of a run that is handed data, or environments (`worlds`), as objects."""
    words = {**data_words(data), **env_words(env, worlds), **settings}
    return resolve_config(config, words, own_envs=worlds is not None)


def resolve_config(config: ConfigLike, settings: Mapping[str, Any], *, own_envs: bool = False) -> RunConfig:
    """The config that is meant, complete and with a place of its own. `own_envs`: the caller makes environments."""
    if isinstance(config, RunConfig):
        config = _of_own(config, own_envs)
        if config.out and not settings:
            return config
    return _of_own(load_config(config, override_words(settings), own_envs=own_envs), own_envs)


def _of_own(config: RunConfig, own_envs: bool) -> RunConfig:
    """The simulator is the caller's own where environments are given, unless the config says something else."""
    if not own_envs or config.env is None or config.env.simulator == "custom":
        return config
    if "simulator" in config.env.model_fields_set:
        raise ConfigError("env.simulator", "make_envs was given", got=config.env.simulator, expected="custom")
    return config.model_copy(update={"env": config.env.model_copy(update={"simulator": "custom"})})


def names_place(config: ConfigLike, settings: Iterable[str]) -> bool:
    """Somebody said where the run shall lie."""
    if "out" in settings:
        return True
    if isinstance(config, (RunConfig, Mapping)):
        return bool(config.out if isinstance(config, RunConfig) else config.get("out"))
    return str(config).endswith((".yaml", ".yml")) and bool(read_yaml(Path(config)).get("out"))


def in_free_place(config: RunConfig, say: Callable[[str], None]) -> RunConfig:
    """The same, beside the runs that lie in its default place already: runs/iql/pendulum/0-2."""
    place = Path(config.out)
    if not _is_taken(place):
        return config
    free = next(numbered for number in count(2) if not _is_taken(numbered := place.with_name(f"{place.name}-{number}")))
    there = RunDir(place)
    told = there.state if there.config_file.exists() else "taken"
    way = f" (go on with it: understudy resume {place})" if told in ("stopped", "killed") else ""
    say(f"{place} is {told}{way}; this run goes to {free}")
    return config.model_copy(update={"out": str(free)})


def _is_taken(place: Path) -> bool:
    try:
        RunDir(place).check_free()
    except RunError:
        return True
    return is_locked(place)


def begin(
    config: RunConfig,
    around: Surroundings,
    ready: Mapping[str, Prepared] | None = None,
    *,
    overwrite: bool = False,
    held: Any = None,
) -> Run:
    """A run from its birth to its end. `ready`: datasets by role that are in memory already; `held`: what was handed
    over to be learned from, which the run keeps.

    What is overwritten is removed only when nothing was found wrong.
    """
    run = RunDir(config.out)
    run.check_free(overwrite=overwrite, keeps_data=held is not None)
    with run.locked(), ExitStack() as undo:
        run.check_free(overwrite=overwrite, keeps_data=held is not None)
        code_digests(config)  # as they are now: data may take long to collect, and files change
        if held is not None:
            config = keep_data(config, run, held, _action_space(config, around.make_envs), around.reporter)
            if (kept := Path(config.logged.path)).parent == run.path:
                undo.callback(discard, kept)
        config = settle_compile(settled_data(config), around.reporter.say, around.crew.share.size)
        config, learner = preflight(
            config, around.reporter, ready or {}, around.make_envs, around.teacher, around.crew.share
        )
        with closing(learner):
            if overwrite:
                run.clear(keep=() if held is None else (Path(config.logged.path).name,))
            run.clear_leftovers()
            run.create(config, run_facts(config, learner))
            undo.pop_all()
            with _forgotten_if_unbegun(run):
                _inherit(config, run, learner, around, accept_versions=False)
                loop = Loop(
                    config,
                    run,
                    learner,
                    0,
                    around.reporter,
                    around.make_envs,
                    around.callbacks,
                    around.loggers,
                    crew=around.crew,
                )
                loop.train()
    return Run(run.path)


@contextmanager
def _forgotten_if_unbegun(run: RunDir) -> Iterator[None]:
    """A run that is stopped before anything of it was saved leaves nothing behind."""
    try:
        yield
    except (InterruptedRunError, StoppedError, KeyboardInterrupt) as error:
        if any(run.path.rglob(MANIFEST)):
            raise
        run.clear()
        if isinstance(error, InterruptedRunError):
            raise error.unbegun() from None
        raise


def _action_space(config: RunConfig, make_envs: MakeEnvs | None) -> ActionSpace | None:
    """Of the run's environment; None where it has none."""
    if config.env is None:
        return None
    if config.env.simulator == "custom":
        return make_envs.spec.action if isinstance(make_envs, GivenEnvs) else None
    return spec_of(config.env.model_copy(update={"tracking": None})).action


def _inherit(config: RunConfig, run: RunDir, learner: Learner, around: Surroundings, *, accept_versions: bool) -> None:
    """Give a run that has not begun the policy it starts from, after the stages that come first."""
    origin, fingerprint, reporter = config.init_from, config.init_fingerprint, around.reporter
    for number, stage in enumerate(stage_runs(config, run.path), 1):
        reporter.say(f"stage {number} of {len(config.stages) + 1}: {stage.algorithm}, {stage.updates:,} updates")
        ready = shared_data(learner, stage, config)
        try:
            done = _finish(stage, around.of_a_stage(), ready, accept_versions=accept_versions)
        except InterruptedRunError as error:
            raise error.of(run.path) from None
        reporter.say(f"stage {number} ended: {headline(done.result)}")
        origin, fingerprint = str(done.path), ""
    if origin:
        reports = take_over(learner.algorithm, config, origin, fingerprint, reporter)
        told = {role: [report.facts() for report in some] for role, some in reports.items()}
        write_json(run.meta_file, {**read_json(run.meta_file), "taken_over": told})
        if tuple(reports) != (POLICY,):
            compare_rewards(run, RunDir(origin), reporter)


def _finish(stage: RunConfig, around: Surroundings, ready: Mapping[str, Prepared], *, accept_versions: bool) -> Run:
    """A stage that has ended, whatever it takes, and as the run that it is a stage of says."""
    run = RunDir(stage.out)
    if not run.config_file.exists():
        return begin(stage, around, ready)
    if not run.finished:
        go_on(run, around, accept_versions=accept_versions)
    done = Run(run.path)
    fingerprint = stage.init_fingerprint or done.config.init_fingerprint  # of the stage before, which had yet to end
    planned = stage.model_copy(update={"init_fingerprint": fingerprint})
    if changed := checkpoint_record(find_checkpoint(run, "last")).differences(planned):
        raise RunError(
            f"stage '{run.path}'",
            f"is not the one this run's config.yaml says: {'; '.join(changed.values())}",
            do="To train it again, remove its folder.",
        )
    return done


def resume(
    path: str | Path | Run,
    *,
    updates: int | None = None,
    env_steps: int | None = None,
    callbacks: Iterable[object] = (),
    loggers: Sequence[Logger] = (),
    progress: bool = True,
    reporter: Reporter | None = None,
    accept_versions: bool = False,
    env: object = None,
    make_envs: MakeEnvs | None = None,
    teacher: object = None,
) -> Run:
    """Go on from the newest whole checkpoint, to the bit; `updates` extends (or, before the end, shortens) the run.

    `env_steps` says the same in environment steps from the start, where the policy plays while it learns.
    An `env` or a `teacher` of your own is handed over again, or comes with the `Run` that `train` gave. `callbacks` and
    `loggers`, as in `train`, hear of what is still to come.
    """
    run = RunDir.open(as_path(path, "resume"))
    if follows():
        return follow(worlds_of(run.config, env, make_envs)).of_python(env, make_envs)
    if updates is not None and env_steps is not None:
        raise ConfigError("env_steps", "is another word for updates", do="Give one of the two.")
    updates = None if updates is None else as_count(updates, "updates")
    if env_steps is not None:
        config = run.config
        updates = updates_within(as_count(env_steps, "env_steps"), config.source_needs, config.source_kind)
    if isinstance(path, Run) and env is None and make_envs is None:
        env, make_envs = path.env, path.make_envs
    if isinstance(path, Run) and teacher is None:
        teacher = path.teacher
    worlds, act = worlds_of(run.config, env, make_envs), teacher_of(run.config, teacher)
    around = Surroundings(reporter_for(progress, reporter), worlds, act, Callbacks(callbacks), check_loggers(loggers))
    with crew_of_process() as crew:
        done = go_on(run, replace(around, crew=crew), updates=updates, accept_versions=accept_versions)
        crew.run = str(done.path)
    return Run(done.path, env=None if worlds is None else env, make_envs=make_envs, teacher=act)


def go_on(run: RunDir, around: Surroundings, *, updates: int | None = None, accept_versions: bool = False) -> Run:
    """A run from where it stopped to its end."""
    reporter, path = around.reporter, run.path
    with run.locked():
        config = found_again(run.config, run)
        if run.finished and (updates is None or updates == run.result.get("updates")):
            raise RunError(
                f"run '{path}'", "is finished", do=f"To train on, give more: understudy resume {path} updates=…"
            )
        if run.finished and "stopped_early" in run.result:
            raise RunError(
                f"run '{path}'",
                f"ended early: {run.result['stopped_early']}",
                do=f"Start a new run with a larger patience, or from its policy: init_from={path}.",
            )
        checkpoint, broken = newest_checkpoint(run.checkpoints)
        for sentence in broken:
            reporter.say(f"passed over: {sentence}")
        if checkpoint is None and broken:
            raise NoWayOnError(
                f"run '{path}'",
                "every checkpoint is broken",
                do=f"To start over from the first update, remove {run.checkpoints}.",
            )
        done = 0 if checkpoint is None else checkpoint.updates
        record = record_of(run, checkpoint)
        if record is not None:
            record.check_versions(config, reporter.say, accept=accept_versions)
            record.check_settings(config)
        if record is None or updates is None:
            check_sealed(config, run, record)
        config = with_updates(config, updates, record, done, reporter)
        history = recall(checkpoint)
        learner = build_learner(
            config,
            reporter,
            make_envs=around.make_envs,
            checkpoint=checkpoint,
            teacher=around.teacher,
            share=around.crew.share,
        )
        with closing(learner):
            run.clear_leftovers()
            if checkpoint is None:
                _inherit(config, run, learner, around, accept_versions=accept_versions)
            else:
                restore(learner, checkpoint.state, f"checkpoint '{checkpoint.path}'")
                point_latest(run.checkpoints, done)
            run.result_file.unlink(missing_ok=True)  # first, so that a death from here on leaves an unfinished run
            run.stop_file.unlink(missing_ok=True)
            run.write_config(config)
            if not run.meta_file.exists():
                write_json(run.meta_file, run_facts(config, learner))
            reporter.say(f"resuming {path} at update {done:,} of {config.updates:,}")
            if not learner.exact:
                reporter.say("these simulators cannot be put back where they stood: new episodes begin")
            heard = (around.callbacks, around.loggers)
            Loop(config, run, learner, done, reporter, around.make_envs, *heard, history, around.crew).train()
    return Run(path)
