"""Reads what `xwd` writes: the screen as another program of another project sees it."""

from __future__ import annotations

import struct

from PIL import Image


def parse(dump: bytes) -> Image.Image:
    """The RGB image of a dump of a TrueColor window with 32 bits a pixel."""
    fields = struct.unpack_from(">25I", dump)
    header_size, version, width, height, byte_order = fields[0], fields[1], fields[4], fields[5], fields[7]
    bits_per_pixel, bytes_per_line, masks, colours = fields[11], fields[12], fields[14:17], fields[19]
    assert (version, bits_per_pixel, masks) == (7, 32, (0xFF0000, 0xFF00, 0xFF))
    pixels = dump[header_size + 12 * colours :]
    assert len(pixels) == bytes_per_line * height
    order = "XRGB" if byte_order else "BGRX"
    return Image.frombytes("RGB", (width, height), pixels, "raw", order, bytes_per_line, 1)
