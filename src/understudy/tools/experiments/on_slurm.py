"""Runs on a Slurm cluster: one script with one array, an element for each run that is not finished.

An element is `slurm_element`, in the place of the script's shell. Slurm signals it before its time is up: it saves, and
puts itself into the queue again, until it is finished. Whatever dies without a word (a node, say) Slurm requeues, and
the run goes on from its last checkpoint. Nobody has to stay logged in: the script, and the list of runs that it reads,
lie beside the runs, which all machines must see.
"""

import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from understudy.core.errors import ConfigError, RunError
from understudy.core.files import sha256_bytes, write_bytes
from understudy.core.wording import counted
from understudy.run.progress import Reporter
from understudy.run.rundir import RunDir
from understudy.run.yaml_text import parse_yaml
from understudy.tools.experiments.plan import Plan

FOLDER, SCRIPT, LIST = "slurm", "array.sh", "runs.jsonl"
SAVING_SECONDS = 120
"""So long before the end of its time an element is told to save."""
SHORTEST_MINUTES = 5.0
"""Slurm may say so a minute earlier still, and a run must have begun by then, or it would be requeued for ever."""
LARGEST_ARRAY = 1000
"""Elements of one array: Slurm has 1,001 at most, unless a cluster is told otherwise (MaxArraySize)."""
OURS = frozenset({"array", "requeue", "no-requeue", "signal", "output", "error", "open-mode", "job-name", "wrap"})
OPTION, PLAIN = re.compile(r"[a-z][a-z-]*"), re.compile(r"[\w.,:/%@+*()&|!\[\]=-]+")
SENT = re.compile(r"\d+")
TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")


@final
@dataclass(frozen=True)
class Array:
    """What is written for a set of runs."""

    script: Path
    runs: int


def send(plan: Plan, options: Mapping[str, str], jobs: int | None, reporter: Reporter, *, dry_run: bool = False) -> str:
    """What is not finished of a plan, sent to Slurm; a sentence about it. Nothing is sent of a `dry_run`."""
    work = [(str(run.directory), run.order) for run in plan.runs if not RunDir(run.directory).finished]
    if not work:
        return "all runs are finished"
    check_options(options)
    for making in plan.makings:
        making.make(reporter)
    parts = (work[start : start + LARGEST_ARRAY] for start in range(0, len(work), LARGEST_ARRAY))
    arrays = [write_array(part, plan.out, options, jobs) for part in parts]
    told = f"{counted(len(work), 'run')} in {', '.join(str(array.script) for array in arrays)}"
    if dry_run:
        return f"{told}: {'; '.join(f'sbatch {shlex.quote(str(array.script))}' for array in arrays)}"
    sent: list[str] = []
    for array in arrays:
        sent.append(submit(array, sent[-1] if sent and jobs is not None else ""))
        if len(arrays) > 1:
            reporter.say(f"{counted(array.runs, 'run')} submitted as job {sent[-1]}")
    return f"{told}, submitted as job {', '.join(sent)}. The same command shows, and sends again."


def write_array(
    work: Sequence[tuple[str, str]], folder: Path, options: Mapping[str, str], jobs: int | None = None
) -> Array:
    """The script, and the list of directories and configs that it reads, into `folder`.

    `options` are sbatch's (`partition`, `time`, `mem`, `gres`, `account`, …); `jobs` is how many run at once.
    """
    check_options(options)
    lines = [{"directory": str(Path(directory).absolute()), "config": config} for directory, config in work]
    listing = "".join(json.dumps(line) + "\n" for line in lines).encode()
    place = (folder / FOLDER).absolute() / sha256_bytes(listing)[:12]  # an array in the queue keeps its own
    place.mkdir(parents=True, exist_ok=True)
    write_bytes(place / LIST, listing)
    for book in place.glob("*.crashes"):  # whoever sends it again may have mended what crashed
        book.unlink()
    threads = max((threads_of(config) for _, config in work), default=1)
    words = {"cpus-per-task": str(threads), **options}
    write_bytes(place / SCRIPT, script_text(place, len(lines), words, jobs).encode())
    return Array(place / SCRIPT, len(lines))


def submit(array: Array, after: str = "") -> str:
    """The number of the job that Slurm made of it, which begins once the job `after` has ended."""
    words = ["sbatch", "--parsable", *([f"--dependency=afterany:{after}"] if after else []), str(array.script)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        do = f"On a machine that has it: sbatch {shlex.quote(str(array.script))}"
        raise RunError("--on slurm", "there is no sbatch on this machine", do=do) from error
    told = " ".join((done.stderr.strip() or done.stdout.strip()).split())
    if done.returncode or not (number := SENT.match(done.stdout.strip())):
        raise RunError("--on slurm", f"sbatch refused the array ({told})", do=f"The script is {array.script}.")
    return number[0]


def script_text(place: Path, runs: int, options: Mapping[str, str], jobs: int | None) -> str:
    """What sbatch is given. Names of folders stand in the script alone, quoted: sbatch would read its own into them."""
    at_once = "" if jobs is None else f"%{jobs}"
    facts = {
        "job-name": "understudy",
        "array": f"0-{runs - 1}{at_once}",
        "signal": f"B:USR1@{SAVING_SECONDS}",
        "output": "/dev/null",
        "open-mode": "append",
        **options,
    }
    asked = "\n".join(f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}" for name, value in facts.items())
    command = shlex.join([sys.executable, "-m", "understudy.tools.experiments.slurm_element", str(place / LIST)])
    return f"""#!/bin/bash
#SBATCH --requeue
{asked}
number="${{SLURM_ARRAY_TASK_ID:?is said by Slurm: give this script to sbatch}}"
exec >>{shlex.quote(str(place))}/"$number.log" 2>&1
cd {shlex.quote(str(Path.cwd()))} || exit 1
exec {command} "$number"  # in the place of this shell, which is what Slurm signals
"""


def check_options(options: Mapping[str, str]) -> None:
    """What may stand in a line that sbatch reads, and is not ours to say."""
    for name, value in options.items():
        where = f"--slurm {name}"
        if not OPTION.fullmatch(name):
            raise ConfigError(where, "no option of sbatch", do="Write it as partition=gpu or time=08:00:00.")
        if name in OURS:
            raise ConfigError(where, "is said by the script itself", do="Leave it out.")
        if value and not PLAIN.fullmatch(value):
            raise ConfigError(where, "holds letters that no option needs", got=repr(value), expected="one plain word")
        if name == "time" and 0 < minutes_of(value) <= SHORTEST_MINUTES:  # 0 is no limit
            do = "Elements are told to save two minutes before, and are then requeued."
            expected = f"more than {SHORTEST_MINUTES:g} minutes"
            raise ConfigError(where, "leaves no time to learn", got=value, expected=expected, do=do)


def options_from(words: Sequence[str]) -> dict[str, str]:
    """`partition=gpu`, `exclusive`, … as a mapping."""
    return {name.removeprefix("--"): value for name, _, value in (word.partition("=") for word in words)}


def threads_of(config: str) -> int:
    settings = parse_yaml(config, "config")
    return int(settings.get("threads", 1)) if isinstance(settings, dict) else 1


def minutes_of(time: str) -> float:
    """Of [days-]hours[:minutes[:seconds]] or minutes[:seconds], as sbatch reads them; without end of anything else."""
    if not (read := TIME.fullmatch(time)):
        return math.inf
    days, *parts = (int(part or 0) for part in read.groups())
    hours_first = read["days"] is not None or read["third"] is not None
    hours, minutes, seconds = parts if hours_first else (0, *parts[:2])
    return (days * 24 + hours) * 60 + minutes + seconds / 60
