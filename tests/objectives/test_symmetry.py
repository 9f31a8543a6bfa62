"""Symmetry beside PPO: images of rows, their densities and memory are right, and policies become symmetric."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import understudy as us
from learners import differences
from rollouts import build_ppo
from understudy.algorithms import ppo
from understudy.core.batch import Rollout
from understudy.core.errors import ConfigError
from understudy.envs.vector.local import LocalVectorEnv
from understudy.losses.symmetry import mirror_loss
from understudy.nn.actor import Actor
from understudy.nn.mlp import MLP
from understudy.objectives import Evaluation
from understudy.objectives.symmetry import Symmetry
from understudy.parts.ppo.batch import PLAYED, RESETS, VALID, PPOBatch, Tally
from understudy.run.checkpoint import list_checkpoints, load_checkpoint
from understudy.run.config import load_config, parse_config
from understudy.sources.rollout import RolloutSource
from worlds import tiny_settings

COUNT, STEPS = 3, 8
SIGNS = torch.tensor([1.0, -1.0, -1.0])
PENDULUM: dict[str, Any] = {"observations": {"state": {"signs": [1, -1, -1]}}, "actions": {"signs": [-1]}}
CARTPOLE: dict[str, Any] = {"observations": {"state": {"signs": [-1] * 4}}, "actions": {"permutation": [1, 0]}}
MEMORY = {"memory": {"kind": "gru", "units": 4}, "hidden": [8]}
ENCODED = {"encoders": {"state": {"kind": "mlp", "size": 5}}, "hidden": [8]}
LINEAR = {"hidden": [], "normalize": False}


def learner(
    role: dict[str, Any], world: str = "Pendulum-v1", told: dict[str, Any] = PENDULUM, **settings: Any
) -> tuple[ppo.PPO, RolloutSource]:
    env = LocalVectorEnv(world, COUNT)
    algorithm = build_ppo(
        env.spec, COUNT, actor=role, critic=role, minibatches=1, epochs=1, objectives={"symmetry": {**told, **settings}}
    )
    return algorithm, RolloutSource.build(env, algorithm.policy, STEPS, 0)


def minibatch_of(algorithm: ppo.PPO, rollout: Rollout) -> PPOBatch:
    batch, _ = algorithm._prepare(rollout)
    return algorithm.minibatch(batch, torch.arange(batch.action.shape[1 if batch.sequential else 0]))


def set_linear(trunk: MLP, weights: list[float], bias: float) -> None:
    """One layer of Pendulum's three columns."""
    (layer,) = trunk.layers()
    layer.weight.copy_(torch.tensor(weights).view_as(layer.weight))
    layer.bias.fill_(bias)


def linear_gradient(loss: Tensor, trunk: MLP) -> Tensor:
    """[4]: of the three weights and the bias."""
    (layer,) = trunk.layout.layers(torch.autograd.grad(loss, [trunk.flat])[0])
    return torch.cat([layer.weight.flatten(), layer.bias.flatten()])


def make_symmetric(algorithm: ppo.PPO) -> None:
    """μ is odd: a linear map of sin θ and θ̇, without bias."""
    set_linear(algorithm.policy.trunk, [0.0, 0.7, -0.3], 0.0)


def test_the_mirror_loss_in_closed_form() -> None:
    said = torch.tensor([[1.0, 2.0], [0.0, 0.0]], requires_grad=True)
    wanted = torch.tensor([[0.0, 4.0], [0.0, 0.0]], requires_grad=True)
    loss = mirror_loss(said, wanted)
    assert loss.tolist() == [2.5, 0.0]
    ours, theirs = torch.autograd.grad(loss.sum(), [said, wanted])
    assert ours.tolist() == [[1.0, -2.0], [0.0, 0.0]]
    assert torch.equal(theirs, -ours), "both ways"
    with pytest.raises(ValueError, match="nothing broadcasts"):
        mirror_loss(said, wanted[:1])


