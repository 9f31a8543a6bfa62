"""Interactive imitation (DAgger): a student plays, a teacher says at every step what it would have done.

    round i    each environment is the teacher's with probability βᵢ, else the student's, until its episode or the
               round ends
    labels     a* = teacher(s) of every state that was visited, whoever acted there
    aggregate  D ← D ∪ {(s, a*)}
    learning   `updates_per_round` batches of D; with bc: L(π) = mean −log π(a*|s)

Ross, Gordon and Bagnell 2011 (arXiv:1011.0686). Cloning alone sees only states that the teacher meets: a student that
errs with ε meets others, and its cost grows as ε·T². Labels where the student goes make it ε·T.

Differs from the paper in: who acts is drawn where a round or an episode begins, not for every step, so that a driver
gets somewhere; the student goes on learning from where it stands and is not trained anew after each round; the last
student is evaluated, and the best one kept. Episodes outlast rounds, and a driver does not: βᵢ is the share of round i
whatever the episodes' length. Demonstrations, if there are any, are round 0, learned from before the first step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Generic, Literal, Self, final

import torch
from pydantic import Field, model_validator
from torch import Tensor

from understudy.core.batch import Obs, Sequences, Transitions
from understudy.core.errors import ConfigError, UnderstudyError
from understudy.core.machine_memory import check_room
from understudy.core.protocols import MAIN, Carry, EnvRequest, Metrics, Policy, SourceNeeds
from understudy.core.rng import derived_seed, stream
from understudy.core.schedule import ScheduledShare
from understudy.core.settings import Count, Settings
from understudy.core.spec import Box
from understudy.core.state import Static
from understudy.data.replay_ring import ReplayRing, row_flags
from understudy.envs.vector.contract import Resumable, Step, VectorEnv, resumes_exactly
from understudy.envs.vector.step_timeout import STEP_TIMEOUT
from understudy.sources import SourceInputs
from understudy.sources.labelling.aggregate import (
    EXECUTED_ACTION,
    ROUND,
    TEACHER_ACTED,
    Aggregate,
    Batch,
    Gathering,
    row_facts,
)
from understudy.sources.labelling.gathering import single_steps, stretches
from understudy.sources.labelling.teachers import TEACHER, Labels, check_teacher, function_teacher, scripted_teacher
from understudy.sources.playing.episode_log import EpisodeLog
from understudy.sources.playing.memories import fresh_memory, renewed_memory, wide
from understudy.sources.sampling.blocks import batches_at_once

YIELDS = (Transitions, Sequences)
INTERVALS = {"updates": 10_000, "log_every": 500, "eval_every": 1000, "save_every": 1000}
STEPS_UNASKED = 64
"""Steps of a round between two looks at signals."""
STREAMS = ("explore", "teacher", "drive", "labels")
"""Who draws: the student, a teacher that samples, who drives, and noise on labels."""


class BetaSchedule(ScheduledShare):
    """β over rounds. A number is constant."""

    after: int = Field(0, ge=0)
    """Rounds before it begins to change."""
    over: int = Field(4, ge=1)
    """Rounds from start to end."""


class Config(Settings):
    """Rounds of play that a teacher labels."""

    kind: Literal["interactive"] = "interactive"
    """`interactive`: the student plays, a teacher labels every state, and batches are of all rounds (DAgger)."""
    teacher: Literal["policy", "scripted", "callable"] = "policy"
    """Who labels: a frozen policy (policies.teacher.path), the environment's scripted controller, or a function that is
    handed over in Python: train(…, teacher=f)."""
    controller: str = ""
    """Of a scripted teacher: the id of the environment whose controller it is, if that is not the run's."""
    num_envs: Count = 8
    """Environments that step together."""
    workers: int = Field(1, ge=1, le=256)
    """Processes that share the environments; any number gives the same run."""
    round_length: int = Field(100, ge=1)
    """Steps of each environment in a round; episodes go on from one round to the next, who drives is drawn anew."""
    updates_per_round: int = Field(500, ge=1)
    """Updates after each round."""
    beta: BetaSchedule = BetaSchedule(kind="linear", start=1.0, end=0.0)
    """Chance that the teacher drives, drawn for each environment where a round or an episode begins: a number, or
    {start, end, over}, counted in rounds."""
    batch_size: int = Field(256, ge=1)
    """Rows per gradient step; for policies with a memory, stretches of rows."""
    length: int = Field(32, ge=1)
    """Steps of each stretch, for policies with a memory."""
    keep_rounds: int = Field(0, ge=0)
    """Own rounds that are learned from, the latest; 0: all of them. Demonstrations always stay."""
    buffer_size: int = Field(1_000_000, ge=1)
    """Labelled steps that are kept, the newest; more than a quarter of the memory lie in a file."""
    demonstrations: bool = False
    """The run's dataset is round 0: learned from before the first step, and beside own rounds."""
    labels: Literal["mean", "sample"] = "mean"
    """What a policy says as teacher: its mean (its likeliest choice), or a draw."""
    label_noise: float = Field(0.0, ge=0)
    """σ of Gaussian noise on labels, in policy space: halves of the action range."""
    student: Literal["mean", "sample"] = "mean"
    """What the student does where it drives: its mean, or a draw."""
    exploration_noise: float = Field(0.0, ge=0)
    """σ of Gaussian noise on what the student does, in halves of the action range; labels stay as they are."""
    stagger_episodes: bool = False
    """Cut every first episode to a random length, so that time limits do not strike all environments at once."""
    step_timeout: float = Field(STEP_TIMEOUT, gt=0, le=1e6)
    """Seconds after which an environment that does not answer is an error."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.workers > self.num_envs:
            raise ValueError(f"workers: {self.workers} for {self.num_envs} environments: at most one for each")
        if self.controller and self.teacher != "scripted":
            raise ValueError(f"controller is of a scripted teacher, and teacher is {self.teacher}")
        if self.labels == "sample" and self.teacher != "policy":
            raise ValueError(f"labels=sample: only a policy draws, and teacher is {self.teacher}")
        if self.keep_rounds * self.round_rows > self.buffer_size:
            needed = f"{self.keep_rounds} rounds of {self.round_rows:,} rows"
            raise ValueError(f"buffer_size has no room for {needed}: got {self.buffer_size:,}")
        return self

    @property
    def round_rows(self) -> int:
        return self.num_envs * self.round_length


@final
@dataclass
class InteractiveSource(Generic[Batch]):
    """Plays a round, learns from all of them, plays the next.

    Teacher and student both see every step and remember it, whoever drives. Where the simulators can tell where they
    stand, a resumed run goes on to the bit. Others begin new episodes: then, and after an environment failed, a barrier
    in the aggregate keeps what was from what comes.
    """

    config: Static[Config]
    envs: Static[VectorEnv]
    teacher: Static[Policy]
    labels: Static[Labels]
    seed: Static[int]
    at_once: Static[int]
    """Batches that are gathered together."""
    aggregate: Aggregate[Batch]
    obs: Obs
    """What is seen next [N, …]."""
    carry: Carry
    """What the student remembers."""
    teacher_carry: Carry
    streams: dict[str, torch.Generator]
    driven: Tensor
    """Which environments the teacher drives [N]."""
    env_state: dict[str, Tensor]
    """Where the simulators stand, known whenever somebody asks; empty if they cannot tell."""
    log: EpisodeLog
    rounds: int = 0
    """Own rounds that were begun."""
    round_step: int = 0
    """Steps of the round that is being played; 0 where none is."""
    round_labels: int = 0
    """Labels of it: a round that has none yet goes on."""
    round_driven: int = 0
    """Those of them where the teacher acted."""
    driven_share: float = 0.0
    """The share of the last whole round in which the teacher acted."""
    drawn: int = 0
    """Batches given so far."""
    steps: int = 0
    """Steps of all environments together, also those that only started an episode."""
    env_steps: int = 0
    """Steps in which something happened: labels that were asked for and kept."""
    cut: bool = False
    """The environments failed, or were lost: new episodes begin before the next step."""
    envs_at: Static[tuple[int, Tensor]] = (-1, torch.empty(0))
    """The number of steps and the random state with which the environments stand where they stand."""
    gathered: Static[tuple[tuple[int, int], list[Batch]]] = ((-1, -1), [])
    """The batches of the block of this round and number; gathered again whenever another one is due."""

    def next(self, policy: Policy) -> Batch | None:
        """A batch, or None while a round is played."""
        for _ in range(STEPS_UNASKED):
            if self.drawn < self._allowed:
                return self._batch()
            self._play(policy)
        return None

    @property
    def _allowed(self) -> int:
        """Updates that the whole rounds so far allow, demonstrations among them."""
        whole = self.rounds - (self.round_step > 0) + self.config.demonstrations
        return whole * self.config.updates_per_round

    def _batch(self) -> Batch:
        passed, place = divmod(self.drawn, self.config.updates_per_round)
        number = passed + (not self.config.demonstrations)
        at_once = min(self.at_once, self.config.updates_per_round) if passed else self.at_once
        block, inside = divmod(place, at_once)
        if self.gathered[0] != (number, block):
            rng = stream(self.seed, f"sample/{passed}/{block}" if passed else f"sample/{block}")
            self.gathered = ((number, block), self.aggregate.batches(number, at_once, rng))
        self.drawn += 1
        return self.gathered[1][inside]

    @torch.no_grad()
    def _play(self, policy: Policy) -> None:
        """One step of every environment. Whatever fails in it, nothing of it is left in what a checkpoint holds."""
        drew = {name: rng.get_state() for name, rng in self.streams.items()}
        try:
            if not self._in_place():
                self._follow(policy)
            said, teacher_carry = self.teacher.act(
                self.obs, self.teacher_carry, greedy=self.config.labels == "mean", rng=self.streams["teacher"]
            )
            label = self.labels.checked(said, self.obs)
            action, carry = self._act(policy, label)
            step = self.envs.step(action).cpu()
        except BaseException as error:
            for name, rng in self.streams.items():
                rng.set_state(drew[name])
            self.cut = True
            self._displace()
            if isinstance(error, UnderstudyError):
                error.nothing_learned = True
            raise
        self._keep(label, action, step)
        begins = step.terminated | step.truncated | ~step.valid
        self.carry = renewed_memory(policy, carry, begins)
        self.teacher_carry = renewed_memory(self.teacher, teacher_carry, begins)
        self._choose_drivers(begins | (self.round_step == 0))
        self._see(step.obs)
        self._note_envs()

    def _act(self, policy: Policy, label: Tensor) -> tuple[Tensor, Carry]:
        """What is done [N, …], in environment units, and what the student remembers after what it saw."""
        config = self.config
        if not self.carry and bool(self.driven.all()):
            return label, ()
        greedy = config.student == "mean"
        own, carry = policy.act(self.obs, self.carry, greedy=greedy, rng=self.streams["explore"])
        own = own.cpu().to(label.dtype)
        if config.exploration_noise:
            own = self._blurred(own, config.exploration_noise, self.streams["explore"])
        return torch.where(wide(self.driven, own), label, own), carry

    def _blurred(self, action: Tensor, noise: float, rng: torch.Generator) -> Tensor:
        low, high = self._bounds
        blur = torch.randn(action.shape, generator=rng) * (high - low) / 2
        return torch.clamp(action + noise * blur, low, high)

    @cached_property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        box = self.envs.spec.box
        return torch.tensor(box.low), torch.tensor(box.high)

    def _keep(self, label: Tensor, action: Tensor, step: Step) -> None:
        """Add what was seen, said and done."""
        if not self.round_step:
            self.rounds += 1
            self.aggregate.begin_round(self.rounds)
        if self.config.label_noise:
            label = self._blurred(label, self.config.label_noise, self.streams["labels"])
        flags = row_flags(step.terminated, step.truncated, step.valid)
        number = torch.full((self.envs.count,), self.rounds, dtype=torch.int32)
        facts = {ROUND: number, TEACHER_ACTED: self.driven, EXECUTED_ACTION: action}
        self.aggregate.ring.add(self.obs, label, step.reward, step.final_obs, flags, facts)
        self.log.add_step(step.reward, step.valid, step.terminated | step.truncated)
        happened = int(step.valid.sum())
        self.steps += self.envs.count
        self.env_steps += happened
        self.round_step, self.round_labels = self.round_step + 1, self.round_labels + happened
        self.round_driven += int((step.valid & self.driven).sum())
        if self.round_step >= self.config.round_length and self.round_labels:
            self.driven_share = self.round_driven / self.round_labels
            self.round_step = self.round_labels = self.round_driven = 0

    def _choose_drivers(self, begins: Tensor) -> None:
        """Draw who drives where an episode or a round begins [N]."""
        if bool(begins.any()):
            chances = torch.rand(len(begins), generator=self.streams["drive"], dtype=torch.float64)
            self.driven = torch.where(begins, chances < self.beta, self.driven)

    @property
    def beta(self) -> float:
        """β of the round that is being played, or comes next."""
        number = self.rounds - (self.round_step > 0)
        return self.config.beta.at(number)

    def _in_place(self) -> bool:
        """The environments stand where this state, with this random state, says."""
        return self.envs_at[0] == self.steps and torch.equal(self.envs_at[1], self._drawn_so_far())

    def _drawn_so_far(self) -> Tensor:
        return torch.cat([self.streams[name].get_state() for name in STREAMS])

    def _note_envs(self) -> None:
        self.envs_at = (self.steps, self._drawn_so_far())

    def _displace(self) -> None:
        self.envs_at = (-1, self.envs_at[1])

    def _follow(self, policy: Policy) -> None:
        """Put the environments where the restored state says, or, if they cannot be put there, begin new episodes."""
        if isinstance(self.envs, Resumable) and self.env_state and not self.cut:
            self._see(self.envs.load(self.env_state))
            if self.exact:
                return
        self.aggregate.ring.cut(self.obs)
        self.log.forget_unfinished()
        self._see(self.envs.reset(derived_seed(self.seed, "interactive", self.steps)))
        self._begin_all(policy)
        self.cut = False

    def _begin_all(self, policy: Policy) -> None:
        """Every environment begins an episode."""
        everywhere = torch.ones(self.envs.count, dtype=torch.bool)
        self.carry, self.teacher_carry = (fresh_memory(one, self.envs.count) for one in (policy, self.teacher))
        self._choose_drivers(everywhere)

    def _see(self, obs: Obs) -> None:
        for name, values in obs.items():
            self.obs[name].copy_(values)

    def update_state(self) -> None:
        """Ask the simulators where they stand, if they stand where this state says."""
        if self.env_state and self._in_place():
            assert isinstance(self.envs, Resumable)
            self.env_state = self.envs.save()

    @property
    def exact(self) -> bool:
        """Simulators that cannot say where they stand begin new episodes after a resume."""
        return bool(self.env_state) and resumes_exactly(self.envs) and not self.cut

    def envs_moved(self) -> None:
        """Put the environments back, or begin new episodes, before the next step."""
        self.update_state()
        self._displace()

    def feedback(self, rows: Mapping[str, Tensor]) -> None:
        """Rows are drawn alike, whatever is thought of them."""

    def counters(self) -> dict[str, int]:
        return {"env_steps": self.env_steps}

    def metrics(self) -> Metrics:
        """Episodes that ended since this was last asked, whoever drove, and how far the rounds are."""
        kept = self.aggregate.ring.rows.written - self.aggregate.oldest(self.rounds)
        return {
            **self.log.metrics(),
            "dagger/round": torch.tensor(self.rounds),
            "dagger/beta": torch.tensor(self.beta),
            "dagger/driven": torch.tensor(self.driven_share),
            "dagger/rows": torch.tensor(kept),
        }

    def describe(self) -> dict[str, Any]:
        told = {"num_envs": self.envs.count, "round_length": self.config.round_length}
        return {"interactive": {**told, "teacher": self.config.teacher}}

    def close(self) -> None:
        self.envs.close()


def needs(config: Config) -> SourceNeeds:
    request = EnvRequest(
        config.num_envs,
        workers=config.workers,
        stagger_episodes=config.stagger_episodes,
        step_timeout=config.step_timeout,
    )
    return SourceNeeds(
        data=(MAIN,) if config.demonstrations else (),
        envs=(request,),
        policies=(TEACHER,) if config.teacher == "policy" else (),
        first_steps=-config.round_rows if config.demonstrations else 0,
        updates_per_step=Fraction(config.updates_per_round, config.round_rows),
        updates_at_once=config.updates_per_round,
        compiles=False,
    )


def build(config: Config, inputs: SourceInputs) -> InteractiveSource[Transitions] | InteractiveSource[Sequences]:
    if (config.label_noise or config.exploration_noise) and not isinstance(inputs.spec.action, Box):
        setting = "label_noise" if config.label_noise else "exploration_noise"
        raise ConfigError(f"source.{setting}", "noise is for continuous actions", do="Leave it at 0.")
    facts = row_facts(inputs.spec.action)
    ring = ReplayRing.empty(inputs.spec, config.buffer_size, inputs.envs[0].count, facts=facts)
    ring.check(inputs.demand)
    data = tuple(inputs.data[role] for role in needs(config).data)
    if inputs.policy.initial(1):
        gathering = stretches(inputs, ring, config.batch_size, data, config.length)
        return _assembled(config, inputs, ring, gathering, config.length)
    return _assembled(config, inputs, ring, single_steps(inputs, ring, config.batch_size, data), 1)


def _assembled(
    config: Config, inputs: SourceInputs, ring: ReplayRing, gathering: Gathering[Batch], length: int
) -> InteractiveSource[Batch]:
    (envs,), rows = inputs.envs, config.batch_size * length
    row_bytes = inputs.data[MAIN].dataset.row_bytes if config.demonstrations else ring.rows.row_bytes
    check_room("source.batch_size", f"a batch of {rows:,} rows", rows * row_bytes, "Use a smaller one.")
    where = f"policies.{TEACHER}" if config.teacher == "policy" else f"{config.teacher} teacher"
    teacher = _teacher(config, inputs)
    check_teacher(teacher, inputs.spec, where, config.labels)
    obs = envs.reset(derived_seed(inputs.seed, "interactive"))
    source = InteractiveSource(
        config,
        envs,
        teacher,
        Labels(inputs.spec, envs.count, where),
        inputs.seed,
        batches_at_once(rows * row_bytes),
        Aggregate(ring, gathering, torch.zeros(config.keep_rounds, dtype=torch.int64)),
        {name: values.to("cpu", copy=True) for name, values in obs.items()},
        (),
        (),
        {name: stream(inputs.seed, name if name == "explore" else f"interactive/{name}") for name in STREAMS},
        torch.zeros(envs.count, dtype=torch.bool),
        envs.save() if isinstance(envs, Resumable) else {},
        EpisodeLog.empty(envs.count),
    )
    source._begin_all(inputs.policy)
    source._note_envs()
    return source


def _teacher(config: Config, inputs: SourceInputs) -> Policy:
    """Who labels."""
    if config.teacher == "policy":
        return inputs.policies[TEACHER]
    if config.teacher == "scripted":
        return scripted_teacher(inputs.env_id, config.controller, inputs.spec)
    if inputs.teacher is None:
        raise ConfigError(
            "source.teacher",
            "nobody was handed over to label, and no file can hold a function",
            do="From Python: us.train(…, teacher=f), us.resume(path, teacher=f).",
        )
    return function_teacher(inputs.teacher, inputs.spec, inputs.envs[0].count)
