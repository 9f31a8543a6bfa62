"""Frozen teachers: each with what is its own, one of several by an observation, and none that does not fit."""

import pytest
import torch

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError
from understudy.core.rng import stream
from understudy.core.spec import Box, Discrete, Group, Spec
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.policy_fit import policy_differences
from understudy.parts.distillation.teachers import Teachers, Wanted

COUNT, WHERE = 6, "algo.objectives.teacher"
SPEC = Spec(
    {"state": Group((4,), "float32"), "terrain": Group((5,), "float32"), "task": Group((1,), "float32")},
    Box((-2.0, -1.0), (2.0, 3.0)),
).with_segments({"state": {"gravity": (0, 3)}})


def an_actor(spec: Spec, sees: str, seed: int, *, memory: bool = False) -> Actor:
    told = {"sees": [sees], "hidden": [8], "memory": {"kind": "lstm" if memory else "none", "units": 4}}
    actor = Actor(spec, ActorSettings.parse(told, "actor"), stream(seed, "actor")).requires_grad_(False)
    group = sees.partition(".")[0]
    actor.observe({group: seed + torch.randn(50, *spec.observation[group].shape, generator=stream(seed, "rows"))})
    return actor


STUDENT = an_actor(SPEC, "state", 1)
WALKER, CLIMBER = an_actor(SPEC, "terrain", 2, memory=True), an_actor(SPEC, "state.gravity", 3, memory=True)


def seen(task: list[float], seed: int) -> Obs:
    rng = stream(seed, "obs")
    return {
        "state": torch.randn(COUNT, 4, generator=rng),
        "terrain": torch.randn(COUNT, 5, generator=rng),
        "task": torch.tensor(task).unsqueeze(-1),
    }


def test_each_environment_hears_its_own_teacher_and_all_of_them_remember() -> None:
    """Also one that was not asked until now: it has seen what there was."""
    teachers = Teachers({"walk": WALKER, "climb": CLIMBER}, "task", Wanted(), STUDENT, WHERE)
    carry = teachers.initial(COUNT)
    own = [WALKER.initial(COUNT), CLIMBER.initial(COUNT)]
    for step, task in enumerate(([0.0] * COUNT, [1.0] * COUNT, [0.0, 1.0, 1.0, 0.0, 1.0, 0.0])):
        obs = seen(task, step)
        facts, carry = teachers.say(obs, carry, stream(0, "labels"))
        said = []
        for number, teacher in enumerate((WALKER, CLIMBER)):
            action, own[number] = teacher.act(obs, own[number], greedy=True)
            said.append(STUDENT.from_env_action(action))
        expected = torch.where(obs["task"] == 1, said[1], said[0])
        torch.testing.assert_close(facts["label"], expected)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(carry, (*own[0], *own[1]), strict=True))


def test_a_number_that_names_no_teacher_is_told_with_its_environment() -> None:
    teachers = Teachers({"walk": WALKER, "climb": CLIMBER}, "task", Wanted(), STUDENT, WHERE)
    for wrong in (2.0, -1.0, 0.5):
        obs = seen([0.0, 1.0, wrong, 0.0, 0.0, 0.0], 0)
        told = rf"dispatch, environment 2: 'task' names no teacher: got {wrong}, expected a whole number from 0 to 1"
        with pytest.raises(DataError, match=told):
            teachers.say(obs, teachers.initial(COUNT), stream(0, "labels"))
    for dispatch, told in (
        ("", r"dispatch: 2 teachers, and dispatch ''"),
        ("terain", r"dispatch: no group or segment 'terain'"),
        ("terrain", r"dispatch: 'terrain' is no single number: got \[5\]"),
    ):
        with pytest.raises(ConfigError, match=told):
            Teachers({"walk": WALKER, "climb": CLIMBER}, dispatch, Wanted(), STUDENT, WHERE)
    with pytest.raises(ConfigError, match=r"dispatch: 1 teachers, and dispatch 'task'"):
        Teachers({"walk": WALKER}, "task", Wanted(), STUDENT, WHERE)


def test_every_difference_between_two_worlds_is_listed() -> None:
    here = Spec(
        {"state": Group((6,), "float32"), "task": Group((1,), "float32")}, Box((-2.0, -1.0), (2.0, 9.0))
    ).with_segments({"state": {"gravity": (1, 4)}})
    student = an_actor(here, "state", 0)
    with pytest.raises(ConfigError, match=r"policies\.walk: does not fit the student's world: ") as caught:
        Teachers({"walk": WALKER}, "", Wanted(), student, WHERE)
    for told in (
        "it sees group 'terrain', which is not there",
        "actions are [2] float32 from [-2, -1] to [2, 9], and were [2] float32 from [-2, -1] to [2, 3]",
    ):
        assert told in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        Teachers({"climb": CLIMBER}, "", Wanted(), student, WHERE)
    for told in (
        "group 'state' is [6] float32, and was [4]",
        "segment 'state.gravity' is columns 1 to 4, and was 0 to 3",
        "actions are",
    ):
        assert told in str(caught.value)
    choosing = Spec({"state": Group((4,), "float32")}, Discrete(3), masked=True)
    chooser = an_actor(choosing, "state", 0)
    assert policy_differences(chooser, Spec(choosing.observation, Discrete(3))) == [
        "it obeys masks, and there are none"
    ]
    assert policy_differences(chooser, choosing) == []
    careless = an_actor(Spec(choosing.observation, Discrete(3)), "state", 0)
    assert policy_differences(careless, choosing) == ["it knows no masks, and here they say what is legal"]
    assert policy_differences(WALKER, SPEC) == []


def test_what_its_world_emits_beside_what_it_reads_may_be_anything() -> None:
    less = Spec({"state": Group((4,), "float64")}, Box((-2.0, -1.0), (2.0, 3.0), "float64"))
    teacher = an_actor(less, "state", 4)
    facts, _ = Teachers({"one": teacher}, "", Wanted(), STUDENT, WHERE).say(seen([0.0] * COUNT, 0), (), stream(0, "l"))
    assert facts["label"].shape == (COUNT, 2)
