"""Networks that start from networks of another shape: what fits is taken over, columns by name, and all is told."""

import copy
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import understudy as us
from understudy.core.errors import CheckpointError
from understudy.core.state import capture
from understudy.nn.actor import Actor
from understudy.nn.critic import CriticSettings, QEnsemble
from understudy.nn.network_layout import NetworkLayout
from understudy.nn.value_policy import ValuePolicy, ValuePolicySettings
from understudy.parts.ppo.networks import OnPolicyActorSettings
from understudy.run.build import build_learner
from understudy.run.config import load_config
from understudy.run.partial_loading import LoadReport, Names, Part, copy_named, load_partially, rename
from understudy.run.progress import SILENT, Reporter
from understudy.run.warm_start import take_over

pytestmark = pytest.mark.usefixtures("no_plots")

SMALL = [
    "source.num_envs=4",
    "source.rollout_length=10",
    "updates=2",
    "eval_every=2",
    "eval_episodes=1",
    "save_every=2",
]
NETWORK = ["algo.actor.hidden=[16, 16]", "algo.critic.hidden=[16, 16]"]
BOX = us.Box((-1.0, -1.0), (1.0, 1.0))
GRU = ["algo.actor.memory={kind: gru, units: 8}", "algo.critic.memory={kind: gru, units: 8}"]


def config(out: Path, *words: str) -> us.RunConfig:
    return load_config("ppo/privileged-critic", [*SMALL, *NETWORK, "tensorboard=false", *words, f"out={out}"])


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> us.Run:
    return us.train(config(tmp_path_factory.mktemp("runs") / "plain"))


def heir(origin: us.Run, out: Path, *words: str) -> tuple[Any, dict[str, Any]]:
    """An algorithm that has taken over, and what it says of it."""
    settings = config(out, "seed=7", f"init_from={origin.path}", *words)
    with closing(build_learner(settings, SILENT)) as learner:
        reports = take_over(learner.algorithm, settings, str(origin.path), "", SILENT)
    return learner.algorithm, {role: report for role, (report,) in reports.items()}


def unfold(network: Any) -> dict[str, torch.Tensor]:
    return NetworkLayout.of(network).unfold(capture(network))


def loaded(run: us.Run) -> us.Actor:
    policy = us.load_policy(run.path)
    assert isinstance(policy, us.Actor)
    return policy


def observations(policy: us.Actor, count: int = 6) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(3)
    return {name: torch.randn(count, *group.shape, generator=rng) for name, group in policy.spec.observation.items()}


def ancestor(origin: us.Run) -> Any:
    """The algorithm as it ended."""
    same = origin.config.model_copy(update={"init_roles": "all"})
    with closing(build_learner(same, SILENT)) as learner:
        take_over(learner.algorithm, same, str(origin.path), "", SILENT)
    return learner.algorithm


@pytest.mark.parametrize("sees", ["[privileged, state]", "[state, privileged]"])
def test_more_to_see_changes_nothing_at_first(learned: us.Run, tmp_path: Path, sees: str) -> None:
    """Wherever it stands: actor and critic act and judge as before; not so if columns were copied as they lie."""
    words = [f"algo.actor.sees={sees}", f"algo.critic.sees={sees}", "init_mismatch=overlap"]
    algorithm, reports = heir(learned, tmp_path, *words)
    before = ancestor(learned)
    obs = observations(before.policy)
    mine, theirs = (one.policy.act(obs, (), greedy=True)[0] for one in (algorithm, before))
    torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(algorithm.value.evaluate(obs), before.value.evaluate(obs))
    assert [name.partition(" ")[0] for name in reports["policy"].resized] == ["trunk.0.weight"]
    assert all(name.startswith("perception.normalizers.of_privileged.") for name in reports["policy"].missing)
    assert "trunk.1.weight" in reports["value"].matched
    assert not reports["policy"].unexpected


