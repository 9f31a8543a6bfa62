"""Replay: the policy plays, its steps go into a ring, and batches are drawn from there, and from a dataset if asked.

The update-to-data ratio is kept here: after `learning_starts` environment steps, every further one allows `utd_ratio`
updates, a fraction or a multiple. Whatever is drawn between two steps is gathered at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Self, final

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from understudy.core.batch import Obs, Transitions
from understudy.core.errors import ConfigError, UnderstudyError
from understudy.core.machine_memory import check_room
from understudy.core.protocols import MAIN, Demand, EnvRequest, Metrics, Policy, SourceNeeds
from understudy.core.rng import derived_seed, stream
from understudy.core.schedule import Schedule
from understudy.core.settings import Count, Settings
from understudy.core.spec import Box, Discrete
from understudy.core.state import Static
from understudy.data.experience import LoggedExperience, into_policy_space
from understudy.data.replay_ring import VALID, ReplayRing, row_flags
from understudy.data.rewards import RewardTransform
from understudy.data.ring_returns import COLUMN as RETURN_TO_GO
from understudy.data.ring_returns import RingReturns
from understudy.envs.vector.contract import Resumable, VectorEnv, resumes_exactly
from understudy.envs.vector.step_timeout import STEP_TIMEOUT
from understudy.nn.actor import legal_actions
from understudy.nn.small_policy import explorer
from understudy.sources import SourceInputs
from understudy.sources.playing.episode_log import EpisodeLog
from understudy.sources.sampling.blocks import batches_at_once
from understudy.sources.sampling.draws import uniform_rows
from understudy.sources.sampling.priorities import Priorities, PrioritySettings, check_told

YIELDS = Transitions
INTERVALS = {"eval_every": 10_000, "save_every": 10_000}
FINEST_RATIO = 1_000_000
"""Environment steps of one update, at most."""
SOME_DRAWS = 16
"""After so many equal actions a policy does not draw them."""
STEPS_UNASKED = 64
"""Steps of a warm-up between two looks at signals."""


class Config(Settings):
    """The policy's own steps, and a dataset's beside them if asked."""

    kind: Literal["replay"] = "replay"
    """`replay`: batches of the policy's own past steps, and of a dataset's if data_share says so."""
    num_envs: Count = 1
    """Environments that step together."""
    workers: int = Field(1, ge=1, le=256)
    """Processes that share the environments; any number gives the same run."""
    batch_size: int = Field(256, ge=1)
    """Rows per gradient step."""
    buffer_size: int = Field(1_000_000, ge=1)
    """Own steps that are kept, the newest; more than a quarter of the memory lie in a file."""
    utd_ratio: float = Field(1.0, ge=1 / FINEST_RATIO, le=1000)
    """Updates for every environment step (update-to-data ratio), all environments counted: 0.25, 1, 20."""
    learning_starts: int = Field(5000, ge=0)
    """Environment steps before the first update."""
    warmup: Literal["random", "policy"] = "random"
    """Who plays them: uniformly random actions, or the policy, for one that knows something already."""
    exploration_noise: float = Field(0.0, ge=0)
    """σ of Gaussian noise on actions, in halves of their range: for policies that do not draw, such as TD3's."""
    exploration_epsilon: float = Field(0.0, ge=0, le=1)
    """Chance of a uniformly random action at each step."""
    data_share: Schedule = Schedule(kind="constant", start=0.0, end=0.0)
    """Part of every batch that comes from the run's dataset: a number, or a group {start, end, over}."""
    priority: PrioritySettings = PrioritySettings()
    """Draw own rows oftener that values were wrong about: see docs/priorities.md."""
    scale_rewards: float = Field(1.0, gt=0)
    """Own rewards are learned from as r·scale + shift. With a data_share they are changed as the dataset's are."""
    shift_rewards: float = 0.0
    """See scale_rewards."""
    stagger_episodes: bool = False
    """Cut every first episode to a random length, so that time limits do not strike all environments at once."""
    step_timeout: float = Field(STEP_TIMEOUT, gt=0, le=1e6)
    """Seconds after which an environment that does not answer is an error."""

    @field_validator("data_share", mode="before")
    @classmethod
    def _one_number(cls, share: object) -> object:
        if isinstance(share, (int, float, str)):
            return {"kind": "constant", "start": share, "end": share}
        return share

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.workers > self.num_envs:
            raise ValueError(f"workers: {self.workers} for {self.num_envs} environments: at most one for each")
        for share in (self.data_share.start, self.data_share.end):
            if not 0 <= share <= 1:
                raise ValueError(f"data_share is a part of a batch: got {share:g}, expected a number from 0 to 1")
        if self.mixes and self.reward != RewardTransform():
            raise ValueError("own rewards are changed as the dataset's are: say data.scale_rewards, data.shift_rewards")
        return self

    @property
    def reward(self) -> RewardTransform:
        """What own rewards are learned from as, where there is no dataset to agree with."""
        return RewardTransform(self.scale_rewards, self.shift_rewards)

    @property
    def updates_per_step(self) -> Fraction:
        """The ratio as it is counted with."""
        return Fraction(self.utd_ratio).limit_denominator(FINEST_RATIO)

    @property
    def mixes(self) -> bool:
        """Some of its batches have rows of a dataset."""
        return self.data_share.start > 0 or self.data_share.end > 0


