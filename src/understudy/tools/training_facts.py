"""What a run directory tells of a policy in it: how it was trained, and how well it did."""

from pathlib import Path
from typing import Any

from pydantic import Field

from understudy.core.facts import Facts, Whole
from understudy.core.files import read_json
from understudy.run.checkpoint import list_checkpoints
from understudy.run.config import RunConfig
from understudy.run.deployment import DeploymentSettings, deployment_facts
from understudy.run.policies import updates_named, updates_of
from understudy.run.policy_file import CARD, read_card
from understudy.run.rundir import RunDir

DATASET = ("name", "fingerprint", "episodes", "steps", "return_mean")


class BirthFacts(Facts):
    """Of meta.json, what a card repeats."""

    argv: list[str] = Field(default_factory=list)
    config_sha256: str = ""
    dataset: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)


class EvaluationFacts(Facts):
    """Of a line of eval.jsonl, what a card repeats."""

    updates: Whole
    return_mean: float = Field(alias="eval/return_mean")
    return_low: float = Field(alias="eval/return_low")
    return_high: float = Field(alias="eval/return_high")
    score: float | None = Field(None, alias="eval/score")
    returns: list[float]


def training_facts(path: Path, checkpoint: str, said: DeploymentSettings | None = None) -> dict[str, Any]:
    """`training`, `scores` and `deployment` of a card; of a policy folder, what its own card says.

    What is `said` of the machine stands in the place of what the run's config says of it.
    """
    if (path / CARD).is_file():
        return {"training": read_card(path).facts, "scores": {}, "deployment": {} if said is None else said.told()}
    run = RunDir.open(path)
    updates = updates_behind(run, checkpoint)
    meta = BirthFacts.parse(read_json(run.meta_file) if run.meta_file.is_file() else {}, str(run.meta_file))
    config = run.config.model_dump(mode="json")
    env = config["env"] or {}
    training = {
        "algorithm": config["algo"],
        "config": _config_name(meta.argv),
        "config_sha256": meta.config_sha256,
        "env": env.get("id"),
        "simulator": env.get("simulator"),
        "env_settings": env.get("settings"),
        "world": {name: value for name, value in env.items() if value},
        "evaluation": _evaluation(run.config) if env else {},
        "source": {name: value for name, value in config["source"].items() if not isinstance(value, dict)},
        "task": config.get("task"),
        "updates": updates,
        "planned_updates": config["updates"],
        "checkpoint": checkpoint,
        "started_from": config.get("init_from"),
        "stages": [stage["algo"]["name"] for stage in config.get("stages", [])],
        "columns": (config["data"] or {}).get("columns"),
        "dataset": {name: value for name, value in meta.dataset.items() if name in DATASET},
        "held_out": _held_out(run, updates),
        "versions": meta.versions,
    }
    known = {name: value for name, value in training.items() if value} | {"seed": config["seed"]}
    world = run.config.env
    env_id = world.id if world is not None and world.simulator == "gymnasium" else ""
    machine = deployment_facts(run.config.deployment if said is None else said, env_id)
    return {"training": known, "scores": scores(run, updates), "deployment": machine}


def updates_behind(run: RunDir, checkpoint: str) -> int | None:
    """Updates behind a policy that `load_policy` finds under this name."""
    if checkpoint == "best":
        return updates_of(run.policies / "best")
    updates = updates_named(checkpoint)
    return max(list_checkpoints(run.checkpoints), default=None) if updates is None else updates


def scores(run: RunDir, updates: int | None) -> dict[str, Any]:
    """Evaluations: the `best`, the `last`, and that of the policy itself (`this`) if there was one."""
    if run.config.env is None:
        return {}
    lines = [_score(EvaluationFacts.parse(line, str(run.eval_file))) for line in run.evaluations()]
    if not lines:
        return {}
    mine = [line for line in lines if line["updates"] == updates]
    best = max(lines, key=lambda line: float(line["return_mean"]))
    return {"best": best, "last": lines[-1], **({"this": mine[-1]} if mine else {})}


def _evaluation(config: RunConfig) -> dict[str, Any]:
    """How the run evaluates, where that is not as anybody would."""
    told = {
        "episodes": config.eval_episodes,
        "max_steps": config.eval_max_steps,
        "info": dict(config.eval_info),
        "metrics": {name: metric.model_dump(mode="json") for name, metric in config.eval_metrics.items()},
    }
    return {name: value for name, value in told.items() if value}


def _held_out(run: RunDir, updates: int | None) -> dict[str, float]:
    """What held-out episodes said of the policy, where there is no environment."""
    lines = [line for line in run.evaluations() if line["updates"] == updates] if run.config.env is None else []
    numbers = lines[-1].items() if lines else ()
    return {name: value for name, value in numbers if name.startswith("eval/") and isinstance(value, float)}


def _score(line: EvaluationFacts) -> dict[str, Any]:
    told = line.model_dump(exclude={"returns"}, exclude_none=True)
    return {**told, "episodes": len(line.returns)}


def _config_name(argv: list[str]) -> str:
    """The config the command line named, if the run was started by it."""
    if len(argv) < 3 or Path(argv[0]).name != "understudy" or argv[1] != "train":
        return ""
    return next((word for word in argv[2:] if not word.startswith("-") and "=" not in word), "")
