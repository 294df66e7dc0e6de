"""Smaller PNG files for flat pictures: 256 colours instead of 16 million, so that a notebook or a README stays light.

Contract: `with_palette` takes a PNG file and returns one of the same size in pixels, a quarter of its bytes or less. The 256
most frequent colours stay exact; the others, shades along the edges of letters, take the nearest of them. A file of another
kind than browsers write (8 bits, opaque, plain row filters) comes back as it is.
"""

import struct
import zlib
from collections.abc import Iterator

import numpy as np

from specviz.record.schema import Array

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {2: 3, 6: 4}  # by colour type: RGB, RGB with alpha


def with_palette(png: bytes) -> bytes:
    """See the module's contract."""
    parts = list(_chunks(png))
    width, height, depth, kind, *_, interlaced = struct.unpack(">IIBBBBB", parts[0][1])
    if depth != 8 or kind not in _CHANNELS or interlaced:
        return png
    data = zlib.decompress(b"".join(data for name, data in parts if name == b"IDAT"))
    pixels = _pixels(np.frombuffer(data, np.uint8).reshape(height, -1), _CHANNELS[kind])
    if pixels is None or (pixels[..., 3:] != 255).any():
        return png
    palette, indices = _reduced(pixels[..., :3].reshape(-1, 3))
    rows = np.zeros((height, width + 1), np.uint8)  # each begins with its filter, none
    rows[:, 1:] = indices.reshape(height, width)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = (
        (b"IHDR", header),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in body)


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and content of each chunk."""
    start = len(_SIGNATURE)
    while start < len(png):
        (size,) = struct.unpack(">I", png[start : start + 4])
        yield png[start + 4 : start + 8], png[start + 8 : start + 8 + size]
        start += 12 + size


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _pixels(rows: Array, channels: int) -> Array | None:
    """Undo the row filters none, sub and up: (height, width, channels) uint8. None for another filter."""
    filters, values = rows[:, 0], rows[:, 1:].reshape(len(rows), -1, channels).copy()
    if (filters > 2).any():
        return None
    for number, kind in enumerate(filters):
        if kind == 1:
            values[number] = np.cumsum(values[number], axis=0, dtype=np.uint8)
        elif kind == 2 and number:
            values[number] += values[number - 1]
    return values


def _reduced(colours: Array) -> tuple[Array, Array]:
    """(256 or fewer, 3) palette and the index of each colour's nearest entry, both uint8."""
    red, green, blue = (colours[:, channel].astype(np.int32) for channel in range(3))
    codes = red << 16 | green << 8 | blue
    found, counts = np.unique(codes, return_counts=True)
    split = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1)
    palette = split[np.argsort(-counts, kind="stable")[:256]]
    index = np.zeros(1 << 24, np.uint8)
    index[found] = ((split[:, None] - palette[None]) ** 2).sum(-1).argmin(1)
    return palette.astype(np.uint8), index[codes]
