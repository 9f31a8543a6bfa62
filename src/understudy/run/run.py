"""A run directory, ready to be asked: its config, result, curves and policies."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from understudy.core.arguments import as_count, as_path, as_truth
from understudy.core.errors import ConfigError, MissingPackageError, RunError
from understudy.nn.deployed import Deployed
from understudy.nn.prediction import predict
from understudy.run.config import MOST_EPISODES, RunConfig
from understudy.run.env_settings import EnvSettings
from understudy.run.environments import MakeEnvs
from understudy.run.evaluate import Evaluator
from understudy.run.evaluation import Evaluation, headline
from understudy.run.given_env import GivenEnvs, given_envs, own_worlds
from understudy.run.policies import load_policy
from understudy.run.progress import Reporter, reporter_for
from understudy.run.rundir import RunDir, State
from understudy.run.video import LONGEST as LONGEST_FILM
from understudy.run.video import Video, check_filmable, film
from understudy.sources import Act

if TYPE_CHECKING:
    from understudy.run.comparison import Picture


class Curve(NamedTuple):
    """One metric: its values [n] and the updates [n] after which they were measured."""

    updates: NDArray[np.int64]
    values: NDArray[np.float64]


@final
class Run:
    """A run directory, ready to be asked. `env`, or `make_envs`: the environment of its owner that it was trained in,
    which no file can hold; `train` and `resume` hand over what they were given."""

    def __init__(
        self, path: Path | str, *, env: object = None, make_envs: MakeEnvs | None = None, teacher: Act | None = None
    ) -> None:
        self._dir = RunDir.open(as_path(path, "run"))
        self.path = self._dir.path
        self.config: RunConfig = self._dir.config
        self.env, self.make_envs, self.teacher = env, make_envs, teacher

    @property
    def finished(self) -> bool:
        return self._dir.finished

    @property
    def state(self) -> State:
        """`finished`, `running` (in another process, or in a callback's eyes), `stopped`, or `killed`."""
        return self._dir.state

    @property
    def result(self) -> dict[str, Any]:
        """What came of it: the last evaluation, `updates`, and for one that did not reach its end why it `stopped`."""
        return self._dir.result

    def evaluations(self) -> list[dict[str, Any]]:
        return self._dir.evaluations()

    def metrics(self) -> list[dict[str, Any]]:
        return self._dir.metrics()

    def __fspath__(self) -> str:
        """Where a path is asked for, a run says its own."""
        return str(self.path)

    def policy(self, checkpoint: str | int = "last") -> Deployed:
        return load_policy(self.path, checkpoint)

    def evaluate(
        self,
        episodes: int | None = None,
        *,
        checkpoint: str | int = "last",
        greedy: bool = True,
        progress: bool = True,
        reporter: Reporter | None = None,
        make_envs: MakeEnvs | None = None,
        env: object = None,
    ) -> Evaluation:
        """Play episodes with a checkpoint's policy, always from the same start states, in the run's environment or in
        another one, `env`: an id, or an environment of your own as `train` takes it."""
        config, make_envs = self._playing_in(env, make_envs)
        if config.env is None:
            raise RunError(
                f"run '{self.path}'",
                "was trained without an environment, so there is nothing to play in",
                do="What held-out episodes say of it stands in eval.jsonl. To play, give an environment: --env ID "
                "(from Python: env='ID').",
            )
        torch.set_num_threads(self.config.threads)
        count = self.config.eval_episodes if episodes is None else as_count(episodes, "episodes")
        if count > MOST_EPISODES:
            raise ConfigError(
                "episodes", "too many to play side by side", got=count, expected=f"at most {MOST_EPISODES}"
            )
        policy = self.policy(checkpoint)
        with reporter_for(progress, reporter).task("evaluating", count, "episodes") as advance:

            def told(done: int, total: int) -> None:
                advance(done, "")

            with closing(Evaluator(config, make_envs)) as evaluator:
                return evaluator.evaluate(policy, count, greedy=greedy, on_step=told)

    def _playing_in(self, env: object, make_envs: MakeEnvs | None) -> tuple[RunConfig, MakeEnvs | None]:
        """The run's config, or that of a run in another environment."""
        if env is None and make_envs is None:
            return self.config, own_worlds(self.env, self.make_envs)
        if env is None:
            return self.config, make_envs
        own = own_worlds(env, make_envs)
        if isinstance(own, GivenEnvs):
            there = EnvSettings(id=own.name, simulator="custom")
        else:
            there = EnvSettings.parse(env if isinstance(env, Mapping) else {"id": given_envs(env)}, "env")
        if self.config.env is not None and there.skills is None:
            there = there.model_copy(update={"skills": self.config.env.skills})
        return self.config.model_copy(update={"env": there}), own

    def video(
        self,
        out: Path | str = "",
        *,
        episodes: int = 1,
        checkpoint: str | int = "last",
        greedy: bool = True,
        fps: int | None = None,
        max_steps: int = LONGEST_FILM,
        env: object = None,
        progress: bool = True,
        reporter: Reporter | None = None,
    ) -> Video:
        """Film the first episodes of an evaluation, as .mp4 or .gif; RUN/videos/<checkpoint>.mp4 if no file is named.

        `env`: another environment than the run's: an id, one made with render_mode="rgb_array", or a class or function
        that makes one. In a notebook the result shows itself.
        """
        torch.set_num_threads(self.config.threads)
        path = Path(out) if str(out) else self._dir.videos / f"{checkpoint}.mp4"
        env = self.env if env is None else env
        if env is None:
            check_filmable(self.config)
        policy = self.policy(checkpoint)
        wishes: dict[str, Any] = {"greedy": greedy, "fps": fps, "max_steps": max_steps, "env": env}
        with reporter_for(progress, reporter).task("filming", episodes, "episodes") as advance:

            def told(done: int, value: float) -> None:
                advance(done, f"return {value:.1f}")

            return film(self.config, policy, path, episodes=episodes, on_episode=told, **wishes)

    def plot(self, metric: str = "", *, out: Path | str = "") -> "Picture":
        """Draw the run as it stands, or one metric of it; the first picture shows itself in a notebook."""
        from understudy.run.comparison import plot  # matplotlib takes its time to be imported

        path = Path(out) if str(out) else self._dir.plots / f"{metric.replace('/', '_')}.png" if metric else ""
        return plot(self.path, metric=metric, out=path)[0]

    def curves(self, *, frame: bool = False) -> Any:
        """Every metric over updates, by name: `Curve(updates, values)`, two arrays that `plt.plot(*curve)` takes.

        `frame=True`: one pandas DataFrame, a row per update and a column per metric, NaN where there is no number.
        """
        points: dict[str, dict[int, float]] = {}
        for line in (*self.metrics(), *self.evaluations()):
            for name, value in line.items():
                if name != "updates" and isinstance(value, (int, float)):
                    points.setdefault(name, {})[line["updates"]] = float(value)
        curves = {
            name: Curve(np.array(list(known), np.int64), np.array(list(known.values()), np.float64))
            for name, known in points.items()
        }
        return _frame(curves) if as_truth(frame, "frame") else curves

    def __repr__(self) -> str:
        result, state = self.result, self.state
        why = f" ({result['stopped']})" if state == "stopped" else ""
        done = f"{self.config.algorithm}, {state}{why}, {result['updates']:,} of {self.config.updates:,} updates"
        return f"Run('{self.path}': {done}, {headline(result)})"

    def predict(
        self,
        obs: ArrayLike | Mapping[str, ArrayLike],
        action_mask: ArrayLike | None = None,
        *,
        checkpoint: str | int = "last",
        greedy: bool = True,
        seed: int = 0,
    ) -> NDArray[Any]:
        """Actions in environment units for one observation or a batch of them."""
        return predict(self.policy(checkpoint), obs, action_mask, greedy=greedy, seed=seed)


def video(run: str | Path | Run, out: Path | str = "", **wishes: Any) -> Video:
    """`Run.video` of a run directory."""
    return (run if isinstance(run, Run) else Run(run)).video(out, **wishes)


def _frame(curves: Mapping[str, Curve]) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingPackageError(
            "curves", f"a DataFrame needs pandas ({error})", do="Run: pip install 'understudy-rl[tables]'"
        ) from error
    columns = {name: pandas.Series(curve.values, index=curve.updates) for name, curve in curves.items()}
    table = pandas.DataFrame(columns)
    table.index.name = "updates"
    return table.sort_index()