def test_a_memory_reads_inputs_by_name_too(tmp_path: Path) -> None:
    first = us.train(config(tmp_path / "first", *GRU))
    algorithm, reports = heir(
        first, tmp_path / "run", *GRU, "algo.actor.sees=[privileged, state]", "init_mismatch=overlap"
    )
    before = loaded(first)
    obs = observations(before)
    mine, theirs = (one.act(obs, one.initial(6), greedy=True)[0] for one in (algorithm.policy, before))
    torch.testing.assert_close(mine, theirs)
    names = [name.partition(" ")[0] for name in reports["policy"].resized]
    assert names == ["perception.memory.cells.gru.weight_ih_l0"]


def test_wider_layers_take_the_block_that_both_have(learned: us.Run, tmp_path: Path) -> None:
    algorithm, reports = heir(learned, tmp_path, "algo.actor.hidden=[16, 24]", "init_mismatch=overlap")
    fresh = build_learner(config(tmp_path / "fresh", "seed=7", "algo.actor.hidden=[16, 24]"), SILENT)
    fresh.close()
    before = loaded(learned)
    mine, theirs, new = unfold(algorithm.policy), unfold(before), unfold(fresh.policy)
    assert torch.equal(mine["trunk.0.weight"], theirs["trunk.0.weight"])
    assert torch.equal(mine["trunk.1.weight"][:, :16], theirs["trunk.1.weight"])
    assert torch.equal(mine["trunk.1.weight"][:, 16:], new["trunk.1.weight"][:, 16:])
    assert torch.equal(mine["trunk.2.weight"][:16], theirs["trunk.2.weight"])
    assert "trunk.1.weight [16, 16] → [16, 24]" in reports["policy"].resized
    skipped, reports = heir(learned, tmp_path, "algo.actor.hidden=[16, 24]", "init_mismatch=skip")
    mine = unfold(skipped.policy)
    assert torch.equal(mine["trunk.0.weight"], theirs["trunk.0.weight"])
    assert torch.equal(mine["trunk.1.weight"], new["trunk.1.weight"])


def test_columns_within_a_group_go_by_their_numbers(learned: us.Run, tmp_path: Path) -> None:
    """One that was hidden is seen: what is known of the others stays theirs, and the normaliser believes the next
    rollout, which it would hardly do after so many rows. One that is hidden takes nothing from the others."""
    fewer = us.train(config(tmp_path / "fewer", "algo.actor.hide={state: [1]}"))
    (_, known), *_ = loaded(fewer).perception.normalised()
    others = [0, 2, 3]
    for mismatch, count in (("overlap", 1.0), ("skip", 0.0)):
        algorithm, _ = heir(fewer, tmp_path / mismatch, f"init_mismatch={mismatch}")
        (_, normalizer), *_ = algorithm.policy.perception.normalised()
        assert float(normalizer.count) == count
        assert torch.equal(normalizer.mean[others], known.mean) == bool(count)
        assert normalizer.mean[1] == 0
    before, (algorithm, _) = loaded(fewer), heir(fewer, tmp_path / "run", "init_mismatch=overlap")
    obs = observations(before)
    mine, theirs = (one.act(obs, (), greedy=True)[0] for one in (algorithm.policy, before))
    torch.testing.assert_close(mine, theirs)
    (_, whole), *_ = loaded(learned).perception.normalised()
    algorithm, _ = heir(learned, tmp_path / "run", "algo.actor.hide={state: [1]}", "init_mismatch=overlap")
    (_, normalizer), *_ = algorithm.policy.perception.normalised()
    assert torch.equal(normalizer.mean, whole.mean[others])
    assert normalizer.count == whole.count > 1
    assert torch.equal(normalizer.scale, whole.scale[others])