def test_rows_are_followed_by_their_images() -> None:
    for role in (LINEAR, ENCODED):
        algorithm, source = learner(role, weight=0.5)
        rollout = source.next(algorithm.policy)
        plain, _ = algorithm._prepare(rollout)
        batch = algorithm.minibatch(plain, torch.arange(COUNT * STEPS))
        rows = COUNT * STEPS
        for column in ("log_prob", "advantage", "value", "target"):
            both = vars(batch)[column]
            assert torch.equal(both[:rows], vars(plain)[column])
            assert torch.equal(both[rows:], vars(plain)[column])
        for obs in (batch.policy_obs, batch.value_obs):
            assert torch.equal(obs["state"][:rows], plain.policy_obs["state"])
            assert torch.equal(obs["state"][rows:], plain.policy_obs["state"] * SIGNS)
        assert torch.equal(batch.action, torch.cat([plain.action, -plain.action]))
        assert batch.extra[PLAYED].tolist() == [True] * rows + [False] * rows


def test_a_ratio_begins_at_one_where_a_row_was_played_and_everywhere_where_the_policy_is_symmetric() -> None:
    algorithm, source = learner(LINEAR)
    for symmetric in (False, True):
        if symmetric:
            make_symmetric(algorithm)
        batch = minibatch_of(algorithm, source.next(algorithm.policy))
        judged = algorithm.policy.evaluate(batch.policy_obs, (), None, batch.action)
        ratio = (judged.log_prob - batch.log_prob).exp()
        assert torch.allclose(ratio[batch.extra[PLAYED]], torch.ones(()), atol=1e-5)
        assert torch.allclose(ratio, torch.ones(()), atol=1e-5) == symmetric


def test_the_ratio_of_an_image_is_the_importance_weight_of_who_did_it() -> None:
    """Of a rollout of the mirrored policy: what an action is worth in the mirrored state has the right mean."""
    algorithm, _ = learner(LINEAR)
    policy = algorithm.policy
    set_linear(policy.trunk, [0.1, 0.2, -0.1], 0.05)
    state = torch.tensor([[0.6, 0.8, 1.0]]).expand(400_000, 3)
    drawn = policy.draw({"state": state}, (), torch.Generator().manual_seed(0))
    image, action = {"state": state * SIGNS}, -drawn.action
    mean = policy.greedy(policy.perception.look({"state": image["state"][:1]})).detach()
    own = policy.evaluate(image, (), None, action).log_prob.detach()
    assert float(((own - drawn.log_prob).exp() * action[:, 0]).mean()) == pytest.approx(float(mean), abs=0.01)
    assert abs(float(action[:, 0].mean() - mean)) > 0.1, "with ratios of 1, which its own densities would give"


def test_a_symmetric_policy_and_critic_stay_symmetric() -> None:
    """With images no gradient leads away from symmetry; without, one does."""
    for augment in (True, False):
        algorithm, source = learner(LINEAR, augment=augment)
        make_symmetric(algorithm)
        set_linear(algorithm.value.trunk, [0.5, 0.0, 0.0], 0.1)
        batch = minibatch_of(algorithm, source.next(algorithm.policy))
        gradient = linear_gradient(algorithm.policy_loss(batch, Tally()), algorithm.policy.trunk)
        critics = linear_gradient(algorithm.value_loss(batch, Tally()), algorithm.value.trunk)
        away = torch.cat([gradient[[0, 3]], critics[[1, 2]]]).abs()
        along = torch.cat([gradient[[1, 2]], critics[[0, 3]]]).abs()
        assert bool((along > 1e-3).all())
        assert bool((away < 1e-5).all()) == augment
        assert bool((away > 1e-3).any()) != augment


def test_the_mirror_loss_is_the_same_with_images_in_the_batch_and_without() -> None:
    for role in (LINEAR, ENCODED, MEMORY):
        told = []
        for augment in (True, False):
            algorithm, source = learner(role, augment=augment, weight=1.0)
            algorithm.policy.trunk.layers()[-1].weight.fill_(0.3)  # else it starts near 0, which is symmetric
            batch = minibatch_of(algorithm, source.next(algorithm.policy))
            tally = Tally()
            algorithm.policy_loss(batch, tally)
            told.append(tally.scalars["loss/symmetry.mirror"][0])
            mine, theirs = (mode_of(algorithm.policy, source, signs) for signs in (torch.ones(3), SIGNS))
            assert float(told[-1]) == pytest.approx(float((mine + theirs).square().mean()), rel=1e-4)
        assert float(told[0]) == pytest.approx(float(told[1]), rel=1e-5)
        assert float(told[0]) > 1e-4


