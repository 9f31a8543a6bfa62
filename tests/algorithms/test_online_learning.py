"""Going online with what was learned offline: no collapse at the switch, and soon much better than the data allowed."""

from pathlib import Path
from typing import Any

import pytest

import understudy as us


@pytest.mark.slow
@pytest.mark.usefixtures("no_plots")
def test_no_collapse_at_the_switch_and_better_after_it(tmp_path: Path) -> None:
    """IQL of forty poor episodes comes to about −750; a policy that began anew would be at −1200 after the switch."""
    soon: dict[str, Any] = {"updates": 600, "eval_every": 100, "save_every": 600, "tensorboard": False}
    run = us.train("iql/pendulum-online", out=str(tmp_path / "run"), progress=False, **soon)
    (stage,) = (run.path / "stages").iterdir()
    offline = us.Run(stage).evaluations()[-1]["eval/return_mean"]
    online = [line["eval/return_mean"] for line in run.evaluations()]
    assert offline > -900
    assert min(online) > offline - 150, online
    assert online[-1] > offline + 300, online
