"""Errors speak in one voice."""

import pytest

from understudy.core.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DivergenceError,
    MissingPackageError,
    RunError,
    UnderstudyError,
    did_you_mean,
)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UnderstudyError("here", "is broken"), "here: is broken."),
        (UnderstudyError("here", "wrong", got=3), "here: wrong: got 3."),
        (UnderstudyError("here", "wrong", expected=4), "here: wrong: expected 4."),
        (UnderstudyError("here", "wrong", got=3, expected=4), "here: wrong: got 3, expected 4."),
        (UnderstudyError("here", "wrong", got=0, do="Mend it."), "here: wrong: got 0. Mend it."),
        (UnderstudyError("here", "wrong?"), "here: wrong?"),
    ],
)
def test_the_sentence_is_where_what_got_expected_do(error: UnderstudyError, sentence: str) -> None:
    assert str(error) == sentence


@pytest.mark.parametrize(
    "kind", [ConfigError, DataError, CheckpointError, RunError, DivergenceError, MissingPackageError]
)
def test_every_error_is_one_of_ours(kind: type[UnderstudyError]) -> None:
    assert issubclass(kind, UnderstudyError)
    assert kind("a", "b").exit_code == (2 if kind is ConfigError else 1)


def test_what_a_stranger_wrote_is_told_in_part() -> None:
    told = str(DataError("x" * 10_000, "y" * 10_000, got="z" * 10_000, expected=10**5000))
    assert len(told) < 3000
    assert "(10,000 characters)" in told
    assert "expected a number of thousands of digits" in told


def test_a_near_miss_is_suggested() -> None:
    assert did_you_mean("expectle", ["beta", "expectile"]) == "Did you mean 'expectile'?"


def test_a_wild_guess_is_told_what_there_is() -> None:
    assert did_you_mean("zzz", ["beta", "alpha"]) == "Known: alpha, beta."


def test_a_name_in_another_case_is_near() -> None:
    assert did_you_mean("CARTPOLE-V1", ["CartPole-v1", "Pendulum-v1"]) == "Did you mean 'CartPole-v1'?"
    assert did_you_mean("IQL", ["iql", "bc"]) == "Did you mean 'iql'?"


def test_of_many_names_the_first_stand_for_the_rest() -> None:
    grouped = ["bc", "iql", *(f"iql/task-{number}" for number in range(40))]
    assert did_you_mean("zzz", grouped) == "Known: bc, iql and 40 more."
    plain = [f"name{number:02}" for number in range(40)]
    assert did_you_mean("zzz", plain) == f"Known: {', '.join(plain[:32])} and 8 more."


def test_nothing_to_suggest() -> None:
    assert did_you_mean("zzz", []) == "There is none."
