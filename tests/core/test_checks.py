"""Nothing broadcasts, and targets carry no gradient."""

import pytest
import torch

from understudy.core.checks import check_no_gradient, check_same_shape


def test_a_column_beside_a_vector_is_refused() -> None:
    with pytest.raises(ValueError, match=r"weight \[4\], error \[4, 1\]"):
        check_same_shape(weight=torch.zeros(4), error=torch.zeros(4, 1))
    check_same_shape(weight=torch.zeros(4), error=torch.ones(4))


def test_a_target_with_gradient_is_refused() -> None:
    with pytest.raises(ValueError, match="target carries gradient"):
        check_no_gradient(target=torch.zeros(2, requires_grad=True))
    check_no_gradient(target=torch.zeros(2))
