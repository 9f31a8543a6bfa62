"""Which logged numbers tell whether learning goes well: declared by algorithm and objective, with what each means."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from understudy.run.config import RunConfig
from understudy.run.plots import AXES, UPDATES
from understudy.run.style_levels import STYLE, style_levels
from understudy.tools.report.curves import aligned
from understudy.tools.report.panels import Level, Line, Panel, thinned, worth_drawing
from understudy.tools.report.reading import Entry, numbers
from understudy.tools.report.study import Study

CRITIC = ("loss/critic", "value/q", "value/q_gap", "value/q_largest")
ACTOR_CRITIC = ("loss/critic", "loss/actor", "value/q", "policy/entropy", "policy/temperature")
BRANCHES = (
    "loss/critic_*",
    "loss/actor_*",
    "value/q_*",
    "value/target_*",
    "policy/bc_distance_*",
    "selection/*",
    "weight/*",
)
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "bc": ("loss/actor", "policy/entropy_on_data", "policy/std"),
    "ciql": ("loss/critic", "loss/td", "penalty/*", "loss/value", "loss/actor", "value/advantage", *CRITIC[1:]),
    "cql": ("loss/td", "penalty/*", "loss/actor", "policy/entropy", "policy/temperature", *CRITIC),
    "discrete_cql": ("loss/td", "loss/penalty", "value/q_best_gap", "loss/actor", *CRITIC),
    "discrete_sac": (*ACTOR_CRITIC, "policy/entropy_missing"),
    "fqe": ("estimate/*", "loss/critic", "value/target", *CRITIC[1:]),
    "iact": (*BRANCHES, "importance/*", *CRITIC[2:]),
    "iql": ("loss/value", "loss/critic", "loss/actor", "value/advantage", "weight/*", *CRITIC[1:]),
    "ppo": ("rollout/return_last_100", "policy/kl", "value/explained", "loss/*", "policy/*", "value/*"),
    "rebrac": ("loss/critic", "loss/actor", "value/penalty", "policy/bc_distance", *CRITIC[1:]),
    "redq": (*ACTOR_CRITIC, "value/q_spread"),
    "sac": ACTOR_CRITIC,
    "td3bc": ("loss/critic", "loss/actor", "policy/bc_distance", "value/target", *CRITIC[1:]),
}
"""Names, or patterns of them, in the order in which they are drawn."""
OBJECTIVES: dict[str, tuple[str, ...]] = {
    "demonstrations": ("demonstrations/*", "loss/cloning"),
    "estimator": ("estimator/*",),
    "rnd": ("rnd/*",),
    "style": ("style/reward", "style/distance", "style/d_expert", "style/d_policy", "style/*"),
    "symmetry": ("symmetry/*", "loss/symmetry*"),
    "teacher": ("teacher/*", "loss/teacher*"),
}
EVERYBODY = ("alarm/*", "rollout/*", "terms/*", "replay/*", "importance/*")
"""After what an algorithm declares; other names, such as those of an algorithm of another package, come last."""
NEVER = ("updates", "env_steps", "gradient/*", "style/distance_motions")
MOST_PANELS, FEWEST_PANELS = 96, 4
"""Of all tasks together; of one."""
MOST_POINTS = 7000
"""In all lines of all panels."""
LEAST, MOST = 16, 120
"""Points of one line."""
MEANINGS = {
    "loss/actor": "What the policy minimises.",
    "loss/critic": "Error of the critics; a level that climbs without end means diverging values.",
    "loss/value": "Error of the value function.",
    "loss/td": "Error against the bootstrapped target alone, without the penalty.",
    "value/q": "Mean Q of the actions learned from.",
    "value/q_gap": "Q of the policy's actions above Q of the data's: large means belief in actions nobody has seen.",
    "value/q_policy_gap": "Q of the policy's actions above Q of the data's.",
    "value/q_largest": "Largest |Q|; beyond any possible return means diverging.",
    "value/advantage": "Mean of Q − V.",
    "value/q_spread": "How far the ensemble's critics disagree.",
    "value/target": "Mean of the bootstrapped targets.",
    "value/penalty": "What is taken from targets for leaving the data.",
    "penalty/gap": "Q of sampled actions above Q of the data's, which the penalty pushes down.",
    "value/explained": "Share of the returns' variance that the value function explains.",
    "weight/effective_share": "Share of a batch that weights leave in effect.",
    "policy/kl": "How far one update moves the policy.",
    "policy/entropy": "How undecided the policy is.",
    "policy/std": "How much noise the policy adds.",
    "policy/temperature": "Weight of entropy.",
    "policy/bc_distance": "How far the policy's actions are from the data's.",
    "alarm/diverging": "1 where values are beyond any possible return.",
}


def diagnostics(study: Study) -> dict[str, list[Panel]]:
    """By task, small charts: a number each, one line per method."""
    most = max(MOST_PANELS // len(study.tasks), FEWEST_PANELS)
    names = {task: _names(study, task)[:most] for task in study.tasks}
    lines = sum(map(len, names.values())) * len(study.methods)
    points = int(np.clip(MOST_POINTS // max(lines, 1), LEAST, MOST))
    found = {task: [_panel(study, task, name, points) for name in names[task]] for task in study.tasks}
    kept = {task: worth_drawing([panel for panel in panels if _moves(panel)]) for task, panels in found.items()}
    return {task: panels for task, panels in kept.items() if panels}


def _names(study: Study, task: str) -> list[str]:
    """What is logged of a task, the most telling first."""
    entries = [entry for entry in study.entries if entry.result.task == task]
    logged = list(dict.fromkeys(name for entry in entries for line in entry.metrics[-3:] for name in line))
    return _ordered(logged, list(_declared(entries)))


def _declared(entries: Sequence[Entry]) -> Iterator[str]:
    configs: list[RunConfig] = [entry.result.config for entry in entries]
    for algorithm in dict.fromkeys(config.algorithm for config in configs):
        yield from ALGORITHMS.get(algorithm, ())
    for name in dict.fromkeys(name for config in configs for name in config.algo.model_dump().get("objectives", {})):
        yield from OBJECTIVES.get(name, (f"{name}/*",))
    yield from EVERYBODY
    yield "*/*"


def _ordered(logged: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Names by the first pattern they fit."""
    kept = [name for name in logged if not any(fnmatchcase(name, pattern) for pattern in NEVER)]
    return list(dict.fromkeys(name for pattern in patterns for name in kept if fnmatchcase(name, pattern)))


