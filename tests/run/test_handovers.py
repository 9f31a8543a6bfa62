"""A policy that is handed from one run or stage to another acts as it did, and what could not stay is told."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import understudy as us
from learners import differences
from skill_cases import zones_set
from understudy.core.errors import CheckpointError
from understudy.core.state import capture
from understudy.data.formats.npz_writer import write_npz
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.distributions.gaussians import Gaussian
from understudy.run.config import parse_config
from understudy.run.policies import find_checkpoint
from understudy.run.progress import Reporter
from understudy.run.rundir import RunDir
from worlds import tiny_config, tiny_settings

pytestmark = pytest.mark.usefixtures("no_plots")

ACTOR: dict[str, Any] = {"hidden": [16, 16], "activation": "tanh", "distribution": "gaussian"}
CRITIC: dict[str, Any] = {"hidden": [16, 16]}
STILL = {"name": "ppo", "critic_warmup": 1, "critic": CRITIC}
"""Only its critic learns: at its end it is still the policy that it started from."""


def demonstrations(folder: Path) -> Path:
    """Of Pendulum-v1's shape; the second column hardly ever moves, the third does by far."""
    rng = np.random.default_rng(0)
    episodes = [
        us.Episode(
            {"state": (rng.standard_normal((31, 3)) * [1.0, 2e-4, 5.0]).astype(np.float32)},
            rng.uniform(-2, 2, (30, 1)).astype(np.float32),
            np.zeros(30, np.float32),
            terminated=False,
            truncated=True,
        )
        for _ in range(6)
    ]
    path = folder / "demonstrations.npz"
    write_npz(us.Dataset.from_episodes(episodes, us.Box((-2.0,), (2.0,)), name="demonstrations"), path)
    return path


