"""Packages that bring environments are imported when an id needs them, and only those written in our table."""

import subprocess
import sys
from pathlib import Path

import pytest

from understudy.core.errors import ConfigError, MissingPackageError
from understudy.envs.gym import PACKAGES, make_env


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.strip()


def test_a_maze_is_known_without_importing_anything_first() -> None:
    told = run(
        "import sys, understudy\n"
        "from understudy.envs.gym import env_names, make_env\n"
        "before = 'gymnasium_robotics' in sys.modules, any('PointMaze' in name for name in env_names())\n"
        "env = make_env('PointMaze_UMaze-v3')\n"
        "print(before, env.spec.id, any('PointMaze' in name for name in env_names()))"
    )
    assert told == "(False, False) PointMaze_UMaze-v3 True"


@pytest.mark.parametrize(
    ("env_id", "package", "install"),
    [
        ("PointMaze_Nowhere-v3", "gymnasium_robotics", r"pip install 'understudy-rl\[robotics\]'"),
        ("AntMaze_Nowhere-v5", "gymnasium_robotics", r"pip install 'understudy-rl\[robotics\]'"),
        ("AdroitHandNowhere-v1", "gymnasium_robotics", r"pip install 'understudy-rl\[robotics\]'"),
        ("FrankaKitchen-v99", "gymnasium_robotics", r"pip install 'understudy-rl\[robotics\]'"),
        ("NowhereBulletEnv-v0", "pybullet_envs_gymnasium", r"pip install 'understudy-rl\[bullet\]'"),
    ],
)
def test_a_missing_package_is_told(env_id: str, package: str, install: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # what Python sees when a package is not there
    with pytest.raises(MissingPackageError, match=rf"environment '{env_id}': needs {package} .*{install}"):
        make_env(env_id)


def test_only_one_notice_is_kept_back(tmp_path: Path) -> None:
    """What gymnasium-robotics says of Adroit at every import; whatever else is said on stderr is heard."""
    (tmp_path / "farama_notifications.py").write_text(
        "import warnings\nfrom importlib.metadata import version\n"
        "warnings.warn('a warning')\n"
        "adroit = 'AdroitHandRelocateDense-v1, AdroitHandHammerDense-v1 environment\\'s reward functions were "
        "updated in v1.2.1 without an environment version update.\\nanother word'\n"
        "notifications = {'gymnasium_robotics': {version('gymnasium-robotics'): adroit}}\n"
    )
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom understudy.envs.gym import make_env\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}make_env('PointMaze_UMaze-v3')"], check=True, capture_output=True, text=True
    )
    assert "another word\n" in done.stderr
    assert "UserWarning: a warning" in done.stderr
    assert "Adroit" not in done.stderr


def test_a_misspelt_maze_is_told_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"no environment 'PointMaze_UMase-v3'. Did you mean 'PointMaze_UMaze-v3'\?"):
        make_env("PointMaze_UMase-v3")


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "Nowhere-v0", "HandMade-v0", "xPointMaze_UMaze-v3", "Fetcher-v0"])
def test_other_ids_belong_to_no_package(env_id: str) -> None:
    assert not any(pattern.fullmatch(env_id) for pattern, _, _ in PACKAGES)
