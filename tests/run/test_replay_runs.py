"""Runs that learn from a replay buffer: what is played, what is drawn, what is owed, and going on to the bit."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small import BATTLE, StoppedAt, content, short_settings

import understudy as us
from allocations import tensor_bytes
from understudy.core.batch import Transitions
from understudy.core.errors import ConfigError, DataError, UnderstudyError
from understudy.core.spec import ACTION_MASK
from understudy.run.build import build_learner
from understudy.run.config import load_config, parse_config
from understudy.run.guard import Guard
from understudy.sources.replay import ReplaySource

pytestmark = pytest.mark.usefixtures("no_plots")


def settings(out: Path, algorithm: str = "td3bc", **changes: Any) -> dict[str, Any]:
    source = {"kind": "replay", "batch_size": 8, "learning_starts": 15, "buffer_size": 40, **changes.pop("source", {})}
    given = short_settings(algorithm, out, source=source, **changes)
    if not source.get("data_share"):
        given.pop("data", None)
    return given


def source_of(out: Path, **changes: Any) -> tuple[ReplaySource, Any]:
    learner = build_learner(parse_config(settings(out, **changes)))
    assert isinstance(learner.source, ReplaySource)
    return learner.source, learner.algorithm.policy


def batches(source: ReplaySource, policy: Any, count: int) -> list[Transitions]:
    found: list[Transitions] = []
    while len(found) < count:
        batch = source.next(policy)
        if batch is not None:
            found.append(batch)
    return found


@pytest.mark.parametrize(
    ("utd_ratio", "num_envs", "steps"), [(1.0, 1, 27), (0.5, 1, 39), (3.0, 1, 19), (1.0, 4, 28), (0.1, 3, 135)]
)
def test_updates_follow_environment_steps(tmp_path: Path, utd_ratio: float, num_envs: int, steps: int) -> None:
    """Twelve updates: fifteen steps first, then as many as they take, in whole steps of all environments."""
    source, policy = source_of(tmp_path, source={"utd_ratio": utd_ratio, "num_envs": num_envs})
    batches(source, policy, 12)
    assert source.counters() == {"env_steps": steps}
    source.close()


def test_a_run_killed_anywhere_goes_on_to_the_bit(tmp_path: Path) -> None:
    """Through a ring that wraps, with several environments, fractions of updates, n steps and data beside."""
    cases: list[dict[str, Any]] = [
        {},
        {"num_envs": 3, "utd_ratio": 1.7},
        {"num_envs": 2, "utd_ratio": 0.4, "warmup": "policy", "exploration_noise": 0.3},
        {"data_share": {"start": 0.5, "end": 0.0, "over": 20}, "utd_ratio": 4},
    ]
    for number, source in enumerate(cases):
        rare: dict[str, Any] = {"source": source, "updates": 40, "log_every": 8, "eval_every": 20}
        whole = us.train(parse_config(settings(tmp_path / f"{number}-whole", **rare)))
        path, stop = tmp_path / f"{number}-stopped", (4, 8)[number % 2]
        with pytest.raises(KeyboardInterrupt):
            us.train(parse_config(settings(path, **rare)), callbacks=[StoppedAt(stop)])
        us.resume(path)
        assert content(path) == content(whole.path), (source, stop)


def test_shares_of_a_batch(tmp_path: Path) -> None:
    """So many rows of every batch are the dataset's as the schedule says, each from where it should be."""
    share = {"start": 1.0, "end": 0.0, "over": 16}
    source, policy = source_of(tmp_path, source={"data_share": share, "batch_size": 16}, updates=40)
    (data,) = source.data
    recorded = {tuple(row) for row in data.dataset.observations["state"].tolist()}
    found = [
        sum(tuple(row) in recorded for row in batch.obs["state"].tolist()) for batch in batches(source, policy, 20)
    ]
    assert found == [*range(16, 0, -1), 0, 0, 0, 0]
    source.close()


