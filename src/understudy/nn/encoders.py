"""Encoders: one input of a role, an image or a vector, becomes a latent vector."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError
from torch import Tensor, nn

from understudy.core.errors import ConfigError
from understudy.core.settings import Count, Settings, Widths
from understudy.nn.activations import Activation, activate
from understudy.nn.batch_norm import BatchNorm, RunningMoments
from understudy.nn.init import HIDDEN_GAIN, orthogonal
from understudy.nn.mlp import MLP, NetworkSettings
from understudy.nn.own_encoder import OwnEncoder, OwnEncoderSettings

Norm = Literal["none", "group", "layer", "batch"]
Pooling = Literal["none", "max", "average"]
LARGEST_SIDE, LARGEST_IMAGE = 1 << 12, 1 << 28
"""Of a kernel and its padding, and numbers of one image between layers: padding could make it grow without end."""


PIECE, FEWEST = 1 << 20, 64
"""Numbers of the images that are looked at side by side where nothing is learned, and the fewest images. All of a
rollout's at once would be there a second time as floats, and all that layers make of them; very few round otherwise."""


def _pair(sides: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width."""
    return (sides, sides) if isinstance(sides, int) else sides


def _sides(least: int) -> WrapValidator:
    """One number for both sides, or one for each."""

    def check(given: object, parse: ValidatorFunctionWrapHandler) -> int | tuple[int, int]:
        with suppress(ValidationError):
            sides: int | tuple[int, int] = parse(given)
            if least <= min(_pair(sides)) <= max(_pair(sides)) <= LARGEST_SIDE:
                return sides
        told = "Input should be a whole number from {least} to {most}, or two of them: [height, width]"
        raise PydanticCustomError("sides", told, {"least": least, "most": LARGEST_SIDE})

    return WrapValidator(check)


Sides = Annotated[int | tuple[int, int], _sides(1)]
Margins = Annotated[int | tuple[int, int], _sides(0)]


class ConvLayer(Settings):
    """One convolution."""

    channels: Count
    """Channels that come out."""
    kernel: Sides
    """Height and width of what one output sees: one number, or [height, width]."""
    stride: Sides = 1
    """Pixels from one output to the next: one number, or [down, across]."""
    padding: Margins = 0
    """Zeros around the image: one number, or [above and below, left and right]."""
    norm: Norm | None = None
    """Of this layer; null is the encoder's."""
    pooling: Pooling | None = None
    """Of this layer; null is the encoder's."""
    pool_size: Sides = 2
    """What pooling makes one pixel of: one number, or [height, width]. Instead of a stride: stride 1 and this."""


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
    """After each convolution: `none`, `group` (up to 8 groups of channels), `layer` (the whole image) or `batch`, whose
    statistics are those of rollouts that were learned from (PPO), and stand still while one is."""
    batch_norm_momentum: float = Field(0.1, gt=0, le=1)
    """Share of the newest rollout in batch norm's statistics; the first one is all of them."""
    pooling: Pooling = "none"
    """After each activation: `none`, or the `max` or the `average` of 2 × 2 pixels, or of a layer's `pool_size`."""
    final: Literal["flatten", "spatial_softmax"] = "flatten"
    """How the last image becomes a vector: all of it, or where each channel is brightest (Levine et al. 2016)."""
    activation: Activation = "relu"
    """Between layers and at the end, as of a trunk."""
    hidden: Widths = ()
    """Units of each layer between the last image and the latent."""
    size: Count = 256
    """Of the latent."""
    l2_normalize: bool = False
    """The latent is divided by its length (L2)."""
    shape: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """The image inside a flat segment; null where the group has its shape already."""
    channels_last: bool = False
    """The image is [H, W, C]."""

    @property
    def has_batch_norm(self) -> bool:
        return "batch" in {layer.norm or self.norm for layer in self.layers}


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
    l2_normalize: bool = False
    """The latent is divided by its length (L2)."""


AnyEncoderSettings = ConvEncoderSettings | VectorEncoderSettings | OwnEncoderSettings
EncoderSettings = Annotated[AnyEncoderSettings, Field(discriminator="kind")]


class VectorEncoder(nn.Module):
    """[B, …] → [B, size]."""

    def __init__(self, inputs: int, settings: VectorEncoderSettings, rng: torch.Generator) -> None:
        super().__init__()
        self.size = settings.size
        self.settings = settings
        self.mlp = MLP(inputs, settings.size, _layers(settings), rng)

    def forward(self, values: Tensor) -> Tensor:
        latent = activate(self.mlp(values.float().flatten(1)), self.settings.activation)
        return F.normalize(latent, dim=-1) if self.settings.l2_normalize else latent


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
        self.norms = nn.ModuleDict()
        for number, layer in enumerate(settings.layers):
            if (norm := layer.norm or settings.norm) != "none":
                self.norms[str(number)] = _norm(norm, layer.channels, settings)
        softmax = settings.final == "spatial_softmax"
        self.places = "2" if softmax else f"{height} × {width}"
        """Numbers of each channel that the layers behind the last image read."""
        joined = 2 * channels if softmax else channels * height * width
        self.output = MLP(joined, settings.size, _layers(settings), rng)

    def forward(self, values: Tensor) -> Tensor:
        latent = activate(self.output(self._joined(values)), self.settings.activation)
        return F.normalize(latent, dim=-1) if self.settings.l2_normalize else latent

    @torch.no_grad()
    def observe(self, values: Tensor, valid: Tensor | None = None) -> None:
        """Batch norm's statistics of images [B, …], except where `valid` [B] is False; without batch norm nothing.

        Layer after layer: what a layer is given comes from layers whose statistics are the new ones already.
        """
        for number, norm in self.norms.items():
            if isinstance(norm, BatchNorm):
                seen = RunningMoments.zeros(norm.mean)
                counted = [None] * len(values) if valid is None else self._pieces(valid)
                for some, counts in zip(self._pieces(values), counted, strict=False):
                    seen.take(self._before_norm(some if counts is None else some[counts], int(number)))
                norm.update(seen)

    def _joined(self, values: Tensor) -> Tensor:
        """What the layers make of each image [B, joined], in pieces where no gradient needs all of them."""
        if torch.is_grad_enabled() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return self._convolved(values)
        pieces = self._pieces(values)
        if len(pieces) < 2:
            return self._convolved(values)
        return torch.cat([self._convolved(some) for some in pieces])

    def _pieces(self, values: Tensor) -> Sequence[Tensor]:
        pieces = math.ceil(len(values) / max(FEWEST, PIECE // math.prod(self.image)))
        return values.tensor_split(pieces) if pieces > 1 else (values,)

    def _convolved(self, values: Tensor) -> Tensor:
        pixels = self._pixels(values)
        for number in range(len(self.layers)):
            pixels = self._activated(self.layers[number](pixels), number)
        return spatial_softmax(pixels) if self.settings.final == "spatial_softmax" else pixels.flatten(1)

    def _before_norm(self, values: Tensor, layer: int) -> Tensor:
        """What the norm of a layer is given [B, C, H, W]."""
        pixels = self._pixels(values)
        for number in range(layer):
            pixels = self._activated(self.layers[number](pixels), number)
        convolved: Tensor = self.layers[layer](pixels)
        return convolved

    def _activated(self, pixels: Tensor, number: int) -> Tensor:
        """What a layer makes of what its convolution gave."""
        settings, name = self.settings.layers[number], str(number)
        pixels = activate(self.norms[name](pixels) if name in self.norms else pixels, self.settings.activation)
        return _pool(pixels, settings.pooling or self.settings.pooling, settings.pool_size)

    def _pixels(self, values: Tensor) -> Tensor:
        pixels = values.float() / 255.0 if values.dtype == torch.uint8 else values.float()
        return self._channels_first(pixels)

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
        kernel, pools = _pair(layer.kernel), (layer.pooling or settings.pooling) != "none"
        fits = zip(sides, kernel, _pair(layer.stride), _pair(layer.padding), strict=True)
        after = [(side + 2 * margin - width) // stride + 1 for side, width, stride, margin in fits]
        if pools:
            after = [side // pooled for side, pooled in zip(after, _pair(layer.pool_size), strict=True)]
        if min(after) < 1:
            raise ConfigError(
                f"{where}.layers.{number}",
                "the image is too small here",
                got=f"{sides[0]} × {sides[1]} of {image[1]} × {image[2]}",
                expected=f"at least the kernel's {kernel[0]} × {kernel[1]}" + " and room to pool" * pools,
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
    kernel, stride, padding = _pair(layer.kernel), _pair(layer.stride), _pair(layer.padding)
    blank = nn.Conv2d(
        channels, layer.channels, kernel, stride, padding, device="meta"
    )  # draws nothing from torch's own stream
    convolution = blank.to_empty(device=torch.get_default_device())
    assert convolution.bias is not None
    orthogonal(convolution.weight, HIDDEN_GAIN, rng)
    nn.init.zeros_(convolution.bias)
    return convolution


def _norm(norm: Norm, channels: int, settings: ConvEncoderSettings) -> nn.Module:
    if norm == "batch":
        return BatchNorm(channels, settings.batch_norm_momentum)
    return nn.GroupNorm(math.gcd(channels, 8) if norm == "group" else 1, channels)


def _pool(pixels: Tensor, pooling: Pooling, size: int | tuple[int, int]) -> Tensor:
    if pooling == "none":
        return pixels
    return F.max_pool2d(pixels, size) if pooling == "max" else F.avg_pool2d(pixels, size)
