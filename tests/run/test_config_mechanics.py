"""Settings from a line, from Python and from a file mean the same; groups merge, and a slip is pointed on."""

from pathlib import Path

import numpy as np
import pytest

from understudy.algorithms import algorithm_names
from understudy.core.errors import ConfigError
from understudy.run.config import RunConfig, load_config
from understudy.run.overrides import with_overrides
from understudy.run.packaged import config_names
from understudy.run.session import resolve_config


def test_every_algorithm_has_a_config_that_needs_no_task() -> None:
    for name in algorithm_names():
        assert name in config_names()
        plays = name in ("ppo", "sac", "redq", "discrete_sac")
        judged = ["policies.target.path=runs/judged"] if name == "fqe" else []
        config = load_config(name, [*judged, *(["env.id=CartPole-v1"] if plays else ["data.path=heat.npz"])])
        assert config.algorithm == name
        assert config.out == f"runs/{name}/{'CartPole-v1' if plays else 'heat'}/0"
        assert (config.env is None) == (not plays)


def test_what_a_neutral_config_lacks_is_told() -> None:
    with pytest.raises(ConfigError, match=r"^config 'iql': names no data\. Give it: data\.path=…\. Without a"):
        load_config("iql")
    with pytest.raises(ConfigError, match=r"^config 'ppo': names no environment\. Give one: env\.id="):
        load_config("ppo")


def test_a_path_replaces_a_recipe_and_a_recipe_a_path() -> None:
    preset = load_config("iql/pendulum").logged
    assert preset.recipe is not None
    logged = load_config("iql/pendulum", ["data.path=x.npz"]).logged
    assert (logged.path, logged.recipe) == ("x.npz", None)
    assert resolve_config("iql/pendulum", {"data": {"path": "x.npz"}}).logged == logged
    recipe = preset.recipe.model_dump(mode="json")
    back = resolve_config({"algo": "iql", "data": {"path": "x.npz"}}, {"data.recipe": recipe})
    assert (back.logged.path, back.logged.recipe) == ("", preset.recipe)


def test_groups_merge_into_a_preset() -> None:
    plain = load_config("iql/pendulum", ["algo.beta=1", "algo.actor.dropout=0.1"])
    assert resolve_config("iql/pendulum", {"algo": {"beta": 1, "actor": {"dropout": 0.1}}}) == plain
    assert load_config("iql/pendulum", ["algo={beta: 1, actor: {dropout: 0.1}}"]) == plain
    assert plain.algo.model_dump()["actor"]["hidden"] == (64, 64), "the preset's own"
    other = resolve_config("iql/pendulum", {"algo": {"name": "bc"}})
    assert other.algorithm == "bc", "another algorithm takes nothing of the preset's"
    assert other.algo.model_dump()["actor"]["hidden"] == (256, 256)


def test_a_dict_and_a_run_config_are_as_good_as_a_file(tmp_path: Path) -> None:
    text = "algo: {name: iql, beta: 2}\ndata: {path: heat.npz}\nupdates: 100\nout: here\n"
    (tmp_path / "own.yaml").write_text(text)
    wished = load_config(tmp_path / "own.yaml", ["seed=3"])
    plain = {
        "algo": {"name": "iql", "beta": np.float32(2)},
        "data": {"path": Path("heat.npz")},
        "updates": np.int64(100),
        "out": "here",
    }
    assert load_config(plain, ["seed=3"]) == wished
    assert load_config(RunConfig.parse(load_config(plain)), ["seed=3"]) == wished
    assert resolve_config(load_config(plain), {"seed": 3}) == wished
    assert load_config({"algo": "bc", "data": {"path": "heat.npz"}}).out == "runs/bc/0"
    with pytest.raises(ConfigError, match=r"^config: not one: got int"):
        load_config(3)  # type: ignore[arg-type]


def test_a_setting_that_belongs_to_a_group_is_pointed_there() -> None:
    for word, owner in (("beta", "algo"), ("batch_size", "source"), ("time_limit", "data"), ("simulator", "env")):
        with pytest.raises(ConfigError, match=rf"^{word}: no such setting\. Did you mean '{owner}\.{word}'\?$"):
            load_config("iql/pendulum", [f"{word}=1"])


def test_whole_numbers_may_be_written_as_people_do() -> None:
    assert load_config("iql/pendulum", ["updates=1e5"]).updates == 100_000
    assert load_config("iql/pendulum", ["updates=2.5e3"]).updates == 2500
    assert resolve_config("iql/pendulum", {"updates": 1e5}).updates == 100_000
    for word in ("1.5e0", "1e-3", "1e5x", "1e999", "1.5"):
        with pytest.raises(ConfigError, match=r"^updates: "):
            load_config("iql/pendulum", [f"updates={word}"])


def test_runs_of_other_data_or_worlds_lie_elsewhere() -> None:
    places = {
        (): "runs/iql/pendulum/0",
        ("data.path=logs/heat.npz",): "runs/iql/pendulum/heat/0",
        ("data.path=heat.v2.hdf5", "seed=4"): "runs/iql/pendulum/heat.v2/4",
        ("env.id=MountainCarContinuous-v0",): "runs/iql/pendulum/MountainCarContinuous-v0/0",
        ("env.id=My/World-v1", "data.path=a b.npz"): "runs/iql/pendulum/My-World-v1-a-b/0",
        ("data.path=heat.npz", "out=mine"): "mine",
    }
    for words, place in places.items():
        assert load_config("iql/pendulum", words).out == place
    assert load_config("iql/corl-locomotion", ["task=hopper-medium-v2", "data.path=x"]).out == (
        "runs/iql/corl-locomotion/hopper-medium-v2/0"
    )


def test_a_group_of_another_kind_replaces_a_word_for_one() -> None:
    data = {"algo": {"name": "iql", "actor": {"distribution": "deterministic"}}}
    changed = with_overrides(data, ["algo.actor.distribution={kind: gaussian, log_std_min: -5}"])
    assert changed["algo"]["actor"]["distribution"] == {"kind": "gaussian", "log_std_min": "-5"}
