"""Values: privileged, remembered, shared; successors of episodes that ended are seen with their own memory."""

from typing import Any

import pytest
import torch
from torch import nn

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError
from understudy.core.rng import stream
from understudy.core.spec import Box, Group, Spec
from understudy.nn.actor import Actor
from understudy.nn.memory import forget
from understudy.nn.value_network import ValueNetwork
from understudy.parts.ppo.networks import OnPolicyActorSettings, OnPolicyCriticSettings, make_value

T, N = 8, 4
SPEC = Spec(
    {"state": Group((3,), "float32"), "secret": Group((2,), "float32"), "scan": Group((6,), "float32")},
    Box((-1.0,), (1.0,)),
)
ENCODED = {"encoders": {"scan": {"kind": "mlp", "size": 4}}}
GRU = {"memory": {"kind": "gru", "units": 5}}
LSTM = {"memory": {"kind": "lstm", "units": 5}}


def actor(**changes: Any) -> Actor:
    settings = OnPolicyActorSettings.parse({"sees": ["state", "scan"], **ENCODED, **changes})
    return Actor(SPEC, settings, stream(0, "init/actor"))


def critic(policy: Actor | None = None, **changes: Any) -> ValueNetwork:
    settings = OnPolicyCriticSettings.parse(changes, "critic")
    return make_value(SPEC, settings, stream(0, "init/critic"), (policy or actor()).perception)


def groups(seed: int) -> Obs:
    rng = torch.Generator().manual_seed(seed)
    return {name: torch.randn(T, N, group.size, generator=rng) for name, group in SPEC.observation.items()}


def episodes() -> tuple[Obs, Obs, torch.Tensor]:
    """Observations, true successors, and where episodes started anew."""
    obs, ends = groups(0), groups(1)
    resets = torch.zeros(T, N, dtype=torch.bool)
    resets[[2, 5, 5, 7], [0, 0, 1, 3]] = True
    following = {
        name: torch.cat([torch.where(resets[1:].unsqueeze(-1), ends[name][:-1], values[1:]), ends[name][-1:]])
        for name, values in obs.items()
    }
    return obs, following, resets


@pytest.mark.parametrize("changes", [{}, ENCODED, GRU, {**ENCODED, **LSTM}])
def test_successors_are_valued_in_one_pass_as_if_stepped(changes: dict[str, Any]) -> None:
    network, (obs, following, resets) = critic(**changes), episodes()
    carry = tuple(torch.randn_like(part) for part in network.initial(N))
    kept = [part.clone() for part in carry]
    valued = network.around(obs, following, carry, resets)
    torch.testing.assert_close(valued.value, network.evaluate(obs, carry, resets))
    assert all(torch.equal(*pair) for pair in zip(carry, kept, strict=True))
    now = carry
    for t in range(T):
        seen, now = network.perception.step({name: values[t] for name, values in obs.items()}, forget(now, resets[t]))
        torch.testing.assert_close(valued.value[t], network(seen), atol=1e-6, rtol=0)
        then, _ = network.perception.step({name: values[t] for name, values in following.items()}, now)
        torch.testing.assert_close(valued.next_value[t], network(then), atol=1e-6, rtol=0)
    for mine, theirs in zip(network.after(obs, carry, resets), now, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=0)


def test_a_critic_may_see_what_the_actor_does_not() -> None:
    policy, network, obs = actor(), critic(sees=["state", "secret"]), groups(0)
    changed = {**obs, "secret": obs["secret"] + 1}
    assert not torch.equal(network.evaluate(obs), network.evaluate(changed))
    action = torch.zeros(T, N, 1)
    before, after = (policy.evaluate(seen, (), None, action).log_prob for seen in (obs, changed))
    assert torch.equal(before, after)


def test_shared_encoders_are_one_and_count_their_statistics_once() -> None:
    policy = actor()
    network = critic(policy, share_encoder=True, **ENCODED)
    both = nn.ModuleList([policy, network])
    theirs, mine = {id(p) for p in policy.parameters()}, {id(p) for p in network.parameters()}
    assert len(theirs & mine) == 1  # the encoder is one flat parameter
    assert len(list(both.parameters())) == len(theirs | mine)
    for part in (policy, network):
        part.observe(groups(0))
    counts = {name: int(buffer) for name, buffer in both.named_buffers() if name.endswith("count")}
    assert counts
    assert set(counts.values()) == {T * N}


def test_encoders_of_another_shape_are_not_shared() -> None:
    """Where there is no other, sharing was asked for in vain, and that is told."""
    with pytest.raises(ConfigError, match=r"^critic\.share_encoder: there is nothing to share: .*Give both the same"):
        critic(actor(), share_encoder=True, encoders={"scan": {"kind": "mlp", "size": 7}})


def test_everything_below_the_trunk_may_be_shared_and_looked_at_once() -> None:
    policy = actor(**GRU)
    network = critic(policy, share_memory=True, sees=["state", "scan"], **ENCODED, **GRU)
    obs, _, resets = episodes()
    seen = policy.perception.sequence(obs, policy.initial(N), resets)
    torch.testing.assert_close(network(seen), network.evaluate(obs, network.initial(N), resets))
    network.observe(obs)
    assert all(int(buffer) == 0 for name, buffer in policy.named_buffers() if name.endswith("count"))
    with pytest.raises(ConfigError, match=r"critic\.sees: differs from the actor's"):
        critic(policy, share_memory=True, **ENCODED, **GRU)


def test_rows_that_are_not_valid_do_not_count() -> None:
    network, obs = critic(), groups(0)
    valid = torch.zeros(T, N, dtype=torch.bool)
    valid[:3] = True
    network.observe(obs, valid)
    assert {int(buffer) for name, buffer in network.named_buffers() if name.endswith("count")} == {3 * N}
