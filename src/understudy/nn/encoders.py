"""Encoders: one input of a role, an image or a vector, becomes a latent vector."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from understudy.core.errors import ConfigError
from understudy.core.settings import Count, Settings, Widths
from understudy.nn.activations import Activation, activate
from understudy.nn.init import HIDDEN_GAIN, orthogonal
from understudy.nn.mlp import MLP, NetworkSettings
from understudy.nn.own_encoder import OwnEncoder, OwnEncoderSettings

Norm = Literal["none", "group", "layer"]
Pooling = Literal["none", "max", "average"]
POOLED = 2
"""Pooling halves an image."""
LARGEST_SIDE, LARGEST_IMAGE = 1 << 12, 1 << 28
"""Of a kernel and its padding, and numbers of one image between layers: padding could make it grow without end."""


PIECE, FEWEST = 1 << 20, 64
"""Numbers of the images that are looked at side by side where nothing is learned, and the fewest images. All of a
rollout's at once would be there a second time as floats, and all that layers make of them; very few round otherwise."""


class ConvLayer(Settings):
    """One convolution."""

    channels: Count
    """Channels that come out."""
    kernel: int = Field(ge=1, le=LARGEST_SIDE)
    """Height and width of what one output sees."""
    stride: int = Field(1, ge=1)
    """Pixels from one output to the next."""
    padding: int = Field(0, ge=0, le=LARGEST_SIDE)
    """Zeros around the image."""


class ConvEncoderSettings(Settings):
    """Convolutions over an image [C, H, W], or [H, W] of one channel."""

    kind: Literal["conv"] = "conv"
    """An image."""
    layers: tuple[ConvLayer, ...] = Field(
        (
            ConvLayer(channels=32, kernel=8, stride=4),
            ConvLayer(channels=64, kernel=4, stride=2),
            ConvLayer(channels=64, kernel=3),
        ),
        min_length=1,
        max_length=100,
    )
    """From the image inward; as Mnih et al. 2015 unless told."""
    norm: Norm = "none"
    """After each convolution: `none`, `group` (up to 8 groups of channels) or `layer` (the whole image)."""
    pooling: Pooling = "none"
    """After each activation: `none`, or halve the image by the `max` or the `average` of 2 × 2."""
    final: Literal["flatten", "spatial_softmax"] = "flatten"
    """How the last image becomes a vector: all of it, or where each channel is brightest (Levine et al. 2016)."""
    activation: Activation = "relu"
    """Between layers and at the end, as of a trunk."""
    hidden: Widths = ()
    """Units of each layer between the last image and the latent."""
    size: Count = 256
    """Of the latent."""
    shape: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """The image inside a flat segment; null where the group has its shape already."""
    channels_last: bool = False
    """The image is [H, W, C]."""


class VectorEncoderSettings(Settings):
    """Layers over a vector."""

    kind: Literal["mlp"] = "mlp"
    """A vector."""
    hidden: Widths = (128,)
    """Units of each layer before the latent."""
    activation: Activation = "elu"
    """Between layers and at the end, as of a trunk."""
    size: Count = 32
    """Of the latent."""


AnyEncoderSettings = ConvEncoderSettings | VectorEncoderSettings | OwnEncoderSettings
EncoderSettings = Annotated[AnyEncoderSettings, Field(discriminator="kind")]


class VectorEncoder(nn.Module):
    """[B, …] → [B, size]."""

    def __init__(self, inputs: int, settings: VectorEncoderSettings, rng: torch.Generator) -> None:
        super().__init__()
        self.size = settings.size
        self.activation = settings.activation
        self.mlp = MLP(inputs, settings.size, _layers(settings), rng)

    def forward(self, values: Tensor) -> Tensor:
        return activate(self.mlp(values.float().flatten(1)), self.activation)


