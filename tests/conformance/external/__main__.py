"""`make conformance-external`: the harness runs its catalogue on a fresh desktop, and its report is checked.

Arguments are the harness's own: `--reps 1`, `--entries drag,alt` (parts of names), `--runner driver`.
"""

from __future__ import annotations

import json
import shutil
import sys
from importlib.resources import as_file, files
from pathlib import Path

from autoharness import cli
from tests.conformance.external import verdict

HERE = Path(__file__).parent
BUILD = Path("build") / "conformance-external"
OURS = "deskbox"  # the file of the catalogue that is not the harness's


def gather_catalogue() -> dict[str, list[str]]:
    """Put the harness's catalogue and our additions side by side; the entries of each file."""
    gathered = BUILD / "catalogue"
    gathered.mkdir(parents=True)
    with as_file(files("autoharness") / "catalogs" / "runner") as theirs:
        for source in [*sorted(theirs.glob("*.json")), HERE / "catalogue" / f"{OURS}.json"]:
            shutil.copy(source, gathered)
    return {
        path.stem: [entry["id"] for entry in json.loads(path.read_text())["entries"]]
        for path in sorted(gathered.glob("*.json"), key=lambda path: (path.stem == OURS, path.stem))
    }


def main(arguments: list[str]) -> int:
    shutil.rmtree(BUILD, ignore_errors=True)
    catalogue = gather_catalogue()
    run = BUILD / "run"
    command = ["test", "--adapter", f"{HERE / 'binding.py'}:Deskbox", "--no-tui"]
    cli.main([*command, "--catalog", str(BUILD / "catalogue"), "--out", str(run), *arguments])
    if not (run / "report.json").exists():
        return 2  # the harness has said why

    report = json.loads((run / "report.json").read_text())
    verdicts = [json.loads(path.read_text()) for path in sorted(run.glob("entries/*/rep*/verdict.json"))]
    runner = cli.build_parser().parse_args(["test", *arguments]).runner or "script"
    table = verdict.rows(report, catalogue)
    theirs = [row for row in table if row.name != OURS]
    ours = [row for row in table if row.name == OURS]
    total = sum(theirs, start=verdict.Row("**all of the harness's**", 0, 0, 0, 0))
    print("", verdict.HEADING, *theirs, total, *ours, sep="\n")
    print()
    for summary in report["entries"]:
        if (reason := verdict.EXPECTED_TO_FAIL.get(summary["entry_id"])) is not None:
            print(f"Expected to fail: {summary['entry_id']}: {reason}.")
    for item in report["not_measurable"]:
        print(f"Not measured: {item['entry_id']}: {item['reason']}.")
    faults = verdict.faults(report, runner, verdicts)
    for fault in faults:
        print(f"FAULT: {fault}", file=sys.stderr)
    print(f"{len(faults)} faults; the evidence of each repetition is in {run}/entries.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
