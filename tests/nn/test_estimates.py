"""Estimates inside a policy: of the right columns, in the right places, always when it acts for itself, and the very
same again when an action is judged."""

from typing import Any

import pytest
import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError
from understudy.core.rng import stream
from understudy.core.spec import Box, Discrete, Group, Spec
from understudy.nn.actor import Actor
from understudy.nn.estimator import ESTIMATED, Estimator, Probability
from understudy.nn.memory import forget
from understudy.parts.ppo.networks import OnPolicyActorSettings
from understudy.sources.playing.rollout_actor import GaussianActor, SamplingActor, rollout_actor

STEPS, COUNT = 9, 6
GROUPS = {"state": Group((6,), "float32"), "truth": Group((5,), "float32"), "camera": Group((3, 4, 4), "uint8")}
SEGMENTS = {
    "state": {"angle": (0, 2), "speed": (2, 5), "command": (5, 6)},
    "truth": {"mass": (0, 1), "speed": (1, 4), "wind": (4, 5), "drag": (0, 5)},
}
SPEC = Spec(GROUPS, Box((-2.0, 0.1), (2.0, 0.7)), segments=SEGMENTS)
GRU, LSTM = {"kind": "gru", "units": 5}, {"kind": "lstm", "units": 4, "layers": 2}
SEES = ["truth.wind", "state.speed", "state.angle"]
TARGETS = ["state.speed", "truth.wind"]
SHAPES: dict[str, dict[str, Any]] = {
    "rows": {"sees": SEES, "estimate": {"targets": TARGETS}},
    "columns of an input": {"sees": ["state"], "estimate": {"targets": ["state.speed"]}},
    "own memory": {"sees": SEES, "estimate": {"targets": TARGETS, "memory": GRU}},
    "two memories": {"sees": SEES, "memory": GRU, "estimate": {"targets": TARGETS, "memory": LSTM}},
    "the actor's": {"sees": SEES, "memory": LSTM, "estimate": {"targets": TARGETS}},
    "an encoder": {
        "sees": SEES,
        "estimate": {
            "targets": ["truth.wind"],
            "sees": ["state", "camera"],
            "encoders": {"camera": {"kind": "conv", "layers": [{"channels": 2, "kernel": 3}], "size": 3}},
        },
    },
}
IDLE: dict[str, dict[str, Any]] = {
    "watching": {"sees": ["state"], "estimate": {"targets": ["truth.drag"]}},
    "not replacing": {"sees": ["state"], "estimate": {"targets": ["state.speed"], "replace": []}},
    "on the actor's memory": {
        "sees": ["state"],
        "memory": GRU,
        "estimate": {"targets": ["truth.wind"], "share_memory": True},
    },
    "the next step": {"sees": ["state"], "estimate": {"targets": ["state"], "step": "next"}},
}


def policy(shape: dict[str, Any], spec: Spec = SPEC, probability: float = 0.5, **changes: Any) -> Actor:
    """One whose every number is another than at birth."""
    settings = {"hidden": [16], **shape, **changes}
    made = Actor(spec, OnPolicyActorSettings.parse(settings, "algo.actor"), stream(0, "init"), where="algo.actor")
    made.observe(observations(50, 1, seed=7))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    if made.estimator is not None:
        made.estimator.probability = Probability(torch.tensor(probability, dtype=torch.float64))
    return made


def estimator_of(made: Actor) -> Estimator:
    assert made.estimator is not None
    return made.estimator


def observations(steps: int = STEPS, count: int = COUNT, seed: int = 0) -> Obs:
    rng = torch.Generator().manual_seed(seed)
    return {
        "state": 3 + 2 * torch.randn(steps, count, 6, generator=rng),
        "truth": -1 + 3 * torch.randn(steps, count, 5, generator=rng),
        "camera": torch.randint(0, 256, (steps, count, 3, 4, 4), generator=rng, dtype=torch.uint8),
    }


def at(obs: Obs, t: int) -> Obs:
    return {name: values[t] for name, values in obs.items()}


