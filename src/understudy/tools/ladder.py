"""A ladder: five datasets of graded quality from the history of one run, by D4RL's protocol.

random          uniform actions
medium-replay   the replay buffer of the run as it was at the medium checkpoint, all of it
medium          the policy about a third of the way from the run's first evaluation, or from chance if that is better,
                to its best evaluation (run.dataset_tiers)
medium-expert   medium and expert, one behind the other
expert          the policy of the best evaluation

Policies are sampled, as D4RL's are. Each level is a store of its own, made once: stopped or killed, the same call goes
on. A run without a replay buffer has its medium-replay played anew by its checkpoints up to the medium one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from pydantic import Field

from understudy.core.arguments import as_path
from understudy.core.drafts import new_folder
from understudy.core.errors import ConfigError, DataError, RunError, did_you_mean
from understudy.core.files import sha256_file, write_json
from understudy.core.rng import derived_seed
from understudy.core.settings import Count, Settings
from understudy.core.wording import counted
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.formats.packed import write_packed
from understudy.data.ladders import CARD, FORMAT, Ladder, LadderFacts
from understudy.data.recording import Recording
from understudy.data.scores import environment_scores, reference
from understudy.data.stores.recorder import record, settle
from understudy.data.stores.store import is_store, open_store, store_recipe
from understudy.run.config import load_config
from understudy.run.dataset_tiers import level_checkpoints, medium_checkpoint
from understudy.run.packaged import config_names
from understudy.run.progress import SILENT, Reporter, reporter_for
from understudy.run.replay_data import keeps_replay, replay_recording
from understudy.run.rundir import RunDir
from understudy.run.session import resume, train
from understudy.tools.collect import collect
from understudy.tools.dataset.plots import draw_levels

ALGORITHM = "sac"
"""Whose configs `understudy collect ladder NAME` trains by."""
PICTURE = "returns.png"
CHANCE_EPISODES = 20
KEEPING = 1000
"""Checkpoints that a run keeps whose levels are wanted."""


class Wishes(Settings):
    """What a ladder is to be like."""

    steps: int = Field(1_000_000, ge=1)
    """Steps of random, medium and expert each."""
    replay_steps: int | None = Field(None, ge=1)
    """About so many steps of the replay buffer, in episodes taken evenly from all of it; none: all."""
    seed: int = Field(0, ge=0)
    """Everything random grows from it."""
    num_envs: Count = 8
    """Environments that step together."""
    reference: str = ""
    """The scale of scores: a known id such as hopper-medium-v2. Empty: the run's own, or its environment's."""


def collect_ladder(
    run: str | Path,
    out: str | Path | None = None,
    *,
    steps: int = 1_000_000,
    replay_steps: int | None = None,
    seed: int = 0,
    num_envs: int = 8,
    reference: str = "",
    progress: bool = False,
    reporter: Reporter | None = None,
) -> Ladder:
    """Five datasets of graded quality from one run's history, as D4RL makes them: `out/random`, `medium-replay`,
    `medium`, `medium-expert`, `expert`; `ladders/<environment>` unless another `out` is given.

    The run must have kept a checkpoint at its evaluations. `steps` are those of random, medium and expert each;
    medium-replay is the whole replay buffer, or about `replay_steps` of it, in episodes taken evenly. Stopped or
    killed, the same call goes on; what is finished is not made again.
    """
    wishes = Wishes(steps=steps, replay_steps=replay_steps, seed=seed, num_envs=num_envs, reference=reference)
    history = History.of(as_path(run, "run"))
    place = ladder_folder(history.env) if out is None else as_path(out, "out")
    return Making(history, place, wishes, reporter_for(progress, reporter)).ladder()


def ladder_folder(env: str) -> Path:
    """Where the ladder of an environment goes: Hopper-v5 → ladders/hopper."""
    return Path("ladders", env.rpartition("/")[2].rpartition("-v")[0].lower() or "own")


def trained_run(name: str, overrides: list[str], reporter: Reporter = SILENT) -> Path:
    """The run of `sac/<name>`, in its usual place: as it lies there, gone on with, or trained now."""
    known = {config.partition("/")[2]: config for config in config_names() if config.startswith(f"{ALGORITHM}/")}
    if name not in known:
        raise ConfigError(f"run '{name}'", "no such directory, and no task of its own", do=did_you_mean(name, known))
    config = load_config(known[name], overrides)
    if config.eval_every:
        config = config.model_copy(update={"save_every": config.eval_every, "keep_checkpoints": KEEPING})
    run = RunDir(config.out)
    if not run.config_file.exists():
        reporter.say(f"{run.path}: {ALGORITHM}/{name} is trained first")
        return train(config, reporter=reporter).path
    wanted, there = (one.model_dump(mode="json") for one in (config, run.config))
    for word in overrides:
        key = word.partition("=")[0].replace("env_steps", "updates")  # which a config says in the place of both
        if key != "out" and _at(wanted, key) != _at(there, key):
            raise RunError(f"run '{run.path}'", f"was trained with other settings than {word}", do="Say out=… as well.")
    return run.path if run.finished else resume(run.path, reporter=reporter).path


def _at(settings: Any, key: str) -> Any:
    """The value of a dotted key; None where there is none."""
    for part in key.split("."):
        settings = settings.get(part) if isinstance(settings, Mapping) else None
    return settings


@final
@dataclass(frozen=True)
class History:
    """What levels are made from."""

    run: RunDir
    env: str
    medium: int
    """Updates of the checkpoint."""
    expert: int
    replay: bool
    """The medium checkpoint holds a replay buffer."""

    @classmethod
    def of(cls, path: Path) -> "History":
        """Everything is looked up before a level is played; a few episodes tell what chance earns."""
        run = RunDir.open(path)
        config = run.config
        if config.env is None or config.env.simulator == "custom":
            raise RunError(f"run '{path}'", "has no environment that can be made by its id, and nobody to play in it")
        (expert,) = level_checkpoints(path, "expert")
        world = config.env.model_dump(include={"id", "simulator", "settings"})
        chance = collect(world, "random", episodes=CHANCE_EPISODES)
        medium = medium_checkpoint(run, float(chance.returns().mean()))
        return cls(run, config.env.id, medium, expert, keeps_replay(path, medium))

    def told(self) -> str:
        config = self.run.config
        return (
            f"{config.algorithm} on {self.env}, seed {config.seed}; medium: update {self.medium:,}, "
            f"expert: update {self.expert:,}"
        )


@final
@dataclass(frozen=True)
class Making:
    """A ladder on its way."""

    history: History
    out: Path
    wishes: Wishes
    reporter: Reporter

    def ladder(self) -> Ladder:
        """Every level that is not there yet, the card and the picture."""
        scale = self._scale()
        levels = {name: (make(), told) for name, (make, told) in self._levels().items()}
        facts = {name: level_facts(dataset, told) for name, (dataset, told) in levels.items()}
        card = {"format": FORMAT, "env": self.history.env, "reference": scale, "origin": self.history.told()}
        write_json(self.out / CARD, LadderFacts.parse({**card, "levels": facts}, CARD).model_dump(mode="json"))
        ladder = Ladder(self.out, str(self.out))
        returns = {name: levels[name][0].returns() for name in ladder.levels}
        draw_levels(returns, self.out / PICTURE, f"{self.history.env}: returns of every level")
        return ladder

    def _levels(self) -> dict[str, tuple[Callable[[], Dataset], str]]:
        """How each level is made, and by whom it is said to be. The joined one needs those before it."""
        medium, expert = self.history.medium, self.history.expert
        return {
            "random": (lambda: self._played("random", "random"), "uniform actions"),
            "medium-replay": self._replayed(),
            "medium": (lambda: self._played("medium", self._policy(medium)), f"policy of update {medium:,}, sampled"),
            "expert": (lambda: self._played("expert", self._policy(expert)), f"policy of update {expert:,}, sampled"),
            "medium-expert": (self._joined, "medium, then expert"),
        }

    def _policy(self, checkpoint: int | str) -> str:
        return f"{self.history.run.path.resolve()}@{checkpoint}"

    def _played(self, level: str, policy: str) -> Dataset:
        world = self.history.run.config.world
        if not is_store(self.out / level):
            self.reporter.say(f"{self.out / level}: played by {policy}")
        return collect(
            world.model_dump(include={"id", "simulator", "settings"}),
            policy,
            self.out / level,
            steps=self.wishes.steps,
            seed=derived_seed(self.wishes.seed, "ladder", level),
            num_envs=self.wishes.num_envs,
            greedy=False,
            reporter=self.reporter,
        )

    def _replayed(self) -> tuple[Callable[[], Dataset], str]:
        level, medium, few = "medium-replay", self.history.medium, self.wishes.replay_steps
        if not self.history.replay:
            told = f"checkpoints up to update {medium:,} in equal parts, sampled"
            return lambda: self._played(level, self._policy(level)), told
        facts = {"level": level, "run": str(self.history.run.path.resolve()), "updates": medium}
        facts |= {} if few is None else {"steps": few}

        def recording() -> Recording:
            whole = replay_recording(self.history.run.path, medium)
            return whole if few is None else thinned(whole, few)

        part = "" if few is None else f", about {counted(few, 'step')} in episodes taken evenly"
        return lambda: self._recorded(level, facts, recording), f"replay buffer at update {medium:,}{part}"

    def _joined(self) -> Dataset:
        parts = [open_store(self.out / level) for level in ("medium", "expert")]
        facts = {"level": "medium-expert", "parts": [part.fingerprint for part in parts]}
        return self._recorded("medium-expert", facts, lambda: joined(parts))

    def _recorded(self, level: str, facts: Mapping[str, Any], recording: Callable[[], Recording]) -> Dataset:
        """A level that is copied; one that is there already must be the same."""
        path = self.out / level
        settle(path)
        recipe = {"kind": "ladder", "env": self.history.env, **facts}
        if not is_store(path):
            source = recording()
            assert source.space is not None
            with self.reporter.task(f"writing {path}", source.steps, "steps") as advance:
                record(source, path, source.space, recipe=recipe, on_steps=lambda steps: advance(steps, ""))
        elif store_recipe(path) != recipe:
            what = "already exists, and was made from something else"
            raise DataError(str(path), what, do="Choose another folder (--out) or remove it first.")
        return open_store(path)

    def _scale(self) -> str | list[float]:
        """Of scores; a word that names none is refused before anything is played."""
        told = self.wishes.reference or self.history.run.config.world.reference or ""
        if not told and self.history.env in environment_scores():
            told = self.history.env
        if isinstance(told, str) and told:
            reference(told)
        return told if isinstance(told, str) else list(told)


def level_facts(dataset: Dataset, made_by: str) -> dict[str, Any]:
    """What a ladder's card says of a level."""
    returns = dataset.returns()
    return {
        "steps": dataset.steps,
        "episodes": dataset.episodes,
        "return_mean": float(np.mean(returns)),
        "return_std": float(np.std(returns)),
        "fingerprint": dataset.fingerprint,
        "made_by": made_by,
    }


