"""Encoders: shapes, images too small, where a channel is bright, bytes and numbers."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import TypeAdapter
from torch import nn

from understudy.core.errors import ConfigError
from understudy.core.rng import stream
from understudy.nn.encoders import (
    AnyEncoderSettings,
    ConvEncoder,
    ConvEncoderSettings,
    EncoderSettings,
    VectorEncoder,
    VectorEncoderSettings,
    make_encoder,
    spatial_softmax,
)

SMALL = [{"channels": 4, "kernel": 3, "stride": 2}, {"channels": 8, "kernel": 3, "padding": 1}]


def conv(shape: tuple[int, ...], /, **changes: Any) -> ConvEncoder:
    settings = ConvEncoderSettings.parse({"layers": SMALL, "size": 5, **changes})
    return ConvEncoder(shape, settings, stream(0, "init"), "actor.encoders.depth")


@pytest.mark.parametrize("norm", ["none", "group", "layer", "batch"])
@pytest.mark.parametrize("pooling", ["none", "max", "average"])
@pytest.mark.parametrize("final", ["flatten", "spatial_softmax"])
def test_every_kind_gives_its_latent_and_learns(norm: str, pooling: str, final: str) -> None:
    encoder = conv((3, 17, 21), norm=norm, pooling=pooling, final=final, activation="elu")
    latent = encoder(torch.randn(6, 3, 17, 21, generator=torch.Generator().manual_seed(0)))
    assert latent.shape == (6, 5)
    gradients = torch.autograd.grad(latent.square().sum(), list(encoder.parameters()))
    assert all(bool(gradient.isfinite().all()) and bool((gradient != 0).any()) for gradient in gradients)


def test_the_default_layers_take_an_atari_screen() -> None:
    encoder = ConvEncoder((4, 84, 84), ConvEncoderSettings(), stream(0, "init"), "here")
    assert encoder.output.layout.shapes[0] == (64 * 7 * 7, 256)


def test_bytes_are_shares_of_255() -> None:
    encoder = conv((1, 9, 9))
    pixels = torch.randint(256, (2, 1, 9, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(encoder(pixels), encoder(pixels.float() / 255))


def test_shapes_may_be_told_and_channels_may_come_last() -> None:
    image = torch.randn(2, 3, 9, 11, generator=torch.Generator().manual_seed(0))
    expected = conv((3, 9, 11))(image)
    torch.testing.assert_close(conv((9, 11, 3), channels_last=True)(image.permute(0, 2, 3, 1)), expected)
    torch.testing.assert_close(conv((297,), shape=[3, 9, 11])(image.flatten(1)), expected)
    assert conv((9, 11)).image == (1, 9, 11)


@pytest.mark.parametrize(
    ("shape", "changes", "told"),
    [
        ((1, 2, 9), {}, r"layers\.0: the image is too small here: got 2 × 9"),
        ((1, 9, 9), {"pooling": "max", "layers": [SMALL[0]] * 3}, r"layers\.1: .*got 2 × 2 of 9 × 9.*room to pool"),
        ((1, 9, 3), {"layers": [{"channels": 2, "kernel": [2, 5]}]}, r"got 9 × 3.*the kernel's 2 × 5"),
        (
            (1, 9, 9),
            {"layers": [{"channels": 2, "kernel": [3, 0]}]},
            r"layers\.0\.kernel: .*got \[3, 0\].*1 to 4096, or",
        ),
        ((1, 9, 9), {"layers": [{"channels": 2, "kernel": 3, "padding": -1}]}, r"padding: .*from 0 to"),
        ((7,), {}, r"not an image: got \[7\]"),
        ((8,), {"shape": [1, 3, 3]}, "another number of pixels"),
    ],
)
def test_images_that_do_not_fit_are_refused(shape: tuple[int, ...], changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        conv(shape, **changes)


def test_each_layer_has_its_own_sides_norm_and_pooling() -> None:
    """As torch's own modules would have it; and a stack of plain numbers is the encoder's `norm` and `pooling`."""
    layers = [
        {"channels": 4, "kernel": [3, 5], "stride": [1, 2], "padding": [0, 1], "norm": "group"},
        {"channels": 6, "kernel": 3, "pooling": "max", "pool_size": [2, 3], "norm": "none"},
        {"channels": 2, "kernel": 2, "pooling": "none"},
    ]
    encoder = conv((3, 17, 41), layers=layers, norm="layer", pooling="average", activation="relu")
    torch_layers: list[nn.Module] = []
    for layer, convolution in zip(layers, encoder.layers, strict=True):
        assert isinstance(convolution, nn.Conv2d)
        sides: Any = [layer.get(name, default) for name, default in (("kernel", 0), ("stride", 1), ("padding", 0))]
        mine = nn.Conv2d(convolution.in_channels, convolution.out_channels, *sides)
        mine.load_state_dict(convolution.state_dict())
        torch_layers.append(mine)
    images = torch.randn(5, 3, 17, 41, generator=torch.Generator().manual_seed(0))
    first = F.avg_pool2d(nn.GroupNorm(4, 4)(torch_layers[0](images)).relu(), 2)
    second = F.max_pool2d(torch_layers[1](first).relu(), (2, 3))
    third = nn.GroupNorm(1, 2)(torch_layers[2](second)).relu()
    torch.testing.assert_close(encoder(images), encoder.output(third.flatten(1)).relu())
    assert sorted(encoder.norms) == ["0", "2"]


def test_a_latent_may_be_of_length_one() -> None:
    images = torch.randn(5, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    plain, short = conv((1, 9, 9), activation="tanh"), conv((1, 9, 9), activation="tanh", l2_normalize=True)
    lengths = plain(images).norm(dim=-1, keepdim=True)
    torch.testing.assert_close(short(images), plain(images) / lengths)
    assert float(lengths.detach().std()) > 0
    for size in (1, 4):
        vector = VectorEncoderSettings(size=size, l2_normalize=True)
        latent = make_encoder((9,), vector, stream(0, "init"), "here")(images.flatten(1)[:, :9])
        torch.testing.assert_close(latent.norm(dim=-1), torch.ones(5))


def test_spatial_softmax_says_where_a_channel_is_bright() -> None:
    image = torch.zeros(1, 2, 5, 9)
    image[0, 0, 0, 8] = image[0, 1, 4, 4] = 50.0
    where = spatial_softmax(image)
    torch.testing.assert_close(where, torch.tensor([[-1.0, 1.0, 1.0, 0.0]]), atol=1e-6, rtol=0)
    assert spatial_softmax(torch.zeros(3, 2, 4, 4)).abs().max() < 1e-6


def test_a_vector_encoder_ends_in_its_activation() -> None:
    settings = VectorEncoderSettings(hidden=(), size=4, activation="tanh")
    encoder = make_encoder((2, 3), settings, stream(0, "init"), "here")
    assert isinstance(encoder, VectorEncoder)
    latent = encoder(100 * torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0)))
    assert latent.shape == (5, 4)
    assert bool((latent.abs() <= 1).all())


def test_the_kind_decides_what_may_be_said() -> None:
    adapter: TypeAdapter[AnyEncoderSettings] = TypeAdapter(EncoderSettings)
    assert isinstance(adapter.validate_python({"kind": "conv"}), ConvEncoderSettings)
    assert adapter.validate_python({"kind": "mlp", "size": 7}).size == 7
    with pytest.raises(ValueError, match="kernel"):
        adapter.validate_python({"kind": "mlp", "kernel": 7})


def test_encoders_grow_from_their_stream_only() -> None:
    before = torch.get_rng_state()
    one, same = conv((1, 9, 9)), conv((1, 9, 9))
    assert torch.equal(torch.get_rng_state(), before)
    for mine, theirs in zip(one.parameters(), same.parameters(), strict=True):
        assert torch.equal(mine, theirs)
