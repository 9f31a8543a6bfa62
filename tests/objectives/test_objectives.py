"""Objectives beside PPO: each hook gets what is promised, weights multiply, order is nothing, and nothing is PPO."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from mirror import Mirror
from novelty import Novelty
from torch import Tensor

import understudy as us
from learners import differences
from rollouts import build_ppo
from understudy.algorithms import ppo
from understudy.core.batch import POLICY_WEIGHT, Rollout
from understudy.core.errors import ConfigError
from understudy.core.plugins import module_names
from understudy.core.state import State, capture
from understudy.envs.vector.local import LocalVectorEnv
from understudy.objectives import Objectives, Weights
from understudy.parts.ppo.batch import PPOBatch, Tally
from understudy.run.checkpoint import list_checkpoints, load_checkpoint
from understudy.run.config import parse_config, read_resolved
from understudy.sources.rollout import RolloutSource
from worlds import tiny_settings

COUNT, STEPS, WORLD = 3, 8, "Pendulum-v1"
ENTRY_POINTS = "[understudy.objectives]\nnovelty = novelty\nmirror = mirror\nlost = nowhere_to_be_found\n"
MEMORY = {"memory": {"kind": "gru", "units": 4}, "hidden": [8]}
SHAPES: list[dict[str, Any]] = [
    {"schedule": "adaptive"},
    {"schedule": "constant"},
    {"schedule": "constant", "actor": MEMORY, "critic": MEMORY},
    {"schedule": "adaptive", "actor": MEMORY, "critic": {**MEMORY, "share_memory": True}},
]


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What pip leaves behind: a .dist-info folder that names the modules beside this file."""
    info = tmp_path / "site" / "small_objectives-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: small_objectives\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    module_names.cache_clear()
    yield
    module_names.cache_clear()


def learner(**settings: Any) -> tuple[ppo.PPO, RolloutSource]:
    world = LocalVectorEnv(WORLD, COUNT)
    role = {"hidden": [8]}
    algorithm = build_ppo(
        world.spec, COUNT, **{"actor": role, "critic": role, "epochs": 2, "minibatches": 2, **settings}
    )
    return algorithm, RolloutSource.build(world, algorithm.policy, STEPS, 0, recorders=algorithm.recorders())


def learned(updates: int = 3, **settings: Any) -> State:
    """What moved in the networks after some updates."""
    algorithm, source = learner(**settings)
    for _ in range(updates):
        algorithm.update(source.next(algorithm.policy))
    return capture(algorithm)


def of_ppo(state: State) -> State:
    return {path: leaf for path, leaf in state.items() if not path.startswith("objectives")}


def through_the_graph(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ppo, "fused_steps_for", lambda learner, batch: None)


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_what_weighs_nothing_changes_nothing_to_the_bit(shape: int, monkeypatch: pytest.MonkeyPatch) -> None:
    through_the_graph(monkeypatch)
    alone = learned(**SHAPES[shape])
    for objectives in ({"novelty": {"weight": 0.0}}, {"mirror": {"near": 0.0, "idle": 0.0, "mirrored": False}}):
        beside = learned(**SHAPES[shape], objectives=objectives)
        assert differences(alone, of_ppo(beside)) == []
    weighed = learned(**SHAPES[shape], objectives={"novelty": {"weight": 0.1}})
    assert differences(alone, of_ppo(weighed)) != []


def test_only_the_critic_learns_while_it_warms_up() -> None:
    """Not even the policy's normaliser moves; afterwards everything does. 0 is PPO to the bit."""
    for shape in (SHAPES[0], SHAPES[2]):
        algorithm, source = learner(**shape, critic_warmup=2, entropy_coef=0.1)
        first = capture(algorithm)
        for update in range(3):
            metrics = algorithm.update(source.next(algorithm.policy)).metrics
            moved = {path.split(".")[0] for path in differences(first, capture(algorithm))}
            assert ("policy" in moved) == ("loss/policy" in metrics) == (update == 2)
            assert "value" in moved
    assert differences(learned(critic_warmup=0), learned()) == []
    shared = {**MEMORY, "share_memory": True}
    with pytest.raises(ConfigError, match=r"critic_warmup.*shares parameters"):
        learner(actor=MEMORY, critic=shared, critic_warmup=1)


