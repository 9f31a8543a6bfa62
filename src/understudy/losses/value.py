"""Targets and losses of value functions."""

import torch
from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape
from understudy.core.ranks import across


def bootstrap_target(reward: Tensor, discount: float | Tensor, terminated: Tensor, bootstrap: Tensor) -> Tensor:
    """y [B] = r where the episode terminated, r + γⁿ·B(s') elsewhere.

    The one place that decides what termination means. `where`, not a product: 0·inf is NaN.
    """
    check_same_shape(reward=reward, terminated=terminated, bootstrap=bootstrap)
    if isinstance(discount, Tensor):
        check_same_shape(reward=reward, discount=discount)
    return torch.where(terminated, reward, reward + discount * bootstrap).detach()


def penalised_value(value: Tensor, distance: Tensor, penalty: float, valid: Tensor) -> Tensor:
    """Q − penalty·d [B] where the distance to the data's next action is known (`valid`), Q elsewhere. ReBRAC."""
    check_same_shape(value=value, distance=distance, valid=valid)
    return value - penalty * torch.where(valid, distance, 0.0)


def expectile_loss(prediction: Tensor, target: Tensor, expectile: float) -> Tensor:
    """L₂^τ(x) [B] = |τ − 1{x<0}|·x², x = target − prediction. τ = ½ is half the squared error."""
    check_no_gradient(target=target)
    check_same_shape(prediction=prediction, target=target)
    difference = target - prediction
    return torch.where(difference > 0, expectile, 1.0 - expectile) * difference.square()


def squared_error(predictions: Tensor, target: Tensor) -> Tensor:
    """(Q_j − y)² [K, B] of every ensemble member against one target [B]."""
    check_no_gradient(target=target)
    check_same_shape(prediction=predictions[0], target=target)
    return (predictions - target).square()


def own_squared_error(predictions: Tensor, targets: Tensor) -> Tensor:
    """(Q_j − y_j)² [K, B] of every ensemble member against a target of its own [K, B]."""
    check_no_gradient(targets=targets)
    check_same_shape(predictions=predictions, targets=targets)
    return (predictions - targets).square()


def huber_error(predictions: Tensor, target: Tensor, threshold: float) -> Tensor:
    """x² [K, B] where |x| ≤ κ and κ·(2|x| − κ) beyond, x = Q_j − y: twice Huber's loss, near y the squared error."""
    check_no_gradient(target=target)
    check_same_shape(prediction=predictions[0], target=target)
    size = (predictions - target).abs()
    inside = size.clamp(max=threshold)
    return inside * (2.0 * size - inside)


def absolute_error(predictions: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """mean_j |Q_j − y| [B] of predictions [K, B], a constant; 0 where the target is not valid [B]."""
    check_same_shape(prediction=predictions[0], target=target, valid=valid)
    return torch.where(valid, (predictions.detach() - target).abs().mean(0), 0.0)


def mean_over(values: Tensor, valid: Tensor) -> Tensor:
    """Mean over the last axis of the rows that are valid [B]; 0 where none is."""
    check_same_shape(value=values[..., 0, :] if values.ndim > 1 else values, valid=valid)
    return torch.where(valid, values, 0.0).sum(-1) / across(valid.sum()).clamp(min=torch.finfo(values.dtype).tiny)
