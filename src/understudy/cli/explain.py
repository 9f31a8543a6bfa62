"""understudy explain: what any setting means, read off the settings themselves and the strings under their fields."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel

from understudy.cli.streams import OUT, edge
from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.other_names import TABLES, called_here
from understudy.core.settings import alternatives, entry_type
from understudy.core.wording import folded

PAGE_WIDTH = 80
"""Of what is read from a pipe."""
FEW = 4
"""So many settings are told with all that they may be."""
TOPICS = {
    "algo": "the algorithms and objectives; each has a page of its own: understudy explain iql",
    "data": "the dataset that is learned from, and what is changed on the way",
    "env": "where the policy is evaluated, and where rollouts are played",
    "source": "how data arrives",
    "run": "everything else: seed, updates, intervals, devices, stages",
    "skills": "several policies as one, and who chooses among them: understudy skills",
}

SOURCE_METHODS = {"dagger": "interactive"}
"""Methods that are an algorithm with a source."""


@dataclass(frozen=True)
class Setting:
    """One key of a config."""

    key: str
    """As it is written before `=`; `<input>` stands for a name of one's own."""
    default: str
    """Empty where it must be given, or is a group."""
    meaning: str
    choices: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    """Algorithms, sources or choices (`kind=conv`) that have it, where not all do."""

    def matches(self, asked: str, name: str = "[^.]+") -> bool:
        """It is what was asked for, or inside it, or holds it; `name` is the pattern of names of one's own."""
        parts = self.key.split(".")
        if parts[0] != asked.partition(".")[0]:
            return False
        patterns = [name if part.startswith("<") else part for part in parts]
        if self.default.startswith("{"):
            patterns[-1] += r"(\..+)?"
        return any(re.fullmatch(r"\.".join(patterns[:count]), asked) for count in range(1, len(parts) + 1))


def find_settings(asked: str, among: Sequence[Setting]) -> list[Setting]:
    """Those of a key or a group; or, if there is none, of all keys that end so."""
    for name in ("[^.]+", ".+"):  # that of a segment has a point in it
        if found := [setting for setting in among if setting.matches(asked, name)]:
            return found
    called = {setting.key for setting in among if setting.key.endswith(f".{asked}")}
    return [setting for setting in among if any(setting.matches(key) for key in called)]


def register(app: typer.Typer) -> None:
    app.command()(explain)


def explain(
    topic: Annotated[
        str,
        typer.Argument(
            help="An algorithm (iql), a source (replay), an objective (rnd), a group (algo, data, env, source, run), a "
            "setting (algo.beta)."
        ),
    ] = "",
) -> None:
    """What a setting means: of an algorithm with its equations, of a group, or of any key."""
    from understudy.algorithms import algorithm_names, find_algorithm
    from understudy.objectives import PLUGINS, find_objective
    from understudy.sources import find_source, source_names

    if not topic:
        _print_topics()
    elif topic in source_names():
        _print_page(inspect.cleandoc(find_source(topic).__doc__ or "").strip())
        print("\nSettings (change one with key=value):\n")
        _print_settings(settings_of(find_source(topic).Config, "source", deep=False))
    elif topic in PLUGINS.names() and topic not in algorithm_names():
        _print_page(inspect.cleandoc(find_objective(topic).__doc__ or "").strip())
        print("\nSettings (change one with key=value):\n")
        _print_settings(settings_of(find_objective(topic).Config, f"algo.objectives.{topic}", deep=False))
    elif topic in SOURCE_METHODS:
        learner, kind = preset_methods()[topic], SOURCE_METHODS[topic]
        print(f"{topic}: {learner} with source.kind={kind}, as the configs {topic}… have it (understudy list configs).")
        print(f"What is learned, and the settings algo.…: understudy explain {learner}\n")
        explain(kind)
    elif topic not in algorithm_names() and (algorithm := preset_methods().get(topic)):
        print(f"{topic}: settings of {algorithm}, as the configs {topic}… have them (understudy list configs).\n")
        explain(algorithm)
    elif topic in algorithm_names():
        module = find_algorithm(topic)
        _print_page(inspect.cleandoc(module.__doc__ or "").strip())
        print("\nSettings (change one with key=value):\n")
        _print_settings(settings_of(module.Config, "algo", deep=False))
    elif topic == "algo":
        for name in sorted(algorithm_names()):
            _print_page(f"{name}: {(find_algorithm(name).__doc__ or '').strip().splitlines()[0]}")
        print("\nWhat can be added to ppo (algo.objectives):\n")
        for name in sorted(PLUGINS.names()):
            _print_page(f"{name}: {(find_objective(name).__doc__ or '').strip().splitlines()[0]}")
        print("\nOne of them with all its settings: understudy explain iql")
    elif topic == "skills":
        _print_skills()
    elif topic == "run":
        _print_settings(setting for setting in _run_settings() if "." not in setting.key)
    else:
        _print_found(topic)