def thinned(recording: Recording, steps: int) -> Recording:
    """About so many steps, in whole episodes taken evenly from all of it, whatever their length."""
    share = min(1.0, steps / max(1, recording.steps))

    def play() -> Iterator[Episode]:
        for number, episode in enumerate(recording.episodes()):
            if int((number + 1) * share) > int(number * share):
                yield episode

    return replace(recording, play=play, steps=sum(map(len, play())))


def joined(parts: list[Dataset]) -> Recording:
    """Episodes of all of them, one behind the other."""

    def play() -> Iterator[Episode]:
        for part in parts:
            yield from part.recording().episodes()

    whole = parts[0].recording()
    return replace(whole, play=play, steps=sum(part.steps for part in parts))


def check_free(target: Path) -> None:
    """Nothing lies where a packed ladder is to go."""
    if target.exists():
        raise DataError(str(target), "already exists", do="Choose another name or remove it first.")


def pack_ladder(ladder: Ladder, target: Path) -> Ladder:
    """The same ladder in small files, to be carried about: each level packed, the joined one told by its parts."""
    check_free(target)
    alone = [name for name in ladder.levels if name != "medium-expert"]
    facts = ladder.facts.model_dump(mode="json")
    with new_folder(target) as draft:
        for name in alone:
            write_packed(open_store(ladder.path / name), draft / f"{name}.npz")
        parts = {name: [{"file": f"{name}.npz", "sha256": sha256_file(draft / f"{name}.npz")}] for name in alone}
        parts["medium-expert"] = [*parts["medium"], *parts["expert"]]
        levels = {name: {**level, "parts": parts[name]} for name, level in facts["levels"].items()}
        write_json(draft / CARD, {**facts, "levels": levels})
    return Ladder(target, str(target))
