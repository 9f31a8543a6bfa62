"""A policy says again what it said in the rollout, whatever it is composed of."""

from typing import Any

import pytest
import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import ExplorationPolicy
from understudy.core.rng import stream
from understudy.core.spec import ACTION_MASK, Box, Discrete, Group, MultiDiscrete, Spec
from understudy.core.state import capture, restore
from understudy.nn.actor import Actor
from understudy.nn.distributions.categorical import MultiCategorical
from understudy.nn.memory import forget
from understudy.parts.ppo.networks import OnPolicyActorSettings

T, N = 9, 6
BOX = Box((-2.0, 0.1), (2.0, 0.7))
GROUPS = {"state": Group((4,), "float32"), "depth": Group((1, 7, 9), "float32")}
SEGMENTS = {"state": {"body": (0, 3), "goal": (3, 4)}}
CONV = {"kind": "conv", "layers": [{"channels": 2, "kernel": 3, "stride": 2}], "size": 3}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"sees": ["state"]},
    "visual": {"encoders": {"depth": CONV}},
    "segments": {"sees": ["state.goal", "state.body"], "encoders": {"state.body": {"kind": "mlp", "size": 5}}},
    "gru": {"sees": ["state"], "memory": {"kind": "gru", "units": 8}},
    "visual_lstm": {"encoders": {"depth": CONV}, "memory": {"kind": "lstm", "units": 8, "layers": 2}},
}


def policy(shape: str = "plain", spec: Spec | None = None, **changes: Any) -> Actor:
    settings = OnPolicyActorSettings.parse({"hidden": [16], **SHAPES[shape], **changes}, "actor")
    made = Actor(spec or Spec(GROUPS, BOX, segments=SEGMENTS), settings, stream(0, "init"))
    made.observe(observations(50, 1, seed=7))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    return made


def observations(steps: int, environments: int, seed: int = 0) -> Obs:
    rng = torch.Generator().manual_seed(seed)
    return {
        "state": 3 + 2 * torch.randn(steps, environments, 4, generator=rng),
        "depth": torch.rand(steps, environments, 1, 7, 9, generator=rng),
    }


