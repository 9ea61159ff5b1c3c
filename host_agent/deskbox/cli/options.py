"""Options that several commands share, and the forms their values have."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from deskbox.cli.output import Invocation

if TYPE_CHECKING:
    from deskbox.calls import SettlePolicy

# Seconds to wait for the program that drives the desktop at present, such as the command before this one.
PATIENCE = 2.0


class Size(NamedTuple):
    """Pixels."""

    width: int
    height: int


class Region(NamedTuple):
    """A rectangle of the screen, in screen pixels."""

    x: int
    y: int
    width: int
    height: int


def parse_size(text: str) -> Size:
    match = re.fullmatch(r"([0-9]{1,6})x([0-9]{1,6})", text)
    if match is None or 0 in (size := Size(*map(int, match.groups()))):
        raise typer.BadParameter(f"{text!r} is no size: write WIDTHxHEIGHT in pixels, such as 1280x800.")
    return size


def parse_region(text: str) -> Region:
    match = re.fullmatch(r"([0-9]{1,6}),([0-9]{1,6}),([0-9]{1,6}),([0-9]{1,6})", text)
    if match is None or 0 in (region := Region(*map(int, match.groups())))[2:]:
        raise typer.BadParameter(
            f"{text!r} is no region: write X,Y,WIDTH,HEIGHT in screen pixels, such as 0,0,640,400."
        )
    return region


def parse_settle(text: str) -> SettlePolicy:
    from deskbox_guest.protocol import POLICIES, Settle

    if text in POLICIES:
        return POLICIES[text]
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?),([0-9]+(?:\.[0-9]+)?)", text)
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is no settle policy: use {', '.join(POLICIES)}, or QUIET,CAP in seconds, as in 0.2,3."
        )
    quiet, cap = map(float, match.groups())
    return Settle(quiet, cap)


def _remember_json(ctx: typer.Context, asked: bool) -> bool:
    if asked and isinstance(ctx.obj, Invocation):
        ctx.obj.json = True
    return asked


NameOption = Annotated[
    str,
    typer.Option("--name", metavar="NAME", envvar="DESKBOX_NAME", help="The desktop to act on."),
]
# Eager: an error in any other option is then already reported as JSON.
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", callback=_remember_json, is_eager=True, help="Print one JSON document and nothing else."
    ),
]


SettleOption = Annotated[
    Any,  # a SettlePolicy: the command line's parser can't take unions
    typer.Option(
        "--settle",
        parser=parse_settle,
        metavar="POLICY",
        show_default="settled",
        help="How quiet the screen must be: none, fast, settled, wait, or QUIET,CAP in seconds.",
    ),
]


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Give a `cancelled` function that turns true at the first Ctrl-C; the second one interrupts at once.

    So the desktop is told to stop, and answers when no key and no button is held any more.
    """
    stopped = False

    def on_interrupt(*_: object) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda: stopped
    finally:
        signal.signal(signal.SIGINT, previous)
