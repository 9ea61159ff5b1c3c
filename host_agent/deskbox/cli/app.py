"""The command line as a whole: which commands there are, and how any of them ends.

Heavy modules (the OpenAI client, Docker's, Pillow) are imported inside the commands that need them, so that
`deskbox --help` and bad usage answer at once.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from deskbox import errors
from deskbox.cli import act, bench, doctor, drill, lifecycle, look, output, run, snapshot, template, transfer


class DeskboxGroup(TyperGroup):
    """Turns every way in which a command can end into one exit code and, with --json, one document."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise errors.Cancelled("Stopped by Ctrl-C.") from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        invocation = output.Invocation()
        try:
            code = super().main(words, "deskbox", standalone_mode=False, obj=invocation, **extra) or 0
        except typer.TyperException as error:  # the command line itself was wrong
            # An unknown option stops the parser before it has read --json: then its words must tell.
            if invocation.json or output.asks_for_json(words):
                output.print_error("usage", error.format_message())
            else:
                _show_usage(error)
            code = output.BAD_USAGE
        except errors.DeskboxError as error:
            code = output.exit_code(error)
            output.report(invocation, output.kind(error), str(error), error.data)
        except BrokenPipeError:  # whoever read our output has left
            sys.stdout = None  # Python would complain while it flushes at exit
            code = output.FAILED
        except OSError as error:
            code = output.FAILED
            output.report(invocation, "failed", str(error))
        except Exception as error:
            traceback.print_exc()
            code = output.FAILED
            if invocation.json:
                output.print_error("internal", f"{type(error).__name__}: {error}")
        sys.exit(code)


def _show_usage(error: typer.TyperException) -> None:
    show = getattr(error, "show", None)  # with the command's usage line, where there is a command
    if show is not None:
        show()
    else:
        output.complain(error.format_message())


app = typer.Typer(
    name="deskbox",
    cls=DeskboxGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks print local variables, which may hold secrets
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"deskbox {version('deskbox')}")
        raise typer.Exit()


@app.callback()
def deskbox(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """An isolated Linux desktop that a model can use.

    Exit codes: 0 done, 1 failed, 2 bad usage, 130 stopped by Ctrl-C; `exec` passes on its command's own.
    """


_LIVES, _LOOK, _ACT = "Start and stop", "Look", "Act"
_FILES, _MODEL, _HELP = "Commands and files", "Let a model act", "When something is wrong"

app.command(rich_help_panel=_LIVES)(lifecycle.up)
app.command(rich_help_panel=_LIVES)(lifecycle.ls)
app.command(rich_help_panel=_LIVES)(lifecycle.logs)
app.command(rich_help_panel=_LIVES)(lifecycle.pause)
app.command(rich_help_panel=_LIVES)(lifecycle.resume)
app.command(rich_help_panel=_LIVES)(snapshot.save)
app.command(rich_help_panel=_LIVES)(snapshot.fork)
app.command(rich_help_panel=_LIVES)(snapshot.snaps)
app.command("rm-snap", rich_help_panel=_LIVES)(snapshot.rm_snap)
app.command(rich_help_panel=_LIVES)(lifecycle.down)
app.command(rich_help_panel=_LIVES)(lifecycle.image)
app.add_typer(template.app, name="template", rich_help_panel=_LIVES)
app.command(rich_help_panel=_LOOK)(look.shot)
app.command(rich_help_panel=_LOOK)(look.windows)
app.command(rich_help_panel=_LOOK)(look.view)
app.command(rich_help_panel=_ACT, cls=act.ScriptCommand)(act.do)
app.command("type", rich_help_panel=_ACT)(act.type_)
app.command(rich_help_panel=_ACT)(act.key)
app.command("open", rich_help_panel=_ACT)(act.open_)
app.command("exec", rich_help_panel=_FILES, context_settings={"allow_interspersed_args": False})(
    transfer.exec_
)
app.command(rich_help_panel=_FILES)(transfer.cp)
app.command(rich_help_panel=_MODEL)(drill.drill)
app.command(rich_help_panel=_MODEL)(run.run)
app.command(rich_help_panel=_HELP)(doctor.doctor)
app.command(rich_help_panel=_HELP)(bench.bench)


def main() -> None:
    """The entry point of the command `deskbox`."""
    app()
