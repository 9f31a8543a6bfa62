"""Runs in which a teacher labels: going on to the bit, teachers that remember, masks, images, rounds as a dataset."""

import gc
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from faults import Faults
from folders import fast_folder
from forks import finish, go_on
from small import BATTLE, SHORT, StoppedAt, content, leftovers, short_settings, write_settings

import understudy as us
from understudy.core.errors import ConfigError
from understudy.data.dataset import Dataset
from understudy.run.build import build_learner
from understudy.run.config import parse_config
from understudy.run.loop import InterruptedRunError
from understudy.run.replay_data import replay_recording
from understudy.sources.interactive import InteractiveSource
from understudy.tools.dataset.conversion import target_kind, write_recording

pytestmark = pytest.mark.usefixtures("no_plots")
GRU = {"hidden": [8], "memory": {"kind": "gru", "units": 6}}


def settings(out: Path, *, actor: Any = None, source: Any = None, **changes: Any) -> dict[str, Any]:
    base = {"kind": "interactive", "teacher": "scripted", "controller": "Pendulum-v1", "num_envs": 3, "batch_size": 8}
    rounds = {"round_length": 4, "updates_per_round": 3, "beta": 0.5, "length": 5, "buffer_size": 300}
    given = short_settings("bc", out, source={**base, **rounds, **(source or {})}, **changes)
    given["algo"]["actor"] = actor or {"hidden": [8], "dropout": 0.1}
    if not given["source"].get("demonstrations"):
        given.pop("data")
    return {key: value for key, value in given.items() if value is not None}


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Cloned from chance, which is enough to have an opinion: one that remembers, and one that knows masks."""
    folder = tmp_path_factory.mktemp("teachers")
    recurrent = short_settings("bc", folder / "gru", source={"kind": "sequences", "batch_size": 4, "length": 5})
    recurrent["algo"]["actor"] = GRU
    masked = short_settings("bc", folder / "battle", world=BATTLE)
    runs = {name: us.train(parse_config(one)) for name, one in {"gru": recurrent, "battle": masked}.items()}
    return {name: str(run.path) for name, run in runs.items()}


def labelled(path: Path, checkpoint: int | str = "last") -> Dataset:
    recording = replay_recording(path, checkpoint)
    assert recording.space is not None
    return Dataset.from_episodes(recording.episodes(), recording.space)


@pytest.mark.slow
def test_a_run_killed_anywhere_goes_on_to_the_bit(tmp_path: Path, teachers: dict[str, str]) -> None:
    """In the middle of rounds' updates, with the aggregate, memories, drivers and every stream."""
    policy = {"policies": {"teacher": {"path": teachers["gru"]}}}
    asked = {"teacher": "policy", "controller": ""}
    masked = {"policies": {"teacher": {"path": teachers["battle"]}}, "world": BATTLE}
    cases: list[dict[str, Any]] = [
        {"source": {"label_noise": 0.1, "exploration_noise": 0.2, "keep_rounds": 2, "buffer_size": 40}},
        {"actor": GRU, "source": {**asked, "labels": "sample", "student": "sample"}, **policy},
        {"source": {**asked, "beta": {"start": 1.0, "end": 0.0, "over": 3}}, **masked},
        {"source": {"demonstrations": True}},
    ]
    for number, case in enumerate(cases):
        whole = us.train(parse_config(settings(tmp_path / f"{number}-whole", updates=20, **case)))
        path, stop = tmp_path / f"{number}-stopped", (4, 8, 8, 16)[number]
        with pytest.raises(KeyboardInterrupt):
            us.train(parse_config(settings(path, updates=20, **case)), callbacks=[StoppedAt(stop)])
        us.resume(path)
        assert content(path) == content(whole.path), (case, stop)
        assert labelled(path).fingerprint == labelled(whole.path).fingerprint
        gc.collect()


def test_a_run_killed_outright_goes_on_to_the_bit() -> None:
    """SIGKILL among its writes, one of them half done; the aggregate is the same, and nothing lies about."""
    deaths: list[Faults] = [{"die_at": 70}, {"torn_at": 25}, {"die_at": 61}, {"die_at": 83}]
    with fast_folder() as folder:
        whole, killed = (folder / name for name in ("whole", "killed"))
        job = {out: write_settings(folder / f"{out.name}.yaml", settings(out, updates=40)) for out in (whole, killed)}
        finish(job[whole], whole, no_plots=True)
        for death in deaths:
            death["no_plots"] = True
            assert go_on(job[killed], killed, **death).code == -signal.SIGKILL
        finish(job[killed], killed, no_plots=True)
        assert content(killed) == content(whole)
        assert labelled(killed).fingerprint == labelled(whole).fingerprint
        assert leftovers(killed) == []