def test_a_run_tells_and_keeps_what_became_of_each_tensor(learned: us.Run, tmp_path: Path) -> None:
    console = Console(record=True, width=2000)
    words = ["algo.actor.hidden=[16, 16, 16]", "init_mismatch=overlap", f"init_from={learned.path}"]
    run = us.train(config(tmp_path / "run", *words), reporter=Reporter(console=console))
    told = json.loads((run.path / "meta.json").read_text())["taken_over"]
    assert told.keys() == {"policy", "value"}
    (policy,), (value,) = told["policy"], told["value"]
    there = "(gives hidden units, there mean)"
    assert policy["foreign"] == [f"trunk.2.bias {there}", f"trunk.2.weight {there}"], "no last layer any more"
    assert policy["resized"] == []
    assert policy["missing"] == ["trunk.3.bias", "trunk.3.weight"]
    assert value == {**value, "resized": [], "missing": [], "unexpected": []}
    printed = console.export_text()
    assert "; of something else, begin anew: trunk.2.bias (gives hidden units, there mean), trunk.2" in printed
    assert "missing, begin anew: trunk.3.bias, trunk.3.weight" in printed
    with pytest.raises(CheckpointError, match=r"\(hidden\).*take over what fits: init_mismatch=overlap, or skip"):
        us.train(config(tmp_path / "refused", "algo.actor.hidden=[16, 16, 16]", f"init_from={learned.path}"))


def test_where_nothing_fits_it_is_told_before_the_first_step(learned: us.Run, tmp_path: Path) -> None:
    words = [
        f"init_from={learned.path}",
        "init_mismatch=skip",
        "init_keys={perception: a, trunk: b, distribution: c, action_*: d*}",
    ]
    with pytest.raises(CheckpointError, match=r"policy: has nothing that this network could take over.*init_keys"):
        us.train(config(tmp_path / "run", *words))
    assert not (tmp_path / "run").exists()


def test_names_are_mapped_by_beginnings_and_by_patterns() -> None:
    keys = {"memory_a": "perception.memory", "*.actor.*.weight": "trunk.*.*.w", "old": "new"}
    assert rename("memory_a.rnn.weight", keys) == "perception.memory.rnn.weight"
    assert rename("net.actor.0.weight", keys) == "trunk.net.0.w"
    assert (rename("old", keys), rename("older", keys)) == ("new", "older")


def test_blocks_and_inputs_are_copied_where_they_belong() -> None:
    mine = torch.full((3, 2), -1.0)
    copy_named(mine, torch.arange(8.0).view(2, 4))
    assert mine.tolist() == [[0, 1], [4, 5], [-1, -1]]
    copy_named(mine, torch.ones(3))
    assert mine[0].tolist() == [0, 1], "of other axes nothing is copied"
    theirs = torch.arange(1.0, 7.0).view(3, 2)
    mine = torch.full((5, 3), -1.0)
    copy_named(mine, theirs, [Names(-2, [None, 1, 2, 0, None], silent=True)])
    assert mine.tolist() == [[0, 0, -1], [3, 4, -1], [5, 6, -1], [1, 2, -1], [0, 0, -1]]
    cells = torch.full((3, 2, 2), -1.0)
    copy_named(cells, torch.arange(12.0).view(3, 2, 2), [Names(-1, [1, 0], silent=True)])
    assert cells.tolist() == torch.arange(12.0).view(3, 2, 2).flip(-1).tolist()
    statistics = torch.full((3,), -1.0)
    copy_named(statistics, torch.tensor([7.0, 8.0]), [Names(-1, [0, None, 1])])
    assert statistics.tolist() == [7, -1, 8]
    both = torch.full((2, 3), -1.0)
    copy_named(both, torch.tensor([[1.0, 2.0]]), [Names(-2, [None, 0], silent=True), Names(-1, [1, None, 0])])
    assert both.tolist() == [[0, -1, 0], [2, -1, 1]]


def test_a_checkpoint_that_does_not_say_what_lies_where_is_taken_as_ours(learned: us.Run) -> None:
    before = loaded(learned)
    part = Part(capture(before), NetworkLayout())
    report = load_partially(before, part, {}, "skip", "here")
    assert not [*report.resized, *report.missing, *report.unexpected]
    lying = NetworkLayout(widths={"trunk.flat": [3, 10**12, 2]}, gates={"trunk": 7})
    told = load_partially(before, Part(capture(before), lying), {}, "overlap", "here", dry=True)
    assert "trunk.flat" in told.unexpected


def spec(actions: Any = BOX, segments: Any = None, **sizes: int) -> us.Spec:
    groups = {name: us.Group((size,), "float32") for name, size in (sizes or {"state": 4}).items()}
    return us.Spec(groups, actions).with_segments(segments or {})