def _print_skills() -> None:
    from understudy.nn import skill_set
    from understudy.run.skill_sets import SkillSetConfig

    _print_page(inspect.cleandoc(skill_set.__doc__ or "").strip())
    print("\nSettings of a skill set (understudy skills SKILLS key=value …); env as in a run:\n")
    _print_settings(setting for setting in settings_of(SkillSetConfig, "") if not setting.key.startswith("env."))


def preset_methods() -> dict[str, str]:
    """Methods with configs of their own to the algorithm whose settings they are: td3 to td3bc."""
    from understudy.run.packaged import config_names, read_packaged
    from understudy.run.yaml_text import parse_yaml

    firsts = {name.partition("/")[0]: name for name in reversed(config_names())}
    return {method: str(parse_yaml(read_packaged(name), name)["algo"]["name"]) for method, name in firsts.items()}


def _print_topics() -> None:
    for name, about in TOPICS.items():
        print(folded(f"{name:<8}{about}", _width(), hang=8))
    print("\nOr any setting: understudy explain algo.beta")


def _print_found(topic: str) -> None:
    from understudy.objectives import PLUGINS

    everything = list(all_settings())
    found = find_settings(topic, everything)
    added = re.match(r"algo\.objectives\.(\w+)", topic)
    if added and added[1] not in PLUGINS.names():
        raise ConfigError(f"explain {topic}", "no such objective", do=did_you_mean(added[1], PLUGINS.names()))
    if not found:
        leaves = {setting.key.rpartition(".")[2] for setting in everything}
        raise ConfigError("explain", f"no setting or topic '{topic}'", do=_near(topic, everything, leaves))
    if topic == "source":
        from understudy.sources import find_source, source_names

        for name in sorted(source_names()):
            _print_page(f"{name}: {(find_source(name).__doc__ or '').strip().splitlines()[0]}")
        print()
    told = list(_merged(found))
    _print_settings(told, choices=len(told) <= FEW)


def _near(topic: str, everything: list[Setting], leaves: set[str]) -> str:
    from understudy.algorithms import algorithm_names
    from understudy.objectives import PLUGINS
    from understudy.sources import source_names

    keys = {setting.key for setting in everything}
    named = (called_here(topic.rpartition(".")[2], keys.__contains__, learning) for learning in TABLES)
    if theirs := [told for told in dict.fromkeys(named) if told]:
        return " ".join(theirs)  # for rollouts it may be another one than for replay
    known = {*algorithm_names(), *source_names(), *PLUGINS.names(), *preset_methods(), *TOPICS, *keys, *leaves}
    told = did_you_mean(topic, known)
    return told if told.startswith("Did") else f"There are {', '.join(TOPICS)}, every algorithm, and every key of them."


def all_settings() -> Iterator[Setting]:
    """Every key that some config may have."""
    from understudy.algorithms import algorithm_names, find_algorithm
    from understudy.objectives import PLUGINS, find_objective
    from understudy.sources import find_source, source_names

    yield from _run_settings()
    for name in sorted(algorithm_names()):
        yield from _owned(settings_of(find_algorithm(name).Config, "algo"), name)
    for name in sorted(source_names()):
        yield from _owned(settings_of(find_source(name).Config, "source"), name)
    for name in sorted(PLUGINS.names()):
        yield from settings_of(find_objective(name).Config, f"algo.objectives.{name}")


def _run_settings() -> Iterator[Setting]:
    from understudy.run.config import RunConfig

    return settings_of(RunConfig, "")


def _owned(settings: Iterator[Setting], owner: str) -> Iterator[Setting]:
    return (replace(setting, of=(*setting.of, owner)) for setting in settings)


def _merged(settings: list[Setting]) -> Iterator[Setting]:
    """Those that say the same once, with all who have them; what belongs together stands together."""
    having: dict[Setting, list[str]] = {}
    for setting in settings:
        having.setdefault(replace(setting, of=()), []).extend(setting.of)
    order = {key: number for number, key in enumerate(dict.fromkeys(setting.key for setting in having))}
    for setting, names in sorted(having.items(), key=lambda entry: order[entry[0].key]):
        yield replace(setting, of=_told_owners(dict.fromkeys(names)))


