"""Skill sets: which skill acts, what it sees, what is sent, and what is remembered."""

from typing import Any

import numpy as np
import pytest
import torch

from skill_cases import BY_ZONE, CHOICES, NAMES, SPEC, actors, alone, make_set, observe
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import Carry
from understudy.core.rng import stream
from understudy.core.spec import Box, Discrete, Group, Spec
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.deployed import Deployed
from understudy.nn.skill_set import SkillSet, selection_weights
from understudy.run.skill_sets import skill_set

COLUMNS = {"command": slice(3, 5), "last_action": slice(5, 7)}


def first_step(policy: SkillSet, obs: dict[str, torch.Tensor], **wishes: Any) -> torch.Tensor:
    return policy.act(obs, policy.initial(len(obs["state"])), greedy=True, **wishes)[0]


def test_the_chosen_skill_acts_alone_to_the_bit() -> None:
    policies = actors()
    made, obs = make_set(policies), observe([0, 1, 2, -1, 2])
    rows = torch.stack([alone(policies[name], obs) for name in NAMES])
    found = first_step(made, obs)
    assert torch.equal(found, rows[torch.tensor([0, 1, 2, 0, 2]), torch.arange(5)])
    assert not torch.equal(rows[0], rows[1]), "skills that agree prove nothing"
    assert made.initial(3) == ()


def test_an_index_chooses_and_its_meaning_can_be_said() -> None:
    policies = actors()
    selector = {"kind": "observation", "observation": "state.height", "encoding": "index", "skills": ["climb", "walk"]}
    made = make_set(policies, selector=selector)
    obs = observe([-1, -1], heights=[0.0, 1.0])
    assert torch.equal(first_step(made, obs)[0], alone(policies["climb"], obs)[0])
    assert torch.equal(first_step(made, obs)[1], alone(policies["walk"], obs)[1])


def test_a_selector_that_chooses_nothing_is_an_error_unless_there_is_a_fallback() -> None:
    strict = make_set(selector={"kind": "observation", "observation": "state.zone"})
    with pytest.raises(DataError, match=r"row 1: the selector chooses nothing \('state.zone'\).*selector.fallback"):
        first_step(strict, observe([2, -1]))
    counted = {"kind": "observation", "observation": "state.height", "encoding": "index"}
    for height in (-1.0, 3.0, 1.49, float("nan"), float("inf")):
        with pytest.raises(DataError, match="row 0: the selector chooses nothing"):
            first_step(make_set(selector=counted), observe([0], heights=[height]))
    with pytest.raises(DataError, match="row 0: the selector chooses nothing: got 3"):
        first_step(make_set(choose=lambda obs: torch.full((1,), 3)), observe([0]))


def test_a_function_may_choose_and_sees_what_the_set_sees() -> None:
    policies = actors()
    made = make_set(policies, choose=lambda obs: (obs["state"][:, 0] > 0).long())
    obs = observe([0] * 20)
    expected = torch.where(obs["state"][:, :1] > 0, alone(policies["leap"], obs), alone(policies["walk"], obs))
    assert torch.equal(first_step(made, obs), expected)
    with pytest.raises(DataError, match=r"selector: not a number of a skill for each row: got \[20\] torch.float32"):
        first_step(make_set(choose=lambda obs: obs["state"][:, 0]), obs)


def test_the_sign_of_an_entry_splits_a_choice() -> None:
    policies = actors()
    selector = {
        **BY_ZONE,
        "skills": ["walk", "leap", "leap"],
        "split": {"leap": {"observation": "state.height", "negative": "climb"}},
    }
    obs = observe([0, 1, 1, 2, 2, 0], heights=[-1.0, 1.0, -1.0, -0.001, 0.0, 1.0])
    rows = torch.stack([alone(policies[name], obs) for name in NAMES])
    expected = rows[torch.tensor([0, 1, 2, 2, 1, 0]), torch.arange(6)]
    assert torch.equal(first_step(make_set(policies, selector=selector), obs), expected)
    last = {"leap": {"observation": "state.body", "entry": -1, "negative": "climb"}}
    signs = (obs["state"][:, 2] < 0) & torch.tensor([False, True, True, True, True, False])
    mixed = make_set(policies, selector={**selector, "split": last})
    numbers = torch.where(signs, 2, torch.tensor([0, 1, 1, 1, 1, 0]))
    assert torch.equal(first_step(mixed, obs), rows[numbers, torch.arange(6)])