def test_a_policy_of_small_sigma_is_not_thrown_by_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the critic is warm: Adam's first step moves every weight by the rate, which grows from the smallest. The
    critic keeps its own."""
    rates: dict[str, list[float]] = {"policy": [], "value": []}
    take = ppo.PPO.step

    def step(self: ppo.PPO, network: str, loss: Tensor, rate: Tensor) -> None:
        rates[network].append(float(rate))
        take(self, network, loss, rate)

    through_the_graph(monkeypatch)
    monkeypatch.setattr(ppo.PPO, "step", step)
    for own in (None, 3e-3):
        for seen in rates.values():
            seen.clear()
        wide = {"hidden": [64, 64], "distribution": {"kind": "gaussian", "initial_std": 0.05}}
        algorithm, source = learner(actor=wide, critic_warmup=1, critic_learning_rate=own, minibatches=1)
        algorithm.update(source.next(algorithm.policy))
        assert rates["policy"] == []
        metrics = algorithm.update(source.next(algorithm.policy)).metrics
        assert rates["policy"][0] == pytest.approx(1e-5)
        assert rates["policy"][1] > rates["policy"][0]
        assert float(metrics["policy/kl"]) < 0.01
        assert set(rates["value"]) == {own or 1e-3}
    assert set(algorithm.config.model_copy(update={"schedule": "constant"}).learning_rates().values()) == {1e-3, 3e-3}


def test_ppos_own_weight_falls_to_nothing_but_the_objectives(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 0 neither surrogate nor entropy nor advantages move the policy, whatever the ratios; 1 is PPO to the bit."""
    through_the_graph(monkeypatch)
    assert differences(learned(policy_coef=1.0), learned()) == []
    near: dict[str, Any] = {"objectives": {"mirror": {"mirrored": False, "idle": 0.0}}, "schedule": "constant"}
    states = []
    for entropy_coef, scale in ((0.0, 1.0), (0.5, 1e30)):
        algorithm, source = learner(**near, policy_coef=0.0, entropy_coef=entropy_coef, normalize_advantage=False)
        rollout = source.next(algorithm.policy)
        metrics = algorithm.update(replace(rollout, log_prob=rollout.log_prob * scale, reward=rollout.reward * scale))
        assert all(bool(number.isfinite()) for name, number in metrics.metrics.items() if "policy" in name)
        states.append(capture(algorithm.policy))
    assert differences(*states) == []
    falls = {"start": 1.0, "end": 0.0, "over": 2}
    algorithm, source = learner(policy_coef=falls, **near)
    assert [algorithm.policy_coef for _ in range(3) if algorithm.update(source.next(algorithm.policy))] == [0.5, 0, 0]
    assert differences(learned(3, policy_coef=falls, **near), learned(3, **near)) != []
    with pytest.raises(ConfigError, match=r"policy_coef: nothing would move the policy"):
        learner(policy_coef=0.0)


def test_an_evaluation_has_what_each_encoder_says() -> None:
    role = {"hidden": [8], "encoders": {"state": {"kind": "mlp", "size": 5}}}
    algorithm, source = learner(actor=role, objectives={"mirror": {"mirrored": False}}, epochs=1, minibatches=1)
    rollout = source.next(algorithm.policy)
    algorithm.update(rollout)
    mirror = algorithm.objectives.members["mirror"]
    assert isinstance(mirror, Mirror)
    batch, evaluation = mirror.calls[-1][1]
    latents = evaluation.policy.encoder_latents(batch.policy_obs)
    assert list(latents) == ["state"]
    assert latents["state"].shape == (COUNT * STEPS, 5)
    assert latents["state"].requires_grad
    assert torch.equal(latents["state"], algorithm.policy.perception.look(batch.policy_obs)), "the only input"
    plain, _ = learner()
    assert plain.policy.encoder_latents(rollout.obs) == {}