@final
@dataclass
class ReplaySource:
    """Plays, keeps, draws.

    Where the simulators can tell where they stand, a resumed run goes on to the bit. Others begin new episodes: then,
    and after an environment failed, a barrier in the ring keeps what was from what comes.
    """

    config: Static[Config]
    envs: Static[VectorEnv]
    data: Static[tuple[LoggedExperience, ...]]
    """The dataset that batches are mixed with, if one is."""
    demand: Static[Demand]
    reward: Static[RewardTransform]
    """What own rewards are learned from as."""
    device: Static[torch.device]
    seed: Static[int]
    convert: Static[Callable[[Transitions], Transitions]]
    """Own rows into policy space."""
    ring: ReplayRing
    obs: Obs
    """What the policy sees next [N, …]."""
    explore: torch.Generator
    draws: torch.Generator
    env_state: dict[str, Tensor]
    """Where the simulators stand, known whenever somebody asks; empty if they cannot tell."""
    log: EpisodeLog
    returns: tuple[RingReturns, ...]
    """What was earned from each own step on, where the algorithm asks for it."""
    priorities: tuple[Priorities, ...]
    """Of own rows, where these are drawn by them; then every batch is a block of its own."""
    block: Tensor
    """What is drawn already: slots of own rows, then rows of the dataset [batches, batch_size]."""
    block_first: int = 0
    """The number of its first batch."""
    block_count: int = 0
    """How many batches of it were due."""
    block_own: int = 0
    """Own rows of each of them."""
    steps: int = 0
    """Steps of all environments together, also those that only started an episode."""
    env_steps: int = 0
    """Steps in which something happened."""
    drawn: int = 0
    """Batches given so far."""
    cut: bool = False
    """The environments failed, or were lost: new episodes begin before the next step."""
    envs_at: Static[tuple[int, Tensor]] = (-1, torch.empty(0))
    """The number of steps and the random state with which the environments stand where they stand: other ones were
    restored from a checkpoint, and they must follow."""
    player: Static[tuple[object, Callable[[Obs, torch.Generator], Tensor]]] = (None, lambda obs, rng: obs[""])
    """Who played last, and how it draws."""
    gathered: Static[tuple[int, list[Transitions]]] = (-1, [])
    """The batches of the block that begins with this number; gathered again whenever another one is due."""

    def next(self, policy: Policy) -> Transitions | None:
        """A batch, or None while the ring is filled: as many steps are played first as this batch waits for."""
        for _ in range(STEPS_UNASKED):
            if self._allowed > self.drawn:
                return self._batch()
            self._play(policy)
        return None

    @property
    def _allowed(self) -> int:
        """Updates that the steps so far allow."""
        ratio = self._ratio
        return max(0, self.env_steps - self.config.learning_starts) * ratio.numerator // ratio.denominator

    @cached_property
    def _ratio(self) -> Fraction:
        return self.config.updates_per_step

    def _batch(self) -> Transitions:
        if self.drawn >= self.block_first + self.block_count:
            self._draw()
        if self.gathered[0] != self.block_first:
            self.gathered = (self.block_first, self._gather())
        self.drawn += 1
        return self.gathered[1][self.drawn - 1 - self.block_first]

    def _draw(self) -> None:
        """Choose the rows of all batches that are due before the next step, or of as many as a block holds."""
        batches, rows = self.block.shape
        count = min(batches, self._allowed - self.drawn)
        share = float(self.config.data_share.value(torch.tensor(self.drawn))) if self.data else 0.0
        own = rows - round(share * rows)
        self.block[:count, :own] = self._own_slots(count * own).view(count, own)
        for data in self.data:
            theirs = uniform_rows(count * (rows - own), data.steps, self.draws)
            self.block[:count, own:] = theirs.view(count, rows - own)
        self.block_first, self.block_count, self.block_own = self.drawn, count, own
        self.gathered = (-1, [])

    def _own_slots(self, count: int) -> Tensor:
        """Slots of valid rows [count], each as likely as any other, or as its priority says."""
        for priorities in self.priorities:
            priorities.follow(self.ring)
            return priorities.draw(count, self.drawn, self.draws)
        slots = uniform_rows(count, len(self.ring), self.draws)
        while self.ring.barriers and bool((wrong := ~self.ring.valid(slots)).any()):
            slots[wrong] = uniform_rows(int(wrong.sum()), len(self.ring), self.draws)
        return slots

    def _gather(self) -> list[Transitions]:
        """The batches of the block."""
        chosen, own = self.block[: self.block_count], self.block_own
        parts = [self._own_rows(chosen[:, :own].reshape(-1)).split(own)] if own else []
        for data in self.data if own < chosen.shape[1] else ():
            parts.append(data.rows(chosen[:, own:].reshape(-1), self.demand).split(chosen.shape[1] - own))
        # Joined wherever there is a dataset, also where a share is 0: a compiled update knows one layout.
        mixed = [Transitions.joined(batch) for batch in zip(*parts, strict=True)] if self.data else parts[0]
        for priorities in self.priorities:
            return [priorities.weigh(batch) for batch in mixed]
        return mixed

    def _own_rows(self, slots: Tensor) -> Transitions:
        rows = self.ring.transitions(slots, self._ring_demand, self.reward)
        for returns in self.returns:
            rows = replace(rows, extra={**rows.extra, RETURN_TO_GO: returns.values.index_select(0, slots)})
        return self.convert(rows if self.device.type == "cpu" else rows.to(self.device))

    @cached_property
    def _ring_demand(self) -> Demand:
        return _of_ring(self.demand)

    @torch.no_grad()
    def _play(self, policy: Policy) -> None:
        """One step of every environment. Whatever fails in it, nothing of it is left in what a checkpoint holds."""
        explored = self.explore.get_state()
        try:
            if not self._in_place(explored):
                self._follow()
            action = self._act(policy)
            step = self.envs.step(action).cpu()
        except BaseException as error:
            self.explore.set_state(explored)
            self.cut = True
            self._displace()
            if isinstance(error, UnderstudyError):
                error.nothing_learned = True
            raise
        flags = row_flags(step.terminated, step.truncated, step.valid)
        self.ring.add(self.obs, action, step.reward, step.final_obs, flags)
        for returns in self.returns:
            returns.follow(self.ring, flags)
        self.log.add_step(step.reward, step.valid, step.terminated | step.truncated)
        self._see(step.obs)
        self.steps += self.envs.count
        self.env_steps += int((flags >= VALID).sum())
        self.envs_at = (self.steps, self.explore.get_state())

    def _act(self, policy: Policy) -> Tensor:
        """Actions [N, …] in environment units, on the CPU."""
        config = self.config
        if config.warmup == "random" and self.env_steps < config.learning_starts:
            return self._random()
        if policy is not self.player[0]:
            self.player = (policy, explorer(policy, self.envs.count))
        action = self.player[1](self.obs, self.explore)
        if config.exploration_noise:
            low, high = self._bounds
            noise = torch.randn(action.shape, generator=self.explore) * (high - low) / 2
            action = torch.clamp(action + config.exploration_noise * noise, low, high)
        if config.exploration_epsilon:
            chosen = torch.rand(self.envs.count, generator=self.explore) < config.exploration_epsilon
            action = torch.where(chosen if action.ndim == 1 else chosen.unsqueeze(1), self._random(), action)
        return action

    @torch.no_grad()
    def cautions(self, policy: Policy) -> list[str]:
        """Whoever does not draw actions, and is given no noise, does nothing new. Choices are always drawn."""
        if not isinstance(self.envs.spec.action, Box):
            return []
        rng, noise = torch.Generator().manual_seed(0), (self.config.exploration_noise, self.config.exploration_epsilon)
        greedy = policy.act(self.obs, (), greedy=True)[0]
        draws = (policy.act(self.obs, (), greedy=False, rng=rng)[0] for _ in range(SOME_DRAWS))
        if any(noise) or any(not torch.equal(drawn, greedy) for drawn in draws):
            return []
        return ["this policy does not draw its actions and would try nothing new online: source.exploration_noise=0.1"]

    def _random(self) -> Tensor:
        """Any action as likely as any other, among those that are legal."""
        space, count = self.envs.spec.action, self.envs.count
        if isinstance(space, Box):
            low, high = self._bounds
            return low + (high - low) * torch.rand(count, space.size, generator=self.explore)
        assert isinstance(space, Discrete)
        legal = legal_actions(self.obs).float() if self.envs.spec.masked else torch.ones(count, space.count)
        return torch.multinomial(legal, 1, generator=self.explore).squeeze(1)

    @cached_property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        box = self.envs.spec.box
        return torch.tensor(box.low), torch.tensor(box.high)

    def _in_place(self, explored: Tensor) -> bool:
        """The environments stand where this state, with this random state, says."""
        return self.envs_at[0] == self.steps and torch.equal(self.envs_at[1], explored)

    def _displace(self) -> None:
        self.envs_at = (-1, self.envs_at[1])

    def _follow(self) -> None:
        """Put the environments where the restored state says, or, if they cannot be put there, begin new episodes."""
        if isinstance(self.envs, Resumable) and self.env_state and not self.cut:
            self._see(self.envs.load(self.env_state))
            if self.exact:
                return
        self.ring.cut(self.obs)
        self.log.forget_unfinished()
        for returns in self.returns:
            returns.forget_unfinished()
        self._see(self.envs.reset(derived_seed(self.seed, "replay", self.steps)))
        self.cut = False

    def _see(self, obs: Obs) -> None:
        for name, values in obs.items():
            self.obs[name].copy_(values)

    def update_state(self) -> None:
        """Ask the simulators where they stand, if they stand where this state says."""
        if self.env_state and self._in_place(self.explore.get_state()):
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
        """Rows may be drawn by what is thought of them."""
        for priorities in self.priorities:
            priorities.learn(rows)

    def counters(self) -> dict[str, int]:
        return {"env_steps": self.env_steps}

    def metrics(self) -> Metrics:
        """Episodes that ended since this was last asked, those of the last hundred, and how full the ring is."""
        told = {**self.log.metrics(), "replay/rows": torch.tensor(len(self.ring))}
        for priorities in self.priorities:
            told |= priorities.metrics(self.drawn)
        return told

    def describe(self) -> dict[str, Any]:
        return {"replay": {"num_envs": self.envs.count, "buffer_size": self.ring.rows.capacity, **self.reward.told()}}

    def close(self) -> None:
        self.envs.close()


