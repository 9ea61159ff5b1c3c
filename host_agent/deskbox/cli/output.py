"""What a command prints, and the code it exits with.

With --json a command prints one JSON document on standard output and nothing else there; progress and notes
go to standard error in either mode.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from deskbox import errors

DONE, FAILED, BAD_USAGE, STOPPED = 0, 1, 2, 130

# The most exact class comes first: an error's kind is that of the first class it is an instance of.
_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (errors.InvalidInput, "invalid_input"),
    (errors.Refused, "refused"),
    (errors.ImageTooLarge, "image_too_large"),
    (errors.Cancelled, "cancelled"),
    (errors.Interrupted, "interrupted"),
    (errors.Unavailable, "unavailable"),
)


@dataclass
class Invocation:
    """One call of the command, as far as its parts must agree: --json is read before anything else."""

    json: bool = False


def kind(error: errors.DeskboxError) -> str:
    """What an error document calls it: as in `_KINDS`, or `failed`."""
    return next((name for cls, name in _KINDS if isinstance(error, cls)), "failed")


def exit_code(error: errors.DeskboxError) -> int:
    if isinstance(error, errors.InvalidInput):
        return BAD_USAGE
    return STOPPED if isinstance(error, errors.Cancelled) else FAILED


def asks_for_json(words: Sequence[str]) -> bool:
    """Whether --json is among the options of a command line; what follows `--` belongs to others."""
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def print_json(document: Any) -> None:
    print(json.dumps(document, ensure_ascii=False, indent=2, default=str))


def print_error(kind: str, message: str, data: dict[str, Any] | None = None) -> None:
    print_json({"error": {"kind": kind, "message": message, **({"data": data} if data else {})}})


def report(invocation: Invocation, kind: str, message: str, data: dict[str, Any] | None = None) -> None:
    """Say what went wrong: a document on standard output with --json, else a line on standard error."""
    if invocation.json:
        print_error(kind, message, data)
    else:
        complain(message)


def complain(message: str) -> None:
    typer.secho(f"deskbox: {message}", err=True, fg="red")


def note(message: str) -> None:
    typer.echo(f"deskbox: {message}", err=True)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Give a function that shows what is going on now, on standard error.

    A terminal shows one line with a spinner that each message replaces; anything else gets a plain line for
    each message, with the seconds since the start.
    """
    from rich.console import Console

    console = Console(stderr=True)
    started = time.monotonic()
    if console.is_terminal:
        with console.status("") as status:
            yield lambda message: status.update(_plain(message))
        return

    last = ""

    def line(message: str) -> None:
        nonlocal last
        if message != last:
            last = message
            print(f"[{time.monotonic() - started:5.1f} s] {message}", file=sys.stderr, flush=True)

    yield line


def _plain(message: str) -> Any:
    from rich.text import Text

    return Text(message)  # square brackets in it are no markup


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table without frames, which stays readable when it is piped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if not console.is_terminal:
        console.width = 1000  # rows are for grep then: never fold them
    console.print(table)


def command() -> str:
    """How the user calls us: `deskbox`, or the path to it where that isn't on the PATH."""
    ours = Path(sys.argv[0])
    if ours.name != "deskbox":
        return "deskbox"
    found = shutil.which("deskbox")
    if found is not None and os.path.samefile(found, ours):
        return "deskbox"
    try:
        return str(ours.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(ours.absolute())


def harmless(text: str) -> str:
    """Text from a guest without what would command the terminal it is printed to."""
    return "".join(c if c.isprintable() or c in "\t\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def age(since: float) -> str:
    """How long ago `since` was, seconds of the epoch: "3 min"."""
    seconds = time.time() - since
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"
