"""The logger of the MLflow example, in MLflow's own store: every number of a run is there, at its update."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import understudy as us
from worlds import tiny_config

EXAMPLE = Path(__file__).parents[2] / "examples" / "mlflow_logger.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("mlflow_logger", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_number_is_there_at_its_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed: pip install mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database takes half a minute to be made
    monkeypatch.setattr("understudy.run.loop.draw_run", lambda run: None)
    logger = example().MlflowLogger(f"file:{tmp_path / 'store'}")
    run = us.train(tiny_config("bc", tmp_path / "run"), loggers=[logger])
    kept = logger.client.get_run(logger.run)
    assert kept.info.status == "FINISHED"
    assert kept.data.params["algo.name"] == "bc"
    for name in ("loss/actor", "eval/return_mean"):
        history = [(metric.step, metric.value) for metric in logger.client.get_metric_history(logger.run, name)]
        curve = run.curves()[name]
        assert history == list(zip(curve.updates, curve.values, strict=True))
