"""PNG, fast: rows packed by Pillow, deflated by ISA-L. 1280x800 takes 1 to 2 ms where Pillow's own takes 19.

Rows are not filtered. On screens full of text that makes smaller files than the filters Up and Sub do (259 KB
for a page of prose where they need 315), and it saves half of the time; only photographs get larger.
"""

from __future__ import annotations

import struct

from isal import isal_zlib
from PIL import Image

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_NO_FILTER = b"\x00"  # before each row
_RGB, _BITS = 2, 8
_LEVEL = 1


def encode(image: Image.Image) -> bytes:
    """An RGB image as PNG bytes."""
    width, height = image.size
    header = struct.pack(">IIBBBBB", width, height, _BITS, _RGB, 0, 0, 0)
    # One byte more a row than the pixels need: Pillow leaves a zero there, which is the next row's filter.
    rows = memoryview(image.tobytes("raw", "RGB", 3 * width + 1, 1))[:-1]
    deflate = isal_zlib.compressobj(_LEVEL)
    deflated = deflate.compress(_NO_FILTER) + deflate.compress(rows) + deflate.flush()
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", deflated) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = isal_zlib.crc32(data, isal_zlib.crc32(kind))
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
