"""PNG, fast: rows packed by Pillow, deflated by ISA-L. 1280x800 takes 1 to 2 ms where Pillow's own takes 19.

Rows are not filtered. On screens full of text that makes smaller files than the filters Up and Sub do (259 KB
for a page of prose where they need 315), and it saves half of the time; only photographs get larger.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from isal import isal_zlib
from PIL import Image

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_NO_FILTER = b"\x00"  # before each row
_RGB, _BITS = 2, 8
_LEVEL = 1


def encode(image: Image.Image) -> bytes:
    """An RGB image as PNG bytes."""
    return encode_bands(image.size, [image], "RGB")


def encode_bands(size: tuple[int, int], bands: Iterable[Image.Image], order: str) -> bytes:
    """An image that comes in bands, from top to bottom. `order` says what their channels are."""
    width, height = size
    header = struct.pack(">IIBBBBB", width, height, _BITS, _RGB, 0, 0, 0)
    deflate = isal_zlib.compressobj(_LEVEL)
    deflated = [deflate.compress(_NO_FILTER)]
    left = height
    for band in bands:
        left -= band.height
        # One byte more a row than the pixels need: Pillow leaves a zero there, the next row's filter.
        rows = memoryview(band.tobytes("raw", order, 3 * width + 1, 1))
        deflated.append(deflate.compress(rows if left else rows[:-1]))
    deflated.append(deflate.flush())
    return b"".join(
        [_SIGNATURE, *_chunk(b"IHDR", [header]), *_chunk(b"IDAT", deflated), *_chunk(b"IEND", [])]
    )


def _chunk(kind: bytes, data: list[bytes]) -> list[bytes]:
    checksum = isal_zlib.crc32(kind)
    for piece in data:
        checksum = isal_zlib.crc32(piece, checksum)
    return [struct.pack(">I", sum(map(len, data))), kind, *data, struct.pack(">I", checksum)]
