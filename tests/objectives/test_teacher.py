"""Objective `teacher`: who acts, what is labelled, what is learned from it, and what is refused."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from learners import differences
from understudy.algorithms import ppo
from understudy.core.batch import POLICY_WEIGHT, Obs, Rollout
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import BuildContext, Carry
from understudy.core.rng import stream
from understudy.core.spec import Spec
from understudy.core.state import capture
from understudy.envs.builtin.windy_point import WindyPoint
from understudy.envs.vector.contract import Step
from understudy.envs.vector.local import LocalVectorEnv
from understudy.nn.actor import Actor, ActorSettings
from understudy.objectives.teacher import Config, Teacher
from understudy.parts.distillation.success import kept_rows
from understudy.run.config import parse_config
from understudy.sources.rollout import RolloutSource
from worlds import tiny_settings

COUNT, STEPS, LIMIT = 6, 16, 5
CPU = torch.device("cpu")
WORLDS = ("ShortWindyPoint-v0", "ShortWindyThrusters-v0")
for number, name in enumerate(WORLDS):
    gymnasium.register(
        name, f"{WindyPoint.__module__}:WindyPoint", max_episode_steps=LIMIT, kwargs={"thrusters": bool(number)}
    )
GRU, LSTM = ({"hidden": [8], "memory": {"kind": kind, "units": 4}} for kind in ("gru", "lstm"))
SEES = {"sees": ["state"]}
MIRROR: dict[str, Any] = {
    "observations": {"state": {"signs": [-1] * 4}, "privileged": {"signs": [-1] * 6 + [1]}},
    "actions": {"signs": [-1, -1]},
}
STUDENTS: list[dict[str, Any]] = [
    {"hidden": [8]},
    {"hidden": [256, 128]},
    GRU,
    LSTM,
    {"hidden": [8], "distribution": "beta"},
    {"hidden": [8], "distribution": "tanh_gaussian"},
    {**GRU, "distribution": "state_gaussian"},
]


class Diary:
    """A world that keeps what it was sent."""

    def __init__(self, *, thrusters: bool = False) -> None:
        self._world = LocalVectorEnv(WORLDS[thrusters], COUNT, stagger_episodes=True)
        self.sent: list[Tensor] = []
        self.spec, self.count = self._world.spec, COUNT

    def step(self, action: Tensor) -> Step:
        self.sent.append(action.clone())
        return self._world.step(action)

    def reset(self, seed: int) -> Obs:
        return self._world.reset(seed)

    def close(self) -> None:
        self._world.close()


def a_teacher(spec: Spec, **settings: Any) -> Actor:
    """It sees what the student does not, in units of its own."""
    shape = ActorSettings.parse(
        {"sees": ["privileged"], "hidden": [8], "distribution": "gaussian", **settings}, "actor"
    )
    teacher = Actor(spec, shape, stream(5, "teacher")).requires_grad_(False)
    teacher.observe({"privileged": 3.0 + 2.0 * torch.randn(99, 7, generator=stream(1, "rows"))})
    teacher.trunk.flat.mul_(0.5)  # most of what it says is inside the box
    return teacher


class Lesson:
    def __init__(
        self,
        student: dict[str, Any] | None = None,
        teacher: dict[str, Any] | None = None,
        algo: dict[str, Any] | None = None,
        thrusters: bool = False,
        estimator: dict[str, Any] | None = None,
        symmetry: dict[str, Any] | None = None,
        **objective: Any,
    ) -> None:
        self.world = Diary(thrusters=thrusters)
        role = {**SEES, **(student or {"hidden": [8]})}
        others = {"estimator": estimator, "symmetry": symmetry}
        self.teacher = a_teacher(self.world.spec, **(teacher or {}))
        self.config = ppo.Config.parse(
            {
                "actor": role,
                "critic": {"hidden": [8]},
                "epochs": 1,
                "minibatches": 1,
                "schedule": "constant",
                **(algo or {}),
                "objectives": {"teacher": objective, **{name: one for name, one in others.items() if one}},
            },
            "algo",
        )
        policies = {"teacher": self.teacher}
        context = BuildContext(self.world.spec, 10, 0, CPU, COUNT, policies=policies, rollout_length=STEPS)
        self.algorithm = ppo.build(self.config, context)
        self.policy = self.algorithm.policy
        recorders = self.algorithm.recorders()
        self.source = RolloutSource.build(self.world, self.policy, STEPS, 0, recorders=recorders)
        member = self.algorithm.objectives.members["teacher"]
        assert isinstance(member, Teacher)
        self.objective = member

    def play(self) -> Rollout:
        self.world.sent.clear()
        return self.source.next(self.policy)

    def update(self, times: int = 1) -> None:
        for _ in range(times):
            self.algorithm.update(self.play())


def asked(teacher: Actor, rollout: Rollout, carry: Carry) -> tuple[Tensor, Carry]:
    """What a teacher does that is shown a rollout step by step and forgets where an episode ends [T, N, A]."""
    actions = []
    for t in range(STEPS):
        obs = {name: values[t] for name, values in rollout.obs.items()}
        action, carry = teacher.act(obs, carry, greedy=True)
        actions.append(action)
        carry = tuple(part * ~rollout.ended[t].view(-1, 1, 1) for part in carry)
    return torch.stack(actions), carry


def test_whoever_acts_the_first_ratio_is_one_and_what_was_sent_is_stored() -> None:
    """T1, also with memories that begin at random; T2: a teacher that sees its own groups by its own normaliser and
    remembers by itself, whoever acts."""
    for number, student in enumerate(STUDENTS):
        memory = "memory" in student
        lesson = Lesson(student, GRU if number % 2 else None, beta=0.5, hidden_state_resample_prob=0.5 * memory)
        carry = lesson.teacher.initial(COUNT)
        for _ in range(3):
            rollout = lesson.play()
            driven, sent = rollout.extra["teacher/driven"], torch.stack(lesson.world.sent)
            assert 0 < int(driven.sum()) < driven.numel()
            seen = {**rollout.obs, **rollout.extra}
            judged = lesson.policy.evaluate(seen, rollout.carry, rollout.resets, rollout.action)
            torch.testing.assert_close(judged.log_prob, rollout.log_prob, rtol=1e-4, atol=1e-4)
            expected, carry = asked(lesson.teacher, rollout, carry)
            torch.testing.assert_close(sent[driven], expected[driven], rtol=1e-5, atol=1e-5)
            label = rollout.extra["teacher/label"]
            torch.testing.assert_close(lesson.policy.to_env_action(label), expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(rollout.action[driven], label[driven], rtol=1e-5, atol=1e-5)
            own = lesson.policy.to_env_action(rollout.action)
            torch.testing.assert_close(sent[~driven], own[~driven])
            lesson.algorithm.update(rollout)


def test_the_first_ratio_is_one_with_teacher_estimates_and_memory_together() -> None:
    """Who acts, what is shown of an estimate and where memories begin are all drawn, and all are in the rollout."""
    for distribution in ("gaussian", "state_gaussian"):
        estimate = {"targets": ["privileged"], "sees": ["state"], "memory": LSTM["memory"], "hidden": [8]}
        student = {**GRU, "sees": ["state", "privileged"], "estimate": estimate, "distribution": distribution}
        lesson = Lesson(student, GRU, estimator={"replace_probability": 0.5}, beta=0.5, hidden_state_resample_prob=0.5)
        for _ in range(3):
            rollout = lesson.play()
            driven = rollout.extra["teacher/driven"]
            assert 0 < int(driven.sum()) < driven.numel()
            seen = {**rollout.obs, **rollout.extra}
            judged = lesson.policy.evaluate(seen, rollout.carry, rollout.resets, rollout.action)
            torch.testing.assert_close(judged.log_prob, rollout.log_prob, rtol=1e-4, atol=1e-4)
            metrics = lesson.algorithm.update(rollout).metrics
            assert abs(float(metrics["policy/kl"])) < 1e-6
            assert 0 < float(metrics["estimator/replaced"]) < 1
    with pytest.raises(ConfigError, match=r"teacher\.buffer_dilation: old rollouts do not keep the estimates"):
        Lesson(student, algo={"policy_coef": 0.0}, estimator={"replace_probability": 0.5}, buffer_dilation=2)


def test_choices_are_driven_and_learned_as_well() -> None:
    for loss in ("nll", "kl", "cross_entropy"):
        lesson = Lesson(thrusters=True, beta=0.5, loss=loss)
        rollout = lesson.play()
        driven, sent = rollout.extra["teacher/driven"], torch.stack(lesson.world.sent)
        judged = lesson.policy.evaluate(rollout.obs, (), None, rollout.action)
        torch.testing.assert_close(judged.log_prob, rollout.log_prob)
        assert torch.equal(sent[driven], rollout.extra["teacher/label"][driven])
        lesson.update(2)
    with pytest.raises(ConfigError, match=r"teacher\.loss: choices have no distance: got mse, expected nll"):
        Lesson(thrusters=True)


def test_an_episode_is_driven_whole_and_never_where_beta_is_nothing() -> None:
    """T5: with β = 0 nobody is driven, in the first episode neither; with 1 everybody is."""
    shares = {}
    for beta in (0.0, 0.3, 1.0):
        lesson = Lesson(beta=beta)
        rollouts = [lesson.play() for _ in range(12)]
        driven = torch.cat([rollout.extra["teacher/driven"] for rollout in rollouts])
        ended = torch.cat([rollout.ended for rollout in rollouts])
        changed = driven[1:] != driven[:-1]
        assert not bool((changed & ~ended[:-1]).any()), "only where another episode begins"
        shares[beta] = float(driven.float().mean())
        first = float(rollouts[0].extra["teacher/driven"][0].float().mean())
        assert (first if beta in (0.0, 1.0) else beta) == beta
    assert shares[0.0] == 0.0
    assert shares[1.0] == 1.0
    assert shares[0.3] == pytest.approx(0.3, abs=0.12)


def test_beta_and_weights_follow_their_schedules() -> None:
    falls = {"start": 1.0, "end": 0.0, "over": 2}
    eyes: list[dict[str, Any]] = [
        {"hidden": [8], "encoders": {name: {"kind": "mlp", "size": 5}}} for name in ("state", "privileged")
    ]
    falling: dict[str, Any] = {
        "weight": {**falls, "start": 2.0, "kind": "cosine"},
        "latent_weight": {**falls, "start": 3.0},
    }
    lesson = Lesson(eyes[0], eyes[1], beta=falls, latents={"state": "privileged"}, **falling)
    told, weighed = [], []
    for _ in range(4):
        weighed.append(lesson.objective.weights.losses)
        metrics = lesson.algorithm.update(lesson.play()).metrics
        told.append((float(metrics["teacher/beta"]), float(metrics["teacher/weight"])))
    betas, weights = zip(*told, strict=True)
    assert betas == pytest.approx((1.0, 0.5, 0.0, 0.0))
    assert weights == pytest.approx((2.0, 1.0, 0.0, 0.0))
    assert [terms["distillation"] for terms in weighed] == pytest.approx([2.0, 1.0, 0.0, 0.0])
    assert [terms["latent"] for terms in weighed] == pytest.approx([3.0, 1.5, 0.0, 0.0])
    assert not bool(lesson.play().extra["teacher/driven"][LIMIT:].any())


def test_rows_that_were_driven_may_weigh_less_in_ppos_own_loss() -> None:
    assert POLICY_WEIGHT not in Lesson(beta=0.5).play().extra
    rollout = Lesson(beta=0.5, driven_policy_weight=0.25).play()
    expected = torch.where(rollout.extra["teacher/driven"], 0.25, 1.0)
    assert torch.equal(rollout.extra[POLICY_WEIGHT], expected)


def test_without_ppo_it_is_dagger() -> None:
    """One step of Adam on the distance to the labels, whatever rewards and values say."""
    policies = []
    for scale in (1.0, 1e6):
        lesson = Lesson(GRU, algo={"policy_coef": 0.0, "entropy_coef": 0.3}, beta=0.5)
        rollout = lesson.play()
        lesson.algorithm.update(replace(rollout, reward=scale * rollout.reward))
        policies.append(capture(lesson.policy))
    assert differences(*policies) == []
    lesson = Lesson(GRU, algo={"policy_coef": 0.0})
    rollout, policy = lesson.play(), lesson.policy
    seen = policy.perception.sequence(rollout.obs, rollout.carry, rollout.resets)
    apart = (policy.trunk(seen) - rollout.extra["teacher/label"]).square().mean()
    lesson.algorithm.step("policy", apart, lesson.algorithm.rates["policy"])
    by_hand = capture(policy.trunk)
    again = Lesson(GRU, algo={"policy_coef": 0.0})
    again.update()
    for path, leaf in capture(again.policy.trunk).items():
        torch.testing.assert_close(leaf, by_hand[path], rtol=1e-5, atol=1e-6)


def test_every_loss_is_what_its_name_says() -> None:
    """Against torch.distributions, with a student and a teacher of one family."""
    for loss in Config.model_fields["loss"].annotation.__args__:  # type: ignore[union-attr]
        for kind in loss.__args__:
            lesson = Lesson(loss=kind)
            rollout = lesson.play()
            with torch.no_grad():
                student = lesson.policy.evaluate(rollout.obs, (), None, rollout.action).features
                teacher = lesson.teacher.evaluate(rollout.obs, (), None, rollout.action).features
            normal: list[Any] = [
                Normal(mean, log_std.exp())
                for mean, log_std in (features.chunk(2, -1) for features in (student, teacher))
            ]
            label, mean = rollout.extra["teacher/label"], normal[0].mean
            gap, divergence = mean - label, kl_divergence
            known = {
                "mse": gap.square().mean(-1),
                "mse_sum": gap.square().sum(-1),
                "l1": gap.abs().sum(-1),
                "l2": gap.norm(dim=-1),
                "real": gap.norm(dim=-1),
                "huber": torch.where(gap.abs() < 1, gap.square() / 2, gap.abs() - 0.5).mean(-1),
                "nll": -normal[0].log_prob(label).sum(-1),
                "max_log_prob": -normal[0].log_prob(label).sum(-1),
                "kl": divergence(normal[1], normal[0]).sum(-1),
                "reverse_kl": divergence(normal[0], normal[1]).sum(-1),
                "cross_entropy": (divergence(normal[1], normal[0]) + normal[1].entropy()).sum(-1),
            }
            metrics = lesson.algorithm.update(rollout).metrics
            if kind in known:
                told = float(metrics["loss/teacher.distillation"])
                assert told == pytest.approx(float(known[kind].mean()), rel=1e-4), kind
            else:
                assert kind in ("tanh", "scaled_tanh")
                assert math.isfinite(float(metrics["loss/teacher.distillation"]))


def test_labels_may_be_drawn_from_a_stream_of_their_own() -> None:
    """The student's own draws stay what they are; a rollout that failed is played again with the same labels."""
    mean, sample = Lesson(), Lesson(labels="sample")
    first, second = mean.play(), sample.play()
    assert torch.equal(first.action, second.action)
    apart = (second.extra["teacher/label"] - first.extra["teacher/label"]).abs()
    assert float(apart.mean()) > 0.05
    again = Lesson(labels="sample", beta=0.5)
    before = capture(again.source)

    def broken(action: Tensor) -> Step:
        raise DataError("world", "is broken")

    step, again.world.step = again.world.step, broken  # type: ignore[method-assign]
    labels = again.objective.draws.get_state()
    with pytest.raises(DataError, match="is broken"):
        again.play()
    again.world.step = step  # type: ignore[method-assign]
    assert torch.equal(again.objective.draws.get_state(), labels)
    assert differences(before, capture(again.source)) == []


