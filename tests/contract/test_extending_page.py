"""The page "Write your own" shows the very files that are run here, and environments of one's own train and resume."""

from pathlib import Path
from typing import Any

import pytest
from stranger.line import Line

import understudy as us
from understudy.run.config import RunConfig, parse_config

pytestmark = pytest.mark.usefixtures("no_plots")

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
STRANGER = Path(__file__).parent / "stranger"
FILES = [path.name for path in sorted(STRANGER.glob("*.py")) if path.name != "__init__.py"]


@pytest.mark.parametrize("name", FILES)
def test_the_page_shows_what_is_run(name: str) -> None:
    code = (STRANGER / name).read_text(encoding="utf-8")
    assert f"```python\n# stranger/{name}\n{code}```" in PAGE


def settings(out: Path, **changes: Any) -> RunConfig:
    role = {"hidden": [16]}
    algo = {"name": "ppo", "actor": role, "critic": role, "learning_rate": 3e-3, "schedule": "constant"}
    run = {"updates": 20, "log_every": 10, "eval_every": 10, "eval_episodes": 16, "save_every": 10}
    env = {"id": "line", "simulator": "custom"}
    source = {"num_envs": 16, "rollout_length": 20}
    return parse_config(
        {"algo": algo, "env": env, "source": source, **run, "tensorboard": False, "out": str(out), **changes}
    )


def test_environments_of_ones_own_train_and_resume_to_the_bit(tmp_path: Path) -> None:
    run = us.train(settings(tmp_path / "whole"), make_envs=Line)
    lazy = us.train(settings(tmp_path / "lazy", updates=1), make_envs=Line)
    assert run.result["eval/return_mean"] > -1.5 > lazy.result["eval/return_mean"]
    us.train(settings(tmp_path / "halves"), make_envs=Line, callbacks=[lambda updates, evaluation: True])
    assert us.resume(tmp_path / "halves", make_envs=Line).metrics() == run.metrics()
