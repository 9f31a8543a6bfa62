"""The objective `estimator`: who is trained by whom and on what, and what the policy's update sees of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from estimating import GRU, REPLACING, SEGMENTS, SHAPES, STEPS, WORLD, learning
from torch import Tensor

import understudy as us
from learners import differences
from understudy.algorithms import ppo
from understudy.core.batch import Obs
from understudy.core.errors import CheckpointError, ConfigError, RunError
from understudy.core.protocols import Policy
from understudy.core.rng import stream
from understudy.core.spec import Spec
from understudy.core.state import State, capture, restore
from understudy.losses.estimation import estimation_error
from understudy.nn.actor import Actor
from understudy.nn.estimator import ESTIMATED
from understudy.nn.memory import forget
from understudy.parts.ppo.batch import PPOBatch
from understudy.parts.ppo.networks import OnPolicyActorSettings
from understudy.run.checkpoint import list_checkpoints, load_checkpoint
from understudy.run.config import parse_config
from worlds import tiny_settings

HALF = {"replace_probability": 0.5}


def through_torch(patch: pytest.MonkeyPatch) -> None:
    """As a policy with estimates plays and learns: no fused steps, no NumPy."""
    patch.setattr(ppo, "fused_steps_for", lambda learner, batch: None)
    patch.setattr("understudy.sources.playing.rollout_actor.is_small", lambda policy, count: False)


def of_ppo(state: State, alone: State) -> State:
    return {path: leaf for path, leaf in state.items() if path in alone}


def moved(before: State, after: State) -> set[str]:
    return {path.split(".")[0] for path in differences(before, after)}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_estimator_that_is_never_shown_leaves_ppo_as_it_is_to_the_bit(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns, with an optimiser of its own, and may remember: actor, critic and world are those of PPO alone."""
    through_torch(monkeypatch)
    alone = learning(shape)
    alone.update(3)
    for objective in ({"replace_probability": 0.0, "weight": 0.0}, {"replace_probability": 0.0}):
        beside = learning(shape, objective)
        beside.update(3)
        theirs = {path: leaf for path, leaf in capture(alone).items() if "source.carry" not in path}
        assert differences(theirs, of_ppo(capture(beside), theirs)) == []
    if shape in REPLACING:
        shown = learning(shape, HALF)
        shown.update(3)
        assert differences(theirs, of_ppo(capture(shown), theirs)) != []


