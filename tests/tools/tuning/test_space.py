"""What may be searched: ready spaces, values as words, and every mistake told before anything begins."""

from pathlib import Path
from typing import Any

import pytest

from understudy.core.errors import ConfigError
from understudy.run.config import load_config, read_config
from understudy.run.packaged import config_names, space_names
from understudy.run.yaml_text import parse_yaml
from understudy.tools.tuning.space import Choices, Space, as_word, check_space, read_space, value_at

IQL = "iql/pendulum"


def checked(space: dict[str, Any], *words: str, config: str = IQL) -> Space:
    return check_space(space, "mine.yaml", read_config(config)[0], words)


def test_every_algorithm_has_a_space_and_its_configs_lie_in_it() -> None:
    """The first trial of a search is the config as it is, of those for data and worlds of one's own, too."""
    for name in space_names():
        configs = [one for one in config_names() if one in (name, f"{name}/pendulum", f"{name}/cartpole")]
        assert len(configs) >= 2, name
        for config in configs:
            words = next(words for words in ([], ["data.path=mine"], ["env.id=Pendulum-v1"]) if loads(config, words))
            content, where = read_space(None, name)
            space = check_space(content, where, read_config(config)[0], words)
            own = {key: dimension.position(load_config(config, words)) for key, dimension in space.items()}
            assert None not in own.values(), (config, own)
    assert {"iql", "bc", "cql", "td3bc", "rebrac", "iact", "ciql", "sac", "redq", "ppo"} < set(space_names())


def loads(config: str, words: list[str]) -> bool:
    try:
        return bool(load_config(config, words))
    except ConfigError:
        return False


def test_values_are_words_that_read_back_as_they_were() -> None:
    for value in ("linear", "3e-4", "[64, 64]", "a: b", "null", "", "#x", "é", "007"):
        assert parse_yaml(as_word(value), "test") == value
    group = {"kind": "linear", "start": "1.0", "sees": ["a", "b"]}
    plain: list[Any] = [True, None, ["64", "relu"], group, [], {}]
    for one in plain:
        assert parse_yaml(as_word(one), "test") == one
    for number in (0.1, 1e-300, 3, -2.5e17, 0.30000000000000004):
        assert float(as_word(number)) == number


def test_whole_numbers_are_those_of_settings_that_hold_them() -> None:
    space = checked({"algo.critics": {"low": 2, "high": 5}, "algo.beta": {"low": 2, "high": 5}})
    assert {key: dimension.whole for key, dimension in space.items()} == {"algo.critics": True, "algo.beta": False}
    assert space["algo.critics"].words() == ["2", "5"]


def test_groups_may_be_written_as_groups() -> None:
    space = checked(
        {"algo": {"beta": {"low": 1, "high": 5}, "actor": {"hidden": [[8], [16]]}}, "source.batch_size": [32, 64]}
    )
    assert list(space) == ["algo.beta", "algo.actor.hidden", "source.batch_size"]


def test_choices_may_be_lists_and_whole_groups() -> None:
    hidden = {"algo.actor.hidden": [[32, 32], [64, 64]]}
    schedule = {"algo.actor_optimizer": {"choices": [{"schedule": "constant"}, {"schedule": "cosine"}]}}
    space = checked({**hidden, **schedule})
    assert isinstance(space["algo.actor.hidden"].given, Choices)
    assert space["algo.actor.hidden"].position(load_config(IQL)) == "[64, 64]"
    tried = load_config(IQL, [f"algo.actor_optimizer={space['algo.actor_optimizer'].words()[0]}"])
    assert value_at(tried, "algo.actor_optimizer.schedule") == "constant"


def test_a_config_outside_of_a_space_has_no_place_in_it() -> None:
    config = load_config(IQL)
    space = checked(
        {
            "algo.expectile": {"low": 0.85, "high": 0.95},
            "algo.beta": [1, 2],
            "algo.polyak": {"low": 0.01, "high": 0.05, "step": 0.02},
        }
    )
    assert [dimension.position(config) for dimension in space.values()] == [None, None, 0.01]
    off = checked({"algo.polyak": {"low": 0.005, "high": 0.055, "step": 0.02}})
    assert off["algo.polyak"].position(config) is None


