"""Environments that do not keep to Gymnasium's word: whoever plays in them, the error names one and what it did."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import understudy as us
from understudy.core.errors import RunError, UnderstudyError
from understudy.core.rng import stream
from understudy.core.spec import Box, Group, Spec
from understudy.envs.vector.gymnasium_adapter import GymnasiumVectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.envs.vector.step_timeout import StepTimeout
from understudy.envs.vector.tensor_adapter import TensorVectorEnv
from understudy.nn.actor import ActorSettings
from understudy.tools.dataset.check import check_dataset
from understudy.tools.dataset.reference_env import open_world
from vector_cases import PENDULUM, TensorBatch
from worlds import pendulum_recipe

NAME = "UnderstudyTestBad-v0"
SPEC = Spec({"state": Group((2,), "float32")}, Box((-1.0,), (1.0,)))
HERE = re.escape(__file__)


class PanicError(BaseException):
    """As native code raises it through its bindings: no Exception."""


class Bad(gymnasium.Env[Any, Any]):
    """Two steps of an episode are right, the third is what `fault` says; episodes have four."""

    observation_space = spaces.Box(-9, 9, (2,))
    action_space = spaces.Box(-1, 1, (1,))
    fault: Callable[[Any], Any] = staticmethod(lambda answer: answer)
    beginning: Callable[[Any], Any] = staticmethod(lambda answer: answer)
    spared = 0
    """The process in which nothing is wrong."""

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.steps = 0
        answer = np.zeros(2, np.float32), dict[str, Any]()
        return answer if os.getpid() == self.spared else type(self).beginning(answer)

    def step(self, action: Any) -> Any:
        self.steps += 1
        answer: Any = np.full(2, self.steps, np.float32), 1.0, False, self.steps == 4, {}
        return type(self).fault(answer) if self.steps == 3 and os.getpid() != self.spared else answer


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gymnasium.register(NAME, entry_point=lambda **_: Bad())
    gymnasium.registry[NAME].disable_env_checker = True
    gymnasium.registry[NAME].order_enforce = False
    yield
    del gymnasium.registry[NAME]


def some_policy(spec: Spec = SPEC) -> us.Actor:
    return us.Actor(spec, ActorSettings(hidden=(8,)), stream(0, "init"))


def roll(workers: int) -> None:
    """Two environments; with a process of its own, only the one in there goes wrong."""
    world = LocalVectorEnv(NAME, 2, workers=workers)
    try:
        Bad.spared = os.getpid() if workers > 1 else 0
        world.reset(0)
        for _ in range(6):
            world.step(torch.zeros(2, 1))
    finally:
        Bad.spared = 0
        world.close()


def evaluate() -> None:
    us.evaluate_policy(some_policy(), NAME, 2, seed=0)


def collect() -> None:
    us.make_dataset(pendulum_recipe(env=NAME, episodes=2, behaviours=[{"policy": "random"}]))


NUMBER = r"-?\d+\.\d*(e-\d+)?"
PLAYERS: dict[str, tuple[Callable[[], None], str, str]] = {
    "rollouts": (lambda: roll(1), "environment 0", r"Environment 0: seed \d+, episode 1, "),
    "processes": (lambda: roll(2), "environment 1", r"Environment 1: seed \d+, episode 1, "),
    "evaluation": (evaluate, "evaluation episode 0", r"Evaluation episode 0: seed \d+, "),
    "collecting": (collect, "recipe episode 1", r"Recipe episode 1: seed \d+, "),
}
"""Who plays, what they call the environment, and what they say it was asked."""


def raising(error: BaseException) -> Callable[[Any], Any]:
    def fault(answer: Any) -> Any:
        raise error

    return fault


def giving(place: int, value: Any) -> Callable[[Any], Any]:
    return lambda answer: (*answer[:place], value, *answer[place + 1 :])


STEPS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda answer: sys.exit(3), rf"WHO failed in its step \(SystemExit: 3, at {HERE}:\d+\)\."),
    (lambda answer: sys.exit(), rf"WHO failed in its step \(SystemExit, at {HERE}:\d+\)\."),
    (raising(PanicError("in\n  Rust")), rf"WHO failed in its step \(PanicError: in Rust, at {HERE}:\d+\)\."),
    (lambda answer: np.linalg.inv(np.zeros((2, 2))), rf"\(LinAlgError: Singular matrix, at {HERE}:\d+\)\."),
    (lambda answer: answer[:4], r"WHO does not give what a step gives: got 4 things, .*, expected observation, reward"),
    (lambda answer: None, r"WHO does not give what a step gives: got NoneType, None, expected"),
    (giving(1, np.ones(1)), r"the reward of WHO is not a number: got array\(\[1\.\]\) \(ndarray\), expected one real"),
    (giving(1, None), r"the reward of WHO is not a number: got None"),
    (giving(1, "1.0"), r"the reward of WHO is not a number: got '1\.0' \(str\)"),
    (giving(1, 1j), r"the reward of WHO is not a number: got 1j"),
    (giving(1, 10**400), r"the reward of WHO is not a number: got 1000000"),
    (giving(1, [1.0]), r"the reward of WHO is not a number: got \[1\.0\]"),
    (giving(1, float("nan")), r"the reward of WHO is not finite: got nan"),
    (giving(1, np.float32("inf")), r"the reward of WHO is not finite: got inf"),
    (giving(2, "no"), r"'terminated' of WHO is not a flag: got 'no' \(str\), expected True or False"),
    (giving(3, None), r"'truncated' of WHO is not a flag: got None"),
    (giving(3, np.array([False])), r"'truncated' of WHO is not a flag: got array\(\[False\]\)"),
    (giving(2, 0.5), r"'terminated' of WHO is not a flag: got 0\.5"),
    (giving(4, []), r"the info of WHO is none: got \[\] \(list\), expected a dictionary"),
    (giving(4, None), r"the info of WHO is none: got None"),
    (giving(0, np.zeros(3)), r"group 'state' .*wrong shape: got \(3,\), expected \(2,\)"),
    (giving(0, np.array(["1", "2"])), r"group 'state' .*<U1 values are not real numbers"),
    (giving(0, np.array([1j, 2])), r"group 'state' .*complex128 values are not real numbers"),
    (giving(0, None), r"group 'state' "),
    (giving(0, [1.0, float("nan")]), r"group 'state' .*is not finite"),
]
RESETS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda answer: sys.exit(3), rf"WHO failed when it began an episode \(SystemExit: 3, at {HERE}:\d+\)\."),
    (lambda answer: answer[0], r"WHO does not give what a reset gives: got ndarray, .*expected an observation and an"),
    (lambda answer: (answer[0], None), r"WHO does not give what a reset gives: got 2 things"),
    (lambda answer: ("ab", {}), r"group 'state' "),
]


@pytest.mark.parametrize("player", PLAYERS)
def test_whatever_is_wrong_is_told_with_the_seed_the_step_and_the_action(
    player: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    play, who, asked = PLAYERS[player]
    for fault, told in STEPS:
        monkeypatch.setattr(Bad, "fault", fault)
        whole = rf"^environment '{NAME}': .*{told.replace('WHO', who)}.* {asked}step 3, action \[{NUMBER}\]\.$"
        with pytest.raises(UnderstudyError) as caught:
            play()
        assert re.match(whole, str(caught.value)), caught.value
    monkeypatch.undo()
    for beginning, told in RESETS:
        monkeypatch.setattr(Bad, "beginning", beginning)
        whole = rf"^environment '{NAME}': .*{told.replace('WHO', who)}.* {asked}before its first step\.$"
        with pytest.raises(UnderstudyError) as caught:
            play()
        assert re.match(whole, str(caught.value)), caught.value


def test_the_traceback_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """For --debug: in this process as the cause, of another process in a note."""
    monkeypatch.setattr(Bad, "fault", raising(ValueError("wheels")))
    with pytest.raises(RunError) as caught:
        evaluate()
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(RunError, match="environment 1 failed in its step") as caught:
        roll(2)
    notes = "".join(caught.value.__notes__)
    assert "In another process:" in notes
    assert "ValueError: wheels" in notes
    assert __file__ in notes


def test_what_others_give_and_means_the_same_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, value in (
        (1, 1),
        (1, np.float32(1)),
        (1, np.array(1.0)),
        (1, torch.tensor(1.0)),
        (1, True),
        (2, 0),
        (2, np.bool_(False)),
        (3, np.array(False)),
        (0, [3.0, 3.0]),
        (0, np.full(2, 3, np.int64)),
    ):
        monkeypatch.setattr(Bad, "fault", giving(place, value))
        assert us.evaluate_policy(some_policy(), NAME, 1, seed=0).returns == (4.0,)
        roll(1)


class Picture(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(0, 255, (2, 2), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self, value: Any) -> None:
        self.value = value

    def reset(self, **options: Any) -> Any:
        return np.full((2, 2), self.value), {}


def test_whole_numbers_are_kept_or_refused() -> None:
    """Bytes that are given as other numbers must be the same bytes: nothing is cut off or wrapped around."""
    for value in (7, 7.0, np.uint8(7), True):
        seen = LocalVectorEnv("Picture", 1, make=lambda name, value=value: Picture(value)).reset(0)  # type: ignore[misc]
        assert (seen["state"] == int(value)).all()
    for value in (0.5, 300, -1):
        with pytest.raises(UnderstudyError, match=r"'state' of environment 0 cannot be read .* that are no uint8"):
            LocalVectorEnv("Picture", 1, make=lambda name, value=value: Picture(value)).reset(0)  # type: ignore[misc]


def test_ctrl_c_is_nobodys_failure_and_an_environment_that_pretends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class StopError(BaseException):
        """What somebody's handler of SIGTERM raises."""

    def stop(number: int, frame: Any) -> None:
        raise StopError

    monkeypatch.setattr(Bad, "fault", lambda answer: signal.raise_signal(signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, stop), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(StopError):
            evaluate()
        monkeypatch.setattr(Bad, "fault", lambda answer: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            evaluate()
        signal.signal(signal.SIGINT, stop)
        monkeypatch.setattr(Bad, "fault", raising(KeyboardInterrupt()))
        with pytest.raises(RunError, match=rf"failed in its step \(KeyboardInterrupt, at {HERE}:\d+\)"):
            evaluate()
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


def test_what_cannot_be_made_is_told() -> None:
    def make(**options: Any) -> Any:
        sys.exit("no display")

    gymnasium.registry[NAME].entry_point = make
    told = rf"^environment '{NAME}': could not be made \(SystemExit: no display, at {HERE}:\d+\)\.$"
    for play, _, _ in PLAYERS.values():
        with pytest.raises(RunError, match=told):
            play()
    gymnasium.registry[NAME].entry_point = lambda **_: gymnasium.Env()
    with pytest.raises(RunError, match=rf"^environment '{NAME}': does not tell its spaces \(AttributeError"):
        evaluate()


def test_what_fails_when_it_is_closed_has_done_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bad, "close", lambda self: sys.exit(1), raising=False)
    told = rf"environment '{NAME}': evaluation episode 0 failed when it was closed \(SystemExit: 1"
    with pytest.warns(UserWarning, match=told):
        assert us.evaluate_policy(some_policy(), NAME, 1, seed=0).returns == (4.0,)
    monkeypatch.setattr(Bad, "close", lambda self: time.sleep(60))
    with pytest.warns(UserWarning, match="failed when it was closed .*has not answered for 0.3 seconds"):
        assert us.evaluate_policy(some_policy(), NAME, 1, seed=0, step_timeout=0.3).returns == (4.0,)


def test_vectors_of_gymnasium_are_held_to_it_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(SyncVectorEnv):
        fault: Callable[[Any], Any] = staticmethod(lambda answer: answer)

        def step(self, actions: Any) -> Any:
            return type(self).fault(super().step(actions))

    asked = r"All environments: seeds \[\d+, \d+\], steps \[1, 1\], actions \[\[0\.\], \[0\.\]\]\.$"
    cases: list[tuple[Callable[[Any], Any], str]] = [
        (lambda answer: sys.exit(3), rf"failed in a step \(SystemExit: 3, at {HERE}:\d+\)\. {asked}"),
        (
            lambda answer: answer[:4],
            "does not answer as Gymnasium's vectors do: got 4 things, expected observations, rewa",
        ),
        (giving(1, ["1", "2"]), r"rewards are not numbers: got \['1' '2'\]"),
        (giving(1, [None, 1.0]), "rewards are not numbers"),
        (giving(2, ["no", "no"]), "ends are not flags"),
        (giving(4, []), "its infos are none: got list"),
        (giving(0, np.array([["1", "2"]] * 2)), "<U1 values are not real numbers"),
        (
            giving(1, np.array([1.0, np.nan])),
            r"reward of environment 1 is not finite: got nan\. Environment 1: seed \d+",
        ),
    ]
    world = GymnasiumVectorEnv(Wrong([Bad] * 2, autoreset_mode=AutoresetMode.NEXT_STEP), NAME)
    for fault, told in cases:
        monkeypatch.setattr(Wrong, "fault", lambda answer: answer)
        world.reset(0)
        monkeypatch.setattr(Wrong, "fault", fault)
        with pytest.raises(UnderstudyError, match=rf"^environment '{NAME}': .*{told}"):
            world.step(torch.zeros(2, 1))


def test_simulators_of_tensors_are_held_to_it_as_well() -> None:
    class Wrong(TensorBatch):
        fault: Callable[[Any], Any] = staticmethod(lambda answer: answer)

        def step(self, actions: Any) -> Any:
            return self.fault(super().step(actions))

    batch = Wrong(PENDULUM, 2)
    world = TensorVectorEnv(batch, batch.spec.action, PENDULUM, restart=batch.restart)
    asked = r"All environments: seeds \[\d+, \d+\], steps \[1, 1\], actions \[\[0\.\], \[0\.\]\]\.$"
    cases: list[tuple[Callable[[Any], Any], str]] = [
        (lambda answer: sys.exit(3), rf"its step failed \(SystemExit: 3, at {HERE}:\d+\)\. {asked}"),
        (lambda answer: answer[:3], rf"its step does not answer as rsl_rl's do: got 3 things, .*{asked}"),
        (giving(1, None), "rewards are not numbers"),
        (giving(1, torch.ones(2) * 1j), "rewards are not numbers: got torch.complex64"),
        (giving(1, torch.tensor([1.0, torch.nan])), "reward of environment 1 is not finite"),
        (giving(2, "no"), "dones are not flags"),
        (giving(3, None), "its extras are none: got NoneType"),
        (giving(0, 5), "observations are not tensors: got int"),
    ]
    for fault, told in cases:
        batch.fault = lambda answer: answer
        world.reset(0)
        batch.fault = fault
        with pytest.raises(UnderstudyError, match=rf"^environment '{PENDULUM}': .*{told}"):
            world.step(torch.zeros(2, 1))


def test_the_check_of_a_dataset_names_the_environment_it_replays_in(monkeypatch: pytest.MonkeyPatch) -> None:
    data = us.make_dataset(pendulum_recipe(episodes=1, behaviours=[{"policy": "random"}]))
    for fault, told in (
        (lambda self, action: sys.exit(3), rf"the replay of row \d+ failed in its step \(SystemExit: 3, at {HERE}"),
        (
            lambda self, action: (np.zeros(3), "1", False, False, {}),
            "the reward of the replay of row .* is not a number",
        ),
        (lambda self, action: (np.zeros(1), 1.0, False, False, {}), r"the replay of row \d+ failed \(ValueError"),
        (lambda self, action: (["1"] * 3, 1.0, False, False, {}), r"the replay of row \d+ failed \(TypeError"),
    ):
        monkeypatch.setattr(PendulumEnv, "step", fault)
        with pytest.raises(RunError, match=rf"^environment 'Pendulum-v1': {told}.* From the observation \[.*action \["):
            check_dataset(data.recording(), open_world("Pendulum-v1"))


def test_an_alarm_that_nobody_waits_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the process without a word."""

    def alarm(answer: Any) -> Any:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        time.sleep(5)

    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        monkeypatch.setattr(Bad, "fault", alarm)
        with pytest.raises(RunError, match=rf"^environment '{NAME}': an alarm rang that nobody waits for \(SIGALRM\)"):
            evaluate()
        gone = r"the process of environment 1 is gone \(SIGALRM\)\. An environment has set an alarm .*nment 1: seed"
        with pytest.raises(RunError, match=gone):
            roll(2)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_whoever_displaces_our_handler_is_still_watched() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    step_timeout = StepTimeout(0.3, "here")
    try:
        step_timeout.call(signal.signal, signal.SIGALRM, lambda number, frame: heard.append(number))
        time.sleep(0.2)
        step_timeout.call(signal.raise_signal, signal.SIGALRM)
        assert heard == [signal.SIGALRM]
        with pytest.raises(RunError, match="has not answered"):
            step_timeout.call(time.sleep, 60)
        assert heard == [signal.SIGALRM]
    finally:
        step_timeout.close()
        signal.signal(signal.SIGALRM, before)


def test_masks_that_nobody_reads_are_told() -> None:
    """Of what is legal only the observation tells: info, or sb3-contrib's method, would be passed over in silence."""

    class Doors(gymnasium.Env[Any, Any]):
        observation_space: Any = spaces.Box(0, 1, (1,))
        action_space: Any = spaces.Discrete(3)
        info: ClassVar[dict[str, Any]] = {"action_mask": np.array([1, 0, 1])}

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return self.observation_space.low, self.info

    class ByMethod(Doors):
        info: ClassVar[dict[str, Any]] = {}

        def action_masks(self) -> Any:
            return np.array([True, False, True])

    class Wrapped(gymnasium.ObservationWrapper[Any, Any, Any]):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            parts = {"state": env.observation_space, "action_mask": spaces.MultiBinary(3)}
            self.observation_space = spaces.Dict(parts)

        def observation(self, observation: Any) -> Any:
            return {"state": observation, "action_mask": np.array([1, 0, 1], np.int8)}

    def shown(env: gymnasium.Env[Any, Any], _: str) -> gymnasium.Env[Any, Any]:
        return env

    for env in (Doors(), ByMethod()):
        world = LocalVectorEnv("Doors", 1, make=partial(shown, env))
        with pytest.warns(UserWarning, match="environment 'Doors': which actions are legal is not heeded"):
            world.reset(0)
        wrapped = LocalVectorEnv("Doors", 1, make=partial(shown, Wrapped(env)))
        assert wrapped.reset(0)["action_mask"].tolist() == [[True, False, True]]
