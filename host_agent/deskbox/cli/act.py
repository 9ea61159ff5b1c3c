"""`do`, `type`, `key` and `open`: input to the desktop. Each takes control of it for as long as it runs."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from deskbox.cli import output
from deskbox.cli.options import PATIENCE, JsonOption, NameOption, interruptible


class ScriptCommand(TyperCommand):
    """A command whose arguments are another language's: `--repeat` and `--` in them are not ours to read.

    Only our own options are taken out, before and after the script's words; `--` ends that.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        flags = {name for option in self.params if getattr(option, "is_flag", False) for name in option.opts}
        flags.update(ctx.help_option_names)
        valued = {
            name for option in self.params if option.param_type_name == "option" for name in option.opts
        } - flags
        ours: list[str] = []
        script: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":
                script += [word, *words] if script else words
            elif word in flags or word.partition("=")[0] in valued:
                ours.append(word)
                if word in valued:
                    ours += [value] if (value := next(words, None)) is not None else []
            elif word.startswith("-") and word != "-" and not script:
                ours.append(word)  # before any script an unknown option is bad usage
            else:
                script.append(word)
        return super().parse_args(ctx, [*ours, "--", *script])


def do(
    script: Annotated[
        list[str],
        typer.Argument(metavar="SCRIPT", help="An xdotool script; - reads it from standard input."),
    ],
    name: NameOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Run an xdotool script: mouse and keyboard, in one go.

    One argument is a whole script (deskbox do "mousemove 640 400 click 1"), and so are the words of one
    (deskbox do mousemove 640 400 click 1). Several quoted arguments are the lines of a script. The whole
    script is checked before anything of it happens.
    """
    from deskbox.desktop import Desktop

    text = _stdin() if script == ["-"] else join_script(script)
    with interruptible() as cancelled, Desktop.attach(name, wait=PATIENCE) as desktop:
        result = desktop.step(text, cancelled=cancelled).result
    if as_json:
        output.print_json({"output": result.output, "pointer": list(result.pointer)})
    elif result.output:
        typer.echo(result.output, nl=not result.output.endswith("\n"))


def join_script(words: list[str]) -> str:
    """Make one script of the arguments that a shell has split.

    A first argument with a space in it is a line of script, and the others are lines too; else all are the
    words of one line, each quoted again as it was.
    """
    if len(words[0].split()) > 1:
        return "\n".join(words)
    return shlex.join(words)


def type_(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What to type; - reads it from standard input.")
    ],
    pace: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            show_default="as fast as the application reads",
            help="Characters a second, 0.1 to 50; a person types about 5.",
        ),
    ] = None,
    name: NameOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Type text into the focused window, exactly: any script, newlines as Return."""
    from deskbox.desktop import Desktop

    if text == "-":
        text = _stdin()
    with interruptible() as cancelled, Desktop.attach(name, wait=PATIENCE) as desktop:
        desktop.type_text(text, pace=pace, cancelled=cancelled)
    if as_json:
        output.print_json({"characters": len(text)})


def key(
    chords: Annotated[
        list[str],
        typer.Argument(metavar="CHORD", help="Keys joined by +, such as CTRL+SHIFT+T, ENTER, F5 or CTRL++."),
    ],
    name: NameOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Press a key or a combination; several are pressed one after the other."""
    from deskbox.desktop import Desktop
    from deskbox.keys import chord

    pressed = ["+".join(chord([text])) for text in chords]
    with interruptible() as cancelled, Desktop.attach(name, wait=PATIENCE) as desktop:
        desktop.step(shlex.join(["key", *pressed]), cancelled=cancelled)
    if as_json:
        output.print_json({"pressed": pressed})


def open_(
    url: Annotated[str, typer.Argument(metavar="URL", help="An address, such as http://127.0.0.1:8000/.")],
    name: NameOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show a page in the desktop's Firefox, which is started if it was closed."""
    from deskbox.desktop import Desktop

    with Desktop.attach(name, wait=PATIENCE) as desktop:
        desktop.open_url(url)
    if as_json:
        output.print_json({"url": url})


def _stdin() -> str:
    from deskbox.errors import InvalidInput

    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"Standard input must be UTF-8 text: {error}.") from None
