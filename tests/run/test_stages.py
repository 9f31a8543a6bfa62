"""BC first, then IQL from there, as one run: the same as two runs by hand, and a kill in any stage changes nothing."""

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from forks import finish, forks, go_on
from rich.console import Console
from small import SHORT, content, leftovers, short_config, short_settings

import understudy as us
from learners import differences
from understudy.core.errors import ConfigError, UnderstudyError
from understudy.core.state import capture
from understudy.nn.actor import Actor
from understudy.run.config import RunConfig, parse_config, read_resolved
from understudy.run.progress import Reporter
from understudy.sources import offline
from worlds import PENDULUM_RECIPE, tiny_config

pytestmark = pytest.mark.usefixtures("no_plots")

CLONE = {"algo": {"name": "bc"}, "updates": 8}
SLOW = {"schedule": "constant", "learning_rate": 1e-6}


def staged(folder: Path, *stages: dict[str, Any], name: str = "run", **changes: Any) -> us.RunConfig:
    settings = short_settings("iql", folder / name, **changes)
    return parse_config({**settings, "stages": list(stages)})


def test_it_is_what_two_runs_by_hand_are(tmp_path: Path) -> None:
    together = us.train(staged(tmp_path, CLONE))
    actor = short_settings("iql", tmp_path)["algo"]["actor"]
    by_hand = short_settings("bc", tmp_path / "bc", updates=8, algo={"name": "bc", "actor": actor})
    first = us.train(parse_config(by_hand))
    then = us.train(parse_config(short_settings("iql", tmp_path / "iql", init_from=str(first.path))))
    stage = us.Run(together.path / "stages" / "1-bc")
    assert differences(capture(stage.policy()), capture(first.policy())) == []
    assert differences(capture(together.policy()), capture(then.policy())) == []
    assert together.evaluations() == then.evaluations()
    alone = us.train(parse_config(short_settings("iql", tmp_path / "alone")))
    assert differences(capture(together.policy()), capture(alone.policy()))


def batch_size(config: RunConfig) -> int:
    assert isinstance(config.source, offline.Config)
    return config.source.batch_size


def test_three_stages_hand_on_one_after_the_other(tmp_path: Path) -> None:
    again = {"algo": {"name": "bc"}, "updates": 4, "source": {"batch_size": 4}}
    run = us.train(staged(tmp_path, CLONE, again))
    assert sorted(path.name for path in (run.path / "stages").iterdir()) == ["1-bc", "2-bc"]
    second = us.Run(run.path / "stages" / "2-bc")
    assert second.config.init_from == str(run.path / "stages" / "1-bc")
    assert (batch_size(second.config), second.config.updates) == (4, 4)
    assert batch_size(run.config) == 8


def test_a_stage_takes_over_what_it_does_not_say(tmp_path: Path) -> None:
    recipe = {"env": SHORT, "episodes": 2, "seed": 1, "behaviours": [{"policy": "random"}]}
    stage = {**CLONE, "data": {"recipe": recipe, "best_episodes": 0.5}}
    config = staged(tmp_path, CLONE, stage, seed=5, data={"recipe": PENDULUM_RECIPE, "normalize_observations": False})
    first, second = config.stages
    assert (first.seed, first.env, first.data) == (5, config.env, config.data)
    assert second.logged.recipe is not None
    assert second.logged.recipe.episodes == 2
    assert not second.logged.normalize_observations
    actors = {str(part.algo.model_dump()["actor"]) for part in (config, first, second)}
    assert len(actors) == 1


def test_a_path_replaces_a_recipe(tmp_path: Path) -> None:
    (stage,) = staged(tmp_path, {**CLONE, "data": {"path": "other.npz"}}).stages
    assert (stage.logged.path, stage.logged.recipe) == ("other.npz", None)


def test_the_config_a_run_keeps_is_the_config_it_had(tmp_path: Path) -> None:
    run = us.train(staged(tmp_path, CLONE))
    kept = read_resolved(run.path / "config.yaml")
    assert parse_config(kept.model_dump(mode="json")) == kept
    assert kept.stages[0].logged.fingerprint == kept.logged.fingerprint != ""


