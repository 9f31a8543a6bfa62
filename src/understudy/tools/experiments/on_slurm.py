"""Runs on a Slurm cluster: one script with one array, an element for each run that is not finished.

An element is `work.train_or_resume` in a process of its own. Slurm signals it before its time is up (and when it is
pre-empted): it saves, and puts itself into the queue again, until it is finished. Whatever dies without a word (a node,
say) Slurm requeues, and the run goes on from its last checkpoint. Nobody has to stay logged in: the script, and the
list of runs that it reads, lie beside the runs, which all machines must see.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, final

from understudy.core.errors import ConfigError, RunError
from understudy.core.files import sha256_bytes, write_bytes
from understudy.core.wording import counted
from understudy.run.progress import Reporter
from understudy.run.rundir import RunDir
from understudy.run.yaml_text import parse_yaml
from understudy.tools.experiments.plan import Plan
from understudy.tools.experiments.work import BUSY, FINISHED, STOPPED, Outcome, train_or_resume

FOLDER, SCRIPT, LIST = "slurm", "array.sh", "runs.jsonl"
SAVING_SECONDS = 120
"""So long before the end of its time an element is told to save."""
AGAIN = 75
"""What an element exits with that is to be put into the queue again (EX_TEMPFAIL)."""
MOST_ATTEMPTS = 3
"""So often a run that crashes is begun in all."""
OURS = frozenset({"array", "requeue", "no-requeue", "signal", "output", "error", "open-mode", "job-name", "wrap"})
OPTION, PLAIN = re.compile(r"[a-z][a-z-]*"), re.compile(r"[\w.,:/%@+*\[\]=-]+")
SENT = re.compile(r"\d+")


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
    array = write_array(work, plan.out, options, jobs)
    told = counted(array.runs, "run")
    if dry_run:
        return f"{told} in {array.script}: sbatch {shlex.quote(str(array.script))}"
    return f"{told} in {array.script}, submitted as job {submit(array)}. The same command shows, and sends again."


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
    threads = max((threads_of(config) for _, config in work), default=1)
    words = {"cpus-per-task": str(threads), **options}
    write_bytes(place / SCRIPT, script_text(place, len(lines), words, jobs).encode())
    return Array(place / SCRIPT, len(lines))


def submit(array: Array) -> str:
    """The number of the job that Slurm made of it."""
    try:
        done = subprocess.run(["sbatch", "--parsable", str(array.script)], capture_output=True, text=True, check=False)
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
        "signal": f"B:TERM@{SAVING_SECONDS}",
        "output": "/dev/null",
        "open-mode": "append",
        **options,
    }
    asked = "\n".join(f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}" for name, value in facts.items())
    module = "understudy.tools.experiments.on_slurm"
    command = shlex.join([sys.executable, "-m", module, str(place / LIST)])
    return f"""#!/bin/bash
#SBATCH --requeue
{asked}
cd {shlex.quote(str(Path.cwd()))} || exit 1
exec >>{shlex.quote(str(place))}/"$SLURM_ARRAY_TASK_ID.log" 2>&1
{command} "$SLURM_ARRAY_TASK_ID" &
worker=$!
trap 'kill -TERM "$worker" 2>/dev/null' TERM
wait "$worker"
code=$?
while kill -0 "$worker" 2>/dev/null; do  # a signal ends `wait`, and not the worker, which is saving
    wait "$worker"
    code=$?
done
wait "$worker" 2>/dev/null
last=$?
[ "$last" -ne 127 ] && code=$last  # of a worker that ended while `wait` was interrupted
if [ "$code" -eq {AGAIN} ] || [ "$code" -eq 143 ]; then  # 143: the signal came before anything was begun
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
    exit
fi
exit "$code"
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


def options_from(words: Sequence[str]) -> dict[str, str]:
    """`partition=gpu`, `exclusive`, … as a mapping."""
    return {name.removeprefix("--"): value for name, _, value in (word.partition("=") for word in words)}


def threads_of(config: str) -> int:
    settings = parse_yaml(config, "config")
    return int(settings.get("threads", 1)) if isinstance(settings, dict) else 1


def element(listing: Path, number: int) -> tuple[int, str]:
    """Do the work of one element: what to exit with, and a sentence."""
    line = json.loads(listing.read_text(encoding="utf-8").splitlines()[number])
    done = Outcome.from_json(train_or_resume(line["directory"], line["config"]))
    told = f"{line['directory']}: {done.outcome}. {done.reason}".strip()
    if done.outcome in (FINISHED, BUSY):  # whoever is at it ends it
        return 0, told
    again = done.outcome == STOPPED or (done.retry and crashed(listing.with_name(f"{number}.crashes")) < MOST_ATTEMPTS)
    return AGAIN if again else 1, told


def crashed(book: Path) -> int:
    """How often an element has, this time included."""
    count = int(book.read_text(encoding="utf-8")) + 1 if book.exists() else 1
    write_bytes(book, str(count).encode())
    return count


def main() -> NoReturn:
    listing, number = sys.argv[1:]
    code, told = element(Path(listing), int(number))
    print(told, flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
