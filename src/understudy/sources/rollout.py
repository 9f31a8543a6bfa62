"""Rollouts: T steps of N environments, played by the policy that learns from them.

The policy remembers nothing across episodes: its carry is fresh wherever the step before ended an episode, or was one
that only started another (`valid` False). Whoever runs the policy over a rollout again must do the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, cast, final

import torch
from pydantic import Field, model_validator
from torch import Tensor

from understudy.core.batch import Obs, Rollout
from understudy.core.errors import ConfigError, UnderstudyError
from understudy.core.protocols import Carry, EnvRequest, ExplorationPolicy, Metrics, Recorder, SourceNeeds
from understudy.core.rng import derived_seed, stream
from understudy.core.settings import Count, Settings
from understudy.core.state import Static, capture, restore
from understudy.envs.vector.contract import Resumable, Step, VectorEnv, resumes_exactly
from understudy.envs.vector.step_timeout import STEP_TIMEOUT
from understudy.sources import SourceInputs
from understudy.sources.playing.episode_log import EpisodeLog
from understudy.sources.playing.rollout_actor import rollout_actor, stacked
from understudy.sources.playing.rollout_storage import RolloutStorage
from understudy.sources.playing.turns import Turns

YIELDS = Rollout
INTERVALS = {"updates": 500, "log_every": 1, "eval_every": 50, "save_every": 50}
"""An update is a whole rollout."""


class Config(Settings):
    """Rollouts of the policy that learns, in environments that step together."""

    FORMER: ClassVar = {
        "envs": "num_envs",
        "steps": "rollout_length",
        "spread": "stagger_episodes",
        "patience": "step_timeout",
    }
    kind: Literal["rollout"] = "rollout"
    """`rollout`: one update learns from num_envs × rollout_length transitions."""
    num_envs: Count = 16
    """Environments that step together."""
    rollout_length: int = Field(128, ge=1)
    """Steps of each of them in one rollout."""
    workers: int = Field(1, ge=1, le=256)
    """Processes that share the environments; any number gives the same run."""
    stagger_episodes: bool = False
    """Cut every first episode to a random length, so that time limits do not strike all environments at once."""
    step_timeout: float = Field(STEP_TIMEOUT, gt=0, le=1e6)
    """Seconds after which an environment that does not answer is an error."""

    @model_validator(mode="after")
    def _everybody_has_work(self) -> Self:
        if self.workers > self.num_envs:
            raise ValueError(f"workers: {self.workers} for {self.num_envs} environments: at most one for each")
        return self


@final
@dataclass
class RolloutSource:
    """Plays `rollout_length` steps at a time and goes on where it stopped.

    What a resume means depends on the simulator. One that can tell where it stands (`Resumable`, such as a
    `LocalVectorEnv` of classic control or MuJoCo environments) is put back there: the next rollout is the same to the
    bit. Any other is given back what it could tell, such as counters, and starts new episodes, from a seed that depends
    on the run's seed and on how many rollouts were played: what follows is repeatable, but not what would have
    followed, and the unfinished episodes are not counted.
    """

    envs: Static[VectorEnv]
    rollout_length: Static[int]
    seed: Static[int]
    device: Static[torch.device]
    obs: Obs
    """What the policy sees next [N, …]."""
    carry: Carry
    explore: torch.Generator
    env_state: dict[str, Tensor]
    """Where the simulators stand, or what they could tell of it; empty if they cannot tell."""
    log: EpisodeLog
    rollouts: int = 0
    env_steps: int = 0
    """Steps in which something happened, of all environments together."""
    recorders: Static[Mapping[str, Recorder]] = field(default_factory=dict)
    """They belong to the algorithm; their facts are `Rollout.extra[name/fact]`."""
    recorder_carries: dict[str, Carry] = field(default_factory=dict)
    """What each of them remembers: as the policy, nothing across episodes."""
    turns: tuple[Turns, ...] = ()
    """Who acts in which environment, where one of them may act instead of the policy."""
    envs_at: Static[tuple[int, Tensor]] = (-1, torch.empty(0))
    """The number of rollouts and the random state with which the world stands where it stands: other ones were
    restored from a checkpoint, and the world must follow."""
    terms: Static[Mapping[str, Tensor]] = field(default_factory=dict)
    """What the environments told of their rewards in the last rollout, by name [T, N]."""

    @classmethod
    def build(
        cls,
        envs: VectorEnv,
        policy: ExplorationPolicy,
        rollout_length: int,
        seed: int,
        device: torch.device | None = None,
        recorders: Mapping[str, Recorder] = MappingProxyType({}),
    ) -> "RolloutSource":
        """Resets the world. Rollouts are stored on `device`, where the policy is."""
        if rollout_length < 1:
            raise ConfigError("source.steps", "a rollout needs steps", got=rollout_length, expected="at least 1")
        device = device or torch.device("cpu")
        obs = _copied(envs.reset(derived_seed(seed, "rollout")), device)
        carry = _detached(policy.initial(envs.count), device)
        env_state = envs.save() if isinstance(envs, Resumable) else {}
        log = EpisodeLog.empty(envs.count)
        explore = stream(seed, "explore")
        source = cls(envs, rollout_length, seed, device, obs, carry, explore, env_state, log, recorders=recorders)
        source.turns = Turns.build(recorders, policy, envs.count, seed, device)
        source._begin_recording()
        source._note_envs()
        return source

    def next(self, policy: ExplorationPolicy) -> Rollout:
        """The next T steps: facts, and how likely the policy held what it did.

        Whatever ends it early, nothing of it is left in what a checkpoint holds: the same steps can be played again.
        """
        explored, turns = self.explore.get_state(), capture(self.turns)
        drawn = [(rng, rng.get_state()) for turn in self.turns for rng in turn.driver.streams]
        try:
            return self._play(policy)
        except BaseException as error:
            self.explore.set_state(explored)
            restore(self.turns, turns, "rollout")
            for rng, state in drawn:
                rng.set_state(state)
            self.envs_moved()
            if isinstance(error, UnderstudyError):
                error.nothing_learned = True
            raise

    @torch.no_grad()
    def _play(self, policy: ExplorationPolicy) -> Rollout:
        anew = not self._envs_in_place() and self._follow(policy)
        storage = RolloutStorage(self.rollout_length, self.obs, self.device)
        player = rollout_actor(policy, self.rollout_length, self.envs.count, self.explore, self.device)
        carry, recorder_carries, facts = self.carry, self.recorder_carries, []
        driven = [turn.driven for turn in self.turns]
        for turn in self.turns:
            carry = turn.carry_before(policy, carry)
        before = carry
        for t in range(self.rollout_length):
            env_action, carry = player.play(t, storage.seen(t), carry)
            if self.recorders:
                recorded, recorder_carries = self._record(storage.seen(t), recorder_carries)
                facts.append(recorded)
            for turn, rows in zip(self.turns, driven, strict=True):
                recorded |= turn.facts(rows)
                if bool(rows.any()):
                    env_action = turn.take(t, player, policy, env_action, recorded, rows)
            step = self.envs.step(env_action)
            storage.put(t, step)
            carry = self._carried(policy, carry, step)
            if self.recorders:
                recorder_carries = self._all_carried(recorder_carries, step)
                driven = [self._next_turns(turn, rows, step) for turn, rows in zip(self.turns, driven, strict=True)]
        columns = stacked(facts)
        for turn, rows in zip(self.turns, driven, strict=True):
            turn.driven.copy_(rows)
            columns |= turn.policy_weights(columns)
        self.carry, self.recorder_carries = carry, recorder_carries
        self.obs = storage.last()
        rollout = storage.rollout(before, player.drawn(storage.all_seen()), columns, anew=anew)
        self.log.add(rollout.reward, rollout.valid, rollout.ended)
        self.terms = rollout.reward_terms
        self.rollouts += 1
        self.env_steps += int(rollout.valid.sum())
        if isinstance(self.envs, Resumable) and self.env_state:
            self.env_state = self.envs.save()
        self._note_envs()
        return rollout

    @property
    def exact(self) -> bool:
        """Simulators that cannot say where they stand begin new episodes after a resume."""
        return bool(self.env_state) and resumes_exactly(self.envs)

    def envs_moved(self) -> None:
        """Put the environments back, or begin new episodes, before the next rollout."""
        self.envs_at = (-1, self.envs_at[1])

    def feedback(self, rows: Mapping[str, Tensor]) -> None:
        """Every step is learned from once, whatever is thought of it."""

    def counters(self) -> dict[str, int]:
        return {"env_steps": self.env_steps}

    def metrics(self) -> Metrics:
        """Episodes that ended since this was last asked, those of the last hundred, and the mean of every reward term
        over the last rollout."""
        told = self.log.metrics()
        means = {f"terms/{name}": values.nanmean() for name, values in self.terms.items()}
        return told | {name: mean for name, mean in means.items() if bool(mean.isfinite())}

    def describe(self) -> dict[str, Any]:
        return {"rollouts": {"num_envs": self.envs.count, "rollout_length": self.rollout_length}}

    def close(self) -> None:
        self.envs.close()

    def finished(self) -> tuple[Tensor, Tensor]:
        """Returns and lengths of the episodes that ended since this was last asked, the newest last."""
        return self.log.ask()

    def _record(self, obs: Obs, carries: dict[str, Carry]) -> tuple[Obs, dict[str, Carry]]:
        """What everybody says of what is seen before a step, and remembers of it."""
        facts: Obs = {}
        after: dict[str, Carry] = {}
        for name, recorder in self.recorders.items():
            found, after[name] = recorder.record(obs, carries[name])
            facts |= {f"{name}/{fact}": values.to(self.device, copy=True) for fact, values in found.items()}
        return facts, after

    def _all_carried(self, carries: dict[str, Carry], step: Step) -> dict[str, Carry]:
        """What everybody still remembers after a step."""
        return {name: self._carried(self.recorders[name], carry, step) for name, carry in carries.items()}

    def _next_turns(self, turn: Turns, driven: Tensor, step: Step) -> Tensor:
        """Who is driven after a step [N]: drawn anew where another episode begins."""
        begins = (step.terminated | step.truncated | ~step.valid).to(self.device)
        return turn.after(driven, begins) if bool(begins.any()) else driven

    def _begin_recording(self) -> None:
        count = self.envs.count
        self.recorder_carries = {
            name: _detached(recorder.initial(count), self.device) for name, recorder in self.recorders.items()
        }

    def _carried(self, owner: ExplorationPolicy | Recorder, carry: Carry, step: Step) -> Carry:
        """What is still remembered: nothing where another episode begins."""
        if not carry:
            return carry
        begins = (step.terminated | step.truncated | ~step.valid).to(self.device)
        if not bool(begins.any()):
            return carry
        fresh = owner.initial(self.envs.count)
        return tuple(torch.where(_wide(begins, old), new, old) for old, new in zip(carry, fresh, strict=True))

    def _note_envs(self) -> None:
        self.envs_at = (self.rollouts, self.explore.get_state())

    def _envs_in_place(self) -> bool:
        return self.envs_at[0] == self.rollouts and torch.equal(self.envs_at[1], self.explore.get_state())

    def _follow(self, policy: ExplorationPolicy) -> bool:
        """Put the world where the restored state says, or, if it cannot be put there, at the start of new episodes.

        True in the second case.
        """
        if isinstance(self.envs, Resumable) and self.env_state:
            self.obs = _copied(self.envs.load(self.env_state), self.device)
            if self.exact:
                return False
        self.obs = _copied(self.envs.reset(derived_seed(self.seed, "rollout", self.rollouts)), self.device)
        self.carry = _detached(policy.initial(self.envs.count), self.device)
        for turn in self.turns:
            turn.driven.copy_(turn.after(turn.driven, torch.ones_like(turn.driven)))
        self._begin_recording()
        self.log.forget_unfinished()
        return True


def needs(config: Config) -> SourceNeeds:
    request = EnvRequest(
        config.num_envs,
        workers=config.workers,
        stagger_episodes=config.stagger_episodes,
        step_timeout=config.step_timeout,
        steps_kept=config.rollout_length,
    )
    return SourceNeeds(envs=(request,), updates_per_step=Fraction(1, config.num_envs * config.rollout_length))


def build(config: Config, inputs: SourceInputs) -> RolloutSource:
    (envs,) = inputs.envs
    policy = cast(ExplorationPolicy, inputs.policy)
    return RolloutSource.build(envs, policy, config.rollout_length, inputs.seed, inputs.device, inputs.recorders)


def _copied(obs: Obs, device: torch.device) -> Obs:
    return {name: values.to(device, copy=True) for name, values in obs.items()}


def _detached(carry: Carry, device: torch.device) -> Carry:
    """A learned first memory is a parameter; here it is a number."""
    return tuple(part.detach().to(device, copy=True) for part in carry)


def _wide(flags: Tensor, like: Tensor) -> Tensor:
    return flags.reshape(-1, *[1] * (like.dim() - 1))