@pytest.mark.parametrize("moment", [5, *(pytest.param(moment, marks=pytest.mark.slow) for moment in (1, 9, 15))])
def test_a_kill_in_any_stage_changes_nothing(tmp_path: Path, moment: int) -> None:
    """Updates 1 to 8 are the stage's, 9 to 20 the run's own; saved every 4."""
    whole = short_config(tmp_path, name="whole", stages=[CLONE])
    finish(whole, tmp_path / "whole")
    config = short_config(tmp_path, name="killed", stages=[CLONE])
    assert go_on(config, tmp_path / "killed", stop_at=moment, stop_signal=signal.SIGKILL).code == -signal.SIGKILL
    finish(config, tmp_path / "killed")
    for part in ("", "stages/1-bc"):
        assert content(tmp_path / "killed" / part) == content(tmp_path / "whole" / part)
    assert leftovers(tmp_path / "killed") == []


def test_an_interrupted_stage_is_told_as_the_run(tmp_path: Path) -> None:
    config = short_config(tmp_path, stages=[CLONE])
    ending = forks().run("train", str(config), "--quiet", stop_at=3)
    assert ending.code == 128 + signal.SIGTERM
    assert f"understudy resume {tmp_path / 'run'}\n" in ending.err


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        (3, "stages: wrong value"),
        ([{"algo": "bc"}], "stages.0.updates: is required"),
        ([{"updates": 3}], "stages.0.algo: is required"),
        ([CLONE, {"algo": "bcc", "updates": 1}], "bcc"),
        ([{"algo": {"name": "bc", "rate": 1}, "updates": 1}], "stages.0.algo.rate: no such setting of bc"),
        ([{**CLONE, "updates": 0}], "stages.0.updates: wrong value"),
        ([{**CLONE, "stpes": 2}], "stages.0.stpes: no such setting"),
        ([{**CLONE, "stages": [CLONE]}], "stages.0.stages: is the whole run's"),
        ([{**CLONE, "out": "elsewhere"}], "stages.0.out: is the whole run's"),
        ([{**CLONE, "init_fingerprint": "0"}], "stages.0.init_fingerprint: is the whole run's"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, stages: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace(".", r"\.")):
        parse_config({**short_settings("iql", tmp_path / "run"), "stages": stages})


def test_a_policy_that_cannot_be_handed_on_is_refused_before_the_first_step(tmp_path: Path) -> None:
    narrow = {"algo": {"name": "bc", "actor": {"hidden": [4]}}, "updates": 8}
    with pytest.raises(
        UnderstudyError, match=r"stages\.0: its network is not that of algo\.actor \(hidden\): got hidden \[4\]"
    ):
        us.train(staged(tmp_path, narrow))
    assert not (tmp_path / "run").exists()


def test_a_stage_that_went_on_alone_is_another_stage(tmp_path: Path) -> None:
    """Killed between the stage and the run's own first save; the policy it would start from has moved on."""
    run = tmp_path / "run"
    config = short_config(tmp_path, stages=[CLONE])
    assert go_on(config, run, stop_at=9, stop_signal=signal.SIGKILL).code == -signal.SIGKILL
    assert forks().run("resume", run / "stages" / "1-bc", "updates=10", no_plots=True).code == 0
    told = f"stage '{run / 'stages' / '1-bc'}': is not the one this run's config.yaml says: "
    ending = go_on(config, run)
    assert (ending.code, ending.err) == (
        1,
        f"{told}updates is 8 in config.yaml and 10 in the checkpoint. To train it again, remove its folder.\n",
    )
    shutil.rmtree(run / "stages" / "1-bc")
    finish(config, run, no_plots=True)
    whole = short_config(tmp_path, name="whole", stages=[CLONE])
    finish(whole, tmp_path / "whole", no_plots=True)
    assert content(run) == content(tmp_path / "whole")