@pytest.mark.parametrize(
    ("space", "told"),
    [
        ({}, "mine.yaml: names no setting"),
        ({"algo.expectle": [0.7, 0.8]}, "algo.expectle: no such setting of iql. Did you mean 'expectile'?"),
        (
            {"algo.expectile": {"low": 0.5, "high": 1.5}},
            "mine.yaml: algo.expectile: wrong value: got 1.5, expected less",
        ),
        ({"algo.beta": {"low": -1, "high": 2}}, "mine.yaml: algo.beta: wrong value: got -1"),
        ({"algo.critics": {"low": 1.5, "high": 4}}, "algo.critics: wrong value: got 1.5, expected a whole number"),
        ({"algo.critics": {"low": 1, "high": 4, "step": 0.5}}, "algo.critics.step: the setting is a whole number"),
        ({"algo.actor.activation": ["relu", "rleu"]}, "algo.actor.activation: wrong value: got 'rleu'"),
        ({"algo.actor.activation": {"low": 1, "high": 2}}, "algo.actor.activation: wrong value"),
        ({"algo.beta": {"low": 3, "high": 3}}, "algo.beta: low must be below high: got low 3, high 3"),
        ({"algo.beta": {"low": 3, "high": 1}}, "low must be below high"),
        ({"algo.beta": {"low": 0, "high": 1, "log": "true"}}, "low must be above 0 where log is true: got 0"),
        ({"algo.beta": {"low": 1, "high": 2, "log": True, "step": 0.1}}, "step and log exclude each other"),
        (
            {"algo.beta": {"low": 1, "high": 2, "step": 3}},
            "algo.beta.step: is wider than the range: got 3, expected at most high - low",
        ),
        ({"algo.beta": {"low": 1}}, "mine.yaml: algo.beta.high: is required"),
        (
            {"algo.beta": {"low": 1, "high": 2, "logg": True}},
            "algo.beta.logg: nothing a range or choices have. Did",
        ),
        ({"algo.beta": [1.0, 2, 1]}, "algo.beta.choices: 1.0 and 1 mean the same. Take one of them out."),
        ({"algo.beta": {"choices": []}}, "algo.beta.choices: nothing to choose from: got []"),
        ({"algo.beta": [3]}, "nothing to choose from: got [3]. Fix a single value on the line instead."),
        ({"algo.beta": [3, 1, 3]}, "choices given twice: 3"),
        ({"algo.beta": {"choices": [1, 2], "low": 1, "high": 2}}, "algo.beta: is a range or choices, not both"),
        ({"algo.beta": 3}, "algo.beta: not a range: got 3, expected {low: …, high: …} or {choices: […]}"),
        ({"algo.beta": "high"}, "algo.beta: not a range: got high"),
        ({"algo.actor": [{"hidden": [8]}, {"hidden": [9]}], "algo.actor.hidden": [[8], [9]]}, "overlaps with"),
        (
            {"algo.beta": {"low": 1, "high": 2}, "algo": {"beta": {"low": 1, "high": 3}}},
            "mine.yaml: algo.beta: is given twice. Take one of them out.",
        ),
        ({"seed": {"low": 0, "high": 9}}, "seed: says how a run is judged or kept, not how it learns"),
        ({"eval_episodes": [1, 2]}, "eval_episodes: says how a run is judged"),
        ({"updates": [100, 200]}, "updates: is how long a trial learns, and not searched"),
        ({3: [1, 2]}, "not a setting: got 3"),
    ],
)
def test_mistakes_are_told(space: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        checked(space)
    assert told in str(error.value)


def test_what_is_fixed_on_the_line_is_not_searched() -> None:
    for word in ("algo.actor.hidden=[8]", "algo.actor={hidden: [8]}"):
        with pytest.raises(ConfigError, match=r"is searched, and algo\.actor.* is fixed on the line"):
            checked({"algo.actor.hidden": [[8], [16]]}, word)


def test_a_space_is_found_by_file_by_name_and_by_algorithm(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("algo.beta: {low: 1, high: 10, log: true}\n")
    assert read_space(tmp_path / "mine.yaml", "iql")[0] == {"algo.beta": {"low": "1", "high": "10", "log": True}}
    assert read_space("iql", "bc") == read_space("", "iql")
    with pytest.raises(ConfigError, match=r"no space of this name\. Did you mean 'iql'"):
        read_space("iqll", "bc")
    with pytest.raises(ConfigError, match="space: not one: got list"):
        read_space([1], "bc")
