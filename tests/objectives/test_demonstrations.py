"""Demonstrations beside PPO: a term of cloning by its own stream, apart from the surrogate, and nothing at weight 0."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import understudy as us
from learners import differences
from rollouts import build_ppo
from understudy.algorithms import ppo
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import BuildContext, Demand
from understudy.core.state import State, capture, restore
from understudy.data.experience import LoggedExperience
from understudy.envs.vector.local import LocalVectorEnv
from understudy.objectives.demonstrations import Demonstrations
from understudy.parts.ppo.batch import PPOBatch
from understudy.run.checkpoint import list_checkpoints, load_checkpoint
from understudy.run.config import parse_config
from understudy.sources.rollout import RolloutSource
from worlds import CARTPOLE_RECIPE, PENDULUM_RECIPE, tiny_settings

COUNT, STEPS = 3, 8
MEMORY = {"memory": {"kind": "gru", "units": 4}, "hidden": [8]}
ENCODER = {"encoders": {"state": {"kind": "mlp", "size": 5}}, "hidden": [8]}
SHAPES: list[dict[str, Any]] = [
    {},
    {"schedule": "adaptive"},
    {"actor": MEMORY, "critic": MEMORY},
    {"actor": {**MEMORY, **ENCODER}, "critic": {**MEMORY, **ENCODER, "share_encoder": True}},
]


@pytest.fixture(scope="module")
def demonstrations() -> dict[str, LoggedExperience]:
    """By environment."""
    recipes: tuple[dict[str, Any], ...] = (PENDULUM_RECIPE, CARTPOLE_RECIPE)
    return {str(r["env"]): LoggedExperience.of(us.make_dataset(us.Recipe.parse(r))) for r in recipes}


def learner(
    data: Mapping[str, LoggedExperience], env: str = "Pendulum-v1", told: Any = None, **settings: Any
) -> tuple[ppo.PPO, RolloutSource]:
    world = LocalVectorEnv(env, COUNT)
    words = {"name": "ppo", "epochs": 2, "minibatches": 2, "schedule": "constant", "actor": {"hidden": [8]}}
    words |= {"critic": {"hidden": [8]}, **settings}
    if told is not None:
        words["objectives"] = {"demonstrations": {"batch_size": 64, "length": 8, **told}}
    roles = {"demonstrations": data[env]}
    context = BuildContext(world.spec, 10, 0, torch.device("cpu"), num_envs=COUNT, data=roles)
    algorithm = ppo.build(ppo.Config.parse(words, "algo"), context)
    return algorithm, RolloutSource.build(world, algorithm.policy, STEPS, 0)


def learned(*given: Any, updates: int = 3, **named: Any) -> State:
    algorithm, source = learner(*given, **named)
    for _ in range(updates):
        algorithm.update(source.next(algorithm.policy))
    return {path: leaf for path, leaf in capture(algorithm).items() if not path.startswith("objectives")}


def test_a_weight_of_0_is_ppo_to_the_bit(demonstrations: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppo, "fused_steps_for", lambda learner, batch: None)
    for env in demonstrations:
        for shape in SHAPES:
            alone = learned(demonstrations, env, **shape)
            assert differences(alone, learned(demonstrations, env, {"weight": 0}, **shape)) == [], (env, shape)
            assert differences(alone, learned(demonstrations, env, {"weight": 0.5}, **shape)) != [], (env, shape)


def first_losses(data: Any, env: str = "Pendulum-v1", **named: Any) -> tuple[float, dict[str, float]]:
    """What the first step would descend, and what is logged, without moving."""
    algorithm, source = learner(data, env, epochs=1, minibatches=1, **named)
    losses: list[Tensor] = []
    algorithm.step = lambda network, loss, rate: losses.append(loss) if network != "value" else None  # type: ignore[method-assign]
    metrics = algorithm.update(source.next(algorithm.policy)).metrics
    return float(losses[0].detach()), {name: float(number) for name, number in metrics.items()}


def test_the_term_is_that_of_behaviour_cloning_over_what_its_stream_draws(demonstrations: Any) -> None:
    """By brute force: row by row, or step by step from an empty memory, the rows that the stream says."""
    for env, told, shape in (
        ("Pendulum-v1", {"loss": "nll"}, {}),
        ("Pendulum-v1", {"loss": "mse"}, {}),
        ("CartPole-v1", {"loss": "nll"}, {}),
        ("Pendulum-v1", {"loss": "nll"}, SHAPES[2]),
        ("Pendulum-v1", {"loss": "mse"}, SHAPES[3]),
    ):
        data = demonstrations[env]
        nothing, _ = first_losses(demonstrations, env, told={**told, "weight": 0}, **shape)
        both, metrics = first_losses(demonstrations, env, told={**told, "weight": 2.0}, **shape)
        fresh, _ = learner(demonstrations, env, told=told, **shape)
        policy, rng = fresh.policy, torch.Generator()
        rng.set_state(fresh.objectives.members["demonstrations"].rng.get_state())  # type: ignore[attr-defined]
        memory = bool(policy.initial(1))
        starts = torch.randint(data.steps, (64 // 8 if memory else 64,), generator=rng).tolist()
        losses = []
        for start in starts:
            end = int(data.dataset.index.ends[np.searchsorted(data.dataset.index.ends, start, side="right")])
            carry = policy.initial(1)
            for step in range(start, min(start + 8, end) if memory else start + 1):
                row = data.rows(torch.tensor([step]), Demand())
                seen, carry = policy.perception.step(row.obs, carry)
                if told["loss"] == "mse":
                    losses.append((policy.greedy(seen) - row.action).square().mean())
                else:
                    losses.append(-policy.log_prob(seen, row.action)[0])
        expected = float(torch.stack(losses).mean().detach())
        assert metrics["loss/demonstrations.cloning"] == pytest.approx(expected, rel=1e-4), (env, told, shape)
        assert both - nothing == pytest.approx(2.0 * expected, rel=1e-3), (env, told, shape)


def test_demonstrations_never_enter_the_surrogate_the_values_or_the_normalisers(demonstrations: Any) -> None:
    """T7: what PPO itself computes is the same with them and without, and a form that mixes rows in is found."""
    plain = own_numbers(demonstrations, told={"weight": 0})
    assert own_numbers(demonstrations, told={"weight": 3.0}) == plain

    class Mixed:
        """The broken form: demonstrated rows among the rollout's, with a reward of theirs for an advantage."""

        def __init__(self, inner: Demonstrations) -> None:
            self.inner, self.weights = inner, inner.weights

        def loss(self, *given: Any) -> Any:
            return self.inner.loss(*given)

        def augment(self, batch: PPOBatch) -> PPOBatch:
            rows = self.inner.data.rows(torch.arange(len(batch.advantage)), Demand())
            return replace(batch, policy_obs=rows.obs, action=rows.action, advantage=rows.reward)

    broken = own_numbers(demonstrations, told={"weight": 3.0}, wrapped=Mixed)
    assert broken != plain