def test_the_order_in_which_objectives_are_written_is_nothing() -> None:
    orders: list[dict[str, Any]] = [
        {"mirror": {}, "novelty": {"weight": 0.3}},
        {"novelty": {"weight": 0.3}, "mirror": {}},
    ]
    one, other = (learned(objectives=order) for order in orders)
    assert differences(one, other) == []
    algorithm, _ = learner(objectives=orders[1])
    assert list(algorithm.objectives.members) == ["mirror", "novelty"]


def test_rewards_are_added_with_their_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """PPO of rewards to which somebody else added the term learns the same, to the bit."""
    through_the_graph(monkeypatch)
    rewarded, source = learner(objectives={"novelty": {"weight": 2.5}})
    plain, _ = learner()
    novelty = rewarded.objectives.members["novelty"]
    assert isinstance(novelty, Novelty)
    for _ in range(2):
        rollout = source.next(rewarded.policy)
        surprise = novelty.rewards(rollout)["surprise"].detach()
        plain.update(replace(rollout, reward=rollout.reward + 2.5 * surprise))
        metrics = rewarded.update(rollout).metrics
        assert float(metrics["reward/novelty.surprise"]) == pytest.approx(float(surprise.mean()))
        assert "novelty/loss" in metrics
    assert differences(capture(plain), of_ppo(capture(rewarded))) == []
    assert novelty.lessons == 2


def test_losses_are_added_with_their_weight_as_means_of_rows_that_count() -> None:
    def loss(**weights: float) -> float:
        algorithm, source = learner(objectives={"mirror": {"mirrored": False, **weights}}, minibatches=1, epochs=1)
        losses: list[Tensor] = []
        algorithm.step = lambda network, loss, rate: losses.append(loss) if network == "policy" else None  # type: ignore[method-assign]
        rollout = source.next(algorithm.policy)
        valid = torch.ones_like(rollout.valid)
        valid[2, 1] = False
        algorithm.update(replace(rollout, valid=valid))
        mirror = algorithm.objectives.members["mirror"]
        assert isinstance(mirror, Mirror)
        batch, evaluation = mirror.calls[-1][1]
        assert len(batch.advantage) == COUNT * STEPS - 1
        nears.append(float(mirror.loss(batch, evaluation)["near"].detach().mean()))
        return float(losses[0].detach())

    nears: list[float] = []
    nothing, near, both = loss(near=0, idle=0), loss(near=3.0, idle=0), loss(near=3.0, idle=7.0)
    assert near - nothing == pytest.approx(3.0 * nears[0], rel=1e-4)
    assert both - near == pytest.approx(7.0, rel=1e-5)


def test_every_hook_is_called_when_and_with_what_is_promised() -> None:
    algorithm, source = learner(objectives={"mirror": {}, "novelty": {}}, schedule="constant", entropy_coef=0.0)
    mirror = algorithm.objectives.members["mirror"]
    assert isinstance(mirror, Mirror)
    rollout = source.next(algorithm.policy)
    recorded = [given for name, given in mirror.calls if name == "record"]
    assert torch.equal(torch.stack([obs["state"] for obs in recorded]), rollout.obs["state"])
    assert torch.equal(rollout.extra["mirror/label"], rollout.obs["state"].mean(-1))
    assert torch.equal(rollout.extra["mirror/age"][:, 0], torch.arange(float(STEPS)))
    mirror.calls.clear()
    algorithm.update(rollout)
    assert [name for name, _ in mirror.calls] == ["augment", "loss"] * 4
    seen = []
    for (_, batch), (_, (doubled, evaluation)) in zip(mirror.calls[::2], mirror.calls[1::2], strict=True):
        half = len(batch.advantage)
        seen.append(batch.advantage)
        assert doubled.advantage.shape == evaluation.log_prob.shape == evaluation.entropy.shape == (2 * half,)
        assert torch.equal(doubled.policy_obs["state"][half:], -batch.policy_obs["state"]), "groups, by name"
        assert evaluation.latent.shape == (2 * half, 3)
        assert evaluation.log_prob.requires_grad
    epoch = torch.cat(seen[:2])
    assert float(epoch.mean()) == pytest.approx(0.0, abs=1e-5), "advantages are standardised before"
    assert float(epoch.std(correction=0)) == pytest.approx(1.0, rel=1e-4)