def actor(world: us.Spec, seed: int = 0, **settings: Any) -> Actor:
    """One whose numbers are all its own, statistics among them."""
    made = Actor(world, OnPolicyActorSettings.parse({"hidden": [8], **settings}), torch.Generator().manual_seed(seed))
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        made.trunk.flat.copy_(torch.randn(made.trunk.flat.shape, generator=rng))
        groups = world.observation.items()
        made.observe({name: seed + torch.randn(50, *group.shape, generator=rng) for name, group in groups})
    return made


def load(heir: torch.nn.Module, giver: torch.nn.Module) -> LoadReport:
    return load_partially(heir, Part.of(giver), {}, "overlap", "here")


def test_the_range_of_actions_is_this_environments() -> None:
    heir, giver = actor(spec(us.Box((-2.0, -3.0), (2.0, 5.0)))), actor(spec(), seed=1)
    report = load(heir, giver)
    assert heir.action_high.tolist() == [2.0, 5.0]
    assert heir.action_centre.tolist() == [0.0, 1.0]
    assert not any("action_" in name for name in (*report.matched, *report.resized, *report.unexpected))
    obs = {"state": torch.randn(5, 4)}
    torch.testing.assert_close(heir.greedy(heir.perception.look(obs)), giver.greedy(giver.perception.look(obs)))


def test_what_reads_a_memory_and_what_reads_observations_have_nothing_in_common() -> None:
    """As wide as the observation, so that shapes would not tell."""
    memory = {"kind": "gru", "units": 4}
    kinds = {"state": actor(spec(), 1), "gru memory, layer 0": actor(spec(), 2, memory=memory)}
    kinds |= {"lstm memory, layer 0": actor(spec(), 3, memory={"kind": "lstm", "units": 4})}
    kinds |= {"gru memory, layer 1": actor(spec(), 4, memory={**memory, "layers": 2})}
    kinds |= {"state, encoded by mlp": actor(spec(), 5, encoders={"state": {"kind": "mlp", "size": 4}})}
    for here, heir in kinds.items():
        for there, giver in kinds.items():
            mine = copy.deepcopy(heir)
            report = load(mine, giver)
            name = f"trunk.0.weight (reads {here}, there {there})"
            assert (name in report.foreign) == (here != there)
            expected = unfold(giver if here == there else heir)["trunk.0.weight"]
            assert torch.equal(unfold(mine)["trunk.0.weight"], expected), (here, there)


def test_columns_are_known_by_the_segments_that_both_name() -> None:
    """Wherever these lie, however they are seen; without names by their numbers."""
    old = {"state": {"velocity": [0, 2], "gravity": [2, 4], "all": [0, 4]}}
    new = {"state": {"gravity": [0, 2], "velocity": [4, 6], "all": [0, 6]}}
    before, after = spec(segments=old), spec(segments=new, state=6)
    moved = torch.randn(5, 6)
    raw = {"state": torch.cat([moved[:, 4:], moved[:, :2]], dim=1)}
    for sees in ([], ["state.velocity", "state.gravity"]):
        giver, heir = actor(before, 1, sees=sees), actor(after, 2, sees=sees)
        load(heir, giver)
        mine, theirs = heir.act({"state": moved}, (), greedy=True)[0], giver.act(raw, (), greedy=True)[0]
        torch.testing.assert_close(mine, theirs)
    named = ["state.gravity", "state.velocity"]
    for seen, sees in (([], named), (named, [])):
        giver, heir = actor(before, 1, sees=seen), actor(before, 2, sees=sees)
        report = load(heir, giver)
        mine, theirs = (one.act(raw, (), greedy=True)[0] for one in (heir, giver))
        torch.testing.assert_close(mine, theirs)
        assert not [*report.missing, *report.unexpected], "statistics of a group are those of its segments"
    giver, heir = actor(spec(), 1), actor(after, 2)
    load(heir, giver)
    torch.testing.assert_close(
        heir.act({"state": moved}, (), greedy=True)[0], giver.act({"state": moved[:, :4]}, (), greedy=True)[0]
    )


