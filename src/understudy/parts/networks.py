"""Building networks from what an algorithm may know: what each sees, from which statistics, and what they share.

Networks that see alike and have nothing to learn there share one perception, so that a batch is normalised once. An
encoder belongs to the network that uses it; with `critic.share_encoder` the actor borrows the critic's, which the
critic's loss alone trains. Every network starts from a random stream of its own: none shifts another.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar, final

import torch

from understudy.core.errors import ConfigError
from understudy.core.protocols import MAIN, BuildContext, Moments
from understudy.core.rng import stream
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.critic import ActionValues, Critic, CriticSettings, QEnsemble, make_critic
from understudy.nn.encoders import ConvEncoderSettings
from understudy.nn.perception import Perception, RoleSettings, check_borrows, share_perception, trained_parameters
from understudy.nn.value_network import ValueNetwork
from understudy.parts.optim import Adam, OptimizerSettings

Role = TypeVar("Role", bound=RoleSettings)


@final
@dataclass
class NetworkBuilder:
    """For learners from single steps; `memory` says that this one learns from sequences."""

    context: BuildContext
    seed: int
    memory: bool
    moments: Mapping[str, Moments]
    _shared: list[Perception] = field(default_factory=list)

    @classmethod
    def of(cls, context: BuildContext, *, memory: bool = False) -> "NetworkBuilder":
        return cls(context, context.seed, memory, context.moments)

    def seeded(self, seed: int) -> "NetworkBuilder":
        """The same for another learner of other numbers, with which perceptions are shared."""
        return NetworkBuilder(self.context, seed, self.memory, self.moments, self._shared)

    def actor(self, settings: ActorSettings, name: str = "actor", critic: Critic | None = None) -> Actor:
        """A policy; `critic` is one whose encoders it may borrow, if the critic's settings say so."""
        settings, rng, where = self._resolved(settings, name), self._rng(name), f"algo.{name}"
        lent = critic.perception if critic is not None and critic.settings.share_encoder else None
        perception = self._perception(settings, rng, where, lent)
        if lent is not None:
            check_borrows(perception, "algo.critic")
        return Actor(self.context.spec, settings, rng, where=where, perception=perception).to(self.context.device)

    def critic(
        self, settings: CriticSettings, name: str = "critic", *, members: int = 2, one_hot: bool = False
    ) -> Critic:
        """The ensemble that fits the action space."""
        settings, rng, where = self._resolved(settings, name), self._rng(name), f"algo.{name}"
        perception = self._perception(settings, rng, where)
        spec = self.context.spec
        return make_critic(
            spec, settings, rng, members=members, one_hot=one_hot, perception=perception, where=where
        ).to(self.context.device)

    def q_ensemble(self, settings: CriticSettings, *, members: int = 2) -> QEnsemble:
        """Critics of continuous actions."""
        critic = self.critic(settings, members=members)
        assert isinstance(critic, QEnsemble)
        return critic

    def action_values(self, settings: CriticSettings, *, members: int, quantiles: int, one_hot: bool) -> ActionValues:
        """Critics of discrete actions."""
        settings, rng = self._resolved(settings, "critic"), self._rng("critic")
        perception = self._perception(settings, rng, "algo.critic")
        critic = ActionValues(
            self.context.spec,
            settings,
            rng,
            members=members,
            quantiles=quantiles,
            one_hot=one_hot,
            perception=perception,
        )
        return critic.to(self.context.device)

    def value(self, settings: CriticSettings, name: str = "value") -> ValueNetwork:
        """V(s), in the shape of the critics."""
        settings, rng = self._resolved(settings, "critic"), self._rng(name)
        perception = self._perception(settings, rng, "algo.critic")
        return ValueNetwork(self.context.spec, settings, rng, perception=perception).to(self.context.device)

    def _resolved(self, settings: Role, name: str) -> Role:
        """Settings as the run's data makes them: they go into the policy's file, and must be enough to rebuild it."""
        if settings.memory.kind != "none" and not self.memory:
            raise ConfigError(
                f"algo.{name}.memory",
                "this algorithm learns from single steps, in no order, and has no use for memory",
                got=settings.memory.kind,
                expected="none",
                do="bc and ppo learn with memory.",
            )
        for entry, encoder in settings.encoders.items():
            if isinstance(encoder, ConvEncoderSettings) and encoder.has_batch_norm:
                raise ConfigError(
                    f"algo.{name}.encoders.{entry}.norm",
                    "batch norm has the statistics of rollouts, and this algorithm learns from single rows",
                    got="batch",
                    expected="group, layer or none",
                    do="Only ppo has use for it.",
                )
        main = self.context.data.get(MAIN)
        changes: dict[str, object] = {}
        if main is not None and main.hidden():
            changes["hide"] = {**main.hidden(), **settings.hide}
        if main is not None and not self.moments:
            changes["normalize"] = False
        return settings.model_copy(update=changes) if changes else settings

    def _perception(
        self, settings: RoleSettings, rng: torch.Generator, where: str, lent: Perception | None = None
    ) -> Perception:
        perception = share_perception(self._shared, self.context.spec, settings, rng, where, lent)
        if MAIN in self.context.data:
            perception.fit(self.moments, self.context.data[MAIN].steps)
        return perception

    def _rng(self, name: str) -> torch.Generator:
        return stream(self.seed, f"init/{name}")


def adam_for(
    network: torch.nn.Module, settings: OptimizerSettings, context: BuildContext, every: int = 1, waits: int = 0
) -> Adam:
    """The optimiser of what a network trains, at every so many updates of the run; its first steps may move nothing."""
    return Adam.over(trained_parameters(network), settings, max(1, context.updates // every), waits)