def test_augmented_rows_reach_both_losses() -> None:
    for path in ("policy.trunk.flat", "value.trunk.flat"):
        one, other = (
            learned(1, objectives={"mirror": {"mirrored": mirrored, "near": 0, "idle": 0}})
            for mirrored in (True, False)
        )
        assert path in differences(one, other)


def test_a_parameter_that_a_loss_does_not_reach_stays_where_it_is() -> None:
    algorithm, _ = learner()
    before = capture(algorithm.policy)
    algorithm.step("policy", algorithm.policy.trunk(torch.ones(2, 3)).sum(), algorithm.rates["policy"])
    assert differences(before, capture(algorithm.policy)) == ["trunk.flat"]


def test_a_resumed_run_with_objectives_is_the_uninterrupted_one(tmp_path: Path) -> None:
    objectives = {"novelty": {"weight": 0.2}, "mirror": {"mirrored": False}}
    algo = {"name": "ppo", "epochs": 2, "minibatches": 2, "actor": MEMORY, "critic": MEMORY, "objectives": objectives}
    words: dict[str, Any] = {"algo": algo, "env": {"id": WORLD}, "source": {"num_envs": 3, "rollout_length": 7}}
    states = []
    for name, halves in (("whole", False), ("halves", True)):
        settings = tiny_settings("ppo", tmp_path / name, **words, save_every=2, eval_every=6, eval_episodes=1)
        run = us.train(parse_config({**settings, "updates": 3 if halves else 6}))
        if halves:
            us.resume(run.path, updates=6)
        last = list_checkpoints(run.path / "checkpoints")[-1]
        states.append(load_checkpoint(run.path / "checkpoints", last).state)
        assert read_resolved(run.path / "config.yaml").algo.model_dump()["objectives"]["novelty"] == {"weight": 0.2}
    assert differences(*states) == []
    assert {"predictor.weight", "adam.count", "noise", "lessons"} <= {
        path.removeprefix("algorithm.objectives.members.novelty.") for path in states[0]
    }
    assert states[0]["algorithm.objectives.members.novelty.lessons"] == 6
    assert "source.recorder_carries.mirror.0" in states[0]


def test_a_row_counts_what_it_weighs_in_the_policys_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    through_the_graph(monkeypatch)
    states = []
    for weights in (1.0, None, 0.0):
        algorithm, source = learner(entropy_coef=0.0, schedule="constant")
        rollout = source.next(algorithm.policy)
        extra = {} if weights is None else {POLICY_WEIGHT: torch.full_like(rollout.reward, weights)}
        before = capture(algorithm.policy.trunk)
        algorithm.update(replace(rollout, extra=extra))
        states.append(capture(algorithm))
    assert differences(states[0], states[1]) == []
    assert not [path for path in differences(states[0], states[2]) if path.startswith("value")], "values are learned"
    assert (
        differences(
            before,
            {
                path.removeprefix("policy.trunk."): leaf
                for path, leaf in states[2].items()
                if path.startswith("policy.trunk")
            },
        )
        == []
    )


def test_rows_of_unequal_weight_take_the_plain_path() -> None:
    """The fused one knows no weights: a row of weight 0 would teach there."""
    trunks = []
    for poison in (0.0, 5.0):
        algorithm, source = learner(schedule="constant", normalize_advantage=False, gae_lambda=0.0)
        rollout = source.next(algorithm.policy)
        weight = torch.ones_like(rollout.reward)
        weight[3] = 0.0
        reward = rollout.reward.clone()
        reward[3] += poison
        algorithm.update(replace(rollout, reward=reward, extra={POLICY_WEIGHT: weight}))
        trunks.append(capture(algorithm.policy))
    assert differences(*trunks) == []