def test_latents_of_named_encoders_come_together() -> None:
    encoder = {"kind": "mlp", "size": 5, "hidden": [8]}
    student, teacher = {"hidden": [8], "encoders": {"state": encoder}}, {"encoders": {"privileged": encoder}}
    lesson = Lesson(student, teacher, latents={"state": "privileged"}, latent_weight=2.0)
    rollout = lesson.play()
    wanted = lesson.teacher.encoder_latents(rollout.obs)["privileged"]
    mine = lesson.policy.encoder_latents(rollout.obs)["state"]
    metrics = lesson.algorithm.update(rollout).metrics
    assert float(metrics["loss/teacher.latent"]) == pytest.approx(float((mine - wanted).square().mean()), rel=1e-4)
    assert lesson.objective.weights.losses == {"distillation": 1.0, "latent": 2.0}
    for latents, told in (
        ({"privileged": "privileged"}, r"latents: the student has no encoder of 'privileged': expected \['state'\]"),
        ({"state": "state"}, r"latents: .*teacher 'teacher' has no encoder of 'state': expected \['privileged'\]"),
    ):
        with pytest.raises(ConfigError, match=told):
            Lesson(student, teacher, latents=latents)
    smaller = {"encoders": {"privileged": {**encoder, "size": 4}}}
    with pytest.raises(ConfigError, match=r"are not of one size: got 5, expected 4"):
        Lesson(student, smaller, latents={"state": "privileged"})