def test_overrides_are_seen_by_their_skill_alone_and_never_written_to_the_caller() -> None:
    policies = actors()
    made = make_set(policies, skills={"leap": {"overrides": {"state.command": [0.25, -3.0]}}})
    obs = observe([1, 1, 2])
    before = obs["state"].clone()
    found = first_step(made, obs)
    assert torch.equal(obs["state"], before)
    changed = before.clone()
    changed[:, COLUMNS["command"]] = torch.tensor([0.25, -3.0])
    assert torch.equal(found[:2], alone(policies["leap"], {"state": changed})[:2])
    assert torch.equal(found[2], alone(policies["climb"], obs)[2])
    read_only = before.numpy().copy()
    read_only.flags.writeable = False
    assert np.array_equal(made({"state": read_only}), found.numpy())


def test_the_last_action_is_seen_and_actions_are_sent_in_the_skills_own_scale() -> None:
    """The environment multiplies by 0.5, the skill was trained with 0.25 and 0.125: its action counts for less."""
    policies = actors()
    made = make_set(
        policies,
        action_scale=0.5,
        last_action=["state.last_action"],
        skills={"leap": {"action_scale": [0.25, 0.125]}, "walk": {"action_scale": 0.5}, "climb": {"action_scale": 0.5}},
    )
    obs = observe([1, 0])
    changed = obs["state"].clone()
    changed[:, COLUMNS["last_action"]] *= torch.tensor([2.0, 4.0])
    expected = alone(policies["leap"], {"state": changed}) * torch.tensor([0.5, 0.25])
    found = first_step(made, obs)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], alone(policies["walk"], obs)[1]), "a skill of the environment's scale is left alone"
    named = make_set(
        policies,
        action_scale=0.5,
        action_names=["hip", "knee"],
        skills={name: {"action_scale": {"knee": 0.125} if name == "leap" else 0.5} for name in NAMES},
    )
    assert torch.equal(first_step(named, obs)[0], (alone(policies["leap"], obs) * torch.tensor([1.0, 0.25]))[0])
    beyond = make_set(policies, skills={"leap": {"action_scale": 1000.0}})
    assert bool((first_step(beyond, obs)[0].abs() == 2.0).all()), "what is sent stays inside the box"


def test_named_segments_are_scaled() -> None:
    policies = actors()
    made = make_set(policies, skills={"leap": {"observation_scale": {"state.body": [2.0, 3.0, 4.0]}}})
    obs = observe([1])
    changed = obs["state"].clone()
    changed[:, :3] *= torch.tensor([2.0, 3.0, 4.0])
    assert torch.equal(first_step(made, obs), alone(policies["leap"], {"state": changed}))


def played(policy: SkillSet, zones: list[list[int]], **wishes: Any) -> tuple[list[torch.Tensor], list[Carry]]:
    """Actions and carries of steps in which environments are in these zones."""
    carry, actions, carries = policy.initial(len(zones[0])), [], []
    for step, row in enumerate(zones):
        action, carry = policy.act(observe(row, step), carry, greedy=True, **wishes)
        actions.append(action)
        carries.append(carry)
    return actions, carries


