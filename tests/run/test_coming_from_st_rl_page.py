"""The page "Coming from st_rl" has a row for every class, function and argument there, and what it names exists."""

import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import torch
import typer
from pages import python_blocks, read_page, table
from pydantic import BaseModel

import understudy
from understudy.algorithms import algorithm_names, find_algorithm
from understudy.cli.commands import app
from understudy.core.errors import ConfigError
from understudy.core.st_rl_names import CALLS, NOT_NEEDED, SKILLS, Name, TheirName, st_rl_names
from understudy.nn.actor import Actor, ActorSettings
from understudy.objectives import find_objective
from understudy.run.config import RunConfig, load_config
from understudy.run.packaged import config_names, skill_set_names
from understudy.run.skill_sets import SkillSetConfig
from understudy.sources import find_source

PAGE = read_page("coming-from-st_rl")
ORIGINAL = Path(__file__).parents[3] / "shared" / "seeds" / "004-st_rl.txt"
FILE = re.compile(r"(?:\d+\. )?#{3,4} (?:\d+\.)?\s*(\w+\.py)\s*")
BULLET = re.compile(r"\s*- \**`?([a-z_]\w*|CoT)`?\**(?: *\([^)]*\))?`?\** *(?:→|â†’|:)")
"""`name` (type) → what it is."""
CLASS = re.compile(r"(?:[A-Z]+[a-z0-9]+){2,}[A-Z]*|T?PPO|A(?:T|P)PPO|AMP\w+|Actor|Critic|Memory|Normalize")
DEFINED = re.compile(r"^(?= *class \w+ *[(:]|\w+ = namedarraytuple)(?: *class )?(\w+)", re.MULTILINE)
ROLES = ("teacher", "demonstrations")
OTHERS = ("ModuleList", "LeakyReLU", "MaxPool2d", "OrderedDict", "NotImplementedError", "DataLoader", "TensorBoard")
"""Classes of others that st_rl uses."""


def documented() -> Iterator[tuple[str, str]]:
    """The description of st_rl, file by file, as it was written."""
    found: dict[str, list[str]] = {}
    file = ""
    for line in ORIGINAL.read_text(encoding="utf-8").splitlines():
        heading = FILE.fullmatch(line)
        file = heading[1] if heading else file
        found.setdefault(file, []).append(line)
    yield from ((file, "\n".join(lines)) for file, lines in found.items() if file)


def signatures(text: str) -> Iterator[tuple[str, list[str]]]:
    """Functions that are defined or named with their arguments, in code and between backticks."""
    for match in re.finditer(r"\bdef (\w+)\(", text):
        yield match[1], list(_arguments(text[match.end() :]))
    for match in re.finditer(r"(?:^``` python\n|`)([a-z_]\w*)\(([^()`\n]*)\)(?:`|\n```)", text, re.MULTILINE):
        yield match[1], list(_arguments(f"{match[2]})"))


def _arguments(text: str) -> Iterator[str]:
    """Names of arguments, up to the bracket that closes the list."""
    depth, piece = 1, ""
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 or (depth == 1 and letter == ","):
            name = re.split(r"[:=]", piece)[0].strip()
            if re.fullmatch(r"\w+", name) and name != "self":
                yield name
            piece = ""
        else:
            piece += letter
        if depth == 0:
            return


def rows_of(file: str) -> list[Name]:
    return [Name.read(name) for row in st_rl_names() if row.file == file for name in row.names]


needs_original = pytest.mark.skipif(not ORIGINAL.exists(), reason="the description of st_rl does not lie beside us")


@needs_original
def test_every_class_function_and_argument_has_a_row() -> None:
    classes = {name.function for row in st_rl_names() for name in map(Name.read, row.names)}
    seen = 0
    for file, text in documented():
        rows = rows_of(file)
        assert rows, file
        words = {word for row in rows for word in (row.owner, row.function, *row.arguments)}
        for name in DEFINED.findall(text):
            assert name in {row.function for row in rows}, (file, name)
        for name in re.findall(r"`(\w+)`", text):
            if CLASS.fullmatch(name) and name not in OTHERS:
                assert name in classes, (file, name)
        for function, arguments in signatures(text):
            if function in ("super", "init", "__init__"):
                given = {word for row in rows if not row.owner for word in row.arguments}
            else:
                assert function in {row.function for row in rows}, (file, function)
                given = {word for row in rows if row.function == function for word in row.arguments}
            assert set(arguments) - {"args"} <= given, (file, function, set(arguments) - given)
            seen += 1 + len(arguments)
        listed = {match[1] for line in text.splitlines() if (match := BULLET.match(line))}
        assert listed <= words, (file, listed - words)
    assert seen > 300


