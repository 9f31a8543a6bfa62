"""Style beside PPO: what is paid for what, who learns from which windows, and what is refused."""

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import understudy as us
from learners import differences
from understudy.algorithms import ppo
from understudy.core.batch import Rollout, Successors
from understudy.core.errors import ConfigError, UnderstudyError
from understudy.core.protocols import BuildContext
from understudy.core.state import capture
from understudy.data.motions import MotionSettings, load_motions
from understudy.envs.builtin.circle import circle_motion
from understudy.envs.vector.local import LocalVectorEnv
from understudy.losses.adversarial import expert_loss, policy_loss, style_reward
from understudy.objectives.style import REWARD_OF, Style
from understudy.sources.rollout import RolloutSource

WORLD, COUNT, STEPS = "UnderstudyCircle-v0", 4, 24
FEATURES = ["position", "velocity"]
SMALL: dict[str, Any] = {"features": FEATURES, "network": {"hidden": [16]}, "batch_size": 64, "steps": 2}


@cache
def circles(folder: Path, radius: float = 1.0) -> Path:
    """Two laps, recorded as states; what was done is not told (zeros)."""
    lap = circle_motion(radius, 1.0)
    twice = {name: np.concatenate([values, values]).astype(np.float32) for name, values in lap.items()}
    steps = len(twice["position"]) - 1
    nothing = np.zeros((steps, 2), np.float32), np.zeros(steps, np.float32)
    episode = us.Episode(twice, *nothing, terminated=False, truncated=True)
    return us.write_store(us.Dataset.from_episodes([episode], us.Box((-1, -1), (1, 1))), folder / f"circle-{radius}")


@pytest.fixture(scope="module")
def laps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return circles(tmp_path_factory.mktemp("motions"))


def learner(
    motions: Path, algo: dict[str, Any] | None = None, step: float | None = None, **settings: Any
) -> tuple[ppo.PPO, Style, RolloutSource]:
    env = LocalVectorEnv(WORLD, COUNT)
    told = {"actor": {"hidden": [8]}, "critic": {"hidden": [8]}, "epochs": 1, "minibatches": 1, **(algo or {})}
    config = ppo.Config.parse({**told, "objectives": {"style": {**SMALL, **settings}}}, "algo")
    clips = load_motions(MotionSettings(path=str(motions), step=step))
    context = BuildContext(env.spec, 10, 0, torch.device("cpu"), num_envs=COUNT, motions=(clips,))
    algorithm = ppo.build(config, context)
    member = algorithm.objectives.members["style"]
    assert isinstance(member, Style)
    return algorithm, member, RolloutSource.build(env, algorithm.policy, STEPS, 0)


def frames(rollout: Rollout) -> tuple[Tensor, Tensor]:
    """What was seen and what followed [T, N, 4]."""
    seen, after = (torch.cat([obs[name] for name in FEATURES], -1) for obs in (rollout.obs, rollout.next_obs))
    return seen, after


def ended_at(rollout: Rollout, step: int, env: int, final: Tensor) -> Rollout:
    """The same, but an episode ended with this step, at `final` [4]."""
    ended = torch.zeros_like(rollout.terminated)
    ended[step, env] = True
    whole = {name: torch.cat([rollout.obs[name], rollout.next_obs[name][-1:]]) for name in FEATURES}
    finals = {"position": final[None, :2], "velocity": final[None, 2:]}
    return replace(rollout, terminated=ended, next_obs=Successors(whole, torch.tensor([step * COUNT + env]), finals))


def test_what_a_step_is_paid_in_plain_numbers(laps: Path) -> None:
    """D of the pair (s, s′), normalised by statistics of both kinds; also at an end, with the frame truly reached."""
    for loss, kind in REWARD_OF.items():
        algorithm, style, source = learner(laps, loss=loss)
        rollout = ended_at(source.next(algorithm.policy), 5, 1, torch.tensor([9.0, 8.0, 7.0, 6.0]))
        paid = style.rewards(rollout)["style"]
        seen, after = frames(rollout)
        assert after[5, 1].tolist() == [9.0, 8.0, 7.0, 6.0]
        net = style.discriminator
        pairs = torch.cat([net.normalizer(seen), net.normalizer(after)], -1)
        with torch.no_grad():
            wanted = style_reward(net.trunk(pairs).squeeze(-1), kind, style.config.wgan_scale)
        assert torch.allclose(paid, wanted, atol=1e-6)