def test_smoothing_is_the_mean_of_the_last_selections_of_the_episode() -> None:
    policies, zones = actors(), [0, 1, 1, 2, 2, 2, 2]
    actions, _ = played(make_set(policies, smoothing=3), [[zone] for zone in zones])
    for step in range(len(zones)):
        last, obs = zones[max(0, step - 2) : step + 1], observe([zones[step]], step)
        rows = [alone(policies[NAMES[zone]], obs) for zone in last]
        assert torch.allclose(actions[step], torch.stack(rows).mean(0), atol=1e-6), step
    history = torch.zeros(1, 3, 2)
    history[0, 0, 1] = history[0, 1, 0] = 1.0
    assert torch.equal(selection_weights(history), torch.tensor([[0.5, 0.5]]))


def test_where_an_episode_begins_the_smoothing_begins_and_nowhere_else() -> None:
    """A carry is fresh in the row of one environment: the other one goes on as if nothing had happened."""
    policies = actors(memory="gru")
    made = make_set(policies, smoothing=4)
    _, carries = played(made, [[0, 0], [0, 1], [1, 1]])
    fresh = made.initial(2)
    begins = torch.tensor([True, False])
    mixed = tuple(
        torch.where(begins.view(-1, *[1] * (old.dim() - 1)), new, old)
        for old, new in zip(carries[-1], fresh, strict=True)
    )
    obs = observe([2, 2], 9)
    found, _ = made.act(obs, mixed, greedy=True)
    assert torch.equal(found[0], first_step(made, obs)[0]), "as in the first step of an episode"
    assert torch.equal(found[1], made.act(obs, carries[-1], greedy=True)[0][1])
    assert not torch.equal(found[0], made.act(obs, carries[-1], greedy=True)[0][0])


def test_a_skill_without_weight_cannot_spoil_an_action() -> None:
    policies = actors()
    spoilt = policies["leap"]
    assert isinstance(spoilt, Actor)
    spoilt.trunk.flat.fill_(torch.nan)
    assert bool(first_step(make_set(policies), observe([0, 2])).isfinite().all())


DRAWN = {"leap": {"overrides": {"state.command": {"low": [0.0, -1.0], "high": [1.0, 2.0]}}}}


def test_draws_are_of_each_environment_and_hold_through_the_episode() -> None:
    made = make_set(skills=DRAWN)
    _, carries = played(made, [[1] * 200, [0] * 200, [1] * 200], rng=stream(0, "draws"))
    draws = carries[0][-1]
    assert all(torch.equal(carry[-1], draws) for carry in carries)
    assert len(torch.unique(draws[:, 0])) == 200, "one draw for all of them would be the seed's mistake"
    for column, (low, high) in enumerate([(0.0, 1.0), (-1.0, 2.0)]):
        values = draws[:, column]
        assert low <= float(values.min()) < low + 0.1 * (high - low)
        assert high - 0.1 * (high - low) < float(values.max()) <= high
    policies = actors()
    again = make_set(policies, skills=DRAWN)
    obs = observe([1] * 200)
    found, carry = again.act(obs, again.initial(200), greedy=True, rng=stream(0, "draws"))
    changed = obs["state"].clone()
    changed[:, COLUMNS["command"]] = carry[-1]
    assert torch.allclose(found, alone(policies["leap"], {"state": changed}), atol=1e-6)
    _, middle = again.act(obs, again.initial(200), greedy=True)
    assert torch.equal(middle[-1], torch.tensor([[0.5, 0.5]]).expand(200, 2)), "without a stream: the middle"


def test_a_draw_is_made_anew_when_its_skill_is_selected_if_that_is_asked_for() -> None:
    override = {**DRAWN["leap"]["overrides"]["state.command"], "redraw": "selection"}
    made = make_set(skills={"leap": {"overrides": {"state.command": override}}})
    zones = [[1, 0], [1, 0], [0, 1], [1, 1]]
    _, carries = played(made, zones, rng=stream(0, "draws"))
    drawn = [carry[-1] for carry in carries]
    assert torch.equal(drawn[0], drawn[1]), "it goes on"
    assert torch.equal(drawn[1][0], drawn[2][0]), "it left"
    assert not torch.equal(drawn[1][1], drawn[2][1]), "it came, in the second environment"
    assert not torch.equal(drawn[2][0], drawn[3][0]), "it came again, in the first"
    assert torch.equal(drawn[2][1], drawn[3][1])