def _told_owners(names: Mapping[str, None]) -> tuple[str, ...]:
    from understudy.algorithms import algorithm_names

    everyone = algorithm_names().keys()
    lacking = sorted(everyone - names.keys())
    if len(lacking) > 1:
        return tuple(names)
    told = f"every algorithm but {lacking[0]}" if lacking else "every algorithm"
    return (*(name for name in names if name not in everyone), told)


def settings_of(model: type[BaseModel], prefix: str, *, deep: bool = True) -> Iterator[Setting]:
    """Of a settings class, in their order; where not `deep`, no further than what every config has."""
    return _walk(model, {}, prefix, (), deep, (model,))


def _walk(
    model: type[BaseModel],
    given: Mapping[str, Any],
    prefix: str,
    of: tuple[str, ...],
    deep: bool,
    above: tuple[type, ...],
) -> Iterator[Setting]:
    """`given`: values that stand in the place of defaults; `above`: the classes that this one is inside of."""
    for name, field in model.model_fields.items():
        key = f"{prefix}.{name}" if prefix else name
        default = given[name] if name in given else field.get_default(call_default_factory=True)
        meaning = " ".join((field.description or "").split())
        inner = [(step, kind) for step, kind in _models(field.annotation) if kind not in above]
        if isinstance(default, BaseModel) and type(default).model_fields:
            yield Setting(key, "", meaning or _first_sentence(type(default)), of=of)
            yield from _walk(type(default), dict(default), key, of, deep, (*above, type(default)))
        elif f"{name}={default}" in of:
            yield Setting(key, shown(default), _first_sentence(model), of=of[:-1])
        else:
            told = "" if field.is_required() and name not in given else shown(default)
            removal = f"{key}.<name>=null removes one." if any(map(entry_type, alternatives(field.annotation))) else ""
            yield Setting(key, told, f"{meaning} {removal}".strip(), _choices(field.annotation), of)
        for step, kind in inner if deep and not isinstance(default, BaseModel) else ():
            yield from _walk(kind, {}, f"{key}{step}", (*of, *_tag(kind)), deep, (*above, kind))


def _models(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """Settings classes in an annotation, and how a key reaches them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation.model_fields:
            yield "", annotation
        return
    step = ".<name>" if get_origin(annotation) is dict else ".<number>" if get_origin(annotation) is tuple else ""
    for part in get_args(annotation):
        for further, kind in _models(part):
            yield f"{step}{further}", kind


def _tag(model: type[BaseModel]) -> tuple[str, ...]:
    """`kind=conv` of a class that stands for that choice."""
    words = {
        name: get_args(f.annotation) for name, f in model.model_fields.items() if get_origin(f.annotation) is Literal
    }
    return tuple(f"{name}={choices[0]}" for name, choices in words.items() if len(choices) == 1)[:1]


def _choices(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return tuple(shown(choice) for choice in get_args(annotation))
    return tuple(choice for part in get_args(annotation) for choice in _choices(part))


def _first_sentence(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split()).partition(". ")[0].rstrip(".") + "."


def shown(value: Any) -> str:
    """A value as a config writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, BaseModel):
        return "{…}" if type(value).model_fields else ""
    return str(value)


def _print_settings(settings: Iterable[Setting], *, choices: bool = False) -> None:
    for setting in settings:
        head = f"  {setting.key}" + (f"={setting.default}" if setting.default else "")
        notes = ", ".join(setting.of)
        print(folded(f"{head}  ({notes})" if notes else head, _width(), hang=8))
        allowed = f"One of: {', '.join(setting.choices)}." if choices and len(setting.choices) > 1 else ""
        if told := " ".join(filter(None, (setting.meaning, allowed))):
            print(folded(f"      {told}", _width(), hang=0))


def _print_page(text: str) -> None:
    """Paragraphs flow; what is indented stays as it stands, if there is room."""
    for block in text.split("\n\n"):
        paragraph: list[str] = []
        for line in block.split("\n"):
            if line.startswith(" "):
                _print_paragraph(paragraph)
                print(folded(re.sub(r" +$", "", line), _width(), hang=4))
            else:
                paragraph.append(line)
        _print_paragraph(paragraph)
        if not text.endswith(block):
            print()


def _print_paragraph(lines: list[str]) -> None:
    if lines:
        print(folded(" ".join(lines), _width(), hang=0))
    lines.clear()


def _width() -> int:
    return edge(OUT, PAGE_WIDTH)
