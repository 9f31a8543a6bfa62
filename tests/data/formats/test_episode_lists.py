"""Plain lists of episodes: what people have in their hands, and what is said when it does not fit."""

from typing import Any

import numpy as np
import pytest

from understudy.core.errors import DataError
from understudy.core.spec import Box, Discrete
from understudy.data.dataset import Dataset
from understudy.data.formats.episode_lists import episodes_from
from worlds import random_episodes

BOX = Box((-1.0,), (1.0,))


def plain(**changes: Any) -> dict[str, Any]:
    whole = {
        "observations": [[0.0], [1.0], [2.0]],
        "actions": [[0.5], [-0.5]],
        "rewards": [1, 2],
        "terminated": False,
        "truncated": True,
    }
    return {name: value for name, value in {**whole, **changes}.items() if value is not None}


def load(*items: Any, space: Box | Discrete = BOX) -> Dataset:
    return Dataset.from_episodes(episodes_from(list(items)).episodes(), space)


def complaint(*items: Any) -> str:
    with pytest.raises(DataError) as caught:
        load(*items)
    return str(caught.value)


def test_dicts_are_episodes() -> None:
    recording = episodes_from([plain(), plain(terminated=True, truncated=False)], name="mine")
    assert (recording.name, recording.steps, recording.layout, recording.notes) == ("mine", 4, "list", ())
    dataset = Dataset.from_episodes(recording.episodes(), BOX)
    assert dataset.index.truncated.tolist() == [True, False]
    assert dataset.index.terminated.tolist() == [False, True]
    assert dataset.returns().tolist() == [3, 3]
    assert len(list(recording.episodes())) == 2  # it may be played again


def test_episodes_pass_through() -> None:
    given = random_episodes(2)
    assert list(episodes_from(given).episodes()) == given


@pytest.mark.parametrize("names", [("terminals", "timeouts"), ("terminations", "truncations"), ("terminal", "timeout")])
@pytest.mark.parametrize("per_step", [False, True])
def test_ends_by_other_names_once_or_per_step(names: tuple[str, str], per_step: bool) -> None:
    ends = {names[0]: np.array([0, 0]) if per_step else 0, names[1]: np.array([[0.0], [1.0]]) if per_step else 1.0}
    dataset = load({**plain(terminated=None, truncated=None), **ends})
    assert dataset.index.truncated.tolist() == [True]
    assert dataset.index.terminated.tolist() == [False]


def test_terminal_wins_and_done_is_told() -> None:
    both = load(plain(terminated=True, truncated=True))
    assert (both.index.terminated.tolist(), both.index.truncated.tolist()) == ([True], [False])
    recording = episodes_from([plain(terminated=None, truncated=None, done=True)])
    assert next(recording.episodes()).terminated
    assert "does not say whether" in recording.notes[0]
    limited = next(episodes_from([plain(terminated=None, done=True)]).episodes())
    assert (limited.terminated, limited.truncated) == (False, True)
    stopped = next(episodes_from([plain(truncated=None, done=True)]).episodes())
    assert (stopped.terminated, stopped.truncated) == (False, True)


def test_an_end_nobody_tells_is_not_terminal() -> None:
    recording = episodes_from([plain(terminated=None, truncated=None)])
    episode = next(recording.episodes())
    assert (episode.terminated, episode.truncated) == (False, False)
    assert "do not say how they ended" in recording.notes[0]


def test_groups_masks_and_further_columns() -> None:
    item = plain(
        observations={"state": np.zeros((3, 2)), "camera": np.zeros((3, 4, 4, 1), np.uint8)},
        actions=[0, 2],
        action_mask=np.array([[1, 1, 1], [0, 1, 1], [1, 0, 0]]),
        log_probs=[-0.1, -0.2],
        extra={"goal": np.ones((2, 5))},
    )
    dataset = load(item, space=Discrete(3))
    assert dataset.spec.observation["camera"].dtype == "uint8"
    assert dataset.mask is not None
    assert dataset.mask.shape == (3, 3)
    assert sorted(dataset.extra) == ["behaviour_log_prob", "goal"]
    mask = item.pop("action_mask")
    among = {**item, "observations": {**item["observations"], "action_mask": mask}}
    assert load(among, space=Discrete(3)).fingerprint == dataset.fingerprint, "as an environment gives it"
    after = {name: values[1:] for name, values in among["observations"].items()}
    before = {name: values[:-1] for name, values in among["observations"].items()}
    twice = {**among, "observations": before, "next_observations": after}
    assert load(twice, space=Discrete(3)).fingerprint == dataset.fingerprint