def test_what_a_policy_drew_is_shown_to_whoever_evaluates_it() -> None:
    algorithm, source = learner(objectives={"mirror": {}}, epochs=1, minibatches=1)
    rollout = source.next(algorithm.policy)
    coin = (rollout.action > 0).float()
    algorithm.update(replace(rollout, extra={**rollout.extra, "coin": coin}))
    mirror = algorithm.objectives.members["mirror"]
    assert isinstance(mirror, Mirror)
    ((_, batch),) = [call for call in mirror.calls if call[0] == "augment"]
    assert torch.equal(batch.policy_obs["coin"], (batch.action > 0).float())
    assert torch.equal(batch.extra["coin"], (batch.action > 0).float())


@dataclass
class Silent:
    weights: Weights = field(default_factory=Weights)


@dataclass
class Wrong:
    weights: Weights = field(default_factory=lambda: Weights(rewards={"style": 1.0}))
    terms: tuple[str, ...] = ("stile",)
    rows: int = COUNT

    def rewards(self, rollout: Rollout) -> dict[str, Tensor]:
        return dict.fromkeys(self.terms, rollout.reward[:, : self.rows])


@dataclass
class Unused(Wrong):
    weights: Weights = field(default_factory=lambda: Weights(losses={"style": 1.0}))


@dataclass
class Weightless:
    def augment(self, batch: PPOBatch) -> PPOBatch:
        return batch


@pytest.mark.parametrize(
    ("objectives", "told"),
    [
        ({"noveltie": {}}, r"algo\.objectives\.noveltie: no such objective\. Did you mean 'novelty'\?"),
        ({"lost": {}}, r"algo\.objectives: 'lost' is registered as 'nowhere_to_be_found', which cannot be imported"),
        ({"mirror": {"nera": 1.0}}, r"algo\.objectives\.mirror\.nera: no such setting. Did you mean 'near'\?"),
        ({"novelty": {"weight": "much"}}, r"algo\.objectives\.novelty\.weight: wrong value: got 'much'"),
        ({"novelty": {"weight": math.nan}}, r"algo\.objectives\.novelty\.weight: wrong value"),
        ({"novelty": 3}, r"algo\.objectives\.novelty: wrong value"),
        (["novelty"], r"algo\.objectives: wrong value"),
    ],
)
def test_mistakes_in_settings_are_told_before_anything_is_built(objectives: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ppo.Config.parse({"objectives": objectives}, "algo")


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (Silent, "offers nothing: expected any of record, prepare, rewards, augment, loss, learn"),
        (Unused, r"weights of \['style'\] are unused: it offers no `loss`"),
        (Weightless, "says no weights: expected an attribute `weights`"),
    ],
)
def test_an_objective_that_cannot_serve_is_refused_when_it_is_built(
    module: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("novelty.build", lambda config, context: module())
    with pytest.raises(ConfigError, match=rf"algo\.objectives\.novelty: {told}"):
        learner(objectives={"novelty": {}})


def test_terms_are_those_that_have_weights_and_nothing_broadcasts() -> None:
    _, source = learner()
    rollout = source.next(learner()[0].policy)
    for objective, told in (
        (Wrong(), r"terms of `rewards` are not its weights: got \['stile'\], expected \['style'\]"),
        (Wrong(terms=()), r"got \[\], expected \['style'\]"),
        (Wrong(terms=("style",), rows=1), r"'style' of `rewards` has another shape: got \[8, 1\], expected \[8, 3\]"),
    ):
        with pytest.raises(ConfigError, match=told):
            Objectives({"wrong": objective}).add_rewards(rollout, rollout.reward)
    Objectives({"right": Wrong(terms=("style",))}).add_rewards(rollout, rollout.reward)
    assert Tally().scalars == {}