def everywhere() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Observations, also far beyond what the demonstrations have."""
    rows = np.random.default_rng(1).standard_normal((64, 3)) * np.logspace(-3, 3, 64)[:, None]
    return rows.astype(np.float32)


def settings(algo: dict[str, Any], out: Path, **changes: Any) -> dict[str, Any]:
    run = {"algo": algo, "env": {"id": "Pendulum-v1"}, "updates": 1, "eval_every": 0, "save_every": 1, "out": str(out)}
    return {**run, "log_every": 1, "tensorboard": False, **changes}


def cloned(folder: Path, actor: dict[str, Any] | None = None, updates: int = 30) -> us.Run:
    algo = {"name": "bc", "actor": actor or ACTOR, "learning_rate": 1e-2}
    data = {"path": str(demonstrations(folder))}
    return us.train(parse_config(settings(algo, folder / "bc", data=data, updates=updates, save_every=updates)))


def heir(origin: us.Run, out: Path, console: Console | None = None, **changes: Any) -> us.Run:
    """PPO from there that has not moved yet."""
    algo = changes.pop("algo", {**STILL, "actor": ACTOR})
    source = {"num_envs": 2, "rollout_length": 8}
    given = settings(algo, out, source=source, init_from=str(origin.path), **changes)
    return us.train(parse_config(given), reporter=Reporter(console=console or Console(quiet=True)))


def actor_of(run: us.Run) -> Actor:
    policy = run.policy()
    assert isinstance(policy, Actor)
    return policy


def log_std(run: us.Run) -> list[float]:
    distribution = actor_of(run).distribution
    assert isinstance(distribution, Gaussian)
    return [float(one) for one in distribution.log_std]


def taken_over(run: us.Run, role: str = "policy") -> dict[str, Any]:
    (report,) = json.loads((run.path / "meta.json").read_text())["taken_over"][role]
    assert isinstance(report, dict)
    return report


def test_a_clone_that_ppo_goes_on_with_acts_as_it_did_everywhere(tmp_path: Path) -> None:
    """Also far from the data, where PPO would cut, and of a column that hardly moves, where its ε would count."""
    console = Console(record=True, width=2000)
    first = cloned(tmp_path)
    then = heir(first, tmp_path / "ppo", console)
    np.testing.assert_array_equal(then.predict(everywhere()), first.predict(everywhere()))
    (_, normalizer), *_ = actor_of(then).perception.normalised()
    assert (normalizer.settings.epsilon_on, normalizer.settings.clip) == ("std", None)
    told = console.export_text()
    assert "algo.actor.normalizer: (s − μ)/(σ + 0.001), not cut, as in " in told
    assert "normaliser as there: (s − μ)/(σ + 0.001), not cut" in told
    assert any("normaliser as there" in note for note in taken_over(then)["notes"])
    own = heir(first, tmp_path / "own", init_normalizer="own")
    assert np.abs(own.predict(everywhere()) - first.predict(everywhere())).max() > 1e-2
    assert any("acts otherwise" in note for note in taken_over(own)["notes"])


def test_a_stage_hands_its_form_on_and_statistics_run_on_in_it(tmp_path: Path) -> None:
    stage = {"algo": {"name": "bc", "actor": ACTOR}, "updates": 5}
    data = {"path": str(demonstrations(tmp_path))}
    algo = {"name": "ppo", "actor": ACTOR, "critic": CRITIC}
    given = {"source": {"num_envs": 2, "rollout_length": 8}, "stages": [{**stage, "data": data}]}
    run = us.train(parse_config(settings(algo, tmp_path / "run", **given)))
    assert run.config.algo.model_dump()["actor"]["normalizer"]["epsilon_on"] == "std"
    assert run.config.algo.model_dump()["critic"]["normalizer"]["epsilon_on"] == "variance", "a critic of its own"
    (_, normalizer), *_ = actor_of(run).perception.normalised()
    assert float(normalizer.count) == 6 * 30 + 16
    torch.testing.assert_close(normalizer.scale, (1.0 / (normalizer.variance.sqrt() + 1e-3)).float())
    still = parse_config(settings({**STILL, "actor": ACTOR}, tmp_path / "still", **given))
    stood = us.train(still)
    clone = us.Run(stood.path / "stages" / "1-bc")
    np.testing.assert_array_equal(stood.predict(everywhere()), clone.predict(everywhere()))


def test_what_shares_eyes_with_the_policy_has_its_form(tmp_path: Path) -> None:
    actor = {**ACTOR, "encoders": {"state": {"kind": "mlp", "hidden": [8], "size": 8}}}
    first = cloned(tmp_path, actor, updates=3)
    critic = {**CRITIC, "encoders": actor["encoders"], "share_encoder": True}
    algo = {"name": "ppo", "actor": actor, "critic": critic}
    then = heir(first, tmp_path / "ppo", algo=algo)
    assert then.config.algo.model_dump()["critic"]["normalizer"]["epsilon_on"] == "std"


def test_critics_that_are_taken_over_look_through_what_they_had(tmp_path: Path) -> None:
    """Between two runs of one algorithm whose configs differ in it."""
    form = {"epsilon": 0.5, "epsilon_on": "std", "clip": None}
    network = {"hidden": [16, 16], "normalizer": form}
    algo = {"name": "ppo", "actor": network, "critic": network}
    source = {"num_envs": 2, "rollout_length": 8}
    first = us.train(parse_config(settings(algo, tmp_path / "first", source=source)))
    plain = {"name": "ppo", "actor": CRITIC, "critic": CRITIC}
    then = heir(first, tmp_path / "then", algo=plain)
    for role in ("actor", "critic"):
        found = then.config.algo.model_dump()[role]["normalizer"]
        assert {name: found[name] for name in form} == form
    own = heir(first, tmp_path / "own", algo=plain, init_normalizer="own")
    assert own.config.algo.model_dump()["critic"]["normalizer"]["epsilon"] == 1e-8
    assert any("and otherwise there" in note for note in taken_over(own, "value")["notes"])
    policy = heir(first, tmp_path / "policy", algo=plain, init_roles=["policy"])
    found = [policy.config.algo.model_dump()[role]["normalizer"]["epsilon"] for role in ("actor", "critic")]
    assert found == [0.5, 1e-8], "a new critic has its own"


def test_a_policy_that_is_its_critics_keeps_their_form(tmp_path: Path) -> None:
    critic = {"hidden": [16, 16], "normalizer": {"epsilon": 0.5}}
    algo = {**tiny_settings("discrete_cql", tmp_path)["algo"], "critic": critic}
    first = us.train(tiny_config("discrete_cql", tmp_path / "first", algo=algo, updates=5))
    for number, origin in enumerate((first.path, first.path / "policy" / "final")):
        config = tiny_config("discrete_cql", tmp_path / str(number), init_from=str(origin), init_roles=["policy"])
        run = us.train(config.model_copy(update={"updates": 1}))
        assert run.config.algo.model_dump()["critic"]["normalizer"]["epsilon"] == 0.5


def test_a_sigma_beyond_the_limits_begins_at_them_and_is_told(tmp_path: Path) -> None:
    """Beyond its limits a parameter moves for a long time without any effect."""
    narrow = {**ACTOR, "distribution": {"kind": "gaussian", "log_std_min": -9.0, "initial_std": 2e-4}}
    first = cloned(tmp_path, narrow, updates=1)
    console = Console(record=True, width=2000)
    then = heir(first, tmp_path / "ppo", console)
    assert log_std(then) == pytest.approx([math.log(1e-3)])
    assert "log σ of 1 dimension stood beyond its limits, and begins there: σ 0.001" in console.export_text()
    assert any("log σ of 1 dimension" in note for note in taken_over(then)["notes"])
    partly = heir(first, tmp_path / "partly", init_mismatch="overlap")
    assert log_std(partly) == pytest.approx([math.log(1e-3)])


def test_a_sigma_that_was_held_there_is_what_counted_there(tmp_path: Path) -> None:
    """Not what its parameter says, to which this run's limits are no limit."""
    first = cloned(tmp_path, updates=1)

    def lower(tensors: dict[str, torch.Tensor]) -> None:
        tensors["algorithm.policy.distribution.log_std"].fill_(-6.0)

    then = heir(us.edit_checkpoint(first, lower, out=str(tmp_path / "edited")), tmp_path / "ppo")
    assert log_std(then) == pytest.approx([-5.0]), "BC's floor"