def test_memories_begin_anew_by_the_rule_and_in_those_rows_alone() -> None:
    zones = [[0, 1], [1, 1], [0, 1]]
    for rule in ("never", "all", "when_selected"):
        policies = actors(memory="lstm", count=2)
        made = make_set(policies, reset_memory=rule, selector={**BY_ZONE, "skills": ["walk", "leap", "leap"]})
        own = {name: policy.initial(2) for name, policy in policies.items()}
        carry, before = made.initial(2), [-1, -1]
        for step, row in enumerate(zones):
            obs, expected = observe(row, step), []
            for number, (name, policy) in enumerate(policies.items()):
                came = torch.tensor([zone == number != last for zone, last in zip(row, before, strict=True)])
                idle = torch.tensor([zone != number for zone in row])
                memory = own[name]
                if rule == "when_selected":
                    memory = tuple(part.masked_fill(came.view(2, 1, 1), 0.0) for part in memory)
                action, memory = policy.act(obs, memory, greedy=True)
                if rule == "all":
                    memory = tuple(part.masked_fill(idle.view(2, 1, 1), 0.0) for part in memory)
                own[name] = memory
                expected.append(action)
            action, carry = made.act(obs, carry, greedy=True)
            assert torch.equal(action, torch.stack(expected)[torch.tensor(row), torch.arange(2)]), (rule, step)
            parts = [part for name in policies for part in own[name]]
            assert all(torch.equal(mine, theirs) for mine, theirs in zip(carry[:4], parts, strict=True)), (rule, step)
            before = row


def test_a_rule_of_a_skill_comes_before_that_of_the_set() -> None:
    policies = actors(memory="gru")
    made = make_set(policies, reset_memory="all", skills={"walk": {"reset_memory": "never"}})
    _, carries = played(made, [[1], [1]])
    walk, leap, climb = carries[-1]
    assert bool(walk.any())
    assert bool(leap.any())
    assert not bool(climb.any())


def test_a_gate_chooses_and_what_it_remembers_is_carried() -> None:
    policies = actors()
    spec = Spec(SPEC.observation, Discrete(3))
    gate = Actor(spec, ActorSettings.parse({"hidden": [8], "memory": {"kind": "gru", "units": 3}}), stream(5, "gate"))
    made = make_set(policies).chosen_by(gate)
    carry, memory = made.initial(30), gate.initial(30)
    seen = set()
    for step in range(6):
        obs = {"state": 20 * observe([0] * 30, step)["state"]}
        chosen, memory = gate.act(obs, memory, greedy=True)
        rows = torch.stack([alone(policies[name], obs) for name in NAMES])
        action, carry = made.act(obs, carry, greedy=True)
        assert torch.equal(action, rows[chosen, torch.arange(30)])
        seen |= set(chosen.tolist())
    assert len(seen) > 1
    with pytest.raises(ConfigError, match="selector: not a gate over these skills: got one of 2, expected one of 3"):
        make_set(policies).chosen_by(Actor(Spec(SPEC.observation, Discrete(2)), ActorSettings(), stream(0, "gate")))


def test_groups_of_a_skill_may_be_made_of_named_columns() -> None:
    spec = Spec({"feelings": Group((5,), "float32")}, SPEC.action)
    other = Actor(spec, ActorSettings(hidden=(8,), init="default"), stream(3, "init"))
    policies: dict[str, Deployed] = {**actors(count=1), "other": other}
    made = make_set(
        policies,
        selector={"kind": "fixed", "skill": "other"},
        skills={"other": {"inputs": {"feelings": ["state.command", "state.body"]}, "overrides": {"state.command": 1}}},
    )
    obs = observe([0, 1])
    feelings = torch.cat([torch.ones(2, 2), obs["state"][:, :3]], dim=-1)
    expected = other.act({"feelings": feelings}, (), greedy=True)[0]
    assert torch.equal(first_step(made, obs), expected)