def test_the_page_has_these_rows_and_no_others() -> None:
    files = list(dict.fromkeys(row.file for row in st_rl_names()))
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == files
    for file in files:
        rows = [row for row in st_rl_names() if row.file == file]
        assert table(PAGE, file) == [
            [", ".join(f"`{name}`" for name in names) for names in (row.names, row.ours)] + [row.told] for row in rows
        ]


def test_what_has_nothing_here_says_why() -> None:
    for row in st_rl_names():
        assert row.ours or row.told.startswith(NOT_NEEDED), row
        assert not row.told.endswith("."), row


def lists(annotation: Any, key: str) -> bool:
    """Whether a dotted key is a setting, of any of several kinds where there are several; `*` is any name."""
    part, _, rest = key.partition(".")
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(part)
        return field is not None and (not rest or lists(field.annotation, rest))
    if get_origin(annotation) is dict and (part == "*" or part in ROLES):
        return not rest or lists(get_args(annotation)[-1], rest)
    return any(lists(inner, key) for inner in get_args(annotation))


def exists(key: str) -> bool:
    group, _, rest = key.partition(".")
    if key.startswith("algo.objectives."):
        _, _, name, *inner = key.split(".")
        return not inner or lists(find_objective(name).Config, ".".join(inner))
    models = {
        "algo": [find_algorithm(name).Config for name in algorithm_names()],
        "source": [find_source(kind).Config for kind in ("rollout", "offline", "replay", "interactive")],
    }
    return any(lists(model, rest) for model in models[group]) if group in models and rest else lists(RunConfig, key)


def options_of(command: str) -> set[str]:
    """The options of a command; of one that is none a KeyError."""
    found: Any = typer.main.get_command(app)
    for word in command.removeprefix("understudy ").split():
        if not word.startswith("-"):
            found = found.commands[word]
    found = getattr(found, "usual", found)
    return {option for parameter in found.params for option in parameter.opts}


def known(row: TheirName, ours: str) -> bool:
    if ours.startswith(SKILLS):
        return lists(SkillSetConfig, ours.removeprefix(SKILLS))
    if ours.startswith(("understudy ", "collect --")):
        return {word for word in ours.split() if word.startswith("-")} <= options_of(ours)
    if ours.startswith(CALLS):
        owner, name, *inner = ours.split(".")
        if owner == "us":
            return name in understudy.__all__ and all(hasattr(getattr(understudy, name), word) for word in inner)
        if owner == "run":
            return hasattr(understudy.Run, name)
        spec = understudy.Spec({"state": understudy.Group((3,), "float32")}, understudy.Box((-1.0,), (1.0,)))
        return hasattr(Actor(spec, ActorSettings(), torch.Generator()), name)
    return row.settings.count(ours) == 1 and exists(ours)


def test_everything_of_ours_that_is_named_exists() -> None:
    for row in st_rl_names():
        for ours in row.ours:
            assert known(row, ours), (row.theirs, ours)
        for name in re.findall(r"\b((?:ppo|skills|dagger)/[\w-]+)", row.told):
            assert name in config_names() or name.removeprefix("skills/") in skill_set_names(), name


SUGGESTED = {
    "algo.teacher_act_prob=0.5": "Did you mean 'algo.objectives.teacher.beta' (st_rl's teacher_act_prob)?",
    "distill_target=l1": "Did you mean 'algo.objectives.teacher.loss' (st_rl's distill_target)?",
    "teacher_policy=x": "Did you mean 'policies.teacher.path' or 'algo.objectives.teacher.teachers' (st_rl's",
    "algo.replace_state_prob=0.1": "Did you mean 'algo.objectives.estimator.replace_probability' (st_rl's replace",
    "algo.type=gru": "Did you mean 'algo.actor.memory.kind' or 'algo.critic.memory.kind' (st_rl's type)?",
    "algo.num_actor_obs=48": "st_rl's num_actor_obs is not needed: sizes are the environment's",
    "algo.mimic_loss_coef=1": "Did you mean 'env.tracking' (st_rl's mimic_loss_coef)?",
    "cmd_vel_mapping=1": "st_rl's cmd_vel_mapping is 'skills.*.overrides' of a skill set: understudy explain skills.",
    "algo.clip_param=0.1": "Did you mean 'algo.clip' (rsl_rl's clip_param)?",
}


@pytest.mark.parametrize("word", SUGGESTED)
def test_an_argument_of_theirs_is_told_ours(word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("ppo/pendulum", [word])
    assert SUGGESTED[word] in str(caught.value)


def test_a_learner_from_rounds_is_told_its_own() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'source\.beta' \(st_rl's teacher_act_prob\)\?"):
        load_config("bc/pendulum", ["source.kind=interactive", "source.teacher_act_prob=0.5"])


def test_its_example_runs() -> None:
    (example,) = python_blocks(PAGE)
    with redirect_stdout(StringIO()) as printed:
        exec(example, {})
    assert printed.getvalue().count("st_rl's") == 3
