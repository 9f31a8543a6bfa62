"""What another distribution registers by entry points is found: it trains, resumes, evaluates and exports like ours."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("no_plots")

PACKAGE = "stranger"
METADATA = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n"
ENTRY_POINTS = """
[understudy.algorithms]
parrot = stranger.parrot
iql = stranger.parrot

[understudy.sources]
mixture = stranger.mixture

[understudy.objectives]
curiosity = stranger.curiosity

[understudy.networks]
tower = stranger.tower
"""
SETTINGS = """
TOWER = {"hidden": [], "encoders": {"state": {"kind": "own", "name": "tower", "size": 8, "options": {"blocks": 2}}}}

def settings(name, **changes):
    recipe = {"env": "Pendulum-v1", "episodes": 2, "seed": 1, "behaviours": [{"policy": "random"}]}
    return parse_config({
        "algo": {"name": "parrot", "actor": TOWER}, "data": {"recipe": recipe}, "env": {"id": "Pendulum-v1"},
        "updates": 30, "log_every": 5, "eval_every": 15, "eval_episodes": 1, "save_every": 10, "tensorboard": False,
        "out": str(folder / name), **changes,
    })
"""
PLAYED = """
def played(name):
    role, CURIOUS = {"hidden": [8]}, {"curiosity": {"weight": 1.0}}
    return parse_config({
        "algo": {"name": "ppo", "actor": role, "critic": role, "epochs": 1, "objectives": CURIOUS},
        "env": {"id": "Pendulum-v1"}, "source": {"num_envs": 4, "rollout_length": 8}, "updates": 6, "eval_every": 3,
        "eval_episodes": 1, "save_every": 3, "tensorboard": False, "out": str(folder / name),
    })
"""
HEAD = """
import sys
from pathlib import Path
import torch
import understudy as us
from understudy.algorithms import algorithm_names
from understudy.run.checkpoint import newest_checkpoint
from understudy.run.config import parse_config
folder = Path({folder!r})
torch.set_num_threads(1)
"""
FIRST = """
import stranger.mixture
assert algorithm_names()["parrot"] == "stranger.parrot"
assert algorithm_names()["iql"] == "understudy.algorithms.iql", "our own names cannot be taken over"
whole = us.train(settings("whole"))
assert len(stranger.mixture.ASLEEP) == 3, "two steps at a time, and a batch is eight: three times nothing yet"
assert whole.metrics()[-1]["env_steps"] == 2 * (30 + 3)
assert whole.config.source_kind == "mixture"
us.train(settings("halves"), callbacks=[lambda updates, evaluation: True])
taught = us.train(settings("taught", algo={"name": "parrot", "teacher_weight": 10.0, "actor": TOWER},
                           policies={"teacher": {"path": str(folder / "whole")}}))
assert taught.config.policies["teacher"].fingerprint
plain = us.train(settings("plain", source={"kind": "offline", "batch_size": 8}))
curious = us.train(played("curious"))
assert curious.metrics()[-1]["reward/curiosity.surprise"] > 0
us.train(played("curious halves"), callbacks=[lambda updates, evaluation: True])
"""
SECOND = """
def same_state(one, other):
    states = [newest_checkpoint(folder / name / "checkpoints")[0].state for name in (one, other)]
    assert states[0].keys() == states[1].keys()
    for path, leaf in states[0].items():
        same = torch.equal(leaf, states[1][path]) if isinstance(leaf, torch.Tensor) else leaf == states[1][path]
        assert same, path
    return states[0]

halves = us.resume(folder / "halves")
assert "source.ring.priority" in same_state("whole", "halves")
us.resume(folder / "curious halves")
curious = same_state("curious", "curious halves")
assert curious["algorithm.objectives.members.curiosity.lessons"] == 6
run = us.Run(folder / "whole")
assert run.metrics() == halves.metrics()
assert len(run.evaluate(2).returns) == 2
obs = [[1.0, 0.0, 0.5]] * 4
assert (run.predict(obs) == us.load_policy(folder / "whole" / "policy" / "final").act(
    {"state": torch.tensor(obs)}, (), greedy=True)[0].numpy()).all()
from understudy.cli.main import main
sys.argv = ["understudy", "export", str(folder / "whole"), "--out", str(folder / "exported")]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
assert any((folder / "exported").iterdir())
gap = [float((us.Run(folder / name).predict(obs) - run.predict(obs)).__abs__().mean()) for name in ("taught", "plain")]
assert gap[0] < gap[1], f"a teacher that is listened to is nearer: {gap}"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip leaves behind: a package and a .dist-info folder."""
    place = tmp_path_factory.mktemp("site")
    info = place / f"{PACKAGE}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA, encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (place / PACKAGE).symlink_to(Path(__file__).parent / PACKAGE)
    return place


def ask(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path[:0] = [{str(site)!r}]\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)


def test_what_a_stranger_registers_trains_resumes_evaluates_and_exports(site: Path, tmp_path: Path) -> None:
    head = HEAD.format(folder=str(tmp_path)) + SETTINGS + PLAYED
    for part in (FIRST, SECOND):
        answer = ask(site, head + part)
        assert answer.returncode == 0, answer.stderr
