"""Interactive imitation (DAgger): who drives, who labels, what is aggregated, and what batches are made of."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diary_world import Diary, DiaryEnv
from torch import Tensor

import understudy as us
from understudy.core.batch import Sequences, Transitions
from understudy.core.errors import ConfigError, DataError
from understudy.data.replay_ring import FACT, FLAGS, VALID
from understudy.nn.actor import Actor
from understudy.run.build import build_learner
from understudy.run.config import parse_config
from understudy.run.given_env import GivenEnvs, given_envs
from understudy.run.learner import Learner
from understudy.run.replay_data import replay_recording
from understudy.sources.interactive import InteractiveSource
from understudy.tools.dataset.conversion import target_kind, write_recording


def shout(obs: Any) -> Any:
    """What to do depends on everything that is seen, and is never 0."""
    number, episode, time = obs.T
    return (0.3 + 0.1 * (number % 3) + 0.05 * (episode % 7) + 0.02 * (time % 11))[:, None]


def settings(**changes: Any) -> dict[str, Any]:
    source = {"kind": "interactive", "teacher": "callable", "num_envs": 3, "round_length": 7, "updates_per_round": 5}
    return {
        "algo": {"name": "bc", "actor": {"hidden": [4], **changes.pop("actor", {})}},
        "env": {"id": "own", "simulator": "custom"},
        "source": {**source, "batch_size": 16, "buffer_size": 3000, **changes.pop("source", {})},
        "updates": 100,
        "eval_every": 0,
        "out": "unused",
        **changes,
    }


@contextmanager
def played(
    diaries: list[Diary] | None = None, *, discrete: bool = False, teacher: Any = shout, **changes: Any
) -> Iterator[tuple[InteractiveSource[Any], Learner]]:
    """A source over diaries, and its learner."""
    written = [] if diaries is None else diaries
    envs = given_envs(lambda: DiaryEnv(written, discrete=discrete))
    assert isinstance(envs, GivenEnvs)
    written.clear()
    learner = build_learner(parse_config(settings(**changes)), make_envs=envs, teacher=teacher)
    assert isinstance(learner.source, InteractiveSource)
    try:
        yield learner.source, learner
    finally:
        learner.close()


def batches(source: InteractiveSource[Any], policy: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        batch = source.next(policy)
        if batch is not None:
            found.append(batch)
    return found


def rows_of(source: InteractiveSource[Any]) -> dict[str, Tensor]:
    """Everything in the aggregate, in the order in which it came."""
    ring = source.aggregate.ring.rows
    return ring.between(ring.written - len(ring), ring.written)


def places(obs: Tensor) -> list[tuple[int, ...]]:
    return [tuple(map(int, row)) for row in obs.reshape(-1, 3).tolist()]


def test_the_aggregate_is_what_was_played_and_said() -> None:
    """Row by row against the diaries: seen, label, paid, the true successor, how it ended, the round, who acted."""
    diaries: list[Diary] = []
    with played(diaries, source={"beta": 0.5}) as (source, learner):
        batches(source, learner.policy, 20)
        rows, layout = rows_of(source), source.aggregate.ring.layout
        numbers, facts = rows["numbers"], {name: rows[f"{FACT}{name}"] for name in layout.facts}
        assert len(numbers) == 4 * 7 * 3
        told = [diary for diary in diaries if diary.seen]
        assert len(told) == 3
        for row in range(len(numbers)):
            time, env = divmod(row, 3)
            diary = told[env]
            seen = np.array([diary.seen[time]], np.float32)
            assert places(numbers[row, :3]) == [diary.seen[time]]
            assert numbers[row, 3].item() == pytest.approx(float(shout(seen)[0, 0])), "a label of this very state"
            assert numbers[row, 4].item() == pytest.approx(diary.paid[time])
            assert places(numbers[row, 5:]) == [diary.after[time]], "also where an episode ended"
            flags = int(rows[FLAGS][row])
            assert flags == VALID + diary.terminated[time] + 2 * diary.truncated[time]
            assert int(facts["round"][row]) == 1 + time // 7
            assert facts["executed_action"][row].item() == pytest.approx(diary.done[time])
            is_label = diary.done[time] == pytest.approx(numbers[row, 3].item())
            assert is_label == bool(facts["teacher_acted"][row])
        acted = facts["teacher_acted"].view(-1, 3)
        for env, diary in enumerate(told):
            for time in range(1, len(acted)):
                if diary.seen[time][1] == diary.seen[time - 1][1] and time % 7:
                    assert acted[time, env] == acted[time - 1, env], "until the episode or the round ends"
        assert 0 < int(acted.sum()) < acted.numel()


def test_batches_are_rows_of_the_rounds_that_are_kept() -> None:
    """Every row of them, and no other, as labels in policy space with true successors."""
    for keep, expected in ((0, {1, 2, 3, 4}), (2, {3, 4}), (1, {4})):
        diaries: list[Diary] = []
        with played(diaries, source={"keep_rounds": keep, "batch_size": 400, "updates_per_round": 2}) as (source, one):
            found: list[Transitions] = batches(source, one.policy, 8)
            rounds = {place: 1 + time // 7 for diary in diaries for time, place in enumerate(diary.seen)}
            after = {place: diary.after[time] for diary in diaries for time, place in enumerate(diary.seen)}
            drawn = [place for batch in found[-2:] for place in places(batch.obs["state"])]
            assert set(drawn) == {place for place, number in rounds.items() if number in expected}
            for batch in found[-2:]:
                assert places(batch.next_obs["state"]) == [after[place] for place in places(batch.obs["state"])]
                label = torch.from_numpy(shout(batch.obs["state"].numpy())) / 2
                torch.testing.assert_close(batch.action, label)
            counts = np.array([drawn.count(place) for place in set(drawn)])
            mean = len(drawn) / len(counts)
            assert abs(counts - mean).max() < 6 * mean**0.5, "a row is drawn as often as any other"


def test_stretches_never_leave_their_episode() -> None:
    """Of a policy with a memory: consecutive steps, what is missing repeats the last one, `first` is a first step."""
    memory = {"memory": {"kind": "gru", "units": 4}}
    diaries: list[Diary] = []
    with played(diaries, actor=memory, source={"length": 6, "batch_size": 200}) as (source, learner):
        found: list[Sequences] = batches(source, learner.policy, 20)
        last = {diary.seen[-1] for diary in diaries if diary.seen}
        ended = {
            place
            for diary in diaries
            for time, place in enumerate(diary.seen)
            if diary.terminated[time] or diary.truncated[time]
        }
        firsts = 0
        for batch in found[-5:]:
            assert batch.action.shape == (200, 6, 1)
            for row in range(200):
                walk, valid = places(batch.obs["state"][row]), batch.valid[row].tolist()
                length = sum(valid)
                assert valid == [True] * length + [False] * (6 - length)
                number, episode, time = walk[0]
                assert walk[:length] == [(number, episode, time + step) for step in range(length)]
                assert walk[length:] == [walk[length - 1]] * (6 - length)
                assert length == 6 or walk[length - 1] in ended | last
                assert not ended & set(walk[: length - 1])
                assert batch.first[row].tolist() == [time == 0] + [False] * 5
                firsts += time == 0
            torch.testing.assert_close(
                batch.action.flatten(0, 1), torch.from_numpy(shout(batch.obs["state"].reshape(-1, 3).numpy())) / 2
            )
        assert firsts > 20


def test_beta_says_who_drives_from_the_first_episode_on() -> None:
    """0: never the teacher, also not in the first episode; 1: always; between them as often as it says."""
    for beta, low, high in ((0, 0, 0), (1, 1, 1), (0.25, 0.1, 0.45)):
        with played(source={"beta": beta, "num_envs": 32, "round_length": 8}) as (source, learner):
            first = source.driven.float().mean().item()
            batches(source, learner.policy, 16)
            share = rows_of(source)[f"{FACT}teacher_acted"].float().mean().item()
            assert low <= share <= high, beta
            assert low <= first <= high, beta
    falling = {"start": 1.0, "end": 0.0, "over": 2}
    with played(source={"beta": falling, "num_envs": 64, "round_length": 30, "buffer_size": 9600}) as (source, learner):
        batches(source, learner.policy, 25)
        rows = rows_of(source)
        acted, number = rows[f"{FACT}teacher_acted"], rows[f"{FACT}round"]
        shares = [acted[number == one].float().mean().item() for one in range(1, 6)]
        assert shares[0] == 1.0
        assert shares[1] == pytest.approx(0.5, abs=0.15)
        assert shares[2:] == [0.0, 0.0, 0.0]


def test_rounds_follow_beta_where_episodes_outlast_them() -> None:
    """Episodes of 200 steps, rounds of 5: who drives is drawn anew in each, and the share is told."""
    falling = {"start": 1.0, "end": 0.0, "over": 4}
    source = {"teacher": "scripted", "beta": falling, "num_envs": 200, "round_length": 5, "updates_per_round": 1}
    given = settings(source={**source, "buffer_size": 9000}, env={"id": "Pendulum-v1"})
    learner = build_learner(parse_config(given))
    assert isinstance(learner.source, InteractiveSource)
    told = []
    for _ in range(6):
        batches(learner.source, learner.policy, 1)
        told.append(learner.source.metrics()["dagger/driven"].item())
    acted = rows_of(learner.source)[f"{FACT}teacher_acted"].view(6, 5, 200)
    learner.close()
    assert bool((acted == acted[:, :1]).all()), "for the whole round"
    shares = acted.float().mean((1, 2)).tolist()
    assert told == pytest.approx(shares)
    assert shares == pytest.approx([1, 0.75, 0.5, 0.25, 0, 0], abs=0.12)
    assert (shares[0], *shares[4:]) == (1, 0, 0)


def test_what_is_done_and_what_is_said_are_blurred_apart() -> None:
    """Noise on labels does not reach the environment, noise on the student's actions does not reach labels."""
    plain: list[dict[str, Tensor]] = []
    noisy: list[dict[str, Tensor]] = []
    for found, given in ((plain, {}), (noisy, {"label_noise": 0.2, "exploration_noise": 0.1})):
        with played(source={"beta": 0.5, "num_envs": 16, "round_length": 40, **given}) as (source, learner):
            batches(source, learner.policy, 1)
            found.append(rows_of(source))
    rows = noisy[0]
    acted, executed = rows[f"{FACT}teacher_acted"], rows[f"{FACT}executed_action"][:, 0]
    clean = torch.from_numpy(shout(rows["numbers"][:, :3].numpy()))[:, 0]
    torch.testing.assert_close(executed[acted], clean[acted])
    difference = rows["numbers"][:, 3] - clean
    assert difference.std().item() == pytest.approx(0.4, rel=0.15), "in halves of the range, which is 2"
    assert not torch.allclose(executed[~acted], plain[0][f"{FACT}executed_action"][:, 0][~acted])
    assert torch.equal(acted, plain[0][f"{FACT}teacher_acted"]), "who drives is drawn from a stream of its own"


