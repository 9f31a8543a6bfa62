"""A live on-policy algorithm with its source, small, and without a run directory around it."""

from pathlib import Path
from typing import Any

import torch

from understudy.algorithms import ppo
from understudy.core.protocols import BuildContext
from understudy.core.spec import Spec
from understudy.run.build import build_learner
from worlds import learning_from, tiny_config

NOWHERE = Path("nowhere")
"""No run directory is made."""
MEMORY = {"kind": "gru", "units": 8}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "gru": {"actor": {"memory": MEMORY}, "critic": {"memory": MEMORY}},
    "lstm, shared": {
        "actor": {"memory": {"kind": "lstm", "units": 8}},
        "critic": {"memory": {"kind": "lstm", "units": 8}, "share_memory": True},
    },
    "memory of the actor only": {"actor": {"memory": MEMORY}},
    "encoders, shared": {
        "actor": {"encoders": {"state": {"kind": "mlp", "size": 5}}},
        "critic": {"encoders": {"state": {"kind": "mlp", "size": 5}}, "share_encoder": True},
    },
    "beta": {"actor": {"distribution": {"kind": "beta"}}},
    "tanh": {"actor": {"distribution": {"kind": "tanh_gaussian"}}},
    "state-dependent": {"actor": {"distribution": {"kind": "state_gaussian"}}},
    "linear, clipped values": {"schedule": "linear", "value_clip": 0.2, "entropy_coef": 0.01},
}
CASES = [(name, shape) for name in learning_from("rollout") for shape in SHAPES]


def rolling(name: str, shape: str = "plain", env: str = "Pendulum-v1", **changes: Any) -> Any:
    """An algorithm in three environments, ready to update."""
    trunk = {"hidden": [16]}
    settings = {role: {**trunk, **SHAPES[shape].get(role, {})} for role in ("actor", "critic")}
    algo = {"name": name, "epochs": 2, "minibatches": 2, **SHAPES[shape], **settings}
    config = tiny_config(name, NOWHERE, algo=algo, env={"id": env}, **changes)
    return build_learner(config)


def build_ppo(spec: Spec, count: int, updates: int = 10, **settings: Any) -> ppo.PPO:
    """PPO alone, for rollouts of so many environments."""
    context = BuildContext(spec, updates, 0, torch.device("cpu"), num_envs=count)
    return ppo.build(ppo.Config.parse({"name": "ppo", **settings}, "algo"), context)
