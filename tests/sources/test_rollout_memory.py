"""A rollout of images is in memory once: what follows a step is the next row, and only what followed an end is kept."""

import gc
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from rollouts import build_ppo
from understudy.core.batch import Rollout, following_rows
from understudy.core.spec import Box
from understudy.envs.vector.tensor_adapter import TensorVectorEnv
from understudy.sources.rollout import RolloutSource

COUNT, STEPS, SIDE = 4, 12, 16
CONV = {"kind": "conv", "layers": [{"channels": 2, "kernel": 4, "stride": 4}], "size": 3}
ROLE = {"hidden": [4], "encoders": {"depth": CONV}}


class Depth:
    """Looks at noise; its episodes end at different times."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.num_envs, self.dtype, self.rng = COUNT, dtype, torch.Generator()
        self.restart(0)

    def restart(self, seed: int) -> None:
        self.rng.manual_seed(seed)
        self.ages = torch.arange(COUNT)

    def get_observations(self) -> dict[str, Tensor]:
        noise = torch.rand(COUNT, SIDE, SIDE, generator=self.rng)
        self.depth = (noise * 255).to(self.dtype) if self.dtype == torch.uint8 else noise.half().to(self.dtype)
        return {"depth": self.depth}

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, Mapping[str, Any]]:
        self.ages = self.ages + 1
        ended = self.ages % 7 == 0
        final = self.get_observations()
        return self.get_observations(), actions.sum(1), ended, {"time_outs": ended, "final_obs": final}


def played(dtype: torch.dtype) -> tuple[Any, Any, Rollout]:
    sim = Depth(dtype)
    envs = TensorVectorEnv(sim, Box((-1.0,), (1.0,)), "Depth", restart=sim.restart)
    ppo = build_ppo(envs.spec, COUNT, actor=ROLE, critic={**ROLE, "share_encoder": True}, minibatches=4, epochs=1)
    source = RolloutSource.build(envs, ppo.policy, STEPS, 0)
    return source, ppo, source.next(ppo.policy)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32])
def test_images_are_kept_once_and_as_they_came(dtype: torch.dtype) -> None:
    source, ppo, _ = played(dtype)
    one = STEPS * COUNT * SIDE * SIDE * torch.empty(0, dtype=dtype).element_size()
    rollout = source.next(ppo.policy)
    assert rollout.obs["depth"].dtype == dtype
    assert int(rollout.ended.sum()) > COUNT
    parts = [part for part in reachable(rollout) if part.shape[-2:] == (SIDE, SIDE)]
    storages = {part.untyped_storage().data_ptr(): part.untyped_storage().nbytes() for part in parts}
    finals = int(rollout.ended.sum()) / (STEPS * COUNT)
    assert sum(storages.values()) <= (1 + 1 / STEPS + finals) * one, "one row more, and what followed the ends"


def reachable(thing: Any) -> list[Tensor]:
    """Every tensor that is kept alive by something."""
    found: dict[int, Any] = {}
    waiting = [thing]
    while waiting:
        one = waiting.pop()
        if id(one) not in found and not isinstance(one, type):
            found[id(one)] = one
            waiting += [] if isinstance(one, Tensor) else gc.get_referents(one)
    return [one for one in found.values() if isinstance(one, Tensor)]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32])
def test_no_more_images_than_a_piece_are_floats_at_once(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and densities of a whole rollout are found piece by piece, and are those that gradients are taken of."""
    monkeypatch.setattr("understudy.nn.encoders.PIECE", 10 * SIDE * SIDE)
    monkeypatch.setattr("understudy.nn.encoders.FEWEST", 1)
    _, ppo, rollout = played(dtype)
    encoder = next(iter(ppo.policy.perception.encoders.values()))
    given: list[Tensor] = []
    hook = encoder.layers[0].register_forward_pre_hook(lambda layer, inputs: given.append(inputs[0]))
    with torch.no_grad():
        found = ppo.policy.perception.sequence(rollout.obs)
        assert [len(pixels) for pixels in given] == [10, 10, 10, 9, 9]
        assert all(pixels.dtype == torch.float32 for pixels in given)
        given.clear()
        ppo.value.around(rollout.obs, rollout.next_obs, (), rollout.resets)
        assert max(len(pixels) for pixels in given) <= 10
    given.clear()
    torch.testing.assert_close(ppo.policy.perception.sequence(rollout.obs).detach(), found)
    assert [len(pixels) for pixels in given] == [STEPS * COUNT]
    hook.remove()


def test_some_successors_are_those_of_all() -> None:
    _, _, rollout = played(torch.float32)
    whole = rollout.next_obs["depth"]
    going_on = ~rollout.ended[:-1]
    assert torch.equal(whole[:-1][going_on], rollout.obs["depth"][1:][going_on])
    assert not torch.equal(whole[:-1][~going_on], rollout.obs["depth"][1:][~going_on])
    index = torch.randperm(STEPS * COUNT, generator=torch.Generator().manual_seed(0))
    assert torch.equal(following_rows(rollout.next_obs, "depth", index), whole.flatten(0, 1)[index])
    assert torch.equal(following_rows(dict(rollout.next_obs), "depth", index), whole.flatten(0, 1)[index])


def test_few_bits_change_no_number() -> None:
    """What comes as float16 is learned from as the same numbers in float32 are."""
    learned = []
    for dtype in (torch.float16, torch.float32):
        source, ppo, rollout = played(dtype)
        told = [ppo.update(rollout).metrics, ppo.update(source.next(ppo.policy)).metrics]
        learned.append([{name: float(value) for name, value in one.items()} for one in told])
    assert learned[0] == learned[1]
