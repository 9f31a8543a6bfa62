"""An algorithm of another package: clones what it is given, and listens to a teacher if there is one.

L_π = mean −log π(a|s) + ω·‖π(s) − teacher(s)‖²
"""

from dataclasses import dataclass
from typing import Literal, final

from torch import nn

from understudy.core.batch import Transitions
from understudy.core.protocols import BuildContext, Demand, Needs, Policy, Update
from understudy.core.settings import Settings
from understudy.core.spec import Box
from understudy.core.state import Static
from understudy.nn.actor import Actor, ActorSettings
from understudy.parts.networks import NetworkBuilder
from understudy.parts.optim import Adam


class Config(Settings):
    """Cloning, by somebody else."""

    name: Literal["parrot"] = "parrot"
    """The algorithm."""
    learning_rate: float = 3e-3
    """Adam's step size."""
    teacher_weight: float = 0.0
    """ω; above 0 there must be a policy of the role `teacher`."""
    actor: ActorSettings = ActorSettings()
    """The policy network."""


@final
@dataclass
class Parrot:
    config: Static[Config]
    policy: Actor
    optimizer: Adam
    teachers: Static[tuple[Policy, ...]]

    @property
    def demand(self) -> Demand:
        return Demand()

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy}

    def update(self, data: Transitions) -> Update:
        state = self.policy.perception.look(data.obs)
        losses = -self.policy.log_prob(state, data.action)
        for teacher in self.teachers:
            taught, _ = teacher.act(data.obs, teacher.initial(len(data.reward)), greedy=True)
            wished = self.policy.from_env_action(taught)
            losses = losses + self.config.teacher_weight * (self.policy.greedy(state) - wished).square().sum(-1)
        self.optimizer.minimise(losses.mean(), self.config.learning_rate)
        detached = losses.detach()
        return Update({"loss/actor": detached.mean()}, {"priority": detached - detached.amin()})


def needs(config: Config) -> Needs:
    roles = ("teacher",) if config.teacher_weight > 0 else ()
    return Needs(Transitions, actions=(Box,), sources=("mixture", "offline"), policies=roles)


def build(config: Config, context: BuildContext) -> Parrot:
    policy = NetworkBuilder.of(context).actor(config.actor)
    teachers = tuple(context.policies[role] for role in needs(config).policies)
    return Parrot(config, policy, Adam.over(policy.parameters()), teachers)