def test_one_normaliser_of_both_kinds_and_of_rollouts_before(laps: Path) -> None:
    """It is fed as many frames of motions as of the policy, and stands still from the reward to the last step."""
    algorithm, style, source = learner(laps)
    rollout = source.next(algorithm.policy)
    algorithm.update(rollout)
    policy, count = frames(rollout)[1].flatten(0, 1).double(), STEPS * COUNT
    normal = style.discriminator.normalizer
    assert float(normal.count) == 2 * count, "the first rollout is taken in before it is judged, and not again"
    motions = 2 * normal.mean - policy.mean(0)  # the other half
    assert torch.allclose(motions, torch.zeros(4, dtype=torch.float64), atol=0.35), "circles around the origin"
    apart = (policy.mean(0) - motions).abs().max()
    assert float(apart) > 0.1, "nobody is whitened by himself"
    later, before = source.next(algorithm.policy), normal.mean.clone()
    style.rewards(later)
    assert torch.equal(before, normal.mean), "of later ones only what came before counts"
    style.learn(later)
    assert float(normal.count) == 4 * count


def test_steps_without_a_whole_window_are_worth_nothing(laps: Path) -> None:
    algorithm, style, source = learner(laps, frames=4, loss="bce")  # whose rewards are never 0
    rollout = ended_at(source.next(algorithm.policy), 9, 2, torch.zeros(4))
    paid = style.rewards(rollout)["style"]
    assert paid[:2].eq(0).all(), "an episode's first two steps have no four frames"
    assert paid[10:12, 2].eq(0).all(), "after an end as well"
    assert paid[2:].ne(0).sum() == (STEPS - 2) * COUNT - 2


def test_nobody_is_paid_for_where_the_next_episode_begins(laps: Path) -> None:
    algorithm, style, source = learner(laps, frames=3)
    rollout = source.next(algorithm.policy)
    paid = []
    for start in (0.0, 50.0):
        obs = {name: values.clone() for name, values in rollout.obs.items()}
        obs["position"][6, 1] = start
        style.updates = 1  # statistics stand still
        rewards = style.rewards(ended_at(replace(rollout, obs=obs), 5, 1, torch.ones(4)))["style"]
        paid.append(torch.cat([rewards[:6, 1], rewards[6:7, 1]]))
    assert torch.equal(paid[0], paid[1])


def test_task_and_style_are_mixed_as_declared(laps: Path) -> None:
    algorithm, style, source = learner(laps, weight=0.25, task_weight=0.5)
    rollout = source.next(algorithm.policy)
    task = torch.full((STEPS, COUNT), 3.0)
    mixed, told = algorithm.objectives.add_rewards(rollout, task)
    style.updates = 1
    alone = style.rewards(rollout)["style"]
    assert torch.allclose(mixed, 0.5 * task + 0.25 * alone)
    assert float(told["reward/style.style"]) == pytest.approx(float(alone.mean()))
    assert learner(laps)[1].weights.task == 1.0, "the task counts unless somebody says otherwise"


def test_rewards_per_second(laps: Path) -> None:
    (_, plain, source), (_, scaled, _) = learner(laps), learner(laps, step=0.05, per_second=True)
    rollout = source.next(learner(laps)[0].policy)
    first, second = plain.rewards(rollout)["style"], scaled.rewards(rollout)["style"]
    assert torch.allclose(second, 0.05 * first)
    with pytest.raises(ConfigError, match=r"per_second: nobody says how long a step .*motions\.step"):
        learner(laps, per_second=True)


def test_only_the_discriminator_learns_from_windows(laps: Path) -> None:
    """It is no part of the policy, of its optimiser or of its gradient norm; while it learns, the policy does not."""
    algorithm, style, source = learner(laps)
    rollout = source.next(algorithm.policy)
    style.rewards(rollout)
    before, net = capture(algorithm.policy), capture(style.discriminator)
    style.learn(rollout)
    assert differences(before, capture(algorithm.policy)) == []
    assert differences(net, capture(style.discriminator)) != []
    owned = {id(part) for optimizer in algorithm.optimizers.values() for part in optimizer.parameters}
    assert owned.isdisjoint(id(part) for part in style.optimizer.parameters)
    assert sum(part.numel() for part in style.optimizer.parameters) == style.discriminator.trunk.flat.numel()


def test_every_weight_of_the_discriminators_loss_counts(laps: Path) -> None:
    """A name that is not looked up would leave everything as it is."""
    variants: list[dict[str, Any]] = [
        {},
        {"gradient_penalty": 0.0},
        {"gradient_penalty": 50.0},
        {"penalty_on": "policy"},
        {"penalty_on": "both"},
        {"logit_decay": 1.0},
        {"loss": "bce"},
        {"loss": "wgan"},
        {"optimizer": {"kind": "adam", "weight_decay": 0}},
        {"replay": 0},
        {"replay_share": 0.9},
    ]
    found = []
    for settings in variants:
        algorithm, style, source = learner(laps, **settings)
        for _ in range(2):
            algorithm.update(source.next(algorithm.policy))
        found.append(style.discriminator.trunk.flat.detach().clone())
    for number, one in enumerate(found):
        assert all(not torch.equal(one, other) for other in found[:number]), variants[number]


