"""Sums along time, each term discounted: returns and advantages are made of them."""

from torch import Tensor

from understudy.core.checks import check_same_shape


def discounted_sums(values: Tensor, factors: Tensor) -> Tensor:
    """y_t = x_t + f_t·y_{t+1} [T, …], y_T = x_T.

    By doubling: after step k every y holds the terms of 2^k steps, so that T steps take log₂ T passes instead of T.
    """
    check_same_shape(values=values, factors=factors)
    sums, reach = values.clone(), factors.clone()
    reach[-1] = 0.0
    ahead = 1
    while ahead < len(values):
        sums[:-ahead] += reach[:-ahead] * sums[ahead:].clone()
        reach[:-ahead] *= reach[ahead:].clone()
        reach[-ahead:] = 0.0
        ahead *= 2
    return sums