@pytest.mark.parametrize("kind", ["state_gaussian", "tanh_gaussian"])
def test_a_sigma_of_the_state_does_not_follow_another_start(tmp_path: Path, kind: str) -> None:
    actor = {**ACTOR, "distribution": {"kind": kind, "initial_std": 0.5}}
    first = cloned(tmp_path, actor, updates=3)
    louder = {**STILL, "actor": {**ACTOR, "distribution": {"kind": kind, "initial_std": 2.0}}}
    obs = {"state": torch.from_numpy(everywhere()[:20])}
    for mismatch in ("refuse", "overlap"):
        then = heir(first, tmp_path / mismatch, algo=louder, init_mismatch=mismatch)
        mine, theirs = (one.features(one.perception.look(obs)).detach() for one in map(actor_of, (then, first)))
        torch.testing.assert_close(mine, theirs)


SEGMENTS = {"state": {"angle": [0, 2], "velocity": [2, 3]}}
ESTIMATE = {"targets": ["state.velocity"], "hidden": [8]}
GUESSING = {**ACTOR, "sees": ["state.angle", "state.velocity"], "estimate": ESTIMATE}


def test_a_stage_clones_from_true_values_what_its_run_estimates(tmp_path: Path) -> None:
    """Eyes, trunk and σ are handed on; the estimator is new, and told."""
    given = {
        "env": {"id": "Pendulum-v1", "segments": SEGMENTS},
        "source": {"num_envs": 2, "rollout_length": 8},
        "stages": [{"algo": "bc", "updates": 5, "data": {"path": str(demonstrations(tmp_path))}}],
    }
    algo = {**STILL, "actor": GUESSING, "objectives": {"estimator": {}}}
    run = us.train(parse_config(settings(algo, tmp_path / "run", **given)))
    clone, then = actor_of(us.Run(run.path / "stages" / "1-bc")), actor_of(run)
    assert clone.estimator is None
    assert [entry.name for entry in clone.inputs] == GUESSING["sees"]
    obs = {"state": torch.from_numpy(everywhere())}
    with torch.no_grad():
        mine, theirs = (one.greedy(one.perception.look(obs)) for one in (then, clone))
    assert torch.equal(mine, theirs)
    assert all(name.startswith("estimator.") for name in taken_over(run)["missing"])
    assert taken_over(run)["missing"]


