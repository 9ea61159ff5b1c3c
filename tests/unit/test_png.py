"""Our PNG says exactly what the image does, to every decoder."""

from __future__ import annotations

import io
import random
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from deskbox_guest.x11 import png


def picture(width: int, height: int, seed: int) -> Image.Image:
    """Part noise, part plain colour: both ways of deflate."""
    noise = random.Random(seed).randbytes(3 * width * (height // 2))
    return Image.frombytes("RGB", (width, height), noise + b"\x11\x22\x33" * (width * (height - height // 2)))


def decoded(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data), formats=["PNG"])
    image.load()
    return image


@settings(deadline=None)
@given(width=st.integers(1, 70), height=st.integers(1, 70), seed=st.integers(0, 1 << 32))
def test_what_is_encoded_is_decoded(width: int, height: int, seed: int) -> None:
    image = picture(width, height, seed)
    back = decoded(png.encode(image))
    assert (back.mode, back.size) == ("RGB", image.size)
    assert back.tobytes() == image.tobytes()


@pytest.mark.parametrize("size", [(1280, 800), (3840, 2160)])
def test_screens(size: tuple[int, int]) -> None:
    image = picture(*size, seed=1)
    assert decoded(png.encode(image)).tobytes() == image.tobytes()


def test_the_file_is_well_formed() -> None:
    """Chunk by chunk, with checksums by zlib: no lenient decoder in between."""
    data = png.encode(picture(3, 2, seed=2))
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, kinds, pixels = 8, [], b""
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, at + 8 + length)
        assert checksum == zlib.crc32(kind + body)
        kinds.append(kind)
        if kind == b"IHDR":
            assert body == struct.pack(">IIBBBBB", 3, 2, 8, 2, 0, 0, 0)
        if kind == b"IDAT":
            pixels += body
        at += 12 + length
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]
    assert len(zlib.decompress(pixels)) == 2 * (1 + 3 * 3)
