"""What two branches cost: an IACT update without importance weights beside a TD3+BC update of the same networks.

    python benchmarks/iact_speed.py            # make bench; a minute, and one more with --compile

17-dimensional states, 6 actions, batch 256, 256-256. Rows are left out from the first update on, so that choosing is
in the price. Both get batches drawn beforehand and take turns, in pairs of updates; the best windows count.
"""

import argparse
from collections.abc import Callable

import numpy as np
import torch
from interleaved import Seconds, seconds

from understudy import Box, Dataset, Episode
from understudy.algorithms import iact, td3bc
from understudy.core.batch import Transitions
from understudy.core.protocols import BuildContext, Update
from understudy.data.experience import LoggedExperience
from understudy.run.allocator import keep_freed_memory
from understudy.run.compiler import compile_update
from understudy.sources import SourceInputs, offline

STATE, ACTIONS, BATCH, EPISODE, EPISODES = 17, 6, 256, 100, 100
TARGET = 2.2
CPU = torch.device("cpu")
Learn = Callable[[Transitions], Update]


def noise() -> Dataset:
    rng = np.random.default_rng(0)

    def episode() -> Episode:
        state = rng.standard_normal((EPISODE + 1, STATE), np.float32)
        action = rng.uniform(-1, 1, (EPISODE, ACTIONS)).astype(np.float32)
        return Episode({"state": state}, action, rng.standard_normal(EPISODE, np.float32), False, True)

    return Dataset.from_episodes((episode() for _ in range(EPISODES)), Box((-1.0,) * ACTIONS, (1.0,) * ACTIONS))


def measure(threads: int, windows: int, updates: int, *, compiled: bool) -> None:
    torch.set_num_threads(threads)
    data = LoggedExperience.of(noise())
    context = BuildContext.over(data)
    single = td3bc.build(td3bc.Config(), context)
    double = iact.build(iact.Config.parse({"teaching": {"keep": 0.8}}), context)
    source = offline.build(offline.Config(batch_size=BATCH), SourceInputs.over(data, single))
    batches = [source.next(single.policy) for _ in range(updates)]
    both: dict[str, Learn] = {"TD3+BC": single.update, "IACT": double.update}
    if compiled:
        both = {"TD3+BC": compile_update(single, CPU), "IACT": compile_update(double, CPU)}
    windows_of: dict[str, list[Seconds]] = {name: [] for name in both}
    for update in both.values():
        seconds(update, batches)
    for _ in range(windows):
        for name, update in both.items():
            windows_of[name].append(seconds(update, batches))
    one, two = ([min(times) for times in zip(*windows_of[name], strict=True)] for name in both)
    wall, processor = (mine / plain for mine, plain in zip(two, one, strict=True))
    times = f"TD3+BC {1e3 * one[0]:.2f} ms, IACT {1e3 * two[0]:.2f} ms"
    verdict = "PASS" if wall <= TARGET else "FAIL"
    how = "compiled" if compiled else "eager"
    print(
        f"{threads} threads, {how}: {times}: {wall:.2f} x ({processor:.2f} x by processor time), "
        f"at most {TARGET} x {verdict}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=40)
    parser.add_argument("--updates", type=int, default=40, help="updates per window")
    parser.add_argument("--threads", nargs="*", type=int, default=[2, 1])
    parser.add_argument("--compile", action="store_true", help="compiled updates, too")
    options = parser.parse_args()
    keep_freed_memory()
    for threads in options.threads:
        measure(threads, options.windows, options.updates, compiled=False)
        if options.compile:
            measure(threads, options.windows, options.updates, compiled=True)


if __name__ == "__main__":
    main()
