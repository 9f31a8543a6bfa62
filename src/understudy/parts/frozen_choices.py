"""What a frozen policy would do, as whoever judges it needs it: actions in policy space, or how likely each choice is.

Whoever rates actions with K critics expects of it  E_{a~π} Q_j(s,a)  [K, B]:

    continuous   (1/m)·Σ_i Q_j(s, aᵢ), where aᵢ is π(s), or one of m draws from it
    discrete     Σ_a π(a|s)·Q_j(s,a), exactly; illegal actions have probability 0
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError
from understudy.core.protocols import Policy
from understudy.core.spec import ACTION_MASK, Box, Discrete, Spec
from understudy.losses.action_values import legal_or_all
from understudy.nn.critic import ActionValues, Critic
from understudy.nn.deployed import Choosing
from understudy.nn.policy_fit import policy_differences


def check_candidate(policy: Policy, spec: Spec, where: str, *, stochastic: bool) -> None:
    """It can be asked about single rows of this world, and draws its actions if it is to."""
    if differences := policy_differences(policy, spec):
        raise ConfigError(
            where, f"does not fit the data: {'; '.join(differences)}", do="Give data of the world that it acts in."
        )
    if policy.initial(1):
        raise ConfigError(
            where,
            "has a memory, and values of single rows cannot know what it would remember",
            do="Choose a policy without memory.",
        )
    if stochastic and isinstance(spec.action, Discrete) and not isinstance(policy, Choosing):
        raise ConfigError(where, "does not say how likely its choices are", do="Judge it greedily: stochastic=false.")


@torch.no_grad()
def frozen_choices(
    policy: Policy, spec: Spec, obs: Obs, mask: Tensor | None, samples: int, rng: torch.Generator | None = None
) -> Tensor:
    """Actions [m, B, A] in policy space, drawn if `samples` is above 0, or probabilities of choices [B, N].

    Where nothing is legal all is over, and what is said there does not matter.
    """
    if mask is not None:
        obs = {**obs, ACTION_MASK: legal_or_all(mask)}
    count = len(next(iter(obs.values())))
    carry = policy.initial(count)
    if isinstance(spec.action, Discrete):
        if samples:
            assert isinstance(policy, Choosing)
            return torch.softmax(policy.ratings(obs, carry), -1)
        action, _ = policy.act(obs, carry, greedy=True)
        return F.one_hot(action.long(), spec.action.count).float()
    drawn = [policy.act(obs, carry, greedy=not samples, rng=rng)[0] for _ in range(max(samples, 1))]
    return into_policy_space(torch.stack(drawn), spec.box)


def into_policy_space(action: Tensor, box: Box) -> Tensor:
    """Of actions [..., A] in environment units."""
    centre = torch.as_tensor(box.centre, dtype=torch.float32, device=action.device)
    scale = torch.as_tensor(1.0 / box.half_range, dtype=torch.float32, device=action.device)
    return (action - centre) * scale


def expected_q(critic: Critic, state: Tensor, chosen: Tensor) -> Tensor:
    """E_{a~π} Q_j(s,a) [K, B] of what a policy chooses, or of what each critic's own policy does [K, …]."""
    if isinstance(critic, ActionValues):
        return (critic.every(state) * chosen).sum(-1)
    *own, draws, rows, size = chosen.shape
    values: Tensor = critic(state.repeat(draws, 1), chosen.reshape(*own, draws * rows, size))
    return values.view(-1, draws, rows).mean(1)
