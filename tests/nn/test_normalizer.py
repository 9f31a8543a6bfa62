"""Observation normalisation."""

import pytest
import torch

from understudy.core.protocols import Moments
from understudy.core.spec import Box, Group, Spec
from understudy.nn.normalizer import Normalizer
from understudy.nn.view import View


def test_by_hand() -> None:
    normalizer = Normalizer.of(Moments(torch.tensor([1.0, -2.0]), torch.tensor([0.999, 1.999])))
    assert normalizer(torch.tensor([[3.0, 0.0]])).flatten().tolist() == pytest.approx([2.0, 1.0])


def test_a_constant_column_becomes_zero_and_stays_finite_elsewhere() -> None:
    normalizer = Normalizer.of(Moments(torch.tensor([5.0]), torch.tensor([0.0])))
    assert normalizer(torch.tensor([[5.0], [5.001]])).flatten().tolist() == pytest.approx([0.0, 1.0], abs=1e-3)


def test_identity_changes_no_bit() -> None:
    values = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Normalizer.identity((3,))(values), values)


def test_statistics_are_buffers_not_parameters_and_not_the_callers() -> None:
    moments = Moments(torch.zeros(2), torch.ones(2))
    normalizer = Normalizer.of(moments)
    moments.mean.fill_(7.0)
    assert not list(normalizer.parameters())
    assert set(normalizer.state_dict()) == {"mean", "scale"}
    assert not normalizer.mean.any()


def test_a_view_joins_groups_in_the_spec_order() -> None:
    spec = Spec({"b": Group((2,), "float32"), "a": Group((1, 2), "uint8")}, Box((-1.0,), (1.0,)))
    view = View(spec, {"b": Moments(torch.tensor([1.0, 1.0]), torch.tensor([0.999, 0.999]))})
    obs = {"a": torch.tensor([[[7, 8]]], dtype=torch.uint8), "b": torch.tensor([[2.0, 3.0]])}
    assert view.size == 4
    assert view(obs).flatten().tolist() == pytest.approx([1.0, 2.0, 7.0, 8.0])