def test_without_a_share_there_is_no_trace_of_the_data(tmp_path: Path) -> None:
    """A share that has fallen to 0 draws as one that never was: rows of own experience are the same."""
    falling = {"data_share": {"start": 1e-9, "end": 0.0, "over": 1}, "utd_ratio": 5}
    mixed, mixed_policy = source_of(tmp_path, source=falling)
    alone, policy = source_of(tmp_path, source={"utd_ratio": 5})
    for one, other in zip(batches(mixed, mixed_policy, 5), batches(alone, policy, 5), strict=True):
        assert torch.equal(one.obs["state"], other.obs["state"])
    mixed.close()
    alone.close()


def test_rlpd_without_data_is_sac(tmp_path: Path) -> None:
    """Two critics, both asked, climbed by the smaller, and a share of data that is none: SAC in every tensor of the
    policy after a whole run."""
    network = {"hidden": [8], "normalize": False}
    reduced = {"critics": 2, "target_subset": 2, "policy_delay": 1, "actor_values": "min"}
    none = {"data_share": {"start": 1e-9, "end": 0.0, "over": 1}}
    policies = []
    for name, algo, source in (("sac", {}, {}), ("redq", reduced, none)):
        given = settings(tmp_path / name, name, source=source)
        given["algo"] = {"name": name, "actor": network, "critic": network, **algo}
        run = us.train(parse_config(given))
        policies.append(load_file(run.path / "policy" / "final" / "policy.safetensors"))
    one, other = policies
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_every_step_is_as_likely_as_any_other(tmp_path: Path) -> None:
    source, policy = source_of(tmp_path, source={"batch_size": 4000, "num_envs": 2}, updates=40)
    batch = batches(source, policy, 1)[0]
    counts = Counter(tuple(row) for row in batch.obs["state"].tolist())
    assert len(counts) == 16, "fifteen steps in whole steps of two environments"
    assert max(abs(count - 250) for count in counts.values()) < 6 * 250**0.5
    source.close()


def test_random_legal_choices_come_first(tmp_path: Path) -> None:
    source, policy = source_of(tmp_path, algorithm="discrete_cql", world=BATTLE, source={"batch_size": 64})
    batch = batches(source, policy, 1)[0]
    assert bool(batch.extra["mask"].gather(1, batch.action.unsqueeze(1)).all())
    assert len(set(batch.action.tolist())) > 3
    source.close()


class Stuck(gymnasium.Env[dict[str, Any], int]):
    """A world with one legal action at first, and with none after two steps."""

    action_space: Any = gymnasium.spaces.Discrete(3)
    observation_space: Any = gymnasium.spaces.Dict(
        {"place": gymnasium.spaces.Box(0, 9, (1,)), ACTION_MASK: gymnasium.spaces.MultiBinary(3)}
    )
    place = 0

    def reset(self, **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=settings.get("seed"))
        self.place = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.place += 1
        return self._seen(), 0.0, False, False, {}

    def _seen(self) -> dict[str, Any]:
        legal = np.array([self.place < 2, 0, 0], np.int8)
        return {"place": np.full(1, self.place, np.float32), ACTION_MASK: legal}


def test_where_no_action_is_legal_nobody_plays_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = {"batch_size": 4, "learning_starts": 9, "buffer_size": 20}
    with pytest.raises(DataError, match="no action is legal"):
        us.train("discrete_sac", env=Stuck, out=tmp_path, updates=9, source=source, eval_every=0, progress=True)
    assert "would try nothing new" not in capsys.readouterr().err  # one legal action is no sign of it
    with pytest.raises(DataError, match="no action is legal"):
        us.collect(Stuck, episodes=1)


def test_what_is_refused(tmp_path: Path) -> None:
    for wrong, told in (
        ({"utd_ratio": 0}, "source.utd_ratio"),
        ({"utd_ratio": -1}, "source.utd_ratio"),
        ({"utd_ratio": 4e-7}, "source.utd_ratio"),
        ({"data_share": 1.5}, "data_share: is a part of a batch: got 1.5"),
        ({"data_share": {"start": 0.5, "end": -1}}, "data_share: is a part of a batch: got -1"),
        ({"workers": 2}, "workers: 2 for 1 environments"),
        ({"batch_size": 0}, "source.batch_size"),
    ):
        with pytest.raises(ConfigError, match=told):
            parse_config(settings(tmp_path, source=wrong))
    without = settings(tmp_path, source={"data_share": 0.5})
    without.pop("data")
    with pytest.raises(ConfigError, match="data: is required"):
        parse_config(without)
    unread = settings(tmp_path, source={"data_share": 0.5})
    unread["source"]["data_share"] = 0.0
    with pytest.raises(ConfigError, match=r"reads no dataset\. Give source\.data_share=0\.5 to learn from it, too"):
        parse_config(unread)