def test_choices_are_labelled_too() -> None:
    def choose(obs: Any) -> Any:
        return (obs[:, 0] + obs[:, 2]).astype(int) % 5

    with played(discrete=True, teacher=choose, source={"beta": 0}) as (source, learner):
        batch = batches(source, learner.policy, 6)[-1]
        assert batch.action.dtype == torch.int64
        assert batch.action.tolist() == choose(batch.obs["state"].numpy()).tolist()


def test_wrong_labels_are_told_with_the_environment() -> None:
    def not_finite(obs: Any) -> Any:
        return np.where((obs[:, :1] == obs[:, :1].max()) & (obs[:, 2:] == 3), np.nan, 0.5)

    with (
        played(teacher=not_finite) as (source, learner),
        pytest.raises(DataError, match=r"callable teacher, environment 2: a label that is not finite: got \[nan\]"),
    ):
        batches(source, learner.policy, 5)
    for wrong in (5, -1, 0.5):
        with (
            played(discrete=True, teacher=lambda obs, wrong=wrong: np.full(len(obs), wrong)) as (source, learner),
            pytest.raises(DataError, match=r"environment 0: a label that is no action: got .*, expected a whole"),
        ):
            batches(source, learner.policy, 5)
    with (
        played(teacher=lambda obs: obs) as (source, learner),
        pytest.raises(ConfigError, match=r"policy 'teacher': gives actions of another shape: got \[3, 3\]"),
    ):
        batches(source, learner.policy, 5)