def test_when_statistics_rest_is_the_runs_own_business(tmp_path: Path) -> None:
    """A stage of another algorithm fits them to its data, or lets them run from the first."""
    actor = {**ACTOR, "normalizer": {"until": 1, "clip": 5.0}}
    stage = {"algo": "bc", "updates": 5, "data": {"path": "demonstrations.npz"}}
    given = settings({"name": "ppo", "actor": actor}, tmp_path, stages=[stage])
    (first,) = parse_config(given).stages
    normalizer = first.algo.model_dump()["actor"]["normalizer"]
    assert (normalizer["until"], normalizer["clip"]) == (None, 5.0)
    said = {"name": "bc", "actor": {**ACTOR, "normalizer": {"until": 7}}}
    (first,) = parse_config({**given, "stages": [{**stage, "algo": said}]}).stages
    assert first.algo.model_dump()["actor"]["normalizer"]["until"] == 7


def test_values_are_handed_on_with_what_rewards_are_divided_by(tmp_path: Path) -> None:
    """Otherwise they are of another unit than what is earned from the first rollout on."""
    algo = {"name": "ppo", "actor": CRITIC, "critic": CRITIC, "normalize_reward": True}
    source = {"num_envs": 2, "rollout_length": 8}
    first = us.train(parse_config(settings(algo, tmp_path / "first", source=source, updates=4, save_every=4)))
    then = heir(first, tmp_path / "then", algo=algo)
    assert set(taken_over(then, "rewards")["matched"]) == {"count", "mean", "variance", "shift", "scale"}
    counts = [statistics(run)["algorithm.reward_normalizer.0.statistics.count"] for run in (first, then)]
    assert [float(count) for count in counts] == [64.0, 80.0]
    plain = {**algo, "normalize_reward": False}
    meta = json.loads((heir(first, tmp_path / "plain", algo=plain).path / "meta.json").read_text())
    assert set(meta["taken_over"]) == {"policy", "value"}