def test_a_budget_of_environment_steps(tmp_path: Path) -> None:
    """As many updates as fit, warm-up included; on the line the last word counts; nobody plays from data alone."""
    for given, updates in (({}, 25), ({"utd_ratio": 0.3}, 7), ({"utd_ratio": 20}, 500), ({"num_envs": 4}, 25)):
        data = {**settings(tmp_path, source=given), "env_steps": "4e1"}
        data.pop("updates")
        config = parse_config(data)
        assert (config.updates, config.env_steps) == (updates, 0)
        assert parse_config(config.model_dump(mode="json")) == config
    named = settings(tmp_path)
    assert load_config(named, ["updates=3", "env_steps=40"]).updates == 25
    assert load_config(named, ["env_steps=40", "updates=3"]).updates == 3
    ppo = load_config("ppo/pendulum", ["env_steps=1e5", "source.num_envs=10", "source.rollout_length=30"])
    assert ppo.updates == 333
    for words, told in (
        (
            ["env_steps=15"],
            "env_steps: ends before the first update: got 15, expected at least 16. The first 15 only fill",
        ),
        (["env_steps=-1"], "env_steps"),
        (["env_steps=many"], "env_steps"),
    ):
        with pytest.raises(ConfigError, match=told):
            load_config(named, words)
    with pytest.raises(ConfigError, match="env_steps: is another word for updates"):
        parse_config({**named, "env_steps": 40})
    with pytest.raises(ConfigError, match=r"env_steps: nobody plays with source.kind=offline"):
        load_config("iql/pendulum", ["env_steps=100"])


def test_what_there_is_no_room_for(tmp_path: Path) -> None:
    """Before the first step, and before there is a run."""
    with pytest.raises(ConfigError, match=r"source.buffer_size: the run would keep .* PB of steps"):
        us.train(parse_config(settings(tmp_path / "run", source={"buffer_size": 10**14})))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"source.batch_size: a batch of .* would need more memory"):
        us.train(parse_config(settings(tmp_path / "run", source={"batch_size": 10**13})))


def test_a_run_cannot_go_on_with_another_ring(tmp_path: Path) -> None:
    run = us.train(parse_config(settings(tmp_path / "run")), callbacks=[lambda updates, _: updates == 6])
    before = {path: path.read_bytes() for path in (run.path / "checkpoints").rglob("*") if path.is_file()}
    file = run.path / "config.yaml"
    file.write_text(file.read_text().replace("buffer_size: 40", "buffer_size: 80"))
    with pytest.raises(UnderstudyError, match=r"source.buffer_size.*40.*80|source.buffer_size.*80.*40"):
        us.resume(run.path)
    assert all(path.read_bytes() == content for path, content in before.items()), "nothing is lost"
    file.write_text(file.read_text().replace("buffer_size: 80", "buffer_size: 40"))
    with pytest.raises(ConfigError, match="env_steps: is another word for updates"):
        us.resume(run, updates=8, env_steps=23)
    assert us.resume(run, env_steps=23).result["updates"] == 8, "its budget in steps, of which 15 are the warm-up"


def test_a_check_copies_none_of_a_million_rows(tmp_path: Path) -> None:
    learner = build_learner(parse_config(settings(tmp_path, source={"buffer_size": 1_000_000})))
    metrics = learner.update()
    small = build_learner(parse_config(settings(tmp_path, source={"buffer_size": 40})))
    small.update()
    of_million, of_forty = (tensor_bytes(partial(Guard.over(each, 1).check, 1, metrics)) for each in (learner, small))
    assert of_million == of_forty > 0
    learner.close()
    small.close()
