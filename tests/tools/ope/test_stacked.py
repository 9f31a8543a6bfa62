"""Many candidates at once are what each would be alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from judged_policies import actor, boxes

from choosing import choices
from learners import CPU, offline_source
from understudy import Dataset
from understudy.algorithms import fqe
from understudy.core.protocols import MAIN, BuildContext, Demand
from understudy.data.experience import LoggedExperience
from understudy.data.transforms import Transforms
from understudy.nn.actor import Actor
from understudy.tools.ope.resamples import Resample
from understudy.tools.ope.stacked import ask, train_stack

UPDATES, BATCH = 40, 32


def alone(config: fqe.Config, data: LoggedExperience, policy: Actor, seed: int, own: LoggedExperience) -> torch.Tensor:
    """What `algorithms/fqe` says of the starts of `data`, from the batches that a run with this seed draws of its `own`
    [E]."""
    context = BuildContext(data.spec, UPDATES, seed, CPU, data={MAIN: data}, policies={fqe.TARGET: policy})
    learner = fqe.build(config, context)
    index = offline_source(own.dataset, Demand(("row",)), BATCH, seed)
    for _ in range(UPDATES):
        learner.update(own.rows(index.next(policy).extra["row"], learner.demand))
    rows = data.rows(data.starts(), Demand(("mask",) if data.spec.masked else ()))
    chosen = learner.choices(rows.obs, rows.extra.get("mask"), learner.draws)
    return learner.value(rows.obs, chosen)[0].double() / data.reward.scale


@pytest.mark.parametrize("kind", ["boxes", "choices", "masked", "drawn choices", "resampled boxes"])
def test_a_stack_equals_each_alone(kind: str) -> None:
    """To 1e-6 of the values' size: in a stack products round in another order, and small differences grow. Alone is on
    a dataset of the same episodes, in the same units."""
    dataset: Dataset = boxes(terminated=False) if "boxes" in kind else choices(kind == "masked")
    units = Transforms(normalize_observations=True, scale_rewards=0.5)
    data = own = LoggedExperience.of(dataset, units)
    index = dataset.index
    resample = Resample.drawn(index, 1) if "resampled" in kind else Resample.whole(index)
    if "resampled" in kind:
        played = [dataset.episode(number) for number in resample.episodes.tolist()]
        own = LoggedExperience.of(Dataset.from_episodes(played, dataset.spec.action), units)
    policies = [actor(dataset.spec, seed) for seed in range(3)]
    drawn = kind == "drawn choices"
    config = fqe.Config.parse({"gamma": 0.9, "stochastic": drawn, "critic": {"hidden": (16, 16)}}, "algo")
    config = config.model_copy(update={"critic_learning_rate": 3e-3, "polyak": 0.1})
    asked = ask(policies, data, config.samples if drawn else 0, seed=1)
    rows = resample.rows()
    together = train_stack(config, data, policies[0], asked, rows, 1, UPDATES, BATCH)
    single = torch.stack([alone(config, data, policy, 1, own) for policy in policies])
    assert (single[0] - single[1]).abs().max() > 1e-2, "candidates differ"
    torch.testing.assert_close(together.starts, single, rtol=2e-6, atol=2e-6)
    other = train_stack(config, data, policies[0], asked, rows, 2, UPDATES, BATCH)
    assert (other.starts - single).abs().max() > 1e-3, "seeds differ"


def test_what_critics_say_of_every_step_is_what_they_say_of_starts() -> None:
    """V of the state after a step, asked as a start's would be; and a run of |Q| beyond any return is noticed."""
    data = LoggedExperience.of(boxes(terminated=False))
    policies = [actor(data.spec, seed) for seed in range(2)]
    config = fqe.Config.parse({"gamma": 0.5, "critic": {"hidden": (8,)}}, "algo")
    asked = ask(policies, data, 0, seed=0)
    judged = train_stack(config, data, policies[0], asked, torch.arange(data.steps), 0, 5, BATCH, every_step=True)
    (steps,) = judged.steps
    assert steps.q.shape == steps.after.shape == (2, data.steps)
    assert not bool(judged.diverged.any())
    assert judged.bound == pytest.approx(float(data.recorded.rewards.abs().max()) / 0.5, rel=1e-5)
    begun = judged.starts.abs().amax(1)
    assert bool(replace(judged, bound=float(begun.min()) / 2.1).diverged.all())
    assert not bool(replace(judged, bound=float(begun.max()) / 1.9).diverged.any())
    assert bool(replace(judged, starts=judged.starts * torch.nan).diverged.all())
    elsewhere = replace(judged, bound=float(begun.max()) / 1.9, largest=judged.largest * 10)
    assert bool(elsewhere.strained.all())
    assert not bool(elsewhere.diverged.any())
    assert bool(replace(judged, largest=judged.largest * torch.nan).strained.all())
    assert np.isfinite(steps.after.numpy()).all()
