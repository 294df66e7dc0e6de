"""Smaller PNG files for flat pictures: 256 colours, so that a notebook or a README stays small.

Contract: `with_palette` takes a PNG file and returns one of the same size in pixels, a quarter of
its bytes or less. The 256 most frequent colours stay exact; all others, shades along the edges of
letters, take the nearest of them. A picture with transparency comes back as it is.
"""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

_COLOURS = 256


def as_output(png: bytes) -> dict[str, str]:
    """Return the picture as an output of a notebook, with at most 256 colours."""
    return {"image/png": base64.b64encode(with_palette(png)).decode()}


def with_palette(png: bytes) -> bytes:
    """Return the PNG file with at most 256 colours, see the module's contract."""
    picture = Image.open(io.BytesIO(png))
    if picture.mode not in ("RGB", "RGBA"):
        return png
    pixels = np.asarray(picture)  # (height, width, channels)
    if (pixels[..., 3:] != 255).any():
        return png
    counted: Any = picture.convert("RGB").getcolors(pixels.size)  # (count, colour); never None
    counted.sort(key=lambda each: (-each[0], each[1]))
    colours = np.array([colour for _, colour in counted])
    palette = colours[:_COLOURS]
    distances = ((colours[:, None] - palette) ** 2).sum(-1)  # (colours, palette)
    # Looked up by colour: to sort the pixels would take most of the time.
    nearest = np.zeros((256, 256, 256), np.uint8)
    nearest[tuple(colours.T)] = distances.argmin(1)
    channels = np.moveaxis(pixels[..., :3], -1, 0)
    reduced = Image.fromarray(nearest[tuple(channels)], mode="P")
    reduced.putpalette(palette.astype(np.uint8).tobytes())
    file = io.BytesIO()
    reduced.save(file, "PNG", optimize=True)
    return file.getvalue()