def own_numbers(data: Any, wrapped: Any = None, **named: Any) -> dict[str, Any]:
    """What PPO says of itself before its first step, and the statistics of its normalisers after it."""
    algorithm, source = learner(data, epochs=1, minibatches=1, **named)
    if wrapped is not None:
        members = algorithm.objectives.members
        members["demonstrations"] = wrapped(members["demonstrations"])
    algorithm.step = lambda *_: None  # type: ignore[method-assign]
    metrics = algorithm.update(source.next(algorithm.policy)).metrics
    own = {name: float(metrics[name]) for name in ("loss/policy", "loss/value", "policy/entropy", "policy/kl")}
    moments = capture(algorithm.policy.perception)
    return own | {path: leaf.tolist() if isinstance(leaf, Tensor) else leaf for path, leaf in moments.items()}


def test_the_weight_follows_its_schedule_update_by_update(demonstrations: Any) -> None:
    algorithm, source = learner(demonstrations, told={"weight": {"start": 2, "end": 0, "over": 4}})
    weights = []
    for _ in range(6):
        metrics = algorithm.update(source.next(algorithm.policy)).metrics
        weights.append(float(metrics["demonstrations/weight"]))
        assert float(metrics["loss/demonstrations.cloning"]) != 0.0
    assert weights == [2.0, 1.5, 1.0, 0.5, 0.0, 0.0]


