"""`bench`: how fast and how true this is on this machine, beside other ways to drive a desktop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deskbox.cli import output
from deskbox.cli.options import JsonOption

if TYPE_CHECKING:
    from deskbox_bench.bench import Report


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="A turn or two each: shows that all works, not how fast it is.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="WORK", show_default="all", help="Only this work; repeatable."),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            metavar="N",
            min=1,
            show_default="by work",
            help="How many turns everybody has at each work.",
        ),
    ] = None,
    earlier: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="FILE", help="Show this report, which --json printed; measure nothing."
        ),
    ] = None,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="FILE.svg", help="Where to write the figure.")
    ] = None,
    docs: Annotated[
        str | None,
        typer.Option("--docs", metavar="DIR", help="Write the figures and tables of these documents anew."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure Deskbox beside xdotool, docker exec, pyautogui, pynput and the bare limit, in a fresh guest.

    Then the start of desktops, on each backend that works here. All take turns, so that what disturbs the
    machine disturbs them all. It takes twenty minutes.
    """
    from deskbox_bench import documents
    from deskbox_bench import plot as figures
    from deskbox_bench.starts import ALL_WORKS, STARTS
    from deskbox_bench.works import WORKS

    names = [work.name for work in ALL_WORKS]
    unknown = [name for name in only or () if name not in names]
    if unknown:
        raise typer.BadParameter(f"there is no work {unknown[0]!r}: name one of {', '.join(names)}.")
    if docs is not None and (quick or only):
        raise typer.BadParameter("the documents tell of a whole run: leave out --quick and --only.")
    if earlier is not None:
        report = _read(earlier)
    else:
        from deskbox_bench.bench import run

        with output.progress() as show:
            works = [work for work in WORKS if work.name in (only or names)]
            starts = [start for start in STARTS if start.name in (only or names)]
            report = run(works, starts, quick=quick, rounds=rounds, progress=show)
    if plot is not None:
        Path(plot).write_text(figures.bars(report.results))
    written = documents.write(report, Path(docs)) if docs is not None else []
    if as_json:
        output.print_json(report.document())
        return
    _print(report)
    for path in written:
        typer.echo(f"Wrote {path}")


def _read(file: str) -> Report:
    from deskbox_bench.bench import from_document

    try:
        return from_document(Path(file).read_text())
    except ValueError as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="--from") from None


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from deskbox_bench.report import tables

    console = Console(highlight=False)
    for each in tables(report):
        console.print(Text(each.title, style="bold"))
        table = Table(box=None, pad_edge=False, header_style="dim")
        for index, column in enumerate(each.columns):
            table.add_column(column, justify="right" if index else "left", min_width=0 if index else 16)
        for row in each.rows:
            style = "cyan" if row[0] == "deskbox" else "red" if row[-1] == "missed" else ""
            table.add_row(*(Text(cell) for cell in row), style=style)
        console.print(table)
        console.print()
    for what in report.left_out:
        console.print(f"left out: {what}", style="yellow", soft_wrap=True)
    facts = report.machine
    console.print(
        f"{facts['date']}, {facts['cpu']}, {facts['cores']} cores, load {facts['load']}; "
        f"{report.seconds:.0f} s",
        style="dim",
        soft_wrap=True,
    )