def test_the_final_observation() -> None:
    recording = episodes_from([plain(observations=[[0.0], [1.0]])])
    assert not next(recording.episodes()).final_known
    assert "final_known=False" in recording.notes[0]
    assert not load(plain(observations=[[0.0], [1.0]], final_known=False)).index.final_known.any()
    told = "has 2 actions and 2 observations, expected 3. If the final one was not recorded, say final_known=False."
    assert told in complaint(plain(observations=[[0.0], [1.0]], final_known=True))
    restored = load(plain(observations=[[0.0], [1.0]], next_observations=[[1.0], [7.0]]))
    assert restored.observations["state"].ravel().tolist() == [0, 1, 7]


def test_no_rewards() -> None:
    recording = episodes_from([plain(rewards=None)])
    assert recording.facts["rewards"] == "absent"
    assert "only imitation" in recording.notes[0]
    assert next(recording.episodes()).rewards.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (3, "episode 1: not an episode: got int, expected a dict or an Episode"),
        ([plain()], "episode 1: not an episode: got list"),
        (plain(actions=None), "episode 1: has no 'actions'"),
        (plain(observations=None, observatoins=[[0.0]]), "has no 'observations'. Did you mean 'observatoins'?"),
        (plain(obs=[[0.0]]), "says observations twice: got ['obs', 'observations']"),
        (plain(observations=[[0.0], [1.0, 2.0]]), "observations: not an array"),
        (plain(observations=[["a"]]), "observations: not numeric"),
        (plain(actions=1.0), "actions: a single number where rows belong"),
        (plain(rewards=[1]), "rewards do not match actions: got [1], expected [2]"),
        (plain(rewards=[[1, 2]]), "rewards do not match actions"),
        (plain(observations={}), "has no observations"),
        (plain(observations={"a/b": [[0.0]]}), "not a usable name of an observation group: got 'a/b'"),
        (plain(observations={3: [[0.0]]}), "not a usable name of an observation group: got 3"),
        (plain(terminated=7), "terminated, row 0: not a flag: got 7"),
        (plain(terminated="yes"), "terminated: neither one flag nor one per step"),
        (plain(terminated=[0, 0, 1]), "terminated: neither one flag nor one per step"),
        (plain(truncated=[True, False]), "truncated, row 0: ends the episode before its last step"),
        (plain(observations=[[0.0], [1.0]], next_observations=[[9.0], [7.0]]), "does not continue the observations"),
        (plain(next_observations=[[1.0], [2.0]]), "next_observations: wrong shape"),
        (plain(observations=[[0.0], [1.0]], next_observations={"b": [[0.0]]}), "other groups"),
        (plain(extra=[1]), "extra: not a dict of arrays: got list"),
        (plain(extra={"goal": [1, 2, 3]}), "goal: does not match actions: got 3, expected 2"),
        (plain(rewards=None, reward_=[1, 2]), "has no use for 'reward_'. Did you mean 'reward'?"),
        (plain(goal=[1, 2]), "Further columns stand in a dict under 'extra'."),
        (dict([*plain().items(), (5, [1, 2])]), "has no use for '5'"),
        (plain(extra={5: [1, 2]}), "not a usable name of a column: got 5"),
        (plain(extra={"../x": [1, 2]}), "not a usable name of a column: got '../x'"),
        (plain(actions=np.zeros((0, 1)), rewards=[], terminated=True, truncated=None), "has no steps"),
    ],
)
def test_each_mistake_has_its_sentence(item: Any, told: str) -> None:
    message = complaint(plain(), item)
    assert told in message
    assert "episode 1" in message


@pytest.mark.parametrize("items", ["text", {"observations": []}, 3, None])
def test_what_is_no_list(items: Any) -> None:
    with pytest.raises(DataError, match="not a list of episodes"):
        episodes_from(items)
    with pytest.raises(DataError, match="has no episodes"):
        episodes_from([])