def test_a_threshold_decides_between_two_and_holds_inside_its_margin() -> None:
    policies = actors(count=2)
    words = {"kind": "threshold", "observation": "state.height", "threshold": 1.0, "below": "walk", "above": "leap"}
    heights = [0.0, 0.9, 1.05, 1.2, 1.05, 0.95, 0.85]
    for margin, expected in ((0.0, [0, 0, 1, 1, 1, 0, 0]), (0.125, [0, 0, 0, 1, 1, 1, 0])):
        made = make_set(policies, selector={**words, "margin": margin})
        carry = made.initial(1)
        assert len(carry) == (margin > 0)
        for step, (height, number) in enumerate(zip(heights, expected, strict=True)):
            obs = observe([0], step, heights=[height])
            action, carry = made.act(obs, carry, greedy=True)
            assert torch.equal(action, alone(policies[NAMES[number]], obs)), (margin, step)
        fresh = observe([0, 0], heights=[1.05, 0.95])
        assert torch.equal(first_step(made, fresh)[0], alone(policies["leap"], fresh)[0]), "nothing held yet"
        assert torch.equal(first_step(made, fresh)[1], alone(policies["walk"], fresh)[1])
    with pytest.raises(ConfigError, match=r"selector.entry: no such column: got 1, expected -1 to 0"):
        make_set(policies, selector={**words, "entry": 1})


def test_offsets_are_added_to_actions_and_taken_from_the_last_one_that_is_seen() -> None:
    """Targets that are relative to where the joints are: a = 0.5·a_k − 2·q, so it sees its last action as 2·(l + 2·q)
    with the q of the step before, whoever acted then."""
    policies = actors()
    factors = {"state.command": [-2.0, -1.0]}
    made = make_set(
        policies,
        action_scale=1.0,
        last_action=["state.last_action"],
        skills={"leap": {"action_scale": 0.5, "action_offset": factors}},
    )
    carry, offset = made.initial(1), torch.zeros(1, 2)
    for step, zone in enumerate([1, 1, 0, 1]):
        obs = observe([zone], step)
        obs["state"][:, COLUMNS["command"]] *= 0.2
        before = obs["state"].clone()
        action, carry = made.act(obs, carry, greedy=True)
        assert torch.equal(obs["state"], before)
        added = before[:, COLUMNS["command"]] * torch.tensor([-2.0, -1.0])
        seen = before.clone()
        seen[:, COLUMNS["last_action"]] = 2.0 * (before[:, COLUMNS["last_action"]] - offset)
        expected = 0.5 * alone(policies["leap"], {"state": seen}) + added if zone == 1 else alone(policies["walk"], obs)
        assert torch.allclose(action, expected.clamp(-2.0, 2.0), atol=1e-6), step
        offset = added
    with pytest.raises(ConfigError, match=r"action_offset: columns of 'state.body' and actions are not as many: got 3"):
        make_set(policies, skills={"leap": {"action_offset": {"state.body": 1.0}}})
    with pytest.raises(ConfigError, match="nothing is added to choices"):
        make_set(actors(CHOICES), skills={"leap": {"action_offset": {"state.command": 1.0}}})


def test_numbers_among_the_inputs_are_columns_that_stay_so() -> None:
    spec = Spec({"feelings": Group((5,), "float32")}, SPEC.action)
    other = Actor(spec, ActorSettings(hidden=(8,), init="default"), stream(3, "init"))
    fixed = {"kind": "fixed", "skill": "other"}
    skills = {"other": {"inputs": {"feelings": [0.5, "state.body", -1]}}}
    made = make_set({**actors(count=1), "other": other}, selector=fixed, skills=skills)
    obs = observe([0, 1])
    rows = torch.cat([torch.full((2, 1), 0.5), obs["state"][:, :3], torch.full((2, 1), -1.0)], dim=-1)
    assert torch.equal(first_step(made, obs), other.act({"feelings": rows}, (), greedy=True)[0])
    words = {"other": {"inputs": {"feelings": [1, 2, 3, 4, 5]}}}
    with pytest.raises(ConfigError, match=r"inputs.feelings: nothing but numbers"):
        make_set({**actors(count=1), "other": other}, selector=fixed, skills=words)