def test_a_memory_begins_at_random_whole_and_only_where_it_was_drawn() -> None:
    """T3: one draw for each environment; what was drawn is what the rollout was played from."""
    for student in (GRU, LSTM):
        for chance in (0.0, 0.5, 1.0):
            lesson = Lesson(student, hidden_state_resample_prob=chance)
            for _ in range(3):
                before, stream_before = lesson.source.carry, lesson.source.turns[0].memories.get_state()
                rollout = lesson.play()
                pairs = list(zip(before, rollout.carry, strict=True))
                moved = torch.stack([(one != other).flatten(1).all(-1) for one, other in pairs])
                touched = torch.stack([(one != other).flatten(1).any(-1) for one, other in pairs])
                assert torch.equal(moved, touched), "all units, or none"
                assert torch.equal(moved.all(0), moved.any(0)), "all parts of a memory, or none"
                share = float(moved[0].float().mean())
                assert share == chance or chance == 0.5
                drawn = not torch.equal(stream_before, lesson.source.turns[0].memories.get_state())
                assert drawn == bool(chance)


def test_a_longer_buffer_is_only_for_those_whom_ppo_does_not_move() -> None:
    """T6: advantages and ratios of older policies mean nothing."""
    for coef in (1.0, {"start": 0.0, "end": 1.0, "over": 5}):
        with pytest.raises(ConfigError, match=r"teacher\.buffer_dilation: old rollouts.*expected algo\.policy_coef=0"):
            Lesson(algo={"policy_coef": coef}, buffer_dilation=3)


