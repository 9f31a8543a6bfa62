"""How well methods learn from the same files: runs any time, any number of seeds, one page of all that was ever run.

    python benchmarks/quality                                  # every method, every set, five seeds
    python benchmarks/quality --methods "IQL, TD3+BC" --sets hopper-medium-expert --seeds 3
    python benchmarks/quality --suite falls                    # what makes a cheetah fall less
    python benchmarks/quality --table                          # no run, only the page

What is compared is a suite, quality.yaml or falls.yaml; what came out stands in scores.jsonl (one line a run). A run
that was stopped or killed goes on where it was; one that has ended is not repeated. Settings at the end (updates=300)
are for a trial, which lies elsewhere and is not recorded.
"""

import argparse
from pathlib import Path

import yaml
from scores import Peers, page, record, recorded

import understudy as us

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SUITES = ("quality", "falls")


def main() -> None:
    options = _options()
    runs = options.runs if not options.settings else options.runs.with_name(f"{options.runs.name}-trial")
    suites = {name: yaml.safe_load((HERE / f"{name}.yaml").read_text()) for name in SUITES}
    book, known = HERE / "scores.jsonl", Peers(**yaml.safe_load((HERE / "peers.yaml").read_text()))
    if not options.table:
        experiment = us.Experiment(
            str(HERE / f"{options.suite}.yaml"),
            [f"{name}-v2" for name in options.sets],
            options.seeds,
            methods=[options.methods] if options.methods else [],
            data=options.data,
            overrides=options.settings,
            out=runs,
        )
        try:
            experiment.run(options.jobs)
        except us.UnderstudyError as ended:  # stopped, too
            raise SystemExit(str(ended)) from ended
        finally:
            print(experiment.table())
            if not options.settings:
                record(experiment, book)
    if not options.settings:
        sets = [task["id"].removesuffix("-v2") for task in suites["quality"]["tasks"]]
        methods = {name: list(suite["methods"]) for name, suite in suites.items()}
        (HERE / "README.md").write_text(page(recorded(book), sets, methods["quality"], methods["falls"], known))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", help="key=value, for a trial that is not recorded")
    parser.add_argument("--suite", choices=SUITES, default="quality")
    parser.add_argument("--sets", nargs="*", default=[], help="hopper-medium-expert and others; all if absent")
    parser.add_argument("--methods", default="", help="with commas between them; all if absent")
    parser.add_argument("--seeds", type=int, help="how many; what the suite says if absent")
    parser.add_argument("--jobs", type=int, help="runs at once, one thread each")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "tiers", help="the sets' folder")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "quality", help="where runs are kept")
    parser.add_argument("--table", action="store_true", help="write the page of what was run, and run nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
