"""d3rlpy on one set of benchmarks/quality: what `python benchmarks/peer_scores.py` starts, in d3rlpy's virtualenv.

Standard input says what (JSON); the returns of the last policy's episodes, by its mean action, are the last line of
standard output. Settings are those of its own reproductions of the papers, but for the horizon of IQL's step size,
which is the run's, as in ours.
"""

import json
import logging
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import structlog
import torch

warnings.filterwarnings("ignore")
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))

import d3rlpy  # noqa: E402
from d3rlpy.algos import BCConfig, IQLConfig, TD3PlusBCConfig  # noqa: E402
from d3rlpy.dataset import MDPDataset  # noqa: E402
from d3rlpy.logging import NoopAdapterFactory  # noqa: E402
from d3rlpy.optimizers import AdamFactory  # noqa: E402
from d3rlpy.optimizers.lr_schedulers import CosineAnnealingLRFactory  # noqa: E402
from d3rlpy.preprocessing import ReturnBasedRewardScaler, StandardObservationScaler  # noqa: E402


def iql(updates: int) -> Any:
    return IQLConfig(
        actor_learning_rate=3e-4,
        critic_learning_rate=3e-4,
        actor_optim_factory=AdamFactory(lr_scheduler_factory=CosineAnnealingLRFactory(T_max=updates)),
        batch_size=256,
        weight_temp=3.0,
        max_weight=100.0,
        expectile=0.7,
        reward_scaler=ReturnBasedRewardScaler(multiplier=1000.0),
    )


def td3bc(_: int) -> Any:
    return TD3PlusBCConfig(
        actor_learning_rate=3e-4,
        critic_learning_rate=3e-4,
        batch_size=256,
        target_smoothing_sigma=0.2,
        target_smoothing_clip=0.5,
        alpha=2.5,
        update_actor_interval=2,
        observation_scaler=StandardObservationScaler(),
    )


def bc(_: int) -> Any:
    return BCConfig(learning_rate=1e-3, batch_size=256)


CONFIGS = {"d3rlpy IQL": iql, "d3rlpy TD3+BC": td3bc, "d3rlpy BC": bc}


def main() -> None:
    wanted = json.load(sys.stdin)
    torch.set_num_threads(1)
    d3rlpy.seed(wanted["seed"])
    with np.load(wanted["data"]) as rows:
        names = ("observations", "actions", "rewards", "terminals", "timeouts")
        dataset = MDPDataset(**{name: np.asarray(rows[name], np.float32) for name in names})
    updates = wanted["updates"]
    algorithm = CONFIGS[wanted["method"]](updates).create(device="cpu")
    quiet = {"show_progress": False, "save_interval": updates, "logger_adapter": NoopAdapterFactory()}
    algorithm.fit(dataset, n_steps=updates, n_steps_per_epoch=updates, **quiet)
    print(json.dumps(play(algorithm, wanted["env"], wanted["starts"])))


def play(algorithm: Any, name: str, starts: list[int]) -> list[float]:
    """An episode from each start, side by side: the environments that still play are asked for together."""
    envs = [gymnasium.make(name) for _ in starts]
    obs = np.stack([env.reset(seed=start)[0] for env, start in zip(envs, starts, strict=True)]).astype(np.float32)
    returns, playing = np.zeros(len(starts)), list(range(len(starts)))
    while playing:
        ended = []
        for number, action in zip(playing, algorithm.predict(obs[playing]), strict=True):
            obs[number], reward, terminated, truncated, _ = envs[number].step(np.clip(action, -1, 1))
            returns[number] += reward
            ended += [number] if terminated or truncated else []
        playing = [number for number in playing if number not in ended]
    return [float(value) for value in returns]


if __name__ == "__main__":
    main()