def test_what_is_wrong_is_told_before_the_first_step() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"source": {"beta": 1.2}}, "source.beta: wrong value: got 1.2, expected less than or equal to 1"),
        ({"source": {"beta": {"start": 0.5, "end": -0.1}}}, "source.beta.end: wrong value: got -0.1, expected greater"),
        ({"source": {"controller": "Pendulum-v1"}}, "controller: is of a scripted teacher, and teacher is callable"),
        ({"source": {"labels": "sample"}}, "labels=sample: only a policy draws, and teacher is callable"),
        ({"source": {"keep_rounds": 200}}, "buffer_size: has no room for 200 rounds of 21 rows: got 3,000"),
        ({"source": {"teacher": "policy"}}, "policies.teacher: is required"),
        ({"policies": {"teacher": {"path": "x"}}}, "policies.teacher: nothing in this run reads it"),
        ({"source": {"demonstrations": True}}, "data: is required"),
    ]
    for changes, told in wrong:
        with pytest.raises(ConfigError, match=told.replace("[", r"\[")):
            parse_config(settings(**changes))
    built: list[tuple[dict[str, Any], str]] = [
        ({"source": {"teacher": "scripted"}}, "has no scripted controller"),
        ({"source": {"teacher": "scripted", "controller": "Pendulum-v2"}}, "Did you mean 'Pendulum-v1'"),
        ({"compile": True}, "compile: updates from source.kind=interactive are not compiled: got True, expected False"),
        ({"teacher": None}, r"source.teacher: nobody was handed over to label"),
        ({"discrete": True, "source": {"label_noise": 0.1}}, "source.label_noise: noise is for continuous actions"),
        ({"discrete": True, "source": {"exploration_noise": 0.1}}, "source.exploration_noise: noise is for"),
    ]
    for changes, told in built:
        with pytest.raises(ConfigError, match=told), played(**changes):
            pass


