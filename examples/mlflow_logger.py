"""A run's numbers in MLflow: a logger of one's own is an object with three methods.

pip install mlflow
python examples/mlflow_logger.py sqlite:///mlflow.db
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlflow

import understudy as us


class MlflowLogger:
    """One MLflow run for every run, and for every time it goes on."""

    def __init__(self, uri: str, experiment: str = "understudy") -> None:
        self.client = mlflow.MlflowClient(uri)
        found = self.client.get_experiment_by_name(experiment)
        self.experiment = self.client.create_experiment(experiment) if found is None else found.experiment_id
        self.run = ""

    def begin(self, path: Path, config: Mapping[str, Any]) -> None:
        self.run = self.client.create_run(self.experiment, run_name=str(path)).info.run_id
        for name, value in leaves(config):
            self.client.log_param(self.run, name, value)

    def log(self, updates: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.client.log_metric(self.run, name, value, step=updates)

    def close(self) -> None:
        self.client.set_terminated(self.run)


def leaves(group: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Settings with dotted names."""
    for key, value in group.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


if __name__ == "__main__":
    run = us.train("bc/pendulum", loggers=[MlflowLogger(sys.argv[1])], updates=500, log_every=100, eval_every=250)
    print(run)