def test_a_teacher_that_remembers_is_asked_about_what_was_seen(tmp_path: Path, teachers: dict[str, str]) -> None:
    """Every label is what the teacher says after all that was seen of the episode, whoever acted; so is memory."""
    given = settings(
        tmp_path,
        source={"teacher": "policy", "controller": "", "round_length": 25, "num_envs": 4, "buffer_size": 400},
        policies={"teacher": {"path": teachers["gru"]}},
    )
    run = us.train(parse_config(given))
    found, teacher = labelled(run.path), us.load_policy(teachers["gru"])
    acted, differs = np.concatenate([found.episode(one).extra["teacher_acted"] for one in range(found.episodes)]), 0
    assert 0 < acted.sum() < len(acted)
    for number in range(found.episodes):
        episode, carry = found.episode(number), teacher.initial(1)
        for time in range(len(episode)):
            seen = {"state": torch.from_numpy(episode.observations["state"][time : time + 1])}
            said, carry = teacher.act(seen, carry, greedy=True)
            torch.testing.assert_close(torch.from_numpy(episode.actions[time : time + 1]), said)
            forgetful, _ = teacher.act(seen, teacher.initial(1), greedy=True)
            differs += not torch.allclose(forgetful, said, rtol=1e-3)
    assert differs > 0.5 * found.steps, "one without its memory says something else"


def test_labels_of_masked_choices_are_legal(tmp_path: Path, teachers: dict[str, str]) -> None:
    given = settings(
        tmp_path,
        world=BATTLE,
        source={"teacher": "policy", "controller": ""},
        policies={"teacher": {"path": teachers["battle"]}},
    )
    learner = build_learner(parse_config(given))
    batch = None
    while batch is None:
        batch = learner.source.next(learner.policy)
    assert bool(batch.extra["mask"].gather(1, batch.action.unsqueeze(1)).all())
    learner.close()


def test_images_stay_bytes(tmp_path: Path) -> None:
    def lean(frames: Any) -> Any:
        assert frames.dtype == np.uint8
        return (frames.reshape(len(frames), -1).sum(1) % 2).astype(np.int64)

    eyes = {
        "hidden": [4],
        "encoders": {"pixels": {"kind": "conv", "layers": [{"channels": 2, "kernel": 8, "stride": 4}], "size": 4}},
    }
    source = {"teacher": "callable", "controller": "", "num_envs": 2, "buffer_size": 64}
    given = settings(tmp_path / "run", actor=eyes, world="UnderstudyCartPolePixels-v0", source=source)
    run = us.train({**given, "eval_every": 0, "updates": 6}, teacher=lean, progress=False)
    found = labelled(run.path)
    (group,) = found.spec.observation.values()
    assert group.dtype == "uint8"
    episode = found.episode(0)
    (frames,) = episode.observations.values()
    assert episode.actions.tolist() == lean(frames[:-1]).tolist()


def test_a_teacher_that_does_not_fit_is_refused_with_every_difference(tmp_path: Path, teachers: dict[str, str]) -> None:
    asked = {"teacher": "policy", "controller": ""}
    given = settings(tmp_path, source=asked, policies={"teacher": {"path": teachers["battle"]}})
    with pytest.raises(ConfigError, match=r"policies.teacher: does not fit the environment, \d differences: ") as told:
        build_learner(parse_config(given))
    assert (
        "group 'state' is [3] float32, and was [64]; actions are [1] float32 from [-2] to [2], and were one of"
        in str(told.value)
    )
    moved = {"env": {"id": SHORT, "segments": {"state": {"angle": [0, 2]}}}}
    seeing = short_settings("bc", tmp_path / "named")
    seeing["algo"]["actor"]["sees"] = ["state.angle"]
    named = us.train(parse_config({**seeing, **moved}))
    other = {"env": {"id": SHORT, "segments": {"state": {"angle": [1, 3]}}}}
    given = settings(tmp_path, source=asked, policies={"teacher": {"path": str(named.path)}}, **other)
    with pytest.raises(ConfigError, match=r"segment 'state.angle' is columns 1 to 3, and was 0 to 2"):
        build_learner(parse_config(given))


