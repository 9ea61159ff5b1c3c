"""`exec` and `cp`: commands and files of the desktop."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from deskbox.cli import output
from deskbox.cli.options import PATIENCE, JsonOption, NameOption, interruptible

# As timeout(1) says it.
TIMED_OUT = 124


def exec_(
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="The command.")],
    name: NameOption = "default",
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Then it is killed, and exit code 124 says so.")
    ] = 60.0,
    output_limit: Annotated[
        int,
        typer.Option(metavar="BYTES", min=1, help="What it prints beyond this is dropped, with a notice."),
    ] = 1 << 20,
    stdin: Annotated[
        bool, typer.Option("-i", "--stdin", help="Give it our standard input, read to its end first.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a command in the desktop, as its user and in its home directory.

    What it prints passes through as it comes; its exit code is ours.
    """
    from deskbox.desktop import Desktop
    from deskbox_guest.protocol import EXEC_STDOUT

    def pass_on(kind: int, data: bytes) -> None:
        stream = sys.stdout.buffer if kind == EXEC_STDOUT else sys.stderr.buffer
        stream.write(data)
        stream.flush()

    given = sys.stdin.buffer.read() if stdin else b""
    with interruptible() as cancelled, Desktop.attach(name, wait=PATIENCE) as desktop:
        result = desktop.exec(
            command,
            stdin=given,
            timeout=timeout,
            output_limit=output_limit,
            on_output=None if as_json else pass_on,
            cancelled=cancelled,
        )
    if as_json:
        output.print_json(
            {
                "exit_code": result.exit_code,
                # Bytes that are no UTF-8 appear as \xNN: the document stays text.
                "stdout": result.stdout.decode(errors="backslashreplace"),
                "stderr": result.stderr.decode(errors="backslashreplace"),
                "timed_out": result.timed_out,
                "truncated": result.truncated,
            }
        )
    if result.truncated:
        output.note(f"the output was cut after {output_limit} bytes; --output-limit sets another limit.")
    if result.timed_out:
        output.note(f"the command was killed after {timeout:g} s; --timeout sets another limit.")
        raise typer.Exit(TIMED_OUT)
    raise typer.Exit(result.exit_code)


def cp(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SRC", help="A file here, or NAME:PATH in a desktop.")],
    destination: Annotated[str, typer.Argument(metavar="DST", help="The other one of the two.")],
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="NAME", envvar="DESKBOX_NAME", help="The desktop of a path written :PATH."
        ),
    ] = "default",
    as_json: JsonOption = False,
) -> None:
    """Copy a file into a desktop or out of it: notes.txt default:/tmp/, or default:notes.txt .

    The copy appears whole or not at all. A relative path in the desktop starts at the home directory.
    """
    from deskbox import copying
    from deskbox.desktop import Desktop

    job = copying.parse(*(name + side if side.startswith(":") else side for side in (source, destination)))
    chosen = ctx.get_parameter_source("name")
    if job.name != name and chosen is not None and chosen.name == "COMMANDLINE":
        raise typer.BadParameter(f"--name {name} and {job.name}: name two desktops: write the path as :PATH.")
    writes = isinstance(job, copying.CopyIn)
    with Desktop.attach(job.name, observe=not writes, wait=PATIENCE) as desktop:
        if isinstance(job, copying.CopyIn):
            size = copying.copy_in(desktop, job.source, job.destination)
            written = f"{job.name}:{job.destination}"
        else:
            path = copying.copy_out(desktop, job.source, job.destination)
            size, written = path.stat().st_size, str(path)
    if as_json:
        output.print_json({"source": source, "destination": written, "bytes": size})
    else:
        typer.echo(f"{written}: {size} bytes")
