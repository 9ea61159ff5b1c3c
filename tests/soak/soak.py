"""Types random text into every application under every keyboard, and compares what arrived.

    python -m tests.soak.soak [--seed N] [--chars N] [--app NAME]...

The seed is printed first: with it and the other options the same text is typed again. The first difference
ends it with exit code 1, and is printed exactly.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field

from tests.support.typed import APPS, PACKAGES, ROUNDS, Wrong, type_rounds

from deskbox import registry
from deskbox.desktop import Desktop


@dataclass
class Tally:
    total: int
    typed: int = 0
    distinct: set[str] = field(default_factory=set)
    started: float = field(default_factory=time.monotonic)

    def add(self, text: str) -> None:
        self.typed += len(text)
        self.distinct.update(text)

    def __str__(self) -> str:
        seconds = time.monotonic() - self.started
        return f"{self.typed:,} of {self.total:,} characters, {seconds:.0f} s"


def soak(desktop: Desktop, names: list[str], seed: int, chars: int) -> Tally:
    """Raises Wrong at the first difference."""
    tally = Tally(chars)
    for index, name in enumerate(names):
        share = chars * (index + 1) // len(names) - chars * index // len(names)
        with APPS[name](desktop) as app:
            for round, text in type_rounds(app, name, ROUNDS, share, seed):
                tally.add(text)
                print(f"{name}: {round}: ok. {tally}", flush=True)
    return tally


def main() -> int:
    arguments = argparse.ArgumentParser(description="Type random text everywhere and compare what arrived.")
    arguments.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments.add_argument("--chars", type=int, default=100_000)
    arguments.add_argument("--app", action="append", choices=APPS, help="only this one; may be repeated")
    options = arguments.parse_args()
    print(f"seed {options.seed}, {options.chars:,} characters", flush=True)
    # Desktops of the soak are not those of the user. A socket's path must be short.
    os.environ["DESKBOX_STATE_DIR"] = state = tempfile.mkdtemp(prefix="dbx-", dir="/tmp")
    try:
        with Desktop.launch("soak", url="about:blank", packages=PACKAGES) as desktop:
            tally = soak(desktop, options.app or list(APPS), options.seed, options.chars)
    except Wrong as wrong:
        print(f"wrong: {wrong}\nseed {options.seed}", file=sys.stderr)
        return 1
    finally:
        registry.stop_all()
        shutil.rmtree(state)
    print(f"{tally}, {len(tally.distinct):,} different ones, 0 wrong; seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
