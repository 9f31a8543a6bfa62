"""When does co-teaching pay? IACT, its base, IQL and CQL on a pendulum's data, clean and with a known share made wrong.

    python benchmarks/corruption.py                       # everything; about an hour on two cores
    python benchmarks/corruption.py --kinds clean reward_attack --shares 0.1 --seeds 0
    python benchmarks/corruption.py --table               # no run, only the table

Every method has its pendulum preset and the same rows, 28,000 steps. IACT leaves out as many rows as are wrong and a
twentieth more; on clean data, a tenth. Runs go on where they stopped; what came out is in corruption.jsonl.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock

import numpy as np

import understudy as us
from understudy.data.corruption import Corruption
from understudy.run.config import load_config
from understudy.tools.dataset.conversion import corrupt_file

HERE = Path(__file__).parent
BOOK = HERE / "corruption.jsonl"
PAGE = HERE / "corruption.md"
RUNS = HERE.parent / "runs" / "corruption"
KINDS = {"clean": None, "reward_noise": 3.0, "reward_attack": 3.0, "action_noise": 1.0, "dynamics_shuffle": None}
"""Each with its strength, where it has one."""
SETTINGS = ("start: 1.0", "after: 500", "over: 1000")


@dataclass(frozen=True)
class Trial:
    kind: str
    share: float
    method: str
    seed: int

    @property
    def data(self) -> Path:
        return RUNS / "data" / (self.kind if self.kind == "clean" else f"{self.kind}-{100 * self.share:.0f}")

    @property
    def out(self) -> Path:
        words = "".join(letter if letter.isalnum() else "_" for letter in self.method).lower()
        return RUNS / self.data.name / words / str(self.seed)

    def command(self) -> list[str]:
        """What follows `understudy train`."""
        keep = f"algo.teaching.keep={{{', '.join(SETTINGS)}, end: {max(0.5, 0.95 - self.share):g}}}"
        chosen = {
            "TD3+BC": ["td3bc/pendulum"],
            "IACT, nothing left out": ["iact/pendulum", "algo.teaching.keep=1"],
            "IACT": ["iact/pendulum", keep],
            "IACT by error": ["iact/pendulum", keep, *BY_ERROR],
            "by error, for itself": ["iact/pendulum", keep, *BY_ERROR, "algo.teaching.exchange=false"],
            "at random": ["iact/pendulum", keep, *BY_ERROR, "algo.teaching.score=random"],
            "elite weights": ["iact/pendulum", keep, "source.importance.provider=elite"],
            "IQL": ["iql/pendulum"],
            "CQL": ["cql/pendulum"],
        }[self.method]
        return [*chosen, "data.recipe=null", f"data.path={self.data}", "data.reward=none", *SHORT, f"seed={self.seed}"]


BY_ERROR = ["algo.teaching.score=td", "algo.teaching.select_critic=true"]
SHORT = ["eval_every=5000", "save_every=5000", "tensorboard=false"]
METHODS = [
    "TD3+BC",
    "IACT, nothing left out",
    "IACT",
    "IACT by error",
    "by error, for itself",
    "at random",
    "elite weights",
    "IQL",
    "CQL",
]


def make_data(kinds: list[str], shares: list[float]) -> None:
    """The clean rows and every corrupted copy, as stores; what is there is left alone."""
    clean = RUNS / "data" / "clean"
    if not clean.exists():
        recipe = load_config("td3bc/pendulum").logged.recipe
        assert recipe is not None
        us.write_store(us.make_dataset(recipe), clean)
    for trial in [Trial(kind, share, "", 0) for kind in kinds if kind != "clean" for share in shares]:
        if not trial.data.exists():
            wrong = Corruption.parse({"kind": trial.kind, "share": trial.share, "strength": KINDS[trial.kind]})
            corrupt_file(str(clean), trial.data, wrong)


def play(trial: Trial, lock: Lock) -> None:
    """One run to its end, in a process of its own, and its line in the book."""
    if not (trial.out / "result.json").exists():
        started = (trial.out / "config.yaml").exists()
        words = ["resume", str(trial.out)] if started else ["train", *trial.command(), f"out={trial.out}"]
        subprocess.run([sys.executable, "-m", "understudy", *words, "--quiet"], check=True)
    result = json.loads((trial.out / "result.json").read_text())
    with lock, BOOK.open("a") as book:
        book.write(json.dumps({**asdict(trial), "return": round(result["eval/return_mean"], 1)}) + "\n")
    print(f"{trial.data.name:22} {trial.method:24} seed {trial.seed}: {result['eval/return_mean']:8.1f}", flush=True)


def recorded() -> dict[Trial, float]:
    lines = [json.loads(line) for line in BOOK.read_text().splitlines()] if BOOK.exists() else []
    return {Trial(line["kind"], line["share"], line["method"], line["seed"]): line["return"] for line in lines}


def page(found: dict[Trial, float]) -> str:
    seeds = len({trial.seed for trial in found})
    places = sorted({(list(KINDS).index(trial.kind), trial.share) for trial in found})
    names = [f"{list(KINDS)[kind]} {share:.0%}" if share else "clean" for kind, share in places]
    rows = []
    for method in METHODS:
        cells = []
        for kind, share in places:
            scores = [
                score
                for trial, score in found.items()
                if (trial.kind, trial.share, trial.method) == (list(KINDS)[kind], share, method)
            ]
            spread = f" ± {np.std(scores, ddof=1):.0f}" if len(scores) > 1 else ""
            fewer = "" if len(scores) == seeds else f" ({len(scores)})"
            cells.append(f"{np.mean(scores):.0f}{spread}{fewer}" if scores else "–")
        if set(cells) != {"–"}:
            rows.append([method, *cells])
    lines = [["", *names], ["---"] * (len(names) + 1), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"""# Learning from rows that are partly wrong

Made by `python benchmarks/corruption.py`: Pendulum-v1, mean return of 20 episodes, last checkpoint, mean over {seeds}
seeds (fewer where a number stands in brackets) and their standard deviation. A seed has start states of its own, which
is most of that deviation: seed 0 has easy ones. Higher is better; the rows' own mean is about -770, a solved task -150.

{table}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--shares", nargs="*", type=float, default=[0.1, 0.3])
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one thread each")
    parser.add_argument("--table", action="store_true", help="write the table of what was run, and run nothing")
    options = parser.parse_args()
    if not options.table:
        make_data(options.kinds, options.shares)
        trials = [
            Trial(kind, share, method, seed)
            for seed in options.seeds
            for kind in options.kinds
            for share in ([0.0] if kind == "clean" else options.shares)
            for method in options.methods
        ]
        lock, done = Lock(), recorded()
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda trial: play(trial, lock), [trial for trial in trials if trial not in done]))
    text = page(recorded())
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