def rolled(made: Actor, obs: Obs, *, one_by_one: bool) -> tuple[Tensor, Tensor, Obs, Tensor]:
    """Actions, log-probabilities, what else was drawn and resets [T, N], as a source plays them."""
    resets = torch.rand(STEPS, COUNT, generator=torch.Generator().manual_seed(1)) < 0.2
    rng, carry = stream(0, "explore"), made.initial(COUNT)
    device = torch.device("cpu")
    player = SamplingActor(made, rng, device) if one_by_one else rollout_actor(made, STEPS, COUNT, rng, device)
    assert one_by_one or isinstance(player, GaussianActor)
    with torch.no_grad():
        for t in range(STEPS):
            _, carry = player.play(t, at(obs, t), forget(carry, resets[t]))
        action, log_prob, extra = player.drawn(obs)
    return action, log_prob, dict(extra), resets


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_shown_is_judged_again_and_the_first_ratio_is_one(shape: str, one_by_one: bool) -> None:
    """With another mask, or none, it is not: that is what redrawing it would do."""
    made, obs = policy(SHAPES[shape]), observations()
    action, log_prob, extra, resets = rolled(made, obs, one_by_one=one_by_one)
    shown, carry = {**obs, **extra}, made.initial(COUNT)
    assert 0.2 < float(extra[ESTIMATED].float().mean()) < 0.8
    judged = made.evaluate(shown, carry, resets, action).log_prob.detach()
    torch.testing.assert_close(judged, log_prob, atol=3e-6, rtol=0)
    anew = made.evaluate(obs, carry, resets, action).log_prob.detach()
    assert float((anew - log_prob).abs().max()) > 1e-2, "estimates in every row"
    true = made.perception.sequence(obs, carry, resets)
    assert float((made.judge(true, action).log_prob.detach() - log_prob).abs().max()) > 1e-2, "in none"


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_the_mask_hold_estimates_and_others_the_truth(shape: str) -> None:
    made, obs = policy(SHAPES[shape]), observations()
    estimator = estimator_of(made)
    _, _, extra, resets = rolled(made, obs, one_by_one=False)
    mask, own = extra[ESTIMATED], made.perception.carried
    with torch.no_grad():
        guessed = estimator(estimator.look(obs, made.initial(COUNT)[own:], resets))
    for group in {target.group for target in estimator.targets}:
        expected = obs[group].clone()
        for target in estimator.targets:
            if target.group == group:
                places = guessed[..., estimator.places[target.name]]
                expected[..., target.picked][mask] = places[mask]
        torch.testing.assert_close(extra[group], expected, atol=1e-5, rtol=0)
        assert torch.equal(extra[group][~mask], obs[group][~mask])


@pytest.mark.parametrize("shape", SHAPES)
def test_whoever_acts_for_himself_never_reads_what_he_estimates(shape: str) -> None:
    """Whatever the probability while it learned: nothing is drawn, and the truth may be missing, or no number."""
    actions = []
    for probability in (0.0, 0.5, 1.0):
        made, obs = policy(SHAPES[shape], probability=probability), observations()
        poisoned = {name: values.clone() for name, values in obs.items()}
        for target in estimator_of(made).targets:
            poisoned[target.group][..., target.picked] = torch.nan
        read = {entry.group for entry in made.inputs}
        for seen in (obs, poisoned, {name: values for name, values in poisoned.items() if name in read}):
            carry = made.initial(COUNT)
            for t in range(3):
                action, carry = made.act(at(seen, t), carry, greedy=True)
            actions.append(action)
    assert all(torch.equal(actions[0], other) for other in actions)
    assert bool(actions[0].isfinite().all())
    assert "truth" not in read


@pytest.mark.parametrize("shape", SHAPES)
def test_nobody_trains_it_through_what_the_actor_does_with_estimates(shape: str) -> None:
    """Whether they were stored, or are made again for rows that say nothing of them (demonstrations)."""
    made, obs = policy(SHAPES[shape]), observations()
    action, _, extra, resets = rolled(made, obs, one_by_one=False)
    theirs = list(estimator_of(made).parameters())
    others = [one for one in made.parameters() if all(one is not other for other in theirs)]
    for seen in (obs, {**obs, **extra}):
        likely = made.evaluate(seen, made.initial(COUNT), resets, action).log_prob.sum()
        reached = torch.autograd.grad(likely, [*theirs, *others], allow_unused=True)
        assert all(gradient is None for gradient in reached[: len(theirs)])
        assert all(gradient is not None for gradient in reached[len(theirs) :])


@pytest.mark.parametrize("shape", IDLE)
def test_what_replaces_nothing_changes_no_action(shape: str) -> None:
    settings = {name: value for name, value in IDLE[shape].items() if name != "estimate"}
    made, plain = policy(IDLE[shape]), policy(settings)
    obs = at(observations(), 0)
    mine, theirs = (one.draw(obs, one.initial(COUNT), stream(0, "explore")) for one in (made, plain))
    assert torch.equal(mine.action, theirs.action)
    assert torch.equal(mine.log_prob, theirs.log_prob)
    assert mine.extra == {}
    assert estimator_of(made).idle
    assert [entry.name for entry in plain.inputs] == ["state"]


def test_sizes_and_order_are_those_of_the_targets() -> None:
    """Not of groups that have segments of the same name, nor of what the actor sees, nor of its order."""
    made, obs = (
        policy({"sees": SEES, "estimate": {"targets": ["truth.speed", "state.speed", "truth.mass"]}}),
        observations(),
    )
    estimator = estimator_of(made)
    assert estimator.size == 7
    assert estimator.places == {"truth.speed": slice(0, 3), "state.speed": slice(3, 6), "truth.mass": slice(6, 7)}
    by_hand = torch.cat([obs["truth"][..., 1:4], obs["state"][..., 2:5], obs["truth"][..., 0:1]], dim=-1)
    assert torch.equal(estimator.true(obs), by_hand)
    assert [entry.name for entry in estimator.replaced] == ["state.speed"]
    perfect = estimator.shown(obs, estimator.true(obs))
    assert torch.equal(perfect["state"], obs["state"])
    assert "truth" not in perfect, "the actor sees nothing of what is estimated there"