def test_a_function_is_handed_over_and_over_again(tmp_path: Path) -> None:
    def hold(obs: Any) -> Any:
        return -obs[:, 1:2]

    source = {"controller": "", "teacher": "policy"}
    given = {key: value for key, value in settings(tmp_path / "run", source=source).items() if key != "out"}
    whole = us.train(given, teacher=hold, out=tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        us.train(given, teacher=hold, out=tmp_path / "run", callbacks=[StoppedAt(4)], progress=False)
    with pytest.raises(ConfigError, match="nobody was handed over to label"):
        us.resume(tmp_path / "run")
    us.resume(tmp_path / "run", teacher=hold)
    assert content(tmp_path / "run") == content(whole.path)
    assert us.resume(whole, updates=15).result["updates"] == 15
    with pytest.raises(ConfigError, match="teacher: cannot be asked: got int"):
        us.train(given, teacher=3, progress=False)
    plain = us.train(parse_config(settings(tmp_path / "scripted")), progress=False)
    with pytest.raises(ConfigError, match="this run asks no function"):
        us.resume(plain, updates=15, teacher=hold)


def test_a_function_reaches_the_stage_that_asks_one(tmp_path: Path) -> None:
    """[dagger] → [ppo], which asks nobody: whether the stage says so or not, also where a run goes on."""

    def hold(obs: Any) -> Any:
        return -obs[:, 1:2]

    source = settings(tmp_path)["source"] | {"teacher": "policy", "controller": ""}
    shape = {"hidden": [8], "activation": "tanh", "distribution": "gaussian"}
    stage = {"algo": {"name": "bc", "actor": shape}, "updates": 9, "save_every": 2, "source": source}
    given = short_settings("ppo", tmp_path / "run", updates=2, save_every=1)
    given |= {"algo": {"name": "ppo", "actor": shape, "critic": {"hidden": [8]}, "minibatches": 2}, "stages": [stage]}
    given = {key: value for key, value in given.items() if key != "out"}
    whole = us.train(given, teacher=hold, out=tmp_path / "whole", progress=False)
    assert whole.config.stages[0].source.model_dump()["teacher"] == "callable"
    said = {**given, "stages": [{**stage, "source": {**source, "teacher": "callable"}}]}
    for name, config in (("said", said), ("parsed", parse_config(said))):
        again = us.train(config, teacher=hold, out=tmp_path / name, progress=False)
        assert again.config.stages == whole.config.stages
    folder = whole.path / "stages" / "1-bc"
    rows = labelled(folder).episode(0)
    (seen,) = rows.observations.values()
    torch.testing.assert_close(torch.as_tensor(rows.actions), torch.as_tensor(hold(seen[:-1])))

    with pytest.raises(ConfigError, match="nobody was handed over to label"):
        us.train(said, out=tmp_path / "nobody", progress=False)
    answers = iter(range(9))

    def interrupted(obs: Any) -> Any:
        if next(answers, None) == 8:
            signal.raise_signal(signal.SIGINT)
        return hold(obs)

    with pytest.raises(InterruptedRunError):
        us.train(given, teacher=interrupted, out=tmp_path / "run", progress=False)
    us.resume(tmp_path / "run", teacher=hold)
    assert content(tmp_path / "run" / "stages" / "1-bc") == content(folder)
    assert content(tmp_path / "run") == content(whole.path)
    assert us.resume(whole, updates=3).result["updates"] == 3
    with pytest.raises(ConfigError, match=r"teacher: nobody in this run asks a function.*expected source\.kind=inter"):
        us.train({**given, "stages": []}, teacher=hold, out=tmp_path / "none", progress=False)


def test_a_run_teaches_the_stage_that_asks_a_policy(tmp_path: Path, teachers: dict[str, str]) -> None:
    shape = {"hidden": [8], "activation": "tanh", "distribution": "gaussian"}
    source = settings(tmp_path)["source"] | {"teacher": "policy", "controller": ""}
    stage = {"algo": {"name": "bc", "actor": shape}, "updates": 3, "source": source}
    given = short_settings("ppo", tmp_path / "run", updates=1)
    given |= {"algo": {"name": "ppo", "actor": shape, "critic": {"hidden": [8]}, "minibatches": 2}, "stages": [stage]}
    run = us.train(given, teacher=us.Run(teachers["gru"]), progress=False)
    assert run.config.stages[0].policies["teacher"].path == str(Path(teachers["gru"]).resolve())
    assert run.config.policies == {}
    with pytest.raises(ConfigError, match=r"policies\.teacher: nothing in this run reads it"):
        us.train({**given, "stages": []}, teacher=us.Run(teachers["gru"]), progress=False)


def test_a_run_is_a_teacher(tmp_path: Path, teachers: dict[str, str]) -> None:
    given = settings(tmp_path / "run", source={"teacher": "policy", "controller": ""})
    run = us.train(given, teacher=us.Run(teachers["gru"]), progress=False)
    assert run.config.policies["teacher"].path == str(Path(teachers["gru"]).resolve())


def test_an_exported_file_is_a_teacher(tmp_path: Path, teachers: dict[str, str]) -> None:
    """With its memory, it says what the live one does; it does not draw, and it fits or is refused."""
    pytest.importorskip("onnxruntime")
    exported = us.export_policy(teachers["gru"], out=tmp_path / "export").path
    runs = []
    for name, path in (("live", teachers["gru"]), ("file", exported)):
        given = settings(tmp_path / name, source={"teacher": "policy", "controller": "", "beta": 1})
        runs.append(us.train(given, teacher=path, progress=False))
    live, of_file = (labelled(run.path).actions for run in runs)
    torch.testing.assert_close(of_file, live)
    asked = {"teacher": "policy", "controller": "", "labels": "sample"}
    with pytest.raises(ConfigError, match=r"source.labels: the teacher is an exported file, which has no draws"):
        us.train(settings(tmp_path / "draws", source=asked), teacher=exported, progress=False)
    battle = settings(tmp_path / "battle", source={**asked, "labels": "mean"}, world=BATTLE)
    with pytest.raises(ConfigError, match=r"policies.teacher: does not fit the environment, 3 differences: .*no masks"):
        us.train(battle, teacher=exported, progress=False)


def test_rounds_are_a_dataset(tmp_path: Path) -> None:
    """With the round of every step, who acted and what was done, written and read as any other."""
    run = us.train(parse_config(settings(tmp_path / "run", updates=9)))
    found = labelled(run.path)
    columns = {name: found.extra[name].numpy() for name in ("round", "teacher_acted", "executed_action")}
    assert np.bincount(columns["round"]).tolist() == [0, 12, 12, 12]
    acted = columns["teacher_acted"].astype(bool)
    assert 0 < acted.sum() < len(acted)
    same = (columns["executed_action"] == found.actions.numpy()).all(1)
    assert same[acted].all()
    assert not same[~acted].any()
    early = labelled(run.path, 4)
    assert set(early.extra["round"].tolist()) == {1, 2}
    for name in ("store", "flat.npz"):
        write_recording(replay_recording(run.path), tmp_path / name, target_kind(tmp_path / name, ""))
        again = us.load_dataset(tmp_path / name, action_space=found.spec.action)
        assert again.fingerprint == found.fingerprint
        assert np.array_equal(again.extra["round"].numpy(), columns["round"])


def test_environment_steps_are_a_budget_of_whole_rounds(tmp_path: Path) -> None:
    for demonstrations, updates in ((False, 6), (True, 9)):
        given = settings(tmp_path, source={"demonstrations": demonstrations}, updates=None)
        assert parse_config({**given, "env_steps": 35}).updates == updates
    with pytest.raises(ConfigError, match="ends before the first update: got 11, expected at least 12"):
        parse_config({**settings(tmp_path, updates=None), "env_steps": 11})


def test_a_failed_step_leaves_nothing_behind(tmp_path: Path) -> None:
    """Whatever was drawn for it is drawn again, and nothing reaches across to the new episodes."""
    learner = build_learner(parse_config(settings(tmp_path)))
    assert isinstance(learner.source, InteractiveSource)
    source: Any = learner.source
    while source.next(learner.policy) is None or source.drawn < 3:
        pass
    rows, streams = source.aggregate.ring.rows.written, [one.get_state() for one in source.streams.values()]
    step, source.envs.step = source.envs.step, None
    with pytest.raises(TypeError):
        source.next(learner.policy)
    assert source.aggregate.ring.rows.written == rows
    assert all(torch.equal(a, b.get_state()) for a, b in zip(streams, source.streams.values(), strict=True))
    source.envs.step = step
    while source.next(learner.policy) is None:
        pass
    assert source.aggregate.ring.rows.written == rows + 3 + 12, "a barrier, and the next round"
    assert source.aggregate.ring.barriers == 3
    for _ in range(2):
        assert bool((source.next(learner.policy).obs["state"].abs().sum(1) > 0).all())
    learner.close()