@pytest.mark.parametrize("optimizer", ["own", "policy"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_first_ratio_is_one_and_updates_stay_finite(shape: str, optimizer: str) -> None:
    """Also where episodes end inside a rollout, in the third update as in the first."""
    one = learning(shape, {**HALF, "optimizer": optimizer}, epochs=1, minibatches=1)
    for _ in range(3):
        metrics = one.update()
        assert abs(float(metrics["policy/kl"])) < 1e-6
        assert float(metrics["policy/clip_fraction"]) == 0.0
        assert all(bool(number.isfinite()) for number in metrics.values())
    assert ("estimator/replaced" in metrics) == (shape in REPLACING)


def a_teacher(spec: Spec) -> dict[str, Policy]:
    settings = OnPolicyActorSettings.parse({"hidden": [8], "sees": ["privileged"], "memory": GRU})
    return {"teacher": Actor(spec, settings, stream(1, "teacher"))}


@pytest.mark.parametrize("kind", ["gaussian", "state_gaussian"])
@pytest.mark.parametrize("shape", REPLACING)
def test_the_first_ratio_is_one_where_a_teacher_drives_and_all_remember(shape: str, kind: str) -> None:
    """Masks, estimates, the actor's memory, the estimator's and the teacher's, and the teacher's actions together."""
    teacher = {"teacher": {"beta": 0.5, "hidden_state_resample_prob": 0.5 if "memory" in SHAPES[shape] else 0.0}}
    one = learning(
        shape,
        {**HALF, "optimizer": "own"},
        actor={"distribution": {"kind": kind}},
        beside=teacher,
        policies=a_teacher,
        epochs=1,
        minibatches=1,
    )
    met = set()
    for _ in range(4):
        rollout = one.source.next(one.policy)
        facts = (rollout.extra[name].flatten().tolist() for name in ("teacher/driven", ESTIMATED))
        met |= set(zip(*facts, strict=True))
        shown, carry = {**rollout.obs, **rollout.extra}, rollout.carry
        judged = one.policy.evaluate(shown, carry, rollout.resets, rollout.action).log_prob.detach()
        torch.testing.assert_close(judged, rollout.log_prob, atol=1e-5, rtol=1e-5)
        metrics = one.algorithm.update(rollout).metrics
        assert abs(float(metrics["policy/kl"])) < 1e-6
    assert len(met) == 4, "rows of both, with and without estimates"


def test_older_labels_are_refused_beside_estimates() -> None:
    past = {"teacher": {"buffer_dilation": 2}}
    with pytest.raises(ConfigError, match=r"teacher\.buffer_dilation: old rollouts do not keep the estimates"):
        learning("replacing", HALF, beside=past, policies=a_teacher, policy_coef=0.0)
    learning("only watched", HALF, beside=past, policies=a_teacher, policy_coef=0.0).update(3)


def test_where_symmetry_mirrors_rows_the_critic_still_sees_the_truth() -> None:
    mirror = {
        "observations": {"state": {"signs": [-1] * 4}, "privileged": {"signs": [-1] * 6 + [1]}},
        "actions": {"signs": [-1, -1]},
    }
    one = learning("replacing", {"optimizer": "policy"}, beside={"symmetry": {**mirror, "weight": 0.5}})
    rollout = one.source.next(one.policy)
    batches: list[PPOBatch] = []
    augment = one.algorithm.objectives.augment
    one.algorithm.objectives.augment = lambda batch: batches.append(augment(batch)) or batches[-1]  # type: ignore
    one.algorithm.update(rollout)
    for batch in batches:
        half = len(batch.action) // 2
        guessed, true = batch.policy_obs["privileged"], batch.value_obs["privileged"]
        assert not torch.equal(guessed[..., 4:], true[..., 4:])
        rows = rollout.obs["privileged"].flatten(0, 1)
        assert all(bool((rows == row).all(-1).any()) for row in true[:half])
        signs = torch.tensor([-1.0] * 6 + [1.0])
        assert torch.equal(true[half:], true[:half] * signs)
        assert torch.equal(guessed[half:], guessed[:half] * signs)


def test_steps_of_the_policy_do_not_see_the_estimator_move() -> None:
    """What is shown stands in the rollout: PPO's networks learn the same from another estimator."""
    states = []
    for rate in (1e-3, 0.5):
        one = learning("own memory", {**HALF, "learning_rate": rate})
        rollout = one.source.next(one.policy)
        if rate == 0.5:
            with torch.no_grad():
                one.estimator.head.flat.normal_(generator=torch.Generator().manual_seed(0))
        one.algorithm.update(rollout)
        states.append({path: leaf for path, leaf in capture(one.algorithm.policy).items() if "estimator" not in path})
    assert differences(*states) == []


def test_each_optimiser_trains_its_own() -> None:
    for optimizer, weight in (("own", 1.0), ("own", 0.0), ("policy", 1.0), ("policy", 0.0)):
        one = learning("own memory", {**HALF, "optimizer": optimizer, "weight": weight})
        head, trunk = one.estimator.head.flat, one.policy.trunk.flat
        memory = next(iter(one.estimator.perception.memory.parameters()))  # type: ignore[union-attr]
        before = [part.detach().clone() for part in (head, memory, trunk)]
        metrics = one.update()
        same = [torch.equal(part, old) for part, old in zip((head, memory, trunk), before, strict=True)]
        assert same == [weight == 0.0, weight == 0.0, False]
        mine = {id(parameter) for parameter in one.estimator.parameters()}
        ppos = {id(parameter) for parameter in one.algorithm.optimizers["policy"].parameters}
        assert mine.isdisjoint(ppos) == (optimizer == "own" or weight == 0.0)
        assert ("estimator/loss" in metrics) == (optimizer == "own" and weight > 0)
        assert ("loss/estimator.error" in metrics) == (optimizer == "policy" and weight > 0)


@pytest.mark.parametrize("optimizer", ["own", "policy"])
def test_its_weight_is_what_its_gradient_counts(optimizer: str) -> None:
    """By the first moment of whoever steps, where nothing cuts it; update by update as the schedule says."""
    moments = {}
    for weight in (1.0, 3.0):
        schedule = {"start": weight, "end": 0.0, "over": 2}
        once: dict[str, Any] = {"epochs": 1, "minibatches": 1, "max_grad_norm": 1e9}
        own = once if optimizer == "own" else {}
        one = learning("replacing", {**HALF, "optimizer": optimizer, "weight": schedule, **own}, **once)
        one.update()
        adam = one.objective.optimizers[0] if optimizer == "own" else one.algorithm.optimizers["policy"]
        (number,) = [n for n, parameter in enumerate(adam.parameters) if parameter is one.estimator.head.flat]
        moments[weight] = adam.first_moments[number].clone()
        told = [one.objective.weight, one.update() and one.objective.weight]
        assert told == [weight / 2, 0.0]
    assert float(moments[1.0].abs().max()) > 0
    torch.testing.assert_close(moments[3.0], 3 * moments[1.0], rtol=1e-4, atol=1e-7)


def test_a_head_on_the_actors_memory_trains_that_memory_only_with_the_policys_optimiser() -> None:
    states = {}
    for optimizer in ("own", "policy"):
        for weight in (0.0, 5.0):
            one = learning("on the actor's memory", {"optimizer": optimizer, "weight": weight})
            one.update(2)
            states[optimizer, weight] = capture(one.policy.perception)
    assert differences(states["own", 0.0], states["own", 5.0]) == []
    assert differences(states["policy", 0.0], states["policy", 5.0]) != []
    assert differences(states["own", 0.0], states["policy", 0.0]) == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kind", "optimizer"), [("mse", "policy"), ("l1", "own"), ("huber", "policy"), ("mse", "own")])
def test_the_loss_is_the_error_of_each_row_against_what_was_true_then(kind: Any, optimizer: str, shape: str) -> None:
    """Step by step, by whoever remembers: not padded, not shuffled, of this step or of the true next one. Steps of its
    own optimiser are so small here that the second epoch has the same error."""
    settings = {**HALF, "optimizer": optimizer, "loss": kind, "reduction": "sum", "huber_delta": 0.3}
    small = {"learning_rate": 1e-12, "epochs": 2, "minibatches": 2}
    one = learning(shape, {**settings, **small}, epochs=1, minibatches=1, learning_rate=1e-12)
    one.update(2)
    rollout, estimator, policy = one.source.next(one.policy), one.estimator, one.policy
    noise = torch.randn(rollout.obs["privileged"].shape, generator=torch.Generator().manual_seed(0))
    rollout.obs["privileged"].add_(noise)  # else winds and masses are the same at every step of an episode
    rows, carry = [], rollout.carry
    following = {name: rollout.next_obs[name] for name in rollout.obs}
    with torch.no_grad():
        for t in range(STEPS):
            carry = forget(carry, rollout.resets[t])
            obs = {name: values[t] for name, values in rollout.obs.items()}
            truth = (
                obs if estimator.settings.step == "this" else {name: values[t] for name, values in following.items()}
            )
            own = policy.perception.carried
            shown = {**obs, **at(rollout.extra, t)}
            seen, mine = policy.perception.step(shown, carry[:own])
            theirs: tuple[Tensor, ...] = ()
            if estimator.perception is not None:
                seen, theirs = estimator.perception.step(shown if optimizer == "policy" else obs, carry[own:])
            wanted = estimator.normalizer(estimator.true(truth))
            rows.append(estimation_error(estimator.head(seen), wanted, kind, delta=0.3, reduction="sum"))
            carry = (*mine, *theirs)
        before = torch.stack(rows)
    name = "loss/estimator.error" if optimizer == "policy" else "estimator/loss"
    told = one.algorithm.update(rollout).metrics[name]
    torch.testing.assert_close(told, before[rollout.valid].mean(), atol=1e-5, rtol=1e-5)


def at(extra: Any, t: int) -> Obs:
    return {name: values[t] for name, values in extra.items()}


def test_the_next_step_is_the_true_one_and_never_another_episodes() -> None:
    one = learning("next step", {})
    ended = torch.zeros(0)
    while not bool(ended.any()):
        rollout = one.source.next(one.policy)
        ended = rollout.truncated[:-1]
    target = one.objective._targets(rollout)
    mass, after = rollout.obs["privileged"][..., 6], target[..., 2]
    assert torch.equal(after, mass), "an episode keeps its mass, to its last step"
    t, n = (int(number) for number in ended.nonzero()[0])
    assert float(mass[t + 1, n]) != float(mass[t, n]), "the next episode has another"


def test_scores_are_of_what_was_not_learned_from_yet() -> None:
    one = learning("own memory", HALF)
    one.update(2)
    rollout, estimator = one.source.next(one.policy), one.estimator
    with torch.no_grad():
        guessed = estimator(estimator.look(rollout.obs, rollout.carry, rollout.resets))[rollout.valid]
    true = torch.cat([rollout.obs["privileged"][..., 6:7], rollout.obs["privileged"][..., 4:6]], -1)[rollout.valid]
    metrics = one.algorithm.update(rollout).metrics
    for column, name in enumerate(("privileged.mass.0", "privileged.wind.0", "privileged.wind.1")):
        apart = (guessed[:, column] - true[:, column]).square()
        spread = (true[:, column] - true[:, column].mean()).square()
        assert float(metrics[f"estimator/rmse.{name}"]) == pytest.approx(float(apart.mean().sqrt()), rel=1e-4)
        assert float(metrics[f"estimator/r2.{name}"]) == pytest.approx(1 - float(apart.sum() / spread.sum()), rel=1e-4)
    assert float(metrics["estimator/replaced"]) == pytest.approx(float(rollout.extra[ESTIMATED].float().mean()))


def test_a_target_that_does_not_vary_is_no_divergence() -> None:
    one = learning("own memory", HALF)
    rollout = one.source.next(one.policy)
    rollout.obs["privileged"][..., 6] = 1.5
    metrics = one.algorithm.update(rollout).metrics
    assert float(metrics["estimator/r2.privileged.mass.0"]) == 0.0
    assert float(metrics["estimator/r2"]) == pytest.approx(
        sum(float(metrics[f"estimator/r2.privileged.wind.{column}"]) for column in range(2)) / 2, rel=1e-5
    )


@pytest.mark.parametrize("shape", ["replacing", "own memory", "on the actor's memory"])
@pytest.mark.parametrize("optimizer", ["own", "policy"])
def test_rows_that_do_not_count_teach_nothing(shape: str, optimizer: str) -> None:
    states = []
    for poison in (0.0, 1e3):
        one = learning(shape, {"optimizer": optimizer, "epochs": 2}, critic={"hidden": [8], "sees": ["state"]})
        rollout = one.source.next(one.policy)
        valid = rollout.valid.clone()
        valid[-1] = False  # nothing follows that could remember it
        rollout.obs["privileged"][-1, :, 4:] += poison
        one.algorithm.update(replace(rollout, valid=valid, extra={**rollout.extra}))
        states.append(capture(one.estimator))
    assert differences(*states) == []


def test_whoever_learns_while_the_critic_warms_up_takes_what_it_saw_into_its_statistics() -> None:
    """Else what it learned in units of the first rollout would mean something else once they change, all at once; one
    that does not learn stands still with the policy."""
    for objective, learns in (({}, True), ({"weight": 0.0}, False), ({"optimizer": "policy"}, False)):
        for shape in ("replacing", "on the actor's memory"):
            waiting, plain = (learning(shape, objective, critic_warmup=updates) for updates in (2, 0))
            first = capture(waiting.policy)
            waiting.update(2)
            plain.update(2)
            changed = differences(first, capture(waiting.policy))
            assert all(path.startswith("estimator.") for path in changed)
            assert bool(changed) == learns
            assert bool(waiting.estimator.normalizer.count == plain.estimator.normalizer.count) == learns
            if waiting.estimator.perception is not None:
                counts = [int(one.count) for _, one in waiting.estimator.perception.normalised()]
                assert all(counts) == learns


def test_the_share_that_is_shown_estimates_follows_its_schedule() -> None:
    one = learning("replacing", {"replace_probability": {"start": 0, "end": 1, "over": 2}})
    assert [round(float(one.update()["estimator/replaced"]), 1) for _ in range(4)][::2] == [0.0, 1.0]
    halfway = learning("replacing", {"replace_probability": {"start": 0, "end": 1, "over": 2}})
    halfway.update()
    assert 0.2 < float(halfway.update()["estimator/replaced"]) < 0.8


@pytest.mark.parametrize("shape", REPLACING)
def test_who_takes_over_the_state_goes_on_as_the_original(shape: str) -> None:
    """Masks, estimates, memories and optimiser included."""
    schedule = {"replace_probability": {"start": 0.2, "end": 0.8, "over": 5}, "epochs": 2}
    one, other = learning(shape, schedule), learning(shape, schedule, seed=3)
    one.update(2)
    other.update()
    point = capture(one)
    one.update(2)
    restore(other, point, "test")
    other.update(2)
    assert differences(capture(one), capture(other)) == []


@pytest.mark.usefixtures("no_plots")
def test_a_resumed_run_is_the_uninterrupted_one_and_its_policy_needs_no_truth(tmp_path: Path) -> None:
    actor = {"hidden": [8], "memory": GRU, **SHAPES["both remember"]}
    words: dict[str, Any] = {
        "algo": {"name": "ppo", "actor": actor, "epochs": 2, "minibatches": 2, "objectives": {"estimator": HALF}},
        "env": {"id": WORLD, "segments": {name: dict(parts) for name, parts in SEGMENTS.items()}},
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
    assert {"algorithm.objectives.members.estimator.updates", "algorithm.objectives.members.estimator.probability"} <= {
        *states[0]
    }
    policy = us.load_policy(run.path)
    assert {entry.group for entry in policy.inputs} == {"state"}
    assert "estimates privileged.wind, privileged.mass" in repr(policy)
    assert policy({"state": torch.zeros(4).numpy()}).shape == (2,)


@pytest.mark.parametrize(
    ("algo", "told"),
    [
        (
            {"objectives": {"estimator": {}}},
            r"algo\.objectives\.estimator: the actor estimates nothing\. Say algo\.actor",
        ),
        (
            {"actor": {"sees": ["state"], "estimate": {"targets": ["privileged"]}}},
            r"algo\.actor\.estimate: nobody trains it\. Add algo\.objectives\.estimator",
        ),
        (
            {"actor": {"estimate": {"targets": ["friction"]}}, "objectives": {"estimator": {}}},
            r"algo\.actor\.estimate\.targets: no group or segment 'friction'",
        ),
        ({"objectives": {"estimator": {"replace_probability": 1.5}}}, r"replace_probability: wrong value"),
        ({"objectives": {"estimator": {"weight": -1}}}, r"estimator\.weight: wrong value"),
        ({"objectives": {"estimator": {"loss": "mae"}}}, r"estimator\.loss: wrong value: got 'mae'"),
    ],
)
def test_mistakes_are_told_before_the_first_step(algo: dict[str, Any], told: str, tmp_path: Path) -> None:
    settings = tiny_settings("ppo", tmp_path, algo={"name": "ppo", **algo}, env={"id": WORLD})
    with pytest.raises(ConfigError, match=told):
        us.train(parse_config(settings))
    assert not list(tmp_path.glob("**/checkpoints/*"))


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("shape", ["replacing", "both remember"])
def test_demonstrations_without_the_truth_are_cloned_by_who_estimates_it(shape: str, tmp_path: Path) -> None:
    us.collect(WORLD, policy="random", episodes=3, out=tmp_path / "demos", groups=["state"])
    actor = {"hidden": [8], **SHAPES[shape]}
    objectives = {"estimator": HALF, "demonstrations": {"batch_size": 16, "length": 4}}
    words: dict[str, Any] = {
        "algo": {"name": "ppo", "actor": actor, "epochs": 1, "minibatches": 1, "objectives": objectives},
        "env": {"id": WORLD, "segments": {name: dict(parts) for name, parts in SEGMENTS.items()}},
        "source": {"num_envs": 3, "rollout_length": 7},
        "datasets": {"demonstrations": {"path": str(tmp_path / "demos")}},
    }
    assert us.train(parse_config(tiny_settings("ppo", tmp_path / "run", **words, updates=2))).result


@pytest.mark.usefixtures("no_plots")
def test_another_estimator_is_not_taken_over(tmp_path: Path) -> None:
    """Tensors of the same shape that mean something else; whoever estimated nothing hands on the rest."""

    def words(out: str, **estimate: Any) -> dict[str, Any]:
        actor: dict[str, Any] = {"hidden": [8], "sees": ["state"]}
        algo: dict[str, Any] = {"name": "ppo", "epochs": 1, "minibatches": 1, "actor": actor}
        if estimate:
            algo |= {"actor": {**actor, "estimate": estimate}, "objectives": {"estimator": {}}}
        segments = {name: dict(parts) for name, parts in SEGMENTS.items()}
        return tiny_settings("ppo", tmp_path / out, algo=algo, env={"id": WORLD, "segments": segments}, updates=1)

    plain, wind = (
        us.train(parse_config(words("plain"))),
        us.train(parse_config(words("a", targets=["privileged.wind"]))),
    )
    assert us.train(parse_config({**words("b", targets=["privileged.wind"]), "init_from": str(plain.path)})).result
    with pytest.raises(CheckpointError, match=r"its network is not that of algo\.actor \(estimate\)"):
        us.train(parse_config({**words("d", targets=["privileged.velocity"]), "init_from": str(wind.path)}))


def test_a_rollout_that_does_not_say_what_was_shown_is_refused() -> None:
    one = learning("replacing", HALF)
    rollout = one.source.next(one.policy)
    with pytest.raises(RunError, match="does not say which of its rows were shown estimates"):
        one.algorithm.update(replace(rollout, extra={}))
