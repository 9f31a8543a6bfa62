"""`understudy explain` knows every key of every config, by its full name, its last word, or inside a group."""

from functools import cache

import pytest
from command_line import complaint, understudy

from shipped import command_words
from understudy.cli.explain import all_settings, explain, find_settings, shown
from understudy.run.config import load_config
from understudy.run.packaged import config_names


def keys(data: object, prefix: str = "") -> set[str]:
    """Every dotted key of plain data."""
    if not isinstance(data, dict):
        return {prefix}
    return {key for name, value in data.items() for key in keys(value, f"{prefix}.{name}" if prefix else name)}


def test_every_key_of_every_config_is_known_and_has_a_meaning() -> None:
    settings = list(all_settings())
    mute = {setting.key for setting in settings if not setting.meaning}
    assert {key.rpartition(".")[2] for key in mute} <= {"name", "kind"}, sorted(mute)

    @cache
    def known(key: str) -> bool:
        return bool(find_settings(key, settings))

    for name in config_names():
        told = load_config(name, command_words(name)).model_dump(mode="json")
        stages = list(told.pop("stages"))
        for key in keys(told) | {key for stage in stages for key in keys({**stage, "stages": []})}:
            assert known(key), (name, key)


def test_a_key_is_told_with_its_default_and_who_has_it() -> None:
    told = understudy("explain", "algo.expectile").out
    assert "algo.expectile=0.7  (ciql, iql)" in told
    assert "τ: 0.5 values the data's average action, toward 1 its best." in told
    assert told == understudy("explain", "expectile").out
    assert "  algo.actor.memory.units=256  (every algorithm but fqe)" in understudy("explain", "algo.actor.memory").out


def test_a_method_that_is_settings_of_another_leads_there() -> None:
    for method, algorithm in (("td3", "td3bc"), ("droq", "redq"), ("rlpd", "redq")):
        told = understudy("explain", method).out
        assert told.startswith(f"{method}: settings of {algorithm}, as the configs {method}… have them")
        assert told.endswith(understudy("explain", algorithm).out)
    assert "Did you mean 'td3" in understudy("explain", "td33").err


def test_a_method_that_is_a_source_leads_there() -> None:
    told = understudy("explain", "dagger").out
    assert told.startswith("dagger: bc with source.kind=interactive, as the configs dagger… have it")
    assert "understudy explain bc\n" in told
    assert told.endswith(understudy("explain", "interactive").out)
    assert "  source.beta.over=4\n      Rounds from start to end.\n" in told


def test_a_source_has_a_page() -> None:
    told = understudy("explain", "replay").out
    assert told.startswith("Replay: the policy plays")
    assert "\n  source.learning_starts=5_000\n" in told
    assert "source.rollout_length" not in told


def test_names_of_ones_own_are_passed_over() -> None:
    told = understudy("explain", "algo.actor.encoders.camera.pooling").out
    assert "algo.actor.encoders.<name>.pooling=none  (kind=conv, every algorithm but fqe)" in told
    assert "One of: none, max, average." in told
    assert "  policies.<name>.checkpoint=last\n" in understudy("explain", "policies.teacher").out


def test_groups() -> None:
    run = understudy("explain", "run").out
    assert "  updates=1_000_000\n" in run
    assert "algo.actor" not in run
    assert "  data.recipe.behaviours.<number>.skill=1  (policy=scripted)\n" in understudy("explain", "data").out
    assert "  source.num_envs=" in understudy("explain", "source").out
    assert "  env.id\n" in understudy("explain", "env").out
    assert "iql: Implicit Q-learning" in understudy("explain", "algo").out
    assert "understudy explain algo.beta" in understudy("explain").out


def test_suggestions_only_where_a_name_is_near() -> None:
    assert complaint("explain", "algo.expectil", code=2).endswith("Did you mean 'algo.expectile'?\n")
    far = complaint("explain", "zzzzzz", code=2)
    assert "Did you mean" not in far
    assert len(far) < 200


def test_values_are_shown_as_a_config_writes_them() -> None:
    values = {
        None: "null",
        True: "true",
        1.4142135623730951: "1.41421",
        (1, 2.5): "[1, 2.5]",
        20000: "20_000",
        "a": "a",
    }
    assert {value: shown(value) for value in values} == values


def test_skill_sets_are_explained_from_their_equations_to_their_settings() -> None:
    told = understudy("explain", "skills").out
    assert "w_t = (e_t + e_{t-1} + … + e_{t-L+1}) / L" in told
    for key in ("smoothing=1", "reset_memory=never", "skills.<name>.overrides", "selector.fallback", "last_action=[]"):
        assert f"  {key}" in told, key
    assert "skills/climb  skills chosen by what the environment says" in understudy("list", "skills").out


def test_a_schedule_is_shown_with_what_it_is_unless_told(capsys: pytest.CaptureFixture[str]) -> None:
    for key, defaults in {
        "algo.objectives.teacher.weight": "kind=linear start=1 end=1 after=0 over=100_000",
        "algo.objectives.teacher.beta": "kind=linear start=0 end=0 after=0 over=100_000",
        "algo.policy_coef": "kind=linear start=1 end=1 after=0 over=100_000",
        "source.beta": "kind=linear start=1 end=0 after=0 over=4",
        "source.data_share": "kind=constant start=0 end=0 after=0 over=100_000",
    }.items():
        explain(key)
        told = capsys.readouterr().out.split()
        for default in defaults.split():
            assert f"{key}.{default}" in told, key


def test_mappings_say_how_an_entry_is_removed(capsys: pytest.CaptureFixture[str]) -> None:
    for key in ("algo.objectives", "policies", "datasets", "eval_metrics", "env.segments"):
        explain(key)
        assert f"{key}.<name>=null removes one." in " ".join(capsys.readouterr().out.split())
    explain("stages")
    assert "=null removes" not in capsys.readouterr().out


def test_an_objective_that_is_none_is_pointed_on() -> None:
    told = complaint("explain", "algo.objectives.teecher.weight", code=2)
    assert "explain algo.objectives.teecher.weight: no such objective. Did you mean 'teacher'?" in told
