"""understudy tune: what it prints, and what it refuses in one sentence."""

import json
from pathlib import Path

import pytest
from command_line import complaint, config_file, understudy

pytest.importorskip("optuna", reason="optuna is not installed: pip install 'understudy-rl[tune]'")


@pytest.fixture
def words(tmp_path: Path, no_plots: None, monkeypatch: pytest.MonkeyPatch) -> list[str | Path]:
    """A small search."""
    monkeypatch.chdir(tmp_path)
    for draw in ("draw_history", "draw_slices"):
        monkeypatch.setattr(f"understudy.tools.tuning.outcome.{draw}", lambda *told: told[-1])
    config = config_file(tmp_path / "small.yaml", tmp_path / "run", "bc", updates=4, eval_every=2)
    (tmp_path / "space.yaml").write_text("algo.learning_rate: {low: 1e-4, high: 1e-2, log: true}\n")
    return ["tune", config, "space.yaml", "--out", "found", "--trials", "2", "--top", "1", "--fresh", "2"]


def test_tables_and_sentences_are_printed_and_the_winner_can_be_trained(
    words: list[str | Path], tmp_path: Path
) -> None:
    done = understudy(*words)
    assert done.code == 0, done.err
    facts = json.loads(Path("found/tuning.json").read_text())
    lines = done.out.splitlines()
    assert lines[1] == "2 trials, by eval/return_mean"
    assert lines[2].split() == ["trial", "value", "learning_rate"]
    assert sorted(line.split()[0] for line in lines[3:5]) == ["0", "1"]
    assert any(line.startswith("as given") for line in lines)
    for sentence in facts["verdict"]:
        assert sentence in lines
    assert lines[-1].endswith("train it: understudy train found/best.yaml")
    assert "on 2 fresh seeds" in done.err
    assert understudy("check", "found/best.yaml").code == 0
    again = understudy(*words, "--quiet")
    assert (again.code, again.out, again.err) == (0, "", "")


def test_the_best_is_first_by_what_decides_even_where_the_config_counts_errors(
    words: list[str | Path], tmp_path: Path
) -> None:
    """Of what fitted Q evaluation expects more is better, of the action error of held-out episodes less."""
    config_file(tmp_path / "small.yaml", tmp_path / "run", "bc", updates=4, eval_every=2, env=None)
    done = understudy(*words, "--metric", "fqe:updates=20,seeds=1", "--trials", "3", "--top", "0")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[1] == "3 trials, by fqe:updates=20,seeds=1"
    facts = json.loads(Path("found/tuning.json").read_text())
    values = {str(one["number"]): one["value"] for one in facts["trials"]}
    assert len(set(values.values())) == 3
    assert [line.split()[0] for line in lines[3:6]] == sorted(values, key=lambda number: -values[number])
    assert facts["best"] == lines[3].split()[0]


def test_mistakes_are_told_in_a_sentence(words: list[str | Path], tmp_path: Path) -> None:
    config = words[1]
    Path("wide.yaml").write_text("algo.learning_rate: {low: 1e-4, high: -1}\n")
    for given, told in (
        ((config, "nowhere.yaml"), "nowhere.yaml: no such file."),
        ((config, "wide.yaml"), "wide.yaml: algo.learning_rate: low must be below high: got low 0.0001, high -1."),
        ((config, "space.yaml", "bc"), "'bc': a second space, or a setting without its value: expected key=value."),
        ((config, "space.yaml", "out=x"), "out: is a run's directory. That of the search is given as --out x."),
        ((config, "space.yaml", "--trials", "0"), "--trials: too small: got 0."),
        ((config, "space.yaml", "--retries", "-1"), "--retries: too small: got -1."),
        ((config, "space.yaml", "--on", "slurm"), "--on: no place for a search: got 'slurm'."),
        ((config, "space.yaml", "--on", "ray=nowhere"), "--on ray: no address of a cluster: got 'nowhere'"),
        ((config, "space.yaml", "algo.learning_rate=1"), "is searched, and algo.learning_rate is fixed on the line"),
        ((config, "space.yaml", "--metric", "eval/lenght_mean"), "Did you mean 'eval/length_mean'?"),
    ):
        assert told in complaint("tune", *given, code=2)
    assert {path.name for path in tmp_path.iterdir()} == {"small.yaml", "space.yaml", "wide.yaml"}


def test_spaces_are_listed_with_what_they_search() -> None:
    listed = understudy("list", "spaces")
    assert listed.code == 0
    iql = next(line for line in listed.out.splitlines() if line.startswith("iql "))
    assert "step sizes" in iql