def mode_of(policy: Actor, source: RolloutSource, signs: Tensor) -> Tensor:
    """What a policy says, step by step from the start, of the first rollout as it was or mirrored [T, N, A]."""
    fresh = RolloutSource.build(LocalVectorEnv("Pendulum-v1", COUNT), policy, STEPS, 0)
    rollout, carry, said = fresh.next(policy), policy.initial(COUNT), []
    for state in rollout.obs["state"]:
        action, carry = policy.greedy_action({"state": state * signs}, carry)
        said.append(action.detach())
    return torch.stack(said)


def test_a_sequence_seen_in_the_mirror_counts_once_it_remembers_all() -> None:
    algorithm, source = learner(MEMORY, weight=1.0)
    algorithm.policy_loss(minibatch_of(algorithm, source.next(algorithm.policy)), Tally())
    rollout = source.next(algorithm.policy)
    assert not bool(rollout.resets.any())
    silent = minibatch_of(algorithm, rollout)
    assert silent.extra[VALID].tolist() == [[True] * COUNT + [False] * COUNT] * STEPS
    assert all(bool((part[COUNT:] == 0).all()) and bool((part[:COUNT] != 0).any()) for part in silent.policy_carry)
    tally = Tally()
    assert bool(algorithm.policy_loss(silent, tally).isfinite())
    assert float(tally.scalars["loss/symmetry.mirror"][0]) == 0.0


def test_the_mirror_loss_of_a_sequence_is_of_what_is_remembered() -> None:
    for augment in (True, False):
        algorithm, source = learner(MEMORY, weight=1.0, augment=augment)
        source.next(algorithm.policy)
        rollout = source.next(algorithm.policy)
        plain, _ = algorithm._prepare(rollout)
        resets = plain.extra[RESETS].clone()
        resets[5, 1] = True
        valid = torch.ones_like(resets)
        valid[6, 1] = False
        begun = replace(plain, extra={**plain.extra, RESETS: resets, VALID: valid})
        batch, tally = algorithm.minibatch(begun, torch.arange(COUNT)), Tally()
        if augment:
            wanted = torch.zeros(STEPS, COUNT, dtype=torch.bool)
            wanted[5:, 1] = True
            assert torch.equal(batch.extra[VALID][:, COUNT:], wanted & valid)
        algorithm.policy_loss(batch, tally)
        policy, carry, apart = algorithm.policy, algorithm.policy.initial(2), []
        for step in (5, 6, 7):  # what an episode that begins there says, and its image
            state = rollout.obs["state"][step, 1]
            both, carry = policy.greedy_action({"state": torch.stack([state, state * SIGNS])}, carry)
            apart.append(float((both[0] + both[1]).detach().square().mean()))
        told = float(tally.scalars["loss/symmetry.mirror"][0])
        assert told == pytest.approx((apart[0] + apart[2]) / 2, rel=1e-4)


def test_choices_are_compared_by_their_probabilities() -> None:
    algorithm, source = learner(LINEAR, "CartPole-v1", CARTPOLE, weight=1.0)
    rollout = source.next(algorithm.policy)
    batch = minibatch_of(algorithm, rollout)
    rows = len(batch.action) // 2
    assert torch.equal(batch.action[rows:], 1 - batch.action[:rows])
    tally = Tally()
    algorithm.policy_loss(batch, tally)
    state = batch.policy_obs["state"][:rows]
    ours, images = (algorithm.policy.ratings({"state": values}, ()).softmax(-1) for values in (state, -state))
    told = float(tally.scalars["loss/symmetry.mirror"][0])
    assert told == pytest.approx(float((images - ours.flip(-1)).square().mean().detach()), rel=1e-4)