def _of_ring(demand: Demand) -> Demand:
    """What the ring itself can tell."""
    return replace(demand, columns=tuple(name for name in demand.columns if name != RETURN_TO_GO))


def needs(config: Config) -> SourceNeeds:
    request = EnvRequest(
        config.num_envs,
        workers=config.workers,
        stagger_episodes=config.stagger_episodes,
        step_timeout=config.step_timeout,
    )
    return SourceNeeds(
        data=(MAIN,) if config.mixes else (),
        envs=(request,),
        first_steps=config.learning_starts,
        updates_per_step=config.updates_per_step,
    )


def build(config: Config, inputs: SourceInputs) -> ReplaySource:
    (envs,), device = inputs.envs, inputs.device
    if inputs.policy.initial(1):
        raise ConfigError("source.kind", "a policy with memory learns from sequences, not from single steps")
    if config.exploration_noise and not isinstance(inputs.spec.action, Box):
        what = "noise is for continuous actions"
        raise ConfigError("source.exploration_noise", what, do="Use source.exploration_epsilon.")
    ring = ReplayRing.empty(inputs.spec, config.buffer_size, envs.count)
    ring.check(_of_ring(inputs.demand))
    data = tuple(inputs.data[role] for role in needs(config).data)
    reward = data[0].reward if data else config.reward
    earned = (RingReturns.of(ring, inputs.demand.gamma, reward),) if RETURN_TO_GO in inputs.demand.columns else ()
    batch_bytes = config.batch_size * ring.rows.row_bytes
    check_room("source.batch_size", f"a batch of {config.batch_size:,} rows", batch_bytes, "Use a smaller one.")
    check_told(config.priority, inputs.demand)
    priorities = (Priorities.over(config.priority, ring.rows.capacity),) if config.priority.exponent else ()
    batches = 1 if priorities else min(batches_at_once(batch_bytes), max(1, int(config.utd_ratio * envs.count)))
    obs = envs.reset(derived_seed(inputs.seed, "replay"))
    source = ReplaySource(
        config,
        envs,
        data,
        inputs.demand,
        reward,
        device,
        inputs.seed,
        into_policy_space(inputs.spec.action, device),
        ring,
        {name: values.to("cpu", copy=True) for name, values in obs.items()},
        stream(inputs.seed, "explore"),
        stream(inputs.seed, "sample"),
        envs.save() if isinstance(envs, Resumable) else {},
        EpisodeLog.empty(envs.count),
        earned,
        priorities,
        torch.zeros(batches, config.batch_size, dtype=torch.int64),
    )
    source.envs_at = (0, source.explore.get_state())
    return source
