"""`understudy ope` prints a table with a verdict, or one JSON object, and complains in a sentence."""

import json
import sys
from pathlib import Path

from command_line import complaint, understudy

import understudy as us

sys.path.append(str(Path(__file__).parents[1] / "tools" / "ope"))
from judged_policies import boxes, constant

QUICK = ("--updates", "20", "--seeds", "1", "--hidden", "8", "--gamma", "0.5")


def test_the_command_ranks(tmp_path: Path) -> None:
    us.write_store(boxes(), tmp_path / "store")
    names = [str(tmp_path / name) for name in ("good", "bad")]
    for name, action in zip(names, (0.5, -0.5), strict=True):
        us.save_policy(constant(boxes().spec, action), name)
    words = ("ope", *names, "--data", str(tmp_path / "store"), *QUICK, "--out", str(tmp_path / "kept"))
    spoken = understudy(*words)
    assert spoken.code == 0, spoken
    lines = spoken.out.splitlines()
    assert lines[0].split()[:4] == ["candidate", "value", "lower", "upper"]
    assert {lines[1].split()[0], lines[2].split()[0]} == set(names)
    assert lines[3].startswith("the data's own episodes")
    assert "note: one seed says nothing of others" in spoken.out
    assert "ope: 20/20 updates" in spoken.err
    told = json.loads(understudy(*words, "--json").out)
    assert told["method"] == "fqe"
    assert {one["name"] for one in told["candidates"]} == set(names)
    assert len(list((tmp_path / "kept").iterdir())) == 2
    assert "--hidden: not numbers of units: got 'wide'" in complaint(*words[:-4], "--hidden", "wide", code=2)
    assert "no such estimator" in complaint(*words, "--method", "fq", code=2)
    assert "nowhere" in complaint("ope", tmp_path / "nowhere", *words[3:], code=1)
