"""`drill`: a scripted model does a real job on a desktop, and the result is checked. No key, no network."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deskbox.cli import output
from deskbox.cli.options import PATIENCE, JsonOption, interruptible

if TYPE_CHECKING:
    from deskbox.desktop import Desktop
    from deskbox.drill.drill import DrillReport, PassReport

_LOOPS = {"runner": "ResponsesToolRunner.run", "toolset": "ComputerToolset.run"}


def drill(
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", show_default="a fresh desktop", help="Use this running desktop."
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            show_default="drill-failed-DATE-TIME.png if it fails, else none",
            help="Where to write a screenshot, a PNG: the end of the last run, or of the first that failed.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Prove the whole path: fill a form in Firefox, write and save a file, and compare what really arrived.

    A scripted model acts on nothing but the screenshots it is sent, in three runs: the full screen, half its
    size, and a scaled part of it. The records and files in the desktop are then read and compared byte for
    byte. Exit code 0 means that all are exact.
    """
    from rich.console import Console

    from deskbox.cli.run import StepPrinter
    from deskbox.drill.drill import run_drill

    started = time.monotonic()
    console = Console(stderr=as_json, highlight=False)
    with interruptible() as cancelled, _desktop(name) as desktop:
        console.print(
            f"Desktop {desktop.name} is ready after {time.monotonic() - started:.1f} s.", markup=False
        )
        report = run_drill(
            desktop,
            on_pass=lambda planned: console.print(
                f"{planned.view}, {_LOOPS[planned.loop]}", style="bold", markup=False
            ),
            on_event=StepPrinter(console),
            cancelled=cancelled,
        )
    seconds = time.monotonic() - started
    saved = _save_screenshot(report, file)
    if as_json:
        output.print_json(_document(report, seconds, saved))
    else:
        for line in summary(report, seconds):
            console.print(line, markup=False, soft_wrap=True)
        if saved is not None:
            console.print(f"Screenshot: {saved}", markup=False, soft_wrap=True)
    raise typer.Exit(output.DONE if report.verified else output.FAILED)


def summary(report: DrillReport, seconds: float) -> list[str]:
    if report.verified:
        count = len(report.passes)
        exact = f"{count} reservations and {count} saved files are byte for byte what was asked for"
        return [f"Verified: {exact} ({seconds:.1f} s)."]
    return [
        f"Not verified: {each.planned.view}: {sentence}" for each in report.passes for sentence in each.wrong
    ]


def _desktop(name: str | None) -> AbstractContextManager[Desktop]:
    from deskbox.desktop import Desktop

    if name is not None:
        return Desktop.attach(name, wait=PATIENCE)
    with output.progress() as show:
        return Desktop.launch(progress=show)


def _document(report: DrillReport, seconds: float, saved: str | None) -> dict[str, Any]:
    return {
        "verified": report.verified,
        "seconds": seconds,
        "screenshot": saved,
        "passes": [
            {
                "view": each.planned.view,
                "loop": each.planned.loop,
                "verified": each.verified,
                "wrong": list(each.wrong),
                "seconds": each.seconds,
                "outcome": asdict(each.outcome),
            }
            for each in report.passes
        ],
    }


def _save_screenshot(report: DrillReport, file: str | None) -> str | None:
    shown: PassReport = next((each for each in report.passes if not each.verified), report.passes[-1])
    if file is None and report.verified:
        return None
    target = Path(file if file is not None else time.strftime("drill-failed-%Y%m%d-%H%M%S.png"))
    target.write_bytes(shown.screenshot)
    return str(target.absolute())
