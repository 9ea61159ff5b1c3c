"""`save`, `fork`, `snaps` and `rm-snap`: desktops kept, and started again from what was kept."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from deskbox.cli import output
from deskbox.cli.options import JsonOption, NameOption

SnapArgument = Annotated[str, typer.Argument(metavar="SNAP", help="The snapshot.")]
CONTENTS = {
    "machine": "all that ran: windows, what was typed into them, the clipboard",
    "home": "the home directory, and not what ran: no windows, no clipboard, no files elsewhere",
}


def save(
    which: Annotated[str, typer.Argument(metavar="NAME", help="The desktop.")],
    snap: SnapArgument,
    as_json: JsonOption = False,
) -> None:
    """Keep what a desktop is now, as a snapshot. The desktop goes on.

    On qemu that is all that runs in it; on docker and bwrap, which can't freeze programs to a file, its home
    directory. What is held in it is released first.
    """
    from deskbox.desktop import Desktop

    with Desktop.attach(which, observe=True) as desktop, output.progress() as progress:
        progress(f"saving {which}")
        snapshot = desktop.save(snap)
    if as_json:
        output.print_json(msgspec.to_builtins(snapshot))
    else:
        typer.echo(f"Saved {which} as {snap} ({snapshot.bytes / 1e6:.0f} MB): {CONTENTS[snapshot.contents]}.")
        typer.echo(f"`{output.command()} fork {snap} --name NAME` starts a desktop from it.")


def fork(snap: SnapArgument, name: NameOption = "default", as_json: JsonOption = False) -> None:
    """Start a desktop from a snapshot, and leave it running."""
    from deskbox.cli.lifecycle import report
    from deskbox.desktop import Desktop

    with output.progress() as progress:
        desktop = Desktop.fork(snap, name, detach=True, progress=progress)
    with desktop:
        report(desktop, as_json)


def snaps(as_json: JsonOption = False) -> None:
    """List your snapshots."""
    from deskbox import snapshots

    found = snapshots.list_snapshots()
    if as_json:
        output.print_json([msgspec.to_builtins(snapshot) for snapshot in found])
    elif not found:
        typer.echo(f"No snapshot. `{output.command()} save NAME SNAP` makes one.")
    else:
        output.print_table(
            ("SNAPSHOT", "OF", "BACKEND", "CONTENTS", "MB", "AGE"),
            [
                (s.name, s.desktop, s.backend, s.contents, f"{s.bytes / 1e6:.0f}", output.age(s.created))
                for s in found
            ],
        )


def rm_snap(snap: SnapArgument, as_json: JsonOption = False) -> None:
    """Delete a snapshot. Desktops that were started from it go on."""
    from deskbox import snapshots

    snapshots.remove(snap)
    if as_json:
        output.print_json({"deleted": snap})
    else:
        typer.echo(f"Deleted the snapshot {snap}.")