def test_demonstrations_alone_are_cloned_as_offline_does(tmp_path: Path) -> None:
    """Round 0 only: the same policy to the bit, of single steps and of stretches."""
    recipe = {"env": "Pendulum-v1", "episodes": 3, "seed": 7, "behaviours": [{"policy": "scripted"}]}
    for memory in ({}, {"memory": {"kind": "gru", "units": 4}}):
        policies = []
        batch = {"batch_size": 8, **({"length": 5} if memory else {})}
        kinds = ({"kind": "sequences" if memory else "offline"}, {"kind": "interactive", "teacher": "scripted"})
        for kind in kinds:
            own = {"demonstrations": True, "updates_per_round": 40} if kind["kind"] == "interactive" else {}
            given = {
                **settings(actor=memory),
                "env": {"id": "Pendulum-v1"},
                "data": {"recipe": recipe},
                "source": {**kind, **batch, **own},
                "updates": 40,
                "out": str(tmp_path / f"{kind['kind']}{bool(memory)}"),
            }
            run = us.train(given, progress=False)
            policies.append((run.path / "policy" / "final" / "policy.safetensors").read_bytes())
        assert policies[0] == policies[1]


def test_one_round_of_the_teacher_is_cloned_as_its_data(tmp_path: Path) -> None:
    """β = 1 and one round: the same policy to the bit as from a dataset of what the teacher played."""
    for memory in ({}, {"memory": {"kind": "gru", "units": 4}}):
        batch, actor = {"batch_size": 8, **({"length": 5} if memory else {})}, {"normalize": False, **memory}
        own = {"num_envs": 1, "beta": 1, "round_length": 250, "updates_per_round": 40, "teacher": "scripted"}
        given = {**settings(actor=actor), "env": {"id": "Pendulum-v1"}, "updates": 40}
        place, store = tmp_path / f"dagger{bool(memory)}", tmp_path / f"store{bool(memory)}"
        one = us.train({**given, "source": {"kind": "interactive", **own, **batch}, "out": place}, progress=False)
        write_recording(replay_recording(one.path), store, target_kind(store, ""))
        played = us.load_dataset(store)
        assert (played.episodes, played.steps) == (2, 250)
        assert torch.equal(played.actions, played.extra["executed_action"]), "the teacher drove"
        source = {"kind": "sequences" if memory else "offline", **batch}
        out = {"data": {"path": str(store)}, "out": tmp_path / f"bc{bool(memory)}"}
        other = us.train({**given, "source": source, **out}, progress=False)
        policies = [(run.path / "policy" / "final" / "policy.safetensors").read_bytes() for run in (one, other)]
        assert policies[0] == policies[1]


def test_observations_are_normalised_by_what_was_learned_from() -> None:
    """As there is no dataset: mean and variance are of all rows of all batches so far, padding left out."""
    for memory in ({}, {"memory": {"kind": "gru", "units": 4}}):
        with played(actor=memory, source={"length": 6}) as (source, learner):
            seen = []
            for batch in batches(source, learner.policy, 8):
                learner.algorithm.update(batch)
                rows = batch.obs["state"]
                seen.append(rows[batch.valid] if isinstance(batch, Sequences) else rows)
            assert isinstance(learner.policy, Actor)
            ((_, normalizer),) = learner.policy.perception.normalised()
            every = torch.cat(seen).double()
            torch.testing.assert_close(normalizer.mean, every.mean(0))
            torch.testing.assert_close(normalizer.variance, every.var(0, correction=0))


def test_demonstrations_are_drawn_beside_own_rounds() -> None:
    recipe = {"env": "Pendulum-v1", "episodes": 2, "seed": 7, "behaviours": [{"policy": "scripted"}]}
    for memory in ({}, {"memory": {"kind": "gru", "units": 4}}):
        source = {"teacher": "scripted", "demonstrations": True, "round_length": 50, "batch_size": 100, "length": 4}
        given = settings(actor=memory, source=source, env={"id": "Pendulum-v1"}, data={"recipe": recipe})
        learner = build_learner(parse_config(given))
        recorded = {tuple(row) for row in learner.data["main"].dataset.observations["state"].tolist()}
        found = batches(learner.source, learner.policy, 15)  # type: ignore[arg-type]
        shares = [
            np.mean([tuple(row) in recorded for row in batch.obs["state"].reshape(-1, 3).tolist()]) for batch in found
        ]
        learner.close()
        assert shares[0] == 1.0, "before the first step there is nothing else"
        assert np.mean(shares[5:10]) == pytest.approx(400 / 550, abs=0.1)
        assert np.mean(shares[10:]) == pytest.approx(400 / 700, abs=0.1)
