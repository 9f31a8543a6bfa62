"""Images inside Minari files, which it keeps as JPEG unless told otherwise."""

from collections.abc import Callable
from io import BytesIO
from math import prod

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError, MissingPackageError
from understudy.data.formats.hdf5_column import check_unfolded

LOSSY = "Images were kept as JPEG, which is lossy: they are not to the bit what the policy saw."
UNREADABLE = (OSError, ValueError, SyntaxError, TypeError, IndexError, KeyError, MemoryError, OverflowError)
"""What Pillow raises on damaged images."""


def decode_frames(
    rows: int, frame: Callable[[int], bytes], shape: tuple[int, ...], limit: int, where: str
) -> NDArray[np.uint8]:
    """`rows` JPEG images as [rows, H, W] or [rows, H, W, 3]; an image that says another size is not unfolded."""
    check_unfolded(rows * prod(shape), limit, where)
    frames = np.empty((rows, *shape), np.uint8)
    for number in range(rows):
        frames[number] = _decode(frame(number), shape, f"{where}, row {number}")
    return frames


def _decode(content: bytes, shape: tuple[int, ...], where: str) -> NDArray[np.uint8]:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPackageError(where, "reading JPEG images needs Pillow", do="Run: pip install pillow") from error
    height, width = shape[:2]
    try:
        with Image.open(BytesIO(content), formats=("JPEG",)) as image:
            if image.size != (width, height) or len(image.getbands()) != (shape[2] if len(shape) == 3 else 1):
                got = f"{image.size[0]} × {image.size[1]} {image.mode}"
                raise DataError(where, "an image of another size", got=got, expected=f"{width} × {height}")
            return np.asarray(image, np.uint8).reshape(shape)
    except (*UNREADABLE, Image.DecompressionBombError) as error:
        raise DataError(where, f"not a readable JPEG ({error})") from error