def test_it_goes_on_from_any_update_to_the_bit(demonstrations: Any) -> None:
    for shape in (SHAPES[0], SHAPES[3]):
        told = {"weight": {"start": 1, "end": 0.1, "over": 5}}
        whole, source = learner(demonstrations, told=told, **shape)
        rollouts = []
        for update in range(5):
            rollouts.append(source.next(whole.policy))
            if update == 2:
                halfway = capture(whole)
            whole.update(rollouts[-1])
        resumed, _ = learner(demonstrations, told=told, **shape)
        restore(resumed, halfway, "halfway")
        for rollout in rollouts[2:]:
            resumed.update(rollout)
        assert differences(capture(whole), capture(resumed)) == []


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    told = {"weight": {"start": 1, "end": 0, "over": 4}, "batch_size": 32, "length": 8}
    words: dict[str, Any] = {
        "algo": {"name": "ppo", "epochs": 2, "minibatches": 2, "actor": MEMORY, "critic": MEMORY}
        | {"objectives": {"demonstrations": told}},
        "env": {"id": "Pendulum-v1"},
        "datasets": {"demonstrations": {"recipe": PENDULUM_RECIPE}},
        "source": {"num_envs": 3, "rollout_length": 7},
    }
    states = []
    for name, halves in (("whole", False), ("halves", True)):
        settings = tiny_settings("ppo", tmp_path / name, **words, save_every=2, eval_every=6, eval_episodes=1)
        run = us.train(parse_config({**settings, "updates": 3 if halves else 6}))
        if halves:
            us.resume(run.path, updates=6)
        last = list_checkpoints(run.path / "checkpoints")[-1]
        states.append(load_checkpoint(run.path / "checkpoints", last).state)
    assert differences(*states) == []
    assert {"rng", "updates"} <= {
        path.removeprefix("algorithm.objectives.members.demonstrations.") for path in states[0]
    }


def test_what_cannot_be_cloned_is_told_before_the_first_step(demonstrations: Any) -> None:
    pendulum = demonstrations["Pendulum-v1"]
    with pytest.raises(ConfigError, match=r"datasets\.demonstrations: is required"):
        parse_config(tiny_settings("ppo", Path("x"), algo={"name": "ppo", "objectives": {"demonstrations": {}}}))
    with pytest.raises(ConfigError, match=r"demonstrations\.loss: is for continuous actions: got mse"):
        learner(demonstrations, "CartPole-v1", {"loss": "mse"})
    with pytest.raises(DataError, match=r"datasets\.demonstrations: are of another world: got .* expected "):
        learner({"CartPole-v1": pendulum}, "CartPole-v1", {})
    other = replace_group(pendulum, "camera")
    with pytest.raises(
        DataError, match=r"lack what the policy sees: got groups \['camera'\], expected also \['state'\]"
    ):
        learner({"Pendulum-v1": other}, "Pendulum-v1", {})
    with pytest.raises(ConfigError, match=r"demonstrations\.weight: .*got -1"):
        learner(demonstrations, told={"weight": -1})
    with pytest.raises(ConfigError, match=r"algo\.objectives\.demonstrations\.batch_size"):
        learner(demonstrations, told={"batch_size": 0})
    assert build_ppo(LocalVectorEnv("Pendulum-v1", 1).spec, 1).objectives.members == {}


def replace_group(data: LoggedExperience, name: str) -> LoggedExperience:
    """The same demonstrations, their group under another name."""
    episodes = [data.recorded.episode(number) for number in range(data.recorded.episodes)]
    renamed = [replace(one, observations={name: one.observations["state"]}) for one in episodes]
    return LoggedExperience.of(us.Dataset.from_episodes(renamed, data.spec.action))
