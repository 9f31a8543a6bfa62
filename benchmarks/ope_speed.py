"""FQE of ten candidates on 100,000 transitions: all in one stack, against one after the other.

    python benchmarks/ope_speed.py [--updates 300] [--hidden 256 256]

Windows of both take turns, so that whatever else the machine does hits both; processor time is compared, and what
20,000 updates would take is told from it. Random data of 17 numbers and 6 actions: what is learned does not matter.
"""

import argparse
import time

import numpy as np
import torch

import understudy as us
from understudy.algorithms import fqe
from understudy.core.protocols import MAIN, BuildContext, Demand
from understudy.core.rng import stream
from understudy.data.experience import LoggedExperience
from understudy.data.transforms import Transforms
from understudy.nn.actor import Actor, ActorSettings
from understudy.tools.ope.stacked import ask, by_candidate, stack

ROWS, CANDIDATES, BATCH, WHOLE = 100_000, 10, 256, 20_000


def data() -> LoggedExperience:
    rng = np.random.default_rng(0)
    episodes = [
        us.Episode(
            {"state": rng.standard_normal((1001, 17)).astype(np.float32)},
            rng.uniform(-1, 1, (1000, 6)).astype(np.float32),
            rng.standard_normal(1000).astype(np.float32),
            False,
            True,
        )
        for _ in range(ROWS // 1000)
    ]
    dataset = us.Dataset.from_episodes(episodes, us.Box((-1.0,) * 6, (1.0,) * 6))
    return LoggedExperience.of(dataset, Transforms(normalize_observations=True))


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--updates", type=int, default=300)
    words.add_argument("--hidden", type=int, nargs="*", default=[256, 256])
    words.add_argument("--threads", type=int, default=1)
    given = words.parse_args()
    torch.set_num_threads(given.threads)
    logged = data()
    policies = [Actor(logged.spec, ActorSettings(), stream(seed, "policy")).train(False) for seed in range(CANDIDATES)]
    config = fqe.Config.parse({"critic": {"hidden": given.hidden}}, "algo")
    began = time.process_time()
    choices = ask(policies, logged, 0, 0)
    print(f"asking {CANDIDATES} candidates about {ROWS:,} steps: {time.process_time() - began:.1f} s")
    contexts = [
        BuildContext(logged.spec, WHOLE, 0, logged.device, data={MAIN: logged}, policies={fqe.TARGET: one})
        for one in policies
    ]
    wide, alone = stack(config, contexts[0], policies[0], CANDIDATES), fqe.build(config, contexts[0])
    rng = stream(0, "rows")
    spent: dict[str, list[float]] = {"stack": [], "alone": []}
    for _ in range(6):
        for name, windows in spent.items():
            began = time.process_time()
            for _ in range(given.updates // 6):
                index = torch.randint(ROWS, (BATCH,), generator=rng)
                batch = logged.rows(index, Demand(("td_valid",)))
                if name == "stack":
                    wide.learn(batch, by_candidate(choices.after.index_select(0, index)))
                else:
                    alone.update(batch)
            windows.append((time.process_time() - began) / (given.updates // 6))
    each = {name: float(np.median(values)) for name, values in spent.items()}
    print(f"one update of all in a stack: {1e3 * each['stack']:.2f} ms of processor time")
    print(f"one update of one alone: {1e3 * each['alone']:.2f} ms, of ten one by one {1e4 * each['alone']:.2f} ms")
    print(f"ratio {CANDIDATES * each['alone'] / each['stack']:.2f}")
    for name, one in (("stack", each["stack"]), ("one by one", CANDIDATES * each["alone"])):
        print(f"{WHOLE:,} updates of ten, {name}: {one * WHOLE / 60:.1f} min of processor time")


if __name__ == "__main__":
    main()