def rolled(made: Actor, obs: Obs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Actions, what was sent, log-probabilities and resets [T, N] of a rollout with episodes that end inside."""
    steps, environments = obs["state"].shape[:2]
    rng, carry = stream(0, "explore"), made.initial(environments)
    resets = torch.rand(steps, environments, generator=torch.Generator().manual_seed(1)) < 0.2
    drawn = []
    for t in range(steps):
        drawn.append(made.draw({name: values[t] for name, values in obs.items()}, forget(carry, resets[t]), rng))
        carry = drawn[-1].carry
    actions, env_action, log_prob = (
        torch.stack([getattr(d, name) for d in drawn]) for name in ("action", "env_action", "log_prob")
    )
    return actions, env_action, log_prob, resets


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["gaussian", "tanh_mean_gaussian", "state_gaussian", "tanh_gaussian", "beta"])
def test_the_first_ratio_is_one(shape: str, kind: str) -> None:
    made, obs = policy(shape, distribution={"kind": kind}), observations(T, N)
    actions, env_action, log_prob, resets = rolled(made, obs)
    judged = made.evaluate(obs, made.initial(N), resets, actions)
    torch.testing.assert_close(torch.exp(judged.log_prob - log_prob), torch.ones(T, N), atol=2e-6, rtol=0)
    assert judged.entropy.shape == (T, N)
    assert judged.features.shape[:2] == (T, N)
    distance = made.distribution.kl(judged.features.detach(), judged.features)
    assert distance.requires_grad
    assert float(distance.detach().abs().max()) < 1e-6
    assert bool(((env_action >= torch.tensor(BOX.low)) & (env_action <= torch.tensor(BOX.high))).all())


@pytest.mark.parametrize("shape", ["plain", "visual", "segments"])
def test_without_memory_rows_of_the_same_number_are_equal_to_the_bit(shape: str) -> None:
    made, obs = policy(shape), observations(T, N)
    actions, _, log_prob, _ = rolled(made, obs)
    for t in range(T):
        now = {name: values[t] for name, values in obs.items()}
        assert torch.equal(made.evaluate(now, (), None, actions[t]).log_prob, log_prob[t])


@pytest.mark.parametrize("shape", ["plain", "visual"])
def test_without_memory_rows_may_be_shuffled(shape: str) -> None:
    made, obs = policy(shape), observations(T, N)
    actions, _, log_prob, _ = rolled(made, obs)
    rows = torch.randperm(T * N, generator=torch.Generator().manual_seed(0))[:20]
    some = {name: values.flatten(0, 1)[rows] for name, values in obs.items()}
    judged = made.evaluate(some, (), None, actions.flatten(0, 1)[rows])
    torch.testing.assert_close(judged.log_prob, log_prob.flatten()[rows], atol=1e-6, rtol=0)


def test_environments_may_be_chosen_where_there_is_memory() -> None:
    made, obs = policy("visual_lstm"), observations(T, N)
    actions, _, log_prob, resets = rolled(made, obs)
    chosen = torch.tensor([5, 1])
    some = {name: values[:, chosen] for name, values in obs.items()}
    carry = tuple(part[chosen] for part in made.initial(N))
    judged = made.evaluate(some, carry, resets[:, chosen], actions[:, chosen])
    torch.testing.assert_close(judged.log_prob, log_prob[:, chosen], atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="say where they start anew"):
        made.evaluate(some, carry, None, actions[:, chosen])


@pytest.mark.parametrize("shape", SHAPES)
def test_every_part_learns(shape: str) -> None:
    made, obs = policy(shape), observations(T, N)
    actions, _, _, resets = rolled(made, obs)
    judged = made.evaluate(obs, made.initial(N), resets, actions)
    named = dict(made.named_parameters())
    gradients = torch.autograd.grad((judged.log_prob + judged.entropy).square().sum(), list(named.values()))
    for name, gradient in zip(named, gradients, strict=True):
        assert bool(gradient.isfinite().all()), name
        assert bool((gradient != 0).any()), name


def test_statistics_move_only_when_told_and_then_the_ratio_does() -> None:
    """P5: the normaliser is frozen while a rollout is learned from."""
    made, obs = policy(), observations(T, N)
    actions, _, log_prob, resets = rolled(made, obs)
    for _ in range(3):
        judged = made.evaluate(obs, (), resets, actions)
    torch.testing.assert_close(judged.log_prob, log_prob, atol=1e-6, rtol=0)
    made.observe({name: 10 * values for name, values in obs.items()}, torch.ones(T, N, dtype=torch.bool))
    moved = (made.evaluate(obs, (), resets, actions).log_prob - log_prob).detach()
    assert float(moved.abs().max()) > 1e-2


def test_the_stored_action_is_the_draw_and_the_sent_one_is_cut() -> None:
    made, obs = policy(distribution={"initial_std": 3.0}), observations(T, N)
    actions, env_action, _, _ = rolled(made, obs)
    assert float(actions.abs().max()) > 1
    inside = actions.abs().amax(-1) <= 1
    centre, half = torch.tensor(BOX.centre).float(), torch.tensor(BOX.half_range).float()
    torch.testing.assert_close(env_action[inside], (centre + half * actions)[inside])
    assert bool((env_action[~inside] != (centre + half * actions)[~inside]).any(-1).all())


def test_greedy_actions_are_the_mode_and_need_no_stream() -> None:
    made, obs = policy("gru"), {name: values[0] for name, values in observations(1, N).items()}
    explorer: ExplorationPolicy = made
    before = torch.get_rng_state()
    (first, carry), (second, _) = (explorer.act(obs, made.initial(N), greedy=True) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    assert not first.requires_grad
    assert carry[0].shape == (N, 1, 8)
    later, _ = explorer.act(obs, carry, greedy=True)
    assert not torch.equal(first, later)


def test_masks_are_obeyed_and_evaluated_alike() -> None:
    spec = Spec(GROUPS, Discrete(5), masked=True)
    made, obs = policy(spec=spec), observations(T, N)
    obs[ACTION_MASK] = torch.rand(T, N, 5, generator=torch.Generator().manual_seed(4)) < 0.5
    obs[ACTION_MASK][..., 2] = True
    actions, env_action, log_prob, resets = rolled(made, obs)
    assert bool(obs[ACTION_MASK].gather(-1, actions.unsqueeze(-1)).all())
    assert torch.equal(actions, env_action)
    judged = made.evaluate(obs, (), resets, actions)
    torch.testing.assert_close(judged.log_prob, log_prob, atol=1e-6, rtol=0)
    with pytest.raises(DataError, match="no action is legal"):
        made.draw({name: torch.zeros_like(values[0]) for name, values in obs.items()}, (), stream(0, "explore"))


def test_several_factors_are_a_density_of_their_own() -> None:
    settings = OnPolicyActorSettings.parse({"sees": ["state"]})
    made = Actor(Spec(GROUPS, MultiDiscrete((3, 2))), settings, stream(0, "init"))
    assert isinstance(made.distribution, MultiCategorical)
    actions, _, log_prob, resets = rolled(made, observations(T, N))
    assert actions.shape == (T, N, 2)
    judged = made.evaluate(observations(T, N), (), resets, actions)
    torch.testing.assert_close(judged.log_prob, log_prob, atol=1e-6, rtol=0)


def test_a_checkpoint_holds_all_of_it() -> None:
    made, obs = policy("visual_lstm"), observations(T, N)
    actions, _, log_prob, resets = rolled(made, obs)
    fresh = Actor(made.spec, made.settings, stream(9, "init"))
    restore(fresh, capture(made), "checkpoint")
    judged = fresh.evaluate(obs, fresh.initial(N), resets, actions)
    torch.testing.assert_close(judged.log_prob, log_prob, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sees": []}, r"actor\.sees: 'depth' is an image without an encoder"),
        ({"encoders": {"deph": CONV}}, r"actor\.encoders\.deph: the role does not see this"),
        ({"sees": ["stat"]}, "Did you mean 'state'"),
        ({"memory": {"kind": "gur"}}, r"actor\.memory\.kind"),
        ({"activation": "swish"}, r"actor\.activation"),
        ({"distribution": {"init_std": 1}}, "Did you mean 'initial_std'"),
        ({"trunk": {"hidden": [3]}}, "Did you mean 'hidden'"),
        ({"density": {"kind": "beta"}}, "Did you mean 'distribution'"),
    ],
)
def test_mistakes_are_told_when_it_is_built(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        policy("plain", **changes)
