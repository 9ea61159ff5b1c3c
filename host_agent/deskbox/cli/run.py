"""`run`: a model does a task on a desktop."""

from __future__ import annotations

import select
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from deskbox.cli import output
from deskbox.cli.options import (
    PATIENCE,
    JsonOption,
    NameOption,
    SettleOption,
    Size,
    interruptible,
    parse_size,
)

if TYPE_CHECKING:
    from openai.lib.computer import ComputerActionInput
    from openai.types.responses import ResponseComputerToolCall
    from rich.console import Console

    from deskbox.desktop import Desktop
    from deskbox.runs import RunEvent


def run(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="What to do, in words; - reads it from standard input.")
    ],
    name: NameOption = "default",
    model: Annotated[
        str | None,
        typer.Option(
            envvar="DESKBOX_MODEL", show_default="gpt-5.4", help="A model that supports the computer tool."
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="A Responses endpoint other than OpenAI's, such as http://127.0.0.1:8080/v1."
        ),
    ] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Requests to the model at most.")] = 20,
    approve: Annotated[
        Literal["ask", "deny"],
        typer.Option(help="Pending safety checks: ask you about each, or deny all."),
    ] = "ask",
    image_size: Annotated[
        Size | None,
        typer.Option(parser=parse_size, metavar="WxH", help="Size of the screenshots that the model sees."),
    ] = None,
    settle: SettleOption = "settled",
    file: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            show_default="run-NAME-DATE-TIME.png",
            help="Where to write the last screenshot, a PNG.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Let a model do a task on the desktop, and show each of its steps.

    The key is read from OPENAI_API_KEY. Ctrl-C stops within a second, with no key and no button held.
    """
    from rich.console import Console

    from deskbox.desktop import Desktop
    from deskbox.errors import InvalidInput
    from deskbox.runs import deny, model_client, run_task
    from deskbox.runs.task import DEFAULT_MODEL

    if task == "-":
        task = sys.stdin.read()
    if not task.strip():
        raise InvalidInput("The task is empty: say in words what to do.")
    target = Path(file if file is not None else time.strftime(f"run-{name}-%Y%m%d-%H%M%S.png"))
    # Pydantic quotes what it finds wrong in a model's action, and the error that follows says it better.
    warnings.filterwarnings("ignore", category=UserWarning, module="pydantic")
    console = Console(stderr=as_json, highlight=False)
    with (
        model_client(base_url) as client,
        interruptible() as cancelled,
        Desktop.attach(name, wait=PATIENCE) as desktop,
    ):
        outcome = run_task(
            desktop,
            task,
            client=client,
            model=model or DEFAULT_MODEL,
            max_steps=max_steps,
            approve=ask(console) if approve == "ask" else deny,
            image_size=image_size,
            settle=settle,
            on_event=StepPrinter(console),
            cancelled=cancelled,
        )
        saved = _save_screenshot(desktop, target)

    if as_json:
        output.print_json({**asdict(outcome), "screenshot": saved})
    else:
        console.print(f"{outcome.steps} steps, {outcome.usage}.", markup=False, soft_wrap=True)
        if saved is not None:
            console.print(f"Last screenshot: {saved}", markup=False, soft_wrap=True)
        if outcome.status != "done":
            output.complain(outcome.error)
    codes = {"done": output.DONE, "cancelled": output.STOPPED}
    raise typer.Exit(codes.get(outcome.status, output.FAILED))


class StepPrinter:
    """Prints what happens in a run as it happens: one line an event, each step numbered."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._step = 0

    def __call__(self, event: RunEvent) -> None:
        from rich.text import Text

        if event.kind == "screenshot" and event.step == self._step:
            return  # each step ends with one
        number = f"{event.step:>3}" if event.step != self._step else ""
        self._step = event.step
        text, style = event.text or "look at the screen", ""
        if event.kind == "message":
            style = "italic"
        elif event.kind == "approval":
            text = f"{'approved' if event.approved else 'not approved'}: {text}"
            style = "green" if event.approved else "red"
        line = Text.assemble((f"{number:<4}", "dim"), (text, style))
        self._console.print(line, soft_wrap=True)


def ask(console: Console) -> Callable[[ResponseComputerToolCall, Callable[[], bool]], bool]:
    """Put each safety check to whoever sits at the terminal; only `y` or `yes` approves."""

    def approve(call: ResponseComputerToolCall, cancelled: Callable[[], bool]) -> bool:
        from deskbox.runs.wording import describe

        actions: list[ComputerActionInput] = [*(call.actions or ())]
        if call.action is not None:
            actions.append(call.action)
        console.print("The model wants to:", style="bold")
        for action in actions:
            console.print(f"  {describe(action)}", markup=False, soft_wrap=True)
        for check in call.pending_safety_checks or ():
            text = check.message or check.code or check.id
            console.print(f"  Safety check: {text}", markup=False, soft_wrap=True)
        if not sys.stdin.isatty():
            console.print("Nobody can be asked, for standard input is no terminal.", style="red")
            return False
        console.print("Approve? [y/N] ", end="", markup=False)
        # A plain read could not be ended by Ctrl-C: this is not the main thread.
        while not cancelled():
            readable, _, _ = select.select([sys.stdin], [], [], 0.1)
            if readable:
                return sys.stdin.readline().strip().lower() in ("y", "yes")
        return False

    return approve


def _save_screenshot(desktop: Desktop, target: Path) -> str | None:
    """The path written to, or None with a note if the desktop gives no picture any more."""
    from deskbox.errors import DeskboxError

    try:
        image = desktop.screenshot()
    except DeskboxError as error:
        output.note(f"no last screenshot: {error}")
        return None
    target.write_bytes(image)
    return str(target.absolute())