def test_a_policy_says_by_meaning_not_by_place() -> None:
    """σ of the state never becomes a mean; what another distribution or action space reads is nothing to go on from."""
    three = us.Box((-1.0,) * 3, (1.0,) * 3)
    giver = actor(spec(), 1, distribution="state_gaussian")
    heir = actor(spec(three), 2, distribution="state_gaussian")
    anew = unfold(heir)["trunk.1.bias"].clone()
    load(heir, giver)
    mine, theirs = unfold(heir)["trunk.1.bias"], unfold(giver)["trunk.1.bias"]
    assert mine.tolist() == [*theirs[:2].tolist(), anew[2].item(), *theirs[2:].tolist(), anew[5].item()]
    free = actor(spec(), 3, distribution="gaussian")
    load(free, giver)
    assert torch.equal(unfold(free)["trunk.1.bias"], theirs[:2])
    others = [actor(spec(), 4, distribution=kind) for kind in ("beta", "tanh_gaussian", "tanh_mean_gaussian")]
    others += [actor(spec(us.Discrete(4)), 5), actor(spec(us.MultiDiscrete((2, 2))), 6)]
    for other in others:
        before = unfold(other)["trunk.1.bias"].clone()
        report = load(other, giver)
        assert {name.partition(" ")[0] for name in report.foreign} == {"trunk.1.weight", "trunk.1.bias"}
        assert torch.equal(unfold(other)["trunk.1.bias"], before)
    factors, more = actor(spec(us.MultiDiscrete((2, 2))), 7), actor(spec(us.MultiDiscrete((3, 2))), 8)
    anew = unfold(more)["trunk.1.bias"].clone()
    load(more, factors)
    theirs = unfold(factors)["trunk.1.bias"]
    assert unfold(more)["trunk.1.bias"].tolist() == [*theirs[:2].tolist(), anew[2].item(), *theirs[2:].tolist()]


NAMED = {"state": {"a": [0, 2], "b": [2, 4], "c": [4, 6]}}


def guessing(targets: list[str], seed: int, **estimate: Any) -> Actor:
    sees = {"sees": ["state.a", "state.b"], "estimate": {"targets": targets, "hidden": [8], **estimate}}
    made = actor(spec(segments=NAMED, state=6), seed, **sees)
    assert made.estimator is not None
    with torch.no_grad():
        made.estimator.head.flat.copy_(
            torch.randn(made.estimator.head.flat.shape, generator=torch.Generator().manual_seed(seed))
        )
    return made


def estimated(policy: Actor, obs: dict[str, torch.Tensor], target: str) -> torch.Tensor:
    assert policy.estimator is not None
    with torch.no_grad():
        guessed: torch.Tensor = policy.estimator(policy.estimator.look(obs, (), None))
    return guessed[..., policy.estimator.places[target]]


def test_estimators_go_by_the_columns_they_see_and_guess() -> None:
    """Targets in another order, one more to see, one less; of other targets nothing is left."""
    obs = {"state": torch.randn(5, 6)}
    giver = guessing(["state.b", "state.c"], 1, sees=["state.a"])
    turned = guessing(["state.c", "state.b"], 2, sees=["state.a"])
    load(turned, giver)
    for target in ("state.b", "state.c"):
        torch.testing.assert_close(estimated(turned, obs, target), estimated(giver, obs, target))
    more = guessing(["state.b"], 3, sees=["state.c", "state.a"])
    report = load(more, giver)
    torch.testing.assert_close(estimated(more, obs, "state.b"), estimated(giver, obs, "state.b"))
    assert "estimator.head.0.weight [2, 8] → [4, 8]" in report.resized
    assert more.estimator is not None
    assert more.estimator.normalizer.count > 1, "of what it guesses it knew everything"
    other, before = guessing(["state.c"], 4, sees=["state.a"]), guessing(["state.c"], 4, sees=["state.a"])
    report = load(other, guessing(["state.b"], 5, sees=["state.a"]))
    assert any(name.startswith("estimator.normalizer.count (reads state") for name in report.foreign)
    assert other.estimator is not None
    assert before.estimator is not None
    assert torch.equal(other.estimator.normalizer.mean, before.estimator.normalizer.mean)
    skipped = load_partially(guessing(["state.b"], 6, sees=["state.c"]), Part.of(giver), {}, "skip", "here")
    assert "trunk.0.weight" in skipped.matched


