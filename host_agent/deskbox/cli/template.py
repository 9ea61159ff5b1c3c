"""`template build`: the machine that desktops on qemu are copied from, made before it is needed."""

from __future__ import annotations

import time

import typer

from deskbox.cli import output
from deskbox.cli.lifecycle import EngineOption, PackageOption, SetupOption, SizeOption
from deskbox.cli.options import JsonOption

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Make the machine that desktops on qemu are copied from."""


@app.command()
def build(
    size: SizeOption = None,
    packages: PackageOption = None,
    engine: EngineOption = None,
    setup: SetupOption = False,
    as_json: JsonOption = False,
) -> None:
    """Boot a machine once, and freeze it when its desktop is painted; unless that has been done.

    `up --backend qemu` does the same when it needs to; this lets you have the wait at another time. There is
    one for each size, engine and choice of packages.
    """
    from deskbox import backends, provision
    from deskbox.launcher import DEFAULT_ENGINE, DEFAULT_SIZE, image_spec

    started = time.monotonic()
    wanted = image_spec(size or DEFAULT_SIZE, packages or [], engine or DEFAULT_ENGINE)
    if setup:
        provision.ask_for_password("qemu")
    with output.progress() as progress:
        provision.ensure_host(progress, install=setup, backend="qemu")
        template = backends.create("qemu").prepare(wanted, progress)
    seconds = time.monotonic() - started
    if as_json:
        output.print_json({"template": template, "seconds": seconds})
    else:
        typer.echo(f"Desktops on qemu start from {template}; ready after {seconds:.1f} s.")
