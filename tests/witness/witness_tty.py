"""Logs every byte that the terminal it runs in sends for keys, and shows it there.

    python3 witness_tty.py LOG

LOG may be emptied meanwhile.
"""

from __future__ import annotations

import os
import sys
import tty


def main(path: str) -> None:
    # Raw: each byte at once and as it is. Otherwise the kernel would edit lines, and cut long ones.
    tty.setraw(0)
    with open(path, "ab", buffering=0) as log:
        while data := os.read(0, 65536):
            log.write(data)
            os.write(1, data.replace(b"\r", b"\r\n"))


if __name__ == "__main__":
    main(sys.argv[1])
