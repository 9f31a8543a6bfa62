"""What the exact penalty costs: a discrete CQL update beside a plain double-DQN update of the same networks.

    python benchmarks/discrete_cql_speed.py            # make bench; half a minute

64-dimensional states, 10 actions with masks, batch 256, two critics of 256-256. The double DQN below is as short as one
can be: no penalty, no metrics but its loss. Both get batches drawn beforehand and take turns; the best windows count.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from interleaved import Seconds, seconds
from torch import Tensor

from understudy import Dataset, Discrete, Episode
from understudy.algorithms import discrete_cql
from understudy.core.batch import Transitions
from understudy.core.protocols import BuildContext, Update
from understudy.data.experience import LoggedExperience
from understudy.losses.value import bootstrap_target, squared_error
from understudy.nn.critic import ActionValues
from understudy.parts.optim import Adam
from understudy.parts.target import Target
from understudy.run.allocator import keep_freed_memory
from understudy.sources import SourceInputs, offline

STATE, ACTIONS, BATCH, EPISODE, EPISODES = 64, 10, 256, 100, 100
TARGET = 1.3
CPU = torch.device("cpu")
View = Callable[[dict[str, Tensor]], Tensor]


@dataclass
class DoubleDQN:
    """Two critics; the smaller target critic's value of the action that is best by the critics' mean."""

    view: View
    critic: ActionValues
    target: Target[ActionValues]
    optimizer: Adam

    def update(self, data: Transitions) -> Update:
        state, next_state = self.view(data.obs), self.view(data.next_obs)
        with torch.no_grad():
            wanted = torch.where(data.extra["next_mask"], self.critic.every(next_state).mean(0), -torch.inf)
            value = self.target.network(next_state, wanted.argmax(-1)).amin(0)
        target = bootstrap_target(data.reward, 0.99, data.terminated, value)
        loss = squared_error(self.critic(state, data.action), target).mean(-1).sum()
        self.optimizer.minimise(loss, 3e-4)
        self.target.follow(self.critic, 0.005)
        return Update({"loss/critic": loss.detach()})


def masked_rows() -> Dataset:
    """Noise; in every row about a third of the actions are illegal, and action 0 never is."""
    rng = np.random.default_rng(0)

    def episode() -> Episode:
        mask = rng.random((EPISODE + 1, ACTIONS)) < 0.7
        mask[:, 0] = True
        chosen = np.array([rng.choice(np.flatnonzero(row)) for row in mask[:-1]])
        state = rng.standard_normal((EPISODE + 1, STATE), np.float32)
        reward = rng.standard_normal(EPISODE, np.float32)
        return Episode({"state": state}, chosen, reward, terminated=False, truncated=True, mask=mask)

    return Dataset.from_episodes((episode() for _ in range(EPISODES)), Discrete(ACTIONS))


def measure(threads: int, windows: int, updates: int) -> None:
    torch.set_num_threads(threads)
    data = LoggedExperience.of(masked_rows())
    cql = discrete_cql.build(discrete_cql.Config(), BuildContext.over(data))
    critic = ActionValues(data.spec, cql.config.critic, torch.Generator().manual_seed(0))
    dqn = DoubleDQN(cql.policy.perception.look, critic, Target.of(critic), Adam.over(critic.parameters()))
    source = offline.build(offline.Config(batch_size=BATCH), SourceInputs.over(data, cql))
    batches = [source.next(cql.policy) for _ in range(updates)]
    both = {"double DQN": dqn.update, "discrete CQL": cql.update}
    windows_of: dict[str, list[Seconds]] = {name: [] for name in both}
    for _ in range(windows):
        for name, update in both.items():
            windows_of[name].append(seconds(update, batches))
    dqn_best, cql_best = ([min(times) for times in zip(*windows_of[name], strict=True)] for name in both)
    wall, processor = (mine / plain for mine, plain in zip(cql_best, dqn_best, strict=True))
    times = f"double DQN {1e3 * dqn_best[0]:.2f} ms, discrete CQL {1e3 * cql_best[0]:.2f} ms"
    verdict = "PASS" if wall <= TARGET else "FAIL"
    print(
        f"{threads} threads: {times}: {wall:.2f} x ({processor:.2f} x by processor time), at most {TARGET} x {verdict}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--updates", type=int, default=20, help="updates per window")
    parser.add_argument("--threads", nargs="*", type=int, default=[2, 1])
    options = parser.parse_args()
    keep_freed_memory()
    for threads in options.threads:
        measure(threads, options.windows, options.updates)


if __name__ == "__main__":
    main()