def test_its_weight_follows_a_schedule_and_costs_no_gradient_at_zero() -> None:
    algorithm, source = learner(LINEAR, weight={"start": 2.0, "end": 0.0, "over": 2}, augment=False)
    symmetry = algorithm.objectives.members["symmetry"]
    assert isinstance(symmetry, Symmetry)
    metrics = [algorithm.update(source.next(algorithm.policy)).metrics for _ in range(3)]
    assert [float(each["symmetry/weight"]) for each in metrics] == [2.0, 1.0, 0.0]
    assert all("loss/symmetry.mirror" in each for each in metrics)
    assert symmetry.updates == 3
    assert symmetry.weights.losses == {"mirror": 0.0}
    idle, other = learner(LINEAR, augment=False)
    batch = minibatch_of(idle, other.next(idle.policy))
    judged = idle.policy.evaluate(batch.policy_obs, (), None, batch.action)
    evaluation = Evaluation(*judged, idle.policy.distribution, judged.features, idle.policy)
    member = idle.objectives.members["symmetry"]
    assert isinstance(member, Symmetry)
    assert not member.loss(batch, evaluation)["mirror"].requires_grad


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    objectives = {"symmetry": {**PENDULUM, "weight": {"start": 1.0, "end": 0.1, "over": 5}}, "rnd": {}}
    algo = {"name": "ppo", "epochs": 2, "minibatches": 2, "actor": MEMORY, "critic": MEMORY, "objectives": objectives}
    words: dict[str, Any] = {"algo": algo, "source": {"num_envs": 3, "rollout_length": 7}}
    states = []
    for name, halves in (("whole", False), ("halves", True)):
        settings = tiny_settings("ppo", tmp_path / name, **words, save_every=2, eval_every=4, eval_episodes=1)
        run = us.train(parse_config({**settings, "updates": 2 if halves else 4}))
        if halves:
            us.resume(run.path, updates=4)
        last = list_checkpoints(run.path / "checkpoints")[-1]
        states.append(load_checkpoint(run.path / "checkpoints", last).state)
    assert differences(*states) == []
    assert states[0]["algorithm.objectives.members.symmetry.updates"] == 4


def test_a_mirror_that_is_none_is_told_before_the_first_step(tmp_path: Path) -> None:
    wrong = {"observations": {"state": {"permutation": [1, 2, 0]}}, "actions": {"signs": [-1]}}
    settings = tiny_settings("ppo", tmp_path / "run")
    settings["algo"] = {**settings["algo"], "objectives": {"symmetry": wrong}}
    with pytest.raises(ConfigError, match=r"algo\.objectives\.symmetry\.observations\.state\.permutation: mirrored tw"):
        us.train(parse_config(settings))
    settings["algo"] = {**settings["algo"], "objectives": {"symmetry": {}}}
    with pytest.raises(ConfigError, match=r"symmetry\.observations: nothing is said of 'state'"):
        us.train(parse_config(settings))
    with pytest.raises(ConfigError, match=r"symmetry\.weight"):
        load_config("ppo/pendulum-symmetry", ["algo.objectives.symmetry.weight=-1"])
    assert not (tmp_path / "run" / "checkpoints").exists()


def asymmetry(policy: Actor) -> float:
    """√mean (a(M_s s) − M_a a(s))² of greedy torques, over all angles and speeds there are."""
    angle, speed = torch.meshgrid(torch.linspace(-torch.pi, torch.pi, 61), torch.linspace(-8, 8, 41), indexing="ij")
    state = torch.stack([angle.cos(), angle.sin(), speed], -1).reshape(-1, 3)
    ours, images = (policy.act({"state": values}, (), greedy=True)[0] for values in (state, state * SIGNS))
    return float((ours + images).square().mean().sqrt())


@pytest.mark.slow
def test_a_policy_of_a_symmetric_task_becomes_symmetric(tmp_path: Path) -> None:
    """Torques go from −2 to 2; PPO alone pushes differently on the left and on the right, and scores no better."""
    found = {}
    for config in ("ppo/pendulum", "ppo/pendulum-symmetry"):
        run = us.train(config, out=str(tmp_path / config), eval_every=1000, save_every=1000, tensorboard=False)
        policy = run.policy()
        assert isinstance(policy, Actor)
        found[config] = asymmetry(policy)
        assert float(run.evaluations()[-1]["eval/return_mean"]) > -250
    assert found["ppo/pendulum-symmetry"] < found["ppo/pendulum"] / 4