def test_skills_that_choose_are_chosen_whole() -> None:
    policies = actors(CHOICES)
    made, obs = make_set(policies), observe([0, 1, 2, -1])
    rows = torch.stack([alone(policies[name], obs) for name in NAMES])
    assert torch.equal(first_step(made, obs), rows[torch.tensor([0, 1, 2, 0]), torch.arange(4)])
    with pytest.raises(ConfigError, match="smoothing: choices cannot be averaged"):
        make_set(policies, smoothing=2)


def test_what_does_not_fit_is_told_before_the_first_step() -> None:
    policies = actors()
    other = {**policies, "climb": actors(Spec(SPEC.observation, Box((-1.0,), (1.0,))))["climb"]}
    wider = {**policies, "climb": actors(Spec(SPEC.observation, Box((-1.0, -1.0), (1.0, 1.0))))["climb"]}
    for words, told in (
        ({"policies": other}, r"skills.climb: its actions are not those of the set: got \[1\] .*, expected \[2\] "),
        ({"policies": wider}, r"skills.climb: its actions are not those of the set.*action_scale"),
        (
            {"skills": {"leap": {"overrides": {"state.comand": 1.0}}}},
            "or segment 'state.comand'. Did you mean",
        ),
        ({"skills": {"leap": {"overrides": {"state.command": [1.0] * 3}}}}, "not as many: got 3, expected 2"),
        ({"skills": {"leap": {"overrides": {"state.command": {"low": 1}}}}}, "a value, or low and high"),
        ({"skills": {"leap": {"overrides": {"state.command": {"low": 1, "high": 0}}}}}, "low is above high"),
        ({"skills": {"leap": {"overrides": {"state": 1, "state.body": 0}}}}, "share columns"),
        ({"skills": {"leap": {"observation_scale": {"state.x": 2}}}}, "no group or segment 'state.x'"),
        ({"skills": {"leap": {"action_scale": {"knee": 2}}}}, "action_names: one for each dimension"),
        ({"skills": {"leap": {"action_scale": 0}}}, "skills.leap.action_scale"),
        ({"last_action": ["state.body"]}, "last_action: columns of 'state.body' and actions are not as many"),
        ({"selector": {"kind": "fixed", "skill": "run"}}, "selector.skill: no skill 'run'"),
        ({"selector": {**BY_ZONE, "fallback": "run"}}, "selector.fallback: no skill 'run'"),
        ({"selector": {**BY_ZONE, "observation": "state.zones"}}, "no group or segment 'state.zones'"),
        (
            {"selector": {**BY_ZONE, "observation": "state.command"}},
            "each column of 'state.command': got 3, ",
        ),
        ({"selector": {**BY_ZONE, "encoding": "index"}}, "an index is one column: got 3, expected 1"),
        ({"selector": {**BY_ZONE, "split": {"leap": {"observation": "state.zone", "negative": "x"}}}}, "no skill 'x'"),
        ({"smoothing": 0}, "smoothing: wrong value: got 0"),
    ):
        given: dict[str, Any] = dict(words)
        with pytest.raises(ConfigError, match=told):
            make_set(given.pop("policies", policies), **given)
    with pytest.raises(ConfigError, match=r"skills.leap.path: is required"):
        skill_set({"skills": {"walk": {}, "leap": {}}}, policies={"walk": policies["walk"]})
    with pytest.raises(ConfigError, match=r"skills.leap.path: no such run or policy folder: got 'nowhere'"):
        skill_set({"skills": {"leap": {"path": "nowhere"}}})
    with pytest.raises(ConfigError, match="is itself a set of skills"):
        make_set({"walk": make_set(policies)}, selector={"kind": "fixed", "skill": "walk"})