def test_a_discriminator_that_adapts_takes_fewer_steps_while_all_is_easy(laps: Path) -> None:
    algorithm, style, source = learner(laps, adapt=True, steps=9, gradient_penalty=0.0, learning_rate=1e-2)
    rollout = source.next(algorithm.policy)
    far = {name: values + 100.0 for name, values in rollout.obs.items()}
    beyond = replace(rollout, obs=far, next_obs=far)
    counts = []
    for _ in range(12):
        before = float(style.optimizer.count)
        style.rewards(beyond)
        style.learn(beyond)
        counts.append(int(float(style.optimizer.count) - before))
    assert counts[0] == 9
    assert counts[-1] == 1
    assert counts == sorted(counts, reverse=True)


def test_what_cannot_be_imitated_is_told_before_the_first_step(laps: Path) -> None:
    def told(features: Any, **settings: Any) -> str:
        with pytest.raises(UnderstudyError) as error:
            learner(laps, features=features, **settings)
        return str(error.value)

    assert "no group or segment 'positoin'. Did you mean 'position'?" in told(["positoin", "velocity"])
    assert "channel 'velocities'" in told({"position": "position", "velocity": "velocities"})
    assert "shorter than a window" in told(FEATURES, frames=500)
    assert "features" in told({})
    assert "a name twice" in told(["position", "position"])
    assert "nobody is paid" in told(FEATURES, weight=0, task_weight=0)
    assert "dropout" in told(FEATURES, network={"dropout": 0.5})


def test_components_are_compared(tmp_path: Path) -> None:
    """One joint more than the robot has."""
    steps = 20
    wide = {"position": np.zeros((steps + 1, 3), np.float32), "velocity": np.zeros((steps + 1, 2), np.float32)}
    nothing = np.zeros((steps, 2), np.float32), np.zeros(steps, np.float32)
    episode = us.Episode(wide, *nothing, terminated=False, truncated=True)
    store = us.write_store(us.Dataset.from_episodes([episode], us.Box((-1, -1), (1, 1))), tmp_path / "wide")
    told = r"features\.position: the motions' 'position' has another number .*got 3 .*expected 2"
    with pytest.raises(ConfigError, match=told):
        learner(store)


def test_one_step_of_the_discriminator_by_hand(laps: Path) -> None:
    """The documented loss of the windows that were drawn, through one normaliser, by autograd and torch's Adam."""
    variants: tuple[dict[str, Any], ...] = (
        {},
        {"loss": "bce", "penalty_on": "policy"},
        {"loss": "wgan", "wgan_scale": 0.7, "penalty_on": "both", "logit_decay": 0.3},
        {"optimizer": {"max_grad_norm": 0.01, "weight_decay": 0.2}},
        {"gradient_penalty": 0.0, "logit_decay": 0.0, "optimizer": {"kind": "adam", "weight_decay": 0.0}},
    )
    for settings in variants:
        algorithm, style, source = learner(laps, **{**settings, "steps": 1, "replay_share": 0.25})
        for _ in range(2):
            algorithm.update(source.next(algorithm.policy))
        rollout, config, net = source.next(algorithm.policy), style.config, copy.deepcopy(style.discriminator)
        seen, after = frames(rollout)
        fresh = torch.stack([seen, after], 2).flatten(0, 1)
        draws, turns = (torch.Generator() for _ in range(2))
        draws.set_state(style.rng.get_state())
        turns.set_state(style.replay.rng.get_state())
        expert = style.motions.draw(64, draws)
        old = style.replay.rings[0].columns["window"][: len(style.replay.rings[0])]
        chosen = fresh[torch.randint(len(fresh), (48,), generator=turns)]
        policy = torch.cat([chosen, old[torch.randint(len(old), (16,), generator=turns)]])
        normal = net.normalizer
        inputs = [normal(windows).flatten(1).requires_grad_() for windows in (expert, policy)]
        logits = [net.trunk.by_autograd(one).squeeze(-1) for one in inputs]
        loss = (expert_loss(logits[0], config.loss, config.wgan_scale).mean()) / 2
        loss = loss + policy_loss(logits[1], config.loss, config.wgan_scale).mean() / 2
        slopes = [
            torch.autograd.grad(one.sum(), given, create_graph=True)[0]
            for one, given in zip(logits, inputs, strict=True)
        ]
        where = {"expert": slopes[:1], "policy": slopes[1:], "both": slopes}[config.penalty_on]
        loss = loss + config.gradient_penalty * torch.cat(where).square().sum(1).mean()
        loss = loss + config.logit_decay * net.output_weight.square().sum()
        optimizer = torch.optim.AdamW(
            [net.trunk.flat], config.learning_rate, weight_decay=config.optimizer.weight_decay
        )
        optimizer.state[net.trunk.flat] = {
            "step": style.optimizer.count.clone(),
            "exp_avg": style.optimizer.first_moments[0].clone(),
            "exp_avg_sq": style.optimizer.second_moments[0].clone(),
        }
        (net.trunk.flat.grad,) = torch.autograd.grad(loss, [net.trunk.flat])
        torch.nn.utils.clip_grad_norm_([net.trunk.flat], config.optimizer.max_grad_norm or 1e9)
        optimizer.step()
        before = style.discriminator.trunk.flat.detach().clone()
        style.learn(rollout)
        moved = style.discriminator.trunk.flat.detach()
        assert not torch.equal(before, moved)
        assert torch.allclose(moved, net.trunk.flat.detach(), rtol=1e-4, atol=2e-6), settings