def test_the_first_stage_starts_from_init_from(tmp_path: Path) -> None:
    origin = us.train(tiny_config("bc", tmp_path / "bc", updates=4, algo={"name": "bc", "actor": {"hidden": [8]}}))
    run = us.train(staged(tmp_path, CLONE, init_from=str(origin.path)))
    assert us.Run(run.path / "stages" / "1-bc").config.init_from == str(origin.path)


def ppo_after(stage: dict[str, Any], out: Path, algo: dict[str, Any], updates: int) -> dict[str, Any]:
    return {
        "algo": {"name": "ppo", **algo},
        "env": {"id": "Pendulum-v1"},
        "source": {"num_envs": 2, "rollout_length": 8},
        "updates": updates,
        "eval_episodes": 1,
        "out": str(out),
        "stages": [stage],
    }


def test_a_clone_is_where_ppo_begins(tmp_path: Path) -> None:
    """[bc] → [ppo]: one network, without a word about it; statistics of the data are where running ones go on from."""
    stage = {"algo": {"name": "bc"}, "updates": 6, "data": {"recipe": PENDULUM_RECIPE}, "source": {"batch_size": 16}}
    actor = {"hidden": [16, 16], "distribution": {"log_std_min": -2.0}}  # what it is by default is the stage's too
    config = ppo_after(stage, tmp_path / "run", {"actor": actor, "critic": {"hidden": [16, 16]}, **SLOW}, updates=2)
    console = Console(record=True, width=300)
    run = us.train(parse_config(config), reporter=Reporter(console=console))
    told = console.export_text()
    assert "taken over: policy (" in told
    assert "kept as they were" not in told
    clone = us.load_policy(run.path / "stages" / "1-bc")
    learned = run.policy()
    assert isinstance(clone, Actor)
    assert isinstance(learned, Actor)
    assert (clone.settings.activation, clone.settings.distribution.kind) == ("tanh", "gaussian")
    assert float((clone.trunk.flat - learned.trunk.flat).abs().max()) < 1e-3
    ((_, before),) = clone.perception.normalised()
    ((_, after),) = learned.perception.normalised()
    assert int(after.count) == int(before.count) + 2 * 2 * 8
    assert float((after.mean - before.mean).abs().max()) < 0.1
    assert (after.settings.epsilon_on, after.settings.clip) == ("std", None), "in the form that they came with"


def test_a_clone_may_drop_units_and_ppo_goes_on_without(tmp_path: Path) -> None:
    shape = {"hidden": [16, 16], "activation": "tanh", "distribution": "gaussian"}
    cloning = {"name": "bc", "actor": {**shape, "dropout": 0.2}}
    stage = {"algo": cloning, "updates": 3, "data": {"recipe": PENDULUM_RECIPE}, "source": {"batch_size": 16}}
    config = ppo_after(stage, tmp_path / "run", {"actor": shape, "critic": {"hidden": [16, 16]}, **SLOW}, updates=1)
    run = us.train(parse_config(config))
    clone, learned = us.load_policy(run.path / "stages" / "1-bc"), run.policy()
    assert isinstance(clone, Actor)
    assert isinstance(learned, Actor)
    assert (clone.settings.dropout, learned.settings.dropout) == (0.2, 0.0)
    assert not learned.trunk.drops
    assert float((clone.trunk.flat - learned.trunk.flat).abs().max()) < 1e-3
    told = r"^algo\.actor\.dropout: PPO compares what its networks thought.*expected 0"
    with pytest.raises(us.UnderstudyError, match=told):
        parse_config({**config, "algo": {"name": "ppo", "actor": {**shape, "dropout": 0.2}}})


def test_what_stands_in_the_way_of_a_clone_is_named(tmp_path: Path) -> None:
    stage = {
        "algo": {"name": "bc", "actor": {"hidden": [16, 16]}},
        "updates": 2,
        "data": {"recipe": PENDULUM_RECIPE},
        "source": {"batch_size": 16},
    }
    config = ppo_after(stage, tmp_path / "run", {"actor": {"hidden": [16, 16]}}, updates=1)
    with pytest.raises(us.UnderstudyError, match=r"\(activation, distribution\): got activation relu, distribution"):
        us.train(parse_config(config))
