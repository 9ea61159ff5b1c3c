"""`shot`, `windows` and `view`: what the desktop shows. None of them takes control of it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from deskbox.cli import output
from deskbox.cli.options import (
    JsonOption,
    NameOption,
    Region,
    SettleOption,
    Size,
    interruptible,
    parse_region,
    parse_size,
)

_FORMATS: dict[str, Literal["png", "jpeg", "webp"]] = {
    "": "png",
    ".png": "png",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".webp": "webp",
}


def shot(
    name: NameOption = "default",
    file: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            show_default="NAME-DATE-TIME.png",
            help="Where to write it: .png, .jpg or .webp; - writes a PNG to standard output.",
        ),
    ] = None,
    region: Annotated[
        Region | None,
        typer.Option(
            parser=parse_region, metavar="X,Y,W,H", help="Only this part of the screen, in its pixels."
        ),
    ] = None,
    image_size: Annotated[
        Size | None,
        typer.Option(parser=parse_size, metavar="WxH", help="Scale the picture to this many pixels."),
    ] = None,
    settle: SettleOption = "settled",
    max_bytes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Fail if the picture takes more bytes than this."),
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Scale it down until it has at most --max-bytes.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Take a screenshot, once the screen has come to rest."""
    target = file if file is not None else time.strftime(f"{name}-%Y%m%d-%H%M%S.png")
    if target == "-" and as_json:
        raise typer.BadParameter("-o - and --json both want standard output: give -o a file name.")
    if target == "-" and sys.stdout.isatty():
        raise typer.BadParameter("standard output is a terminal: redirect it, or give -o a file name.")
    suffix = "" if target == "-" else Path(target).suffix.lower()
    if suffix not in _FORMATS:
        raise typer.BadParameter(
            f"can't write {suffix} files: name one .png, .jpg or .webp.", param_hint="-o"
        )

    from deskbox.desktop import Desktop

    if shrink and max_bytes is None:
        raise typer.BadParameter("--shrink needs to know to what: give --max-bytes too.")

    from deskbox import calls

    frame = calls.frame(
        region, image_size, _FORMATS[suffix], True, max_bytes, "shrink" if shrink else "error"
    )
    with interruptible() as cancelled, Desktop.attach(name, observe=True) as desktop:
        outcome = desktop.step(settle=settle, frame=frame, cancelled=cancelled)
        screen = desktop.size

    if target == "-":
        sys.stdout.buffer.write(outcome.image)
        sys.stdout.buffer.flush()
        return
    Path(target).write_bytes(outcome.image)
    result = outcome.result
    if as_json:
        output.print_json(
            {
                "path": str(Path(target).absolute()),
                "format": frame.format,
                "bytes": len(outcome.image),
                "image_size": [result.image_width, result.image_height],
                "region": list(region or (0, 0, *screen)),
                "settled": result.settled,
                "settle_ms": result.settle_ms,
            }
        )
    else:
        typer.echo(f"{target}: {result.image_width}x{result.image_height}")


def windows(name: NameOption = "default", as_json: JsonOption = False) -> None:
    """List the windows, the top one first."""
    from dataclasses import asdict

    from deskbox.desktop import Desktop

    with Desktop.attach(name, observe=True) as desktop:
        found = desktop.windows()
    if as_json:
        output.print_json([asdict(window) for window in found])
    elif not found:
        typer.echo("No window.")
    else:
        output.print_table(
            ("ID", "APP", "X", "Y", "SIZE", "", "TITLE"),
            [
                (
                    f"{w.id:#x}",
                    w.app,
                    str(w.x),
                    str(w.y),
                    f"{w.width}x{w.height}",
                    "active" if w.active else "",
                    w.title,
                )
                for w in found
            ],
        )


def view(name: NameOption = "default", as_json: JsonOption = False) -> None:
    """Print an address at which a browser on this machine shows the desktop live, without control.

    The address holds a random token and works once: each call gives a new one.
    """
    from deskbox.desktop import Desktop

    with Desktop.attach(name, observe=True) as desktop:
        url = desktop.view_url()
    if as_json:
        output.print_json({"name": name, "url": url})
    else:
        typer.echo(url)
