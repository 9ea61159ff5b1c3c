"""A keeper's process: the guest's start comes first, and the rest is imported while the guest boots."""

from __future__ import annotations

import argparse
import signal
import sys

from deskbox import registry
from deskbox.keeper.start import ENDINGS, Start


def main() -> None:
    parser = argparse.ArgumentParser(prog="deskbox.keeper")
    parser.add_argument("name")
    parser.add_argument("--status-fd", type=int, required=True)
    parser.add_argument("--lock-fd", type=int, required=True, help="held open: this is the keeper's lock")
    parser.add_argument("--tie-fd", type=int, help="end when the other side of this pipe is closed")
    parser.add_argument("--adopt", action="store_true", help="take over a guest that runs")
    options = parser.parse_args()
    home = registry.Home(options.name)
    record = home.read()
    if record is None:
        sys.exit(f"no record in {home.path}")
    # A keeper that is told to end before it can must not leave a guest behind that is just being made.
    told_to_end: list[int] = []
    for number in ENDINGS:
        signal.signal(number, lambda number, _: told_to_end.append(number))
    start = None if options.adopt else Start(home, record)

    import asyncio

    from deskbox.keeper.keeping import Keeper, Status

    keeper = Keeper(home, record, Status(options.status_fd))
    asyncio.run(keeper.run(start, told_to_end=told_to_end, tie=options.tie_fd))


if __name__ == "__main__":
    main()