def _levels(study: Study, task: str, name: str) -> tuple[Level, ...]:
    """What is normal in the numbers of a style."""
    if not name.startswith(STYLE):
        return ()
    entries = (entry for entry in study.entries if entry.result.task == task)
    known = (style_levels(entry.result.config, entry.metrics).get(name) for entry in entries)
    return tuple(Level(*level) for level in next(filter(None, known), {}).items())


def _panel(study: Study, task: str, name: str, points: int) -> Panel:
    lines = (_line(study, method, study.of(method, task), name, points) for method in study.methods)
    levels = _levels(study, task, name)
    meaning = MEANINGS.get(name) or MEANINGS.get(re.sub(r"_[a-z0-9]$", "", name), "")
    return Panel(name, AXES[UPDATES], name, tuple(line for line in lines if line is not None), levels, note=meaning)


def _line(study: Study, method: str, entries: Sequence[Entry], name: str, points: int) -> Line | None:
    """The mean of a method's seeds, with their range."""
    seeds = [pair for entry in entries if len((pair := numbers(entry.metrics, UPDATES, name))[0])]
    if not seeds:
        return None
    x, rows = aligned(seeds)
    shared = _shared(np.isfinite(rows))
    kept = shared[thinned(len(shared), points)]
    x, rows = x[kept], rows[:, kept]
    middle = np.nanmean(rows, 0)
    if len(seeds) == 1:
        return Line(method, study.color(method), x, middle)
    return Line(method, study.color(method), x, middle, np.nanmin(rows, 0), np.nanmax(rows, 0))


def _shared(known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Of points that some seeds know [S, n], those that none lacks between its first and its last; all where these are
    too few to be a line."""
    going = np.logical_or.accumulate(known, 1) & np.logical_or.accumulate(known[:, ::-1], 1)[:, ::-1]
    shared = np.flatnonzero(known.any(0) & (known | ~going).all(0))
    return shared if len(shared) > 1 else np.flatnonzero(known.any(0))


def _moves(panel: Panel) -> bool:
    """A number that never changes is no curve."""
    return any(len(line.y) > 1 and np.ptp(line.y) > 0 for line in panel.lines)
