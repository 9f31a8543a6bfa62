"""Density ratios: KLIEP on 10,000 × 10,000 points beside densratio and ADAPT, and a million rows in bounded memory.

    python benchmarks/ratio_speed.py                   # about two minutes
    python benchmarks/ratio_speed.py --peers           # only ourselves
    python benchmarks/ratio_speed.py --peer-python .venv-bench-ratios/bin/python

Peers run in a virtualenv of their own, made on first use (.venv-bench-ratios: densratio, adapt, numpy; adapt brings
tensorflow). Everyone gets the same points, 100 centres and the same six bandwidths in five folds; `one` is a single
bandwidth without any choice. The best of some windows counts: machines are shared and noisy, and processor seconds (of
all threads) are disturbed less.
Beside the time stands the objective each reached at that bandwidth, mean log ŵ over the numerator with mean ŵ over the
denominator scaled to 1, because a solver that stops early is fast for nothing.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-bench-ratios"
PACKAGES = {"densratio": "densratio==0.4.0", "adapt": "adapt==0.4.5"}
TARGET_SECONDS = 2.0
TARGET_MEGABYTES = 500
TASKS = ("one", "six in five folds")

PEER = """
import json, sys, time
import numpy as np
name, distance, windows = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
data = np.load(sys.argv[4])
above, below = data["above"], data["below"]
factors = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0]

def densratio(sigmas):
    from densratio import densratio as fit
    found = fit(above, below, method="KLIEP", sigma_range=sigmas, kernel_num=100, verbose=False)
    return found.compute_density_ratio

def adapt(sigmas):
    from adapt.instance_based import KLIEP
    gammas = [1 / (2 * sigma**2) for sigma in sigmas]
    model = KLIEP(Xt=above, kernel="rbf", gamma=gammas if len(gammas) > 1 else gammas[0], cv=5, max_centers=100,
                  verbose=0, random_state=0)
    model.fit_weights(below, above)
    return lambda rows: np.asarray(model.predict_weights(rows)).ravel()

fit = {"densratio": densratio, "adapt": adapt}[name]
fit([distance])
for sigmas in ([distance], [factor * distance for factor in factors]):
    best = thrift = np.inf
    for _ in range(windows):
        start, busy = time.perf_counter(), time.process_time()
        ratio = fit(sigmas)
        best, thrift = min(best, time.perf_counter() - start), min(thrift, time.process_time() - busy)
    objective = float(np.mean(np.log(ratio(above))) - np.log(np.mean(ratio(below))))
    print(json.dumps({"seconds": best, "processor": thrift, "objective": objective}), flush=True)
"""


def peer_python(given: str | None) -> str | None:
    if given is not None:
        return given
    if not (FOLDER / ".ready").exists():
        print(f"installing {', '.join(PACKAGES.values())} into {FOLDER.name} …", flush=True)
        venv.create(FOLDER, with_pip=True)
        pip = [str(FOLDER / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES.values()]
        if subprocess.run(pip, check=False).returncode:
            print("could not be installed; only ourselves then")
            return None
        (FOLDER / ".ready").touch()
    return str(FOLDER / "bin" / "python")


def ourselves(data: Path, distance: float, windows: int) -> list[tuple[float, float, float]]:
    import numpy as np

    import understudy as us

    points = np.load(data)
    found = []
    for settings in (us.ratios.KLIEP(bandwidth=distance, standardise=False), us.ratios.KLIEP(standardise=False)):
        best = thrift = float("inf")
        for _ in range(windows):
            start, busy = time.perf_counter(), time.process_time()
            fitted = settings.fit(points["above"], points["below"])
            best, thrift = min(best, time.perf_counter() - start), min(thrift, time.process_time() - busy)
        found.append((best, thrift, fitted.facts.objective))
    return found


def peer(python: str, name: str, distance: float, windows: int, data: Path) -> None:
    command = [python, "-c", PEER, name, str(distance), str(windows), str(data)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        print(f"{name:<12} failed: {answer.stderr.strip().splitlines()[-1:]}")
        return
    for what, line in zip(TASKS, answer.stdout.splitlines()[-2:], strict=False):
        told = json.loads(line)
        show(name, what, told["seconds"], told["processor"], told["objective"])


def show(name: str, what: str, seconds: float, processor: float, objective: float, verdict: str = "") -> None:
    times = f"{seconds:7.2f} s, processor {processor:6.2f} s"
    print(f"{name:<12} {what:<18} {times}   objective {objective:.5f}   {verdict}".rstrip(), flush=True)


def million(threads: int) -> None:
    """In a process of its own: peak memory of the whole of it, torch and the rows included."""
    code = (
        "import torch, resource, time, understudy as us\n"
        f"torch.set_num_threads({threads})\n"
        "above, below = torch.randn(2000, 17) * .9, torch.randn(2000, 17)\n"
        "fitted = us.ratios.KLIEP(bandwidth='median').fit(above, below)\n"
        "rows = torch.randn(1_000_000, 17)\n"
        "start = time.perf_counter()\n"
        "fitted.weights(rows)\n"
        "print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, megabytes = map(float, answer.stdout.split())
    verdict = "PASS" if megabytes < TARGET_MEGABYTES else "FAIL"
    print(f"a million rows, d = 17, 100 centres: {seconds:.1f} s, peak {megabytes:.0f} MB of the process {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--features", type=int, nargs="*", default=[1, 17])
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", nargs="*", default=sorted(PACKAGES), choices=sorted(PACKAGES))
    parser.add_argument("--peer-python", help="an interpreter that already has the peers")
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS=str(options.threads), OPENBLAS_NUM_THREADS=str(options.threads))
    import numpy as np
    import torch

    from understudy.core.rng import stream
    from understudy.ratios.kernels import median_distance

    torch.set_num_threads(options.threads)
    python = peer_python(options.peer_python) if options.peers else None
    for features in options.features:
        generator = np.random.default_rng(0)
        above, below = generator.normal(size=(2, options.rows, features))
        above[:, 0] = above[:, 0] * 0.8 + 0.5
        distance = median_distance(torch.tensor(below), stream(0, "ratio distance"))
        data = Path(tempfile.gettempdir()) / f"ratio_speed_{os.getpid()}.npz"
        np.savez(data, above=above, below=below)
        print(f"\nKLIEP, {options.rows:,} × {options.rows:,} points, d = {features}, {options.threads} threads")
        for what, (seconds, processor, objective) in zip(
            TASKS, ourselves(data, distance, options.windows), strict=True
        ):
            verdict = f"target {TARGET_SECONDS:.0f} s {'PASS' if seconds < TARGET_SECONDS else 'FAIL'}"
            show("understudy", what, seconds, processor, objective, verdict)
        for name in options.peers if python is not None else []:
            peer(str(python), name, distance, options.windows, data)
        data.unlink()
    million(options.threads)
    print(f"peak of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