class ConvEncoder(nn.Module):
    """Images [B, C, H, W] → [B, size]. Bytes are taken as 0 to 1, floating numbers as they are."""

    def __init__(self, shape: Sequence[int], settings: ConvEncoderSettings, rng: torch.Generator, where: str) -> None:
        super().__init__()
        self.settings = settings
        self.size = settings.size
        self.image = image_shape(shape, settings, where)
        *_, (channels, height, width) = shapes = inner_shapes(self.image, settings, where)
        pairs = zip(shapes, settings.layers, strict=False)
        self.layers = nn.ModuleList(_convolution(before[0], layer, rng) for before, layer in pairs)
        norms = [_norm(settings.norm, layer.channels) for layer in settings.layers] if settings.norm != "none" else []
        self.norms = nn.ModuleList(norms)
        joined = 2 * channels if settings.final == "spatial_softmax" else channels * height * width
        self.output = MLP(joined, settings.size, _layers(settings), rng)

    def forward(self, values: Tensor) -> Tensor:
        return activate(self.output(self._joined(values)), self.settings.activation)

    def _joined(self, values: Tensor) -> Tensor:
        """What the layers make of each image [B, joined], in pieces where no gradient needs all of them."""
        if torch.is_grad_enabled() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return self._convolved(values)
        pieces = math.ceil(len(values) / max(FEWEST, PIECE // math.prod(self.image)))
        if pieces < 2:
            return self._convolved(values)
        return torch.cat([self._convolved(some) for some in values.tensor_split(pieces)])

    def _convolved(self, values: Tensor) -> Tensor:
        pixels = values.float() / 255.0 if values.dtype == torch.uint8 else values.float()
        pixels = self._channels_first(pixels)
        for number, layer in enumerate(self.layers):
            pixels = layer(pixels)
            pixels = activate(self.norms[number](pixels) if self.norms else pixels, self.settings.activation)
            pixels = _pool(pixels, self.settings.pooling)
        return spatial_softmax(pixels) if self.settings.final == "spatial_softmax" else pixels.flatten(1)

    def _channels_first(self, pixels: Tensor) -> Tensor:
        channels, height, width = self.image
        if self.settings.channels_last:
            return pixels.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        return pixels.reshape(-1, channels, height, width)


Encoder = VectorEncoder | ConvEncoder | OwnEncoder


def make_encoder(shape: tuple[int, ...], settings: AnyEncoderSettings, rng: torch.Generator, where: str) -> Encoder:
    """The encoder of an input of this shape."""
    if isinstance(settings, OwnEncoderSettings):
        return OwnEncoder(shape, settings, rng, where)
    if isinstance(settings, ConvEncoderSettings):
        return ConvEncoder(shape, settings, rng, where)
    return VectorEncoder(math.prod(shape), settings, rng)


def _layers(settings: ConvEncoderSettings | VectorEncoderSettings) -> NetworkSettings:
    return NetworkSettings(hidden=settings.hidden, activation=settings.activation)


def image_shape(shape: Sequence[int], settings: ConvEncoderSettings, where: str) -> tuple[int, int, int]:
    """Channels, height and width of an input."""
    told = tuple(settings.shape or shape)
    if math.prod(told) != math.prod(shape):
        raise ConfigError(f"{where}.shape", "is another number of pixels", got=list(told), expected=math.prod(shape))
    if len(told) == 2:
        return 1, *told
    if len(told) != 3:
        raise ConfigError(
            where,
            "not an image",
            got=list(told),
            expected="[H, W], or [C, H, W]",
            do="Say the image's `shape`, or take `kind: mlp`.",
        )
    first, second, third = told
    return (third, first, second) if settings.channels_last else (first, second, third)


def inner_shapes(image: tuple[int, int, int], settings: ConvEncoderSettings, where: str) -> list[tuple[int, int, int]]:
    """The image, and what each layer makes of it."""
    shapes = [image]
    for number, layer in enumerate(settings.layers):
        _, *sides = shapes[-1]
        after = [(side + 2 * layer.padding - layer.kernel) // layer.stride + 1 for side in sides]
        after = after if settings.pooling == "none" else [side // POOLED for side in after]
        if min(after) < 1:
            raise ConfigError(
                f"{where}.layers.{number}",
                "the image is too small here",
                got=f"{sides[0]} × {sides[1]} of {image[1]} × {image[2]}",
                expected=f"at least the kernel's {layer.kernel}" + (" and room to pool" * (settings.pooling != "none")),
                do="Use fewer layers, smaller kernels and strides, or padding.",
            )
        shapes.append((layer.channels, after[0], after[1]))
        if math.prod(shapes[-1]) > LARGEST_IMAGE:
            raise ConfigError(
                f"{where}.layers.{number}",
                "the image becomes too large",
                got=list(shapes[-1]),
                expected=f"at most {LARGEST_IMAGE:,} numbers",
            )
    return shapes


def spatial_softmax(pixels: Tensor) -> Tensor:
    """Where each channel [B, C, H, W] is bright: the mean place under a softmax over its pixels, [B, 2C] in [-1, 1]."""
    shares = pixels.flatten(2).softmax(-1).view_as(pixels)
    rows, columns = (torch.linspace(-1, 1, side, device=pixels.device) for side in pixels.shape[2:])
    return torch.cat([shares.sum(3) @ rows.unsqueeze(1), shares.sum(2) @ columns.unsqueeze(1)], dim=-1).flatten(1)


def _convolution(channels: int, layer: ConvLayer, rng: torch.Generator) -> nn.Conv2d:
    sizes = (channels, layer.channels, layer.kernel, layer.stride, layer.padding)
    blank = nn.Conv2d(*sizes, device="meta")  # draws nothing from torch's own stream
    convolution = blank.to_empty(device=torch.get_default_device())
    assert convolution.bias is not None
    orthogonal(convolution.weight, HIDDEN_GAIN, rng)
    nn.init.zeros_(convolution.bias)
    return convolution


def _norm(norm: Norm, channels: int) -> nn.Module:
    return nn.GroupNorm(math.gcd(channels, 8) if norm == "group" else 1, channels)


def _pool(pixels: Tensor, pooling: Pooling) -> Tensor:
    if pooling == "none":
        return pixels
    return F.max_pool2d(pixels, POOLED) if pooling == "max" else F.avg_pool2d(pixels, POOLED)
