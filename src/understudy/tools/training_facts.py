"""What a run directory tells of a policy in it: how it was trained, and how well it did."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.core.files import read_json, read_sealed
from understudy.run.checkpoint import list_checkpoints
from understudy.run.logs import EVALUATION
from understudy.run.policies import updates_of
from understudy.run.policy_file import CARD
from understudy.run.rundir import RunDir

DATASET = ("name", "fingerprint", "episodes", "steps", "return_mean")


def training_facts(path: Path, checkpoint: str) -> dict[str, Any]:
    """`training` and `scores` of a card; of a policy folder, what its own card says."""
    if (path / CARD).is_file():
        return {"training": read_sealed(path / CARD)["facts"], "scores": {}}
    run = RunDir.open(path)
    updates = updates_behind(run, checkpoint)
    meta = read_json(run.meta_file) if run.meta_file.is_file() else {}
    config = run.config.model_dump(mode="json")
    training = {
        "algorithm": config["algo"],
        "config": _config_name(meta.get("argv", [])),
        "config_sha256": meta.get("config_sha256"),
        "env": config["env"]["id"],
        "simulator": config["env"].get("simulator"),
        "env_settings": config["env"].get("settings"),
        "source": {name: value for name, value in config["source"].items() if not isinstance(value, dict)},
        "task": config.get("task"),
        "updates": updates,
        "planned_updates": config["steps"],
        "checkpoint": checkpoint,
        "started_from": config.get("init_from"),
        "stages": [stage["algo"]["name"] for stage in config.get("stages", [])],
        "dataset": {name: value for name, value in meta.get("dataset", {}).items() if name in DATASET},
        "versions": meta.get("versions"),
    }
    known = {name: value for name, value in training.items() if value} | {"seed": config["seed"]}
    return {"training": known, "scores": scores(run, updates)}


def updates_behind(run: RunDir, checkpoint: str) -> int | None:
    """Updates behind a policy that `load_policy` finds under this name."""
    if checkpoint == "best":
        return updates_of(run.policies / "best")
    return int(checkpoint) if checkpoint.isdecimal() else max(list_checkpoints(run.checkpoints), default=None)


def scores(run: RunDir, updates: int | None) -> dict[str, Any]:
    """Evaluations: the `best`, the `last`, and that of the policy itself (`this`) if there was one."""
    lines = [_score(line) for line in run.evaluations(EVALUATION)]
    if not lines:
        return {}
    mine = [line for line in lines if line["updates"] == updates]
    best = max(lines, key=lambda line: float(line["return_mean"]))
    return {"best": best, "last": lines[-1], **({"this": mine[-1]} if mine else {})}


def _score(line: Mapping[str, Any]) -> dict[str, Any]:
    score = {"score": line["eval/score"]} if "eval/score" in line else {}
    return {
        "updates": line["updates"],
        "return_mean": line["eval/return_mean"],
        "return_low": line["eval/return_low"],
        "return_high": line["eval/return_high"],
        "episodes": len(line["returns"]),
        **score,
    }


def _config_name(argv: list[str]) -> str:
    """The config the command line named, if the run was started by it."""
    if len(argv) < 3 or Path(argv[0]).name != "understudy" or argv[1] != "train":
        return ""
    return next((word for word in argv[2:] if not word.startswith("-") and "=" not in word), "")
