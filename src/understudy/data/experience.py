"""A dataset as a run learns from it: on the run's device, actions in policy space, rewards transformed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor

from understudy.core.batch import Sequences, Transitions
from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.protocols import Demand, Moments
from understudy.core.spec import ActionSpace, Box, Spec
from understudy.data.dataset import Dataset
from understudy.data.rewards import RewardTransform, fit_rewards, reward_transform
from understudy.data.transforms import Transforms, column_numbers

NO_TRANSFORMS = Transforms()


@final
@dataclass(frozen=True)
class LoggedExperience:
    dataset: Dataset
    """On the device, with the rewards that are learned from."""
    recorded: Dataset
    """As it was recorded."""
    held_out: tuple[Dataset, ...]
    """Episodes that are measured and not learned from, if any."""
    reward: RewardTransform
    transforms: Transforms
    device: torch.device
    into_policy_space: Callable[[Transitions], Transitions]

    @classmethod
    def of(
        cls,
        recorded: Dataset,
        transforms: Transforms = NO_TRANSFORMS,
        device: torch.device | None = None,
        held_out: tuple[Dataset, ...] = (),
    ) -> "LoggedExperience":
        device = device or torch.device("cpu")
        preset = fit_rewards(transforms.reward, recorded)
        reward = reward_transform(preset, transforms.scale_rewards, transforms.shift_rewards, transforms.clip_rewards)
        convert = into_policy_space(recorded.spec.action, device)
        return cls(recorded.with_rewards(reward).to(device), recorded, held_out, reward, transforms, device, convert)

    @property
    def spec(self) -> Spec:
        return self.dataset.spec

    @property
    def steps(self) -> int:
        return self.dataset.steps

    def rows(self, index: Tensor, demand: Demand) -> Transitions:
        return self.into_policy_space(self.dataset.rows(index.to(self.device), demand))

    def windows(self, start: Tensor, length: int, demand: Demand) -> Sequences:
        """What is missing at an episode's end repeats its last step: s2 s3 s4 (s4), of which the last is not valid."""
        begins, ends = (torch.from_numpy(bound) for bound in (self.dataset.index.starts, self.dataset.index.ends))
        episode = torch.bucketize(start, ends, right=True)
        begin, end = (bound.index_select(0, episode).unsqueeze(1) for bound in (begins, ends))
        wished = start.unsqueeze(1) + torch.arange(length)
        rows = self.rows(torch.minimum(wished, end - 1).flatten(), demand)
        return Sequences.folded(rows, (wished < end).to(self.device), (wished == begin).to(self.device))

    def starts(self) -> Tensor:
        return torch.from_numpy(self.dataset.index.starts)

    def moments(self) -> dict[str, Moments]:
        """What normalisers are made of; nothing where the run asks for none."""
        return self._moments if self.transforms.normalize_observations else {}

    @cached_property
    def _moments(self) -> dict[str, Moments]:
        with torch.device("cpu"):  # also where networks are only outlined
            return self.recorded.moments()

    def hidden(self) -> dict[str, tuple[int, ...]]:
        """Columns that no network sees, counted from 0."""
        found = {}
        for name, numbers in self.transforms.hide_columns.items():
            size = self._vector_size(name)
            if beyond := [number for number in numbers if not -size <= number < size]:
                raise ConfigError(
                    "data.hide_columns", f"no such column of '{name}'", got=beyond[0], expected=f"{-size} to {size - 1}"
                )
            found[name] = tuple(column_numbers(numbers, size, "data.hide_columns"))
        return found

    def _vector_size(self, name: str) -> int:
        groups = self.spec.observation
        if name not in groups or len(groups[name].shape) != 1:
            raise ConfigError("data.hide_columns", f"no vector group '{name}'", do=did_you_mean(name, groups))
        return groups[name].size

    def rewards(self, most: int = 1 << 24) -> Tensor:
        """All rewards that are learned from, or every second, third, … of more than `most`: copies take memory."""
        stride = -(-self.steps // most)
        blocks = self.recorded.blocks(self.recorded.rewards.cpu().numpy())
        return self.reward(torch.cat([torch.from_numpy(block[::stride].copy()) for block in blocks]))

    def describe(self) -> dict[str, Any]:
        """What meta.json says of it."""
        return {
            "name": self.recorded.name,
            "fingerprint": self.recorded.fingerprint,
            "steps": self.recorded.steps,
            "episodes": self.recorded.episodes,
            "return_mean": float(self.recorded.returns().mean()),
            **self.reward.told(),
        }

    def transforms_told(self) -> dict[str, Any]:
        """What was done to the data, in words and with the numbers that were fitted, so that others can do the same."""
        words = self.transforms.model_dump(mode="json", include=set(Transforms.model_fields))
        return {**words, **self.reward.told()}


def into_policy_space(space: ActionSpace, device: torch.device) -> Callable[[Transitions], Transitions]:
    """A map of rows whose continuous actions end up in [-1, 1]; choices stay the whole numbers they are."""
    if not isinstance(space, Box):
        return lambda rows: rows
    centre = torch.as_tensor(space.centre, dtype=torch.float32, device=device)
    scale = torch.as_tensor(1.0 / space.half_range, dtype=torch.float32, device=device)

    def normalise(action: Tensor) -> Tensor:
        return (action - centre) * scale

    def convert(rows: Transitions) -> Transitions:
        extra = dict(rows.extra)
        if "next_action" in extra:
            extra["next_action"] = normalise(extra["next_action"])
        return replace(rows, action=normalise(rows.action), extra=extra)

    return convert
