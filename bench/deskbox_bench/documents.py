"""The project's documents as they follow from a report: figures, tables, and the report itself.

In docs/performance.md what stands between `<!-- bench: NAME -->` and `<!-- /bench -->` is written anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from deskbox.errors import InvalidInput
from deskbox_bench import plot
from deskbox_bench.bench import Report
from deskbox_bench.report import left_out, machine, markdown, tables

_BLOCK = re.compile(r"(<!-- bench: (\S+) -->\n).*?(<!-- /bench -->)", re.S)


def write(report: Report, docs: Path) -> list[Path]:
    """Bring the documents in the directory `docs` up to date; return those that were written."""
    page = docs / "performance.md"
    if not page.exists():
        raise InvalidInput(f"there is no {page}: name the directory `docs` of a checkout of Deskbox")
    blocks = {table.name: markdown(table) for table in tables(report)}
    blocks |= {"machine": machine(report), "left-out": left_out(report)}
    written = {
        page: filled(page.read_text(), blocks),
        docs / "bench.json": json.dumps(report.document(), ensure_ascii=False, indent=1) + "\n",
        docs / "img" / "bench.svg": plot.bars(report.results),
        docs / "img" / "settle.svg": plot.settling(report.results),
        docs / "img" / "starts.svg": plot.starts(report.results),
    }
    for path, text in written.items():
        path.write_text(text)
    return list(written)


def filled(page: str, blocks: dict[str, str]) -> str:
    """The page with its blocks replaced. One that there are no figures for stays as it is."""

    def block(found: re.Match[str]) -> str:
        start, name, end = found.groups()
        return f"{start}{blocks[name]}{end}" if name in blocks else found[0]

    return _BLOCK.sub(block, page)