def test_each_of_the_rollouts_in_a_longer_buffer_counts_alike() -> None:
    """Two older ones whose labels are 2 away from what the student says there, from the memory it had, and with a label
    that is 9 away in the place of a fourth, which is forgotten. Rows that were made up (mirrored) are none."""
    cases: list[tuple[dict[str, Any] | None, dict[str, Any] | None]] = [
        (student, symmetry) for student in (None, GRU, LSTM) for symmetry in (None, MIRROR)
    ]
    for student, symmetry in cases:
        lesson = Lesson(student, algo={"policy_coef": 0.0}, buffer_dilation=3, symmetry=symmetry)
        (past,) = lesson.objective.past
        policy = lesson.policy
        with torch.no_grad():
            policy.trunk.flat.mul_(20.0)  # what it remembers shows in what it does
        for away in (9.0, 2.0, 2.0):
            rollout = lesson.play()
            seen = policy.perception.sequence(rollout.obs, rollout.carry, rollout.resets if student else None)
            with torch.no_grad():
                label = policy.trunk(seen) + away
            past.add(rollout, {"label": label}, rollout.valid)
        assert (past.put, past.filled) == (3, 2)
        rollout = lesson.play()
        with torch.no_grad():
            judged = policy.evaluate(rollout.obs, rollout.carry, rollout.resets, rollout.action)
        now = (judged.features[..., :2] - rollout.extra["teacher/label"]).square().mean()
        told = float(lesson.algorithm.update(rollout).metrics["loss/teacher.distillation"])
        assert told == pytest.approx((float(now) + 2 * 4.0) / 3, rel=1e-4)