def test_windows_go_on_over_the_seam_of_rollouts(laps: Path) -> None:
    algorithm, style, source = learner(laps, frames=4, loss="bce")
    algorithm.update(source.next(algorithm.policy))
    assert style.rewards(source.next(algorithm.policy))["style"][:2].ne(0).all(), "frames of the rollout before"


def test_motions_are_drawn_anew_for_every_step(laps: Path) -> None:
    algorithm, style, source = learner(laps, steps=3)
    drawn: list[Tensor] = []
    windows = style.motions

    class Watched:
        count, size = windows.count, windows.size

        def draw(self, count: int, rng: torch.Generator) -> Tensor:
            drawn.append(windows.draw(count, rng))
            return drawn[-1]

    style.motions = Watched()
    style.learn(source.next(algorithm.policy))
    batches = [batch for batch in drawn if len(batch) == 64]
    assert len(batches) == 3
    assert all(len({tuple(row) for row in batch.flatten(1).tolist()}) > 40 for batch in batches)
    assert not torch.equal(batches[0], batches[1])


def test_weights_follow_their_schedules(laps: Path) -> None:
    _, style, _ = learner(
        laps, weight={"start": 1, "end": 0, "over": 10}, task_weight={"start": 0, "end": 2, "over": 10}
    )
    told = []
    for style.updates in (0, 5, 10):
        told.append((style.weights.rewards["style"], style.weights.task))
    assert told == [(1.0, 0.0), (0.5, 1.0), (0.0, 2.0)]


def test_rows_of_others_do_not_teach(laps: Path) -> None:
    """Steps that count nothing in the policy's loss, as a teacher's may, are not what the policy looks like."""
    algorithm, style, source = learner(laps)
    rollout = source.next(algorithm.policy)
    weight = torch.ones(STEPS, COUNT)
    weight[:, 1] = 0
    style.rewards(rollout)
    style.learn(replace(rollout, extra={**rollout.extra, "policy_weight": weight}))
    assert len(style.replay.rings[0]) == STEPS * (COUNT - 1)


def test_the_first_windows_are_normalised_whenever_they_come(laps: Path) -> None:
    """A window longer than a rollout: until there is one nothing is learned, and then the statistics know it."""
    algorithm, style, source = learner(laps, frames=30)
    net = style.discriminator
    before = net.trunk.flat.detach().clone()
    metrics = algorithm.update(source.next(algorithm.policy)).metrics
    assert float(metrics["style/whole"]) == 0.0
    assert torch.equal(before, net.trunk.flat.detach())
    assert float(net.normalizer.count) == 0
    rollout = source.next(algorithm.policy)
    style.rewards(rollout)
    assert float(net.normalizer.count) > 0
    style.learn(rollout)
    assert not torch.equal(before, net.trunk.flat.detach())


def test_the_order_in_which_features_are_written_changes_nothing(laps: Path) -> None:
    flats = []
    for features in (["position", "velocity"], ["velocity", "position"]):
        algorithm, style, source = learner(laps, features=features)
        algorithm.update(source.next(algorithm.policy))
        flats.append(style.discriminator.trunk.flat.detach())
    assert torch.equal(*flats)


def test_looking_draws_nothing_from_anybody(laps: Path) -> None:
    """A batch for each step and a frame of motions for each of the policy's, and not one number more."""
    algorithm, style, source = learner(laps, steps=3)
    algorithm.update(source.next(algorithm.policy))
    rollout, twin = source.next(algorithm.policy), torch.Generator()
    twin.set_state(style.rng.get_state())
    for count in (64, 64, 64, STEPS * COUNT):
        style.motions.draw(count, twin)
    style.learn(rollout)
    assert torch.equal(twin.get_state(), style.rng.get_state())