def test_values_that_are_a_policy_go_by_names_too() -> None:
    world, settings = spec(us.Discrete(3), state=4, more=2), {"hidden": [8], "normalize": False}
    giver, heir = (
        ValuePolicy.blank(world, ValuePolicySettings.parse({**settings, "sees": sees}), torch.Generator())
        for sees in (["state"], ["more", "state"])
    )
    report = load(heir, giver)
    obs = {"state": torch.randn(5, 4), "more": torch.randn(5, 2)}
    torch.testing.assert_close(heir.ratings(obs, ()), giver.ratings(obs, ()))
    assert [name.partition(" ")[0] for name in report.resized] == ["critic.trunk.0.weight"]


def test_an_image_of_another_size_leaves_the_layers_behind_it_alone() -> None:
    """Its channels are what they were; places in it are not."""
    layers = {"kind": "conv", "layers": [{"channels": 2, "kernel": 3, "stride": 2}], "size": 4}

    def seer(side: int, channels: int = 2) -> Actor:
        world = us.Spec({"image": us.Group((1, side, side), "uint8")}, BOX)
        encoder = {**layers, "layers": [{"channels": channels, "kernel": 3, "stride": 2}]}
        return Actor(
            world,
            OnPolicyActorSettings.parse({"hidden": [8], "encoders": {"image": encoder}}),
            torch.Generator().manual_seed(side + channels),
        )

    giver, larger, more = seer(9), seer(11), seer(9, channels=3)
    name = "perception.encoders.of_image.output.0.weight"
    before = unfold(larger)[name].clone()
    report = load(larger, giver)
    assert f"{name} (reads channels of 5 × 5 places, there channels of 4 × 4 places)" in report.foreign
    assert torch.equal(unfold(larger)[name], before)
    load(more, giver)
    assert torch.equal(unfold(more)[name][:32], unfold(giver)[name]), "channel by channel"


def test_a_checkpoint_that_tells_less_is_compared_by_what_it_tells(learned: us.Run) -> None:
    """Written before it was told what last layers and memories are."""
    before = loaded(learned)
    whole = NetworkLayout.of(before)
    former = whole.model_copy(update={"says": {}, "segments": {}, "complete": False})
    report = load_partially(before, Part(capture(before), former), {}, "overlap", "here")
    assert not [*report.resized, *report.foreign, *report.missing, *report.unexpected]
    assert NetworkLayout.parse(json.loads(json.dumps(whole.model_dump(mode="json"))), "here") == whole


def test_a_network_of_ones_own_begins_anew_over_other_columns() -> None:
    """Nobody knows which of its tensors reads them."""
    us.register_network("tower", lambda shape, size, options: torch.nn.Linear(shape[0], size))
    own = {"encoders": {"state": {"kind": "own", "name": "tower", "size": 4}}}
    giver, same = actor(spec(), 1, hide={"state": [0]}, **own), actor(spec(), 2, hide={"state": [0]}, **own)
    other, name = actor(spec(), 3, hide={"state": [1]}, **own), "perception.encoders.of_state.network.weight"
    assert name in load(same, giver).matched
    before = unfold(other)[name].clone()
    assert f"{name} (reads state [0, 2, 3], there state [1, 2, 3])" in load(other, giver).foreign
    assert torch.equal(unfold(other)[name], before)


def test_an_action_that_is_observed_is_not_the_one_that_is_judged() -> None:
    settings = {"hidden": [8], "normalize": False}
    giver, heir = (
        QEnsemble(spec(action=2, state=2), CriticSettings.parse({**settings, "sees": sees}), torch.Generator())
        for sees in (["action", "state"], ["state", "action"])
    )
    load(heir, giver)
    obs, action = {"state": torch.randn(5, 2), "action": torch.randn(5, 2)}, torch.randn(5, 2)
    mine, theirs = (one(one.perception.look(obs), action) for one in (heir, giver))
    torch.testing.assert_close(mine, theirs)