def test_every_row_that_is_learned_from_counts_alike_however_old_it_is() -> None:
    """Where failed episodes are left out, or rows do not count: the mean is over those that are left, now and before.
    Older labels are 2 away from what the student says."""
    for student in (None, GRU):
        for success, gaps in (("terminated", False), ("", True), ("terminated", True)):
            lesson = Lesson(student, algo={"policy_coef": 0.0}, buffer_dilation=3, success=success)
            (past,), policy, older = lesson.objective.past, lesson.policy, 0
            for number in range(3):
                rollout = lesson.play()
                valid = torch.rand(rollout.valid.shape, generator=stream(number, "gaps")) < (0.6 if gaps else 1.0)
                rollout = replace(rollout, valid=valid)
                kept = valid & (kept_rows(rollout, success) if success else True)
                assert 0 < int(kept.sum()) < kept.numel()
                with torch.no_grad():
                    judged = policy.evaluate(rollout.obs, rollout.carry, rollout.resets, rollout.action)
                if number < 2:
                    past.add(rollout, {"label": judged.features[..., :2] + 2.0}, kept)
                    older += int(kept.sum())
            apart = (judged.features[..., :2] - rollout.extra["teacher/label"]).square().mean(-1)[kept]
            told = float(lesson.algorithm.update(rollout).metrics["loss/teacher.distillation"])
            assert told == pytest.approx((float(apart.sum()) + 4.0 * older) / (len(apart) + older), rel=1e-4)