def test_estimates_have_the_units_of_their_targets() -> None:
    made, obs = policy(SHAPES["rows"]), observations(200, 10)
    estimator = estimator_of(made)
    with torch.no_grad():
        estimator.head.flat.zero_()
    estimator.normalizer.update(estimator.true(obs), None)
    seen = estimator.look(obs, (), None)
    torch.testing.assert_close(estimator(seen)[0, 0], estimator.normalizer.mean.float())
    assert float((estimator.normalizer.mean[:3] - 3.0).abs().max()) < 0.3
    plain = policy({"sees": SEES, "estimate": {"targets": TARGETS, "normalize_targets": False}})
    estimator = estimator_of(plain)
    seen = estimator.look(obs, (), None)
    assert torch.equal(estimator(seen), estimator.head(seen))


def test_columns_of_targets_are_hidden_from_it_where_nothing_is_said() -> None:
    estimator = estimator_of(policy(SHAPES["columns of an input"]))
    assert estimator.perception is not None
    (entry,) = estimator.perception.inputs
    assert entry.visible == (0, 1, 5)
    estimator = estimator_of(
        policy({"sees": ["state"], "hide": {"state": (0, 3)}, "estimate": {"targets": ["state.speed"]}})
    )
    assert estimator.perception is not None
    (entry,) = estimator.perception.inputs
    assert entry.visible == (1, 5), "nor does it see what the actor may not"


def test_a_policy_that_chooses_estimates_too() -> None:
    spec = Spec(GROUPS, Discrete(4), segments=SEGMENTS)
    made, obs = policy(SHAPES["two memories"], spec), observations()
    action, log_prob, extra, resets = rolled(made, obs, one_by_one=True)
    judged = made.evaluate({**obs, **extra}, made.initial(COUNT), resets, action).log_prob.detach()
    torch.testing.assert_close(judged, log_prob, atol=3e-6, rtol=0)
    first = at(obs, 0)
    ratings = made.ratings(first, made.initial(COUNT))
    assert torch.equal(ratings.argmax(-1), made.act(first, made.initial(COUNT), greedy=True)[0])


def test_certain_masks_draw_nothing() -> None:
    for likely, rows in ((0.0, 0), (1.0, 12)):
        rng = stream(0, "explore")
        before = rng.get_state()
        assert int(Probability(torch.tensor(likely)).draw((3, 4), rng).sum()) == rows
        assert torch.equal(before, rng.get_state())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"estimate": {"targets": []}}, r"estimate\.targets: wrong value"),
        (
            {"estimate": {"targets": ["truth.masss"]}},
            r"estimate\.targets: no group or segment.*Did you mean 'truth\.mass'",
        ),
        ({"estimate": {"targets": ["truth.mass", "truth.drag"]}}, r"estimate\.targets: .*share columns"),
        ({"estimate": {"targets": ["camera"]}}, r"estimate\.targets: 'camera' is no vector"),
        (
            {"estimate": {"targets": ["truth.mass"], "sees": ["stat"]}},
            r"estimate\.sees: no group or segment.*Did you mean",
        ),
        (
            {"estimate": {"targets": ["state.speed"], "sees": ["state"]}},
            r"estimate\.sees: it sees what it is to estimate \('state' has columns of 'state\.speed'\)\. Name segments",
        ),
        (
            {"sees": ["state"], "memory": GRU, "estimate": {"targets": ["state.speed"], "share_memory": True}},
            r"estimate\.targets: it sees what it is to estimate",
        ),
        (
            {"sees": ["state.speed"], "estimate": {"targets": ["state.speed"]}},
            r"estimate\.sees: the actor sees nothing but",
        ),
        (
            {"estimate": {"targets": ["truth.mass"], "replace": ["truth.mas"]}},
            r"estimate\.replace: .*Did you mean 'truth\.mass'",
        ),
        (
            {"estimate": {"targets": ["truth.mass"], "replace": ["truth.mass"]}},
            r"estimate\.replace: the actor does not see 'truth\.mass': got \['state'\]\. Name it among",
        ),
        ({"estimate": {"targets": ["truth.mass"], "share_memory": True}}, r"share_memory: the actor has no memory"),
        ({"estimate": {"targets": ["truth.mass"], "dropout": 0.1}}, "dropout is 0"),
        ({"estimate": {"targets": ["state.speed"], "step": "next", "replace": ["state.speed"]}}, "leave replace out"),
        (
            {"memory": GRU, "estimate": {"targets": ["truth.mass"], "share_memory": True, "replace": ["truth.mass"]}},
            "leave replace out",
        ),
        (
            {"memory": GRU, "estimate": {"targets": ["truth.mass"], "share_memory": True, "memory": GRU}},
            "leave out sees, hide, encoders and memory",
        ),
    ],
)
def test_what_cannot_be_is_told_before_the_first_step(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        policy({"sees": ["state"], **settings})