def statistics(run: us.Run) -> dict[str, Any]:
    return find_checkpoint(RunDir.open(run.path), "last").state


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"activation": "relu"}, "trunk computes relu, there tanh"),
        ({"sees": ["state.velocity", "state.angle"]}, "trunk.0.weight reads state, there in other places"),
    ],
)
def test_a_critic_that_would_compute_otherwise_is_not_taken_over(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    """Its tensors have the same names and shapes; what they say is another thing."""
    critic = {"hidden": [16, 16], "sees": ["state.angle", "state.velocity"], "normalize": False}
    env = {"id": "Pendulum-v1", "segments": SEGMENTS}
    algo, source = {"name": "ppo", "actor": CRITIC, "critic": critic}, {"num_envs": 2, "rollout_length": 8}
    first = us.train(parse_config(settings(algo, tmp_path / "first", source=source, env=env)))
    console = Console(record=True, width=2000)
    other = {**algo, "critic": {**critic, **changes}}
    heir(first, tmp_path / "then", console, algo=other, env=env)
    assert f"new: value (of something else: {told}" in console.export_text()
    with pytest.raises(CheckpointError, match=f"value: does not fit .of something else: {told}"):
        heir(first, tmp_path / "all", algo=other, env=env, init_roles="all")


def test_columns_that_lie_elsewhere_now_are_not_taken_for_what_they_were(tmp_path: Path) -> None:
    """A group that is seen as a whole, whose segments have changed places."""
    algo, source = {"name": "ppo", "actor": CRITIC, "critic": CRITIC}, {"num_envs": 2, "rollout_length": 8}
    env = {"id": "Pendulum-v1", "segments": SEGMENTS}
    first = us.train(parse_config(settings(algo, tmp_path / "first", source=source, env=env)))
    turned = {"id": "Pendulum-v1", "segments": {"state": {"velocity": [0, 1], "angle": [1, 3]}}}
    with pytest.raises(CheckpointError, match=r"not that of algo.actor \(.*trunk.0.weight reads state, there in other"):
        heir(first, tmp_path / "then", algo=algo, env=turned)


def test_values_of_another_number_of_critics_are_refused(tmp_path: Path) -> None:
    first = us.train(tiny_config("discrete_cql", tmp_path / "first", updates=5))
    algo = {**tiny_settings("discrete_cql", tmp_path)["algo"], "critics": 3}
    with pytest.raises(CheckpointError, match=r"\(members\): got members 2, expected members 3"):
        us.train(tiny_config("discrete_cql", tmp_path / "then", algo=algo, init_from=str(first.path)))


def test_a_critic_that_had_eyes_of_its_own_does_not_get_the_policys(tmp_path: Path) -> None:
    """Where both share an encoder here and did not there, its trunk would read what it never saw."""
    network = {"hidden": [16], "encoders": {"state": {"kind": "mlp", "hidden": [8], "size": 8}}}
    algo, source = {"name": "ppo", "actor": network, "critic": network}, {"num_envs": 2, "rollout_length": 8}
    first = us.train(parse_config(settings(algo, tmp_path / "first", source=source)))
    sharing = {**algo, "critic": {**network, "share_encoder": True}}
    console = Console(record=True, width=2000)
    shared = heir(first, tmp_path / "then", console, algo=sharing)
    told = console.export_text()
    assert "new: value (perception.encoders.of_state.mlp.flat is the policy's, too, and was not there)" in told
    with pytest.raises(CheckpointError, match=r"value: perception\.encoders\..* was not there"):
        heir(first, tmp_path / "all", algo=sharing, init_roles="all")
    for number, other in enumerate((sharing, algo)):
        assert set(taken_over(heir(shared, tmp_path / str(number), algo=other), "value"))


def test_it_goes_on_after_a_stop_as_if_there_had_been_none(tmp_path: Path) -> None:
    """The form is in the config that the run keeps, not in what it started from."""
    first = cloned(tmp_path, updates=3)
    algo = {"name": "ppo", "actor": ACTOR, "critic": CRITIC, "schedule": "constant"}
    whole = heir(first, tmp_path / "whole", algo=algo, updates=4)
    parts = heir(first, tmp_path / "parts", algo=algo, updates=2)
    shutil.rmtree(first.path)
    resumed = us.resume(parts.path, updates=4)
    assert differences(capture(whole.policy()), capture(resumed.policy())) == []


def test_stages_after_one_another_keep_one_form(tmp_path: Path) -> None:
    clone = {"algo": {"name": "bc", "actor": ACTOR}, "updates": 3, "data": {"path": str(demonstrations(tmp_path))}}
    source = {"num_envs": 2, "rollout_length": 8}
    given = {"source": source, "stages": [clone, {"algo": "ppo", "updates": 1}]}
    run = us.train(parse_config(settings({**STILL, "actor": ACTOR}, tmp_path / "run", **given)))
    second = us.Run(run.path / "stages" / "2-ppo")
    for one in (second, run):
        assert one.config.algo.model_dump()["actor"]["normalizer"]["epsilon_on"] == "std"
    np.testing.assert_array_equal(run.predict(everywhere()), second.predict(everywhere()))


def test_a_set_of_skills_is_no_policy_to_go_on_from(tmp_path: Path) -> None:
    us.save_policy(zones_set(), tmp_path / "set")
    algo = {"name": "ppo", "actor": ACTOR, "critic": CRITIC}
    given = settings(algo, tmp_path / "run", init_from=str(tmp_path / "set"))
    with pytest.raises(CheckpointError, match="is a policy of another kind: got skill_set, expected a policy"):
        us.train(parse_config(given))


def test_actions_of_another_range_are_told(tmp_path: Path) -> None:
    """The pendulum's goes from −2 to 2: what the policy says is stretched to it."""
    world = us.Spec({"state": us.Group((3,), "float32")}, us.Box((-1.0,), (1.0,)))
    policy = Actor(world, ActorSettings.parse(ACTOR), torch.Generator().manual_seed(1))
    us.save_policy(policy, tmp_path / "policy")
    given = settings({**STILL, "actor": ACTOR}, tmp_path / "run", source={"num_envs": 2, "rollout_length": 8})
    run = us.train(parse_config({**given, "init_from": str(tmp_path / "policy"), "init_mismatch": "overlap"}))
    np.testing.assert_allclose(run.predict(everywhere()), 2.0 * us.predict(policy, everywhere()), rtol=1e-5)
    (note,) = [note for note in taken_over(run)["notes"] if note.startswith("actions are")]
    assert "of this environment's range, [1] float32 from [-2] to [2], and were of [1] float32 from [-1]" in note