def test_episodes_that_failed_are_left_out_on_request() -> None:
    """Their labels might be anything: nothing of them is learned."""
    for student in (None, GRU):
        policies = []
        for poison in (0.0, 50.0):
            lesson = Lesson(student, algo={"policy_coef": 0.0}, success="terminated")
            rollout = lesson.play()
            assert bool(rollout.truncated.any())
            kept = lesson.objective.prepare(rollout)["kept"]
            assert 0 < int(kept.sum()) < kept.numel()
            label = rollout.extra["teacher/label"]
            wrong = {**rollout.extra, "teacher/label": torch.where(kept.unsqueeze(-1), label, label + poison)}
            lesson.algorithm.update(replace(rollout, extra=wrong))
            policies.append(capture(lesson.policy))
        assert differences(*policies) == []
    with pytest.raises(DataError, match=r"teacher\.success: the environment tells nothing of the name 'truncatd'"):
        Lesson(success="truncatd").update()


def test_ppo_learns_from_rollouts_only(tmp_path: Path) -> None:
    """T7: rewards of a dataset beside actions that the student drew mean nothing."""
    told = tiny_settings("ppo", tmp_path, source={"kind": "offline"}, policies={"teacher": {"path": "somewhere"}})
    told["algo"] = {**told["algo"], "objectives": {"teacher": {}}}
    with pytest.raises(ConfigError, match=r"source\.kind"):
        parse_config(told)


def test_mistakes_are_told_before_the_first_step() -> None:
    for settings, told in (
        ({"beta": 1.2}, r"teacher\.beta: wrong value: got 1\.2"),
        ({"beta": {"start": 1.0, "end": -0.1, "over": 9}}, r"teacher\.beta\.end: wrong value: got -0\.1"),
        ({"weight": -1.0}, r"teacher\.weight: wrong value"),
        ({"loss": "mee"}, r"teacher\.loss: wrong value: got 'mee'"),
        ({"hidden_state_resample_prob": 2.0}, r"hidden_state_resample_prob: wrong value"),
        ({"hidden_state_resample_prob": 0.5}, r"hidden_state_resample_prob: the student has no memory"),
        ({"huber_delta": 2.0}, r"huber_delta=2 is of loss=huber"),
        ({"teachers": ["teacher", "teacher"]}, r"teachers: one is named twice"),
        ({"teachers": ["nobody"]}, r"teacher\.teachers: there is no such policy: got \['nobody'\]"),
        ({"dispatch": "state"}, r"teacher\.dispatch: 'state' is no single number: got \[4\], expected \[1\]"),
        ({"buffer_dilation": 0}, r"buffer_dilation: wrong value"),
    ):
        with pytest.raises(ConfigError, match=told):
            Lesson(**settings)
    with pytest.raises(ConfigError, match=r"teacher\.loss: this loss compares densities of one family.*got Beta"):
        Lesson(teacher={"distribution": "beta"}, loss="kl")


def test_labels_that_are_not_finite_are_refused_with_their_place() -> None:
    lesson = Lesson()
    with torch.no_grad():
        lesson.teacher.trunk.flat.fill_(math.nan)
    with pytest.raises(DataError, match=r"teacher 'teacher', environment 0: its label is not finite: got \[nan, nan\]"):
        lesson.play()
