"""`compile: auto`: decided once, when the run starts, by what the machine has and what the run repays."""

from pathlib import Path

import pytest
from small import short_settings

import understudy as us
from shipped import command_words
from understudy.core.errors import ConfigError
from understudy.run import compiler
from understudy.run.compiler import REPAYING_UPDATES, decide_compile, find_compiler, settle_compile
from understudy.run.config import RunConfig, load_config, parse_config
from understudy.run.packaged import config_names
from worlds import tiny_settings


def compiler_here(there: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has a C++ compiler and nothing else, or not even that."""
    folder.mkdir(exist_ok=True)
    program = folder / "g++"
    if there:
        program.touch(mode=0o755)
    else:
        program.unlink(missing_ok=True)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    assert find_compiler() is there


def settled(config: RunConfig) -> tuple[bool, list[str]]:
    lines: list[str] = []
    chosen = settle_compile(config, lines.append).compile
    assert chosen != "auto"
    return chosen, lines


def test_the_decision() -> None:
    enough = REPAYING_UPDATES
    assert decide_compile(enough, "", found=True) == (
        True,
        "compile: on, 50,000 updates repay the half minute it takes (compile=false: off)",
    )
    assert decide_compile(enough, "", found=False) == (
        False,
        "compile: off, no C++ compiler found; with g++ or clang++ updates take a quarter less time",
    )
    assert decide_compile(enough, "it cannot be", found=True) == (False, "compile: off, it cannot be")
    silent = (False, "")
    assert decide_compile(enough - 1, "", found=True) == silent
    assert decide_compile(enough - 1, "", found=False) == silent
    assert decide_compile(enough - 1, "it cannot be", found=True) == silent
    assert decide_compile(10**9, None, found=True) == silent


def test_every_preset_gets_what_suits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever types the command of a paper gets the fast one, whoever tries a minute of it does not wait."""
    compiler_here(True, tmp_path / "bin", monkeypatch)
    configs = {name: load_config(name, command_words(name)) for name in config_names()}
    long = {name for name, config in configs.items() if config.source_kind != "rollout" and config.updates >= 50_000}
    found = {name: settled(config) for name, config in configs.items()}
    assert {name for name, (_, lines) in found.items() if lines} == long
    compiled = {name for name, (chosen, _) in found.items() if chosen}
    dropping = {name for name in long if "dropout" in found[name][1][0]}
    assert compiled == long - dropping
    assert {"iql/corl-locomotion", "td3bc/corl-locomotion", "cql/paper-locomotion"} <= compiled
    assert dropping == {"iql/paper-adroit", "iql/paper-kitchen", "droq/hopper"}
    assert not long & {"bc/pendulum", "iql/pendulum"}, "make demo runs these"


def test_what_cannot_be_compiled_stays_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_here(True, tmp_path / "bin", monkeypatch)
    many = {"updates": REPAYING_UPDATES}
    plain = parse_config(tiny_settings("iql", tmp_path, **many))
    assert settled(plain)[0] is True
    dropping = parse_config(short_settings("iql", tmp_path, **many))
    assert settled(dropping) == (False, ["compile: off, dropout cannot be compiled"])
    rounds = {"source": {"kind": "interactive", "teacher": "scripted"}, "env": {"id": "Pendulum-v1"}, "data": None}
    taught = {key: value for key, value in {**tiny_settings("bc", tmp_path, **many), **rounds}.items() if value}
    assert settled(parse_config(taught)) == (False, []), "its normaliser runs"
    assert settled(plain.model_copy(update={"device": "cuda"}))[1] == [
        "compile: off, it is tested on cpu, not on cuda (compile=true: on)"
    ]
    assert settled(parse_config(tiny_settings("ppo", tmp_path, **many))) == (False, [])
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "algorithm_names", lambda: {"iql": "elsewhere.iql"})
        assert settled(plain) == (False, ["compile: off, iql is of another package (compile=true: on)"])
    compiler_here(False, tmp_path / "bin", monkeypatch)
    (line,) = settled(plain)[1]
    assert line.startswith("compile: off, no C++ compiler found")
    monkeypatch.setenv("CXX", "my-compiler")
    assert settled(plain)[0] is True


def test_who_says_true_or_false_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_here(False, tmp_path / "bin", monkeypatch)
    for said in (True, False):
        config = parse_config(tiny_settings("iql", tmp_path, updates=10**6 if not said else 1, compile=said))
        assert settled(config) == (said, [])


def test_stages_are_decided_with_their_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_here(True, tmp_path / "bin", monkeypatch)
    stages = [{"algo": "bc", "updates": 10}, {"algo": "bc", "updates": REPAYING_UPDATES}]
    config = settle_compile(parse_config(tiny_settings("iql", tmp_path, updates=20, stages=stages)), print)
    assert [stage.compile for stage in config.stages] == [False, True]
    assert config.compile is False


def test_words_and_slips() -> None:
    assert load_config("iql/pendulum").compile == "auto"
    for text, value in {"auto": "auto", "true": True, "false": False}.items():
        assert load_config("iql/pendulum", [f"compile={text}"]).compile == value
    for slip in ("maybe", "3", "[auto]", ""):
        with pytest.raises(ConfigError, match=r"^compile: wrong value: got .*, expected true, false or auto\.$"):
            load_config("iql/pendulum", [f"compile={slip}"])


def test_a_run_writes_down_what_was_decided_and_never_decides_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = us.train(parse_config(short_settings("bc", tmp_path / "run", updates=4, compile="auto")))
    assert run.config.compile is False
    assert "compile: false\n" in (run.path / "config.yaml").read_text()
    monkeypatch.setattr(compiler, "REPAYING_UPDATES", 1)
    assert settle_compile(load_config("bc/pendulum"), print).compile is find_compiler()
    assert us.resume(run.path, updates=6).config.compile is False
