"""What a report of the harness must say. Pure, and without the harness, so that the usual tests reach it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Entries of the harness's catalogue that fail, each with the reason why it is right that they do. One that
# passes in any repetition is a fault too: then it does not belong here.
EXPECTED_TO_FAIL = {
    "caps_lock_roundtrip": (
        "it types 'ab' with Caps Lock on and expects 'AB': it takes text for keys. Text arrives as it was "
        "written, whatever lock is on (deskbox_text_is_exact_under_caps_lock); keys obey the lock "
        "(deskbox_keys_obey_caps_lock)"
    ),
}
# Entries that can't be said in the actions of the SDK: it has no way to leave a button down, and drags with
# the left button only.
NOT_SAYABLE = {
    "script": frozenset[str](),
    "driver": frozenset(
        {"drag_middle_button", "drag_right_button", "press_hold_release_left", "press_hold_release_right"}
    ),
}

HEADING = (
    "| catalogue | entries | passed each time | repetitions | passed |\n| --- | ---: | ---: | ---: | ---: |"
)
FINAL_STATE = "screenshot faithfully shows the probe's final state"


@dataclass(frozen=True)
class Row:
    """One file of the catalogue in the table."""

    name: str
    entries: int
    passed: int  # entries, in every repetition
    repetitions: int
    repetitions_passed: int

    def __add__(self, other: Row) -> Row:
        return Row(
            self.name,
            self.entries + other.entries,
            self.passed + other.passed,
            self.repetitions + other.repetitions,
            self.repetitions_passed + other.repetitions_passed,
        )

    def __str__(self) -> str:
        counts = (self.entries, self.passed, self.repetitions, self.repetitions_passed)
        return f"| {self.name} | {' | '.join(map(str, counts))} |"


def faults(report: Mapping[str, Any], runner: str, verdicts: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is not as it must be; nothing if all is well.

    `verdicts` are the harness's judgements of single repetitions. It leaves their pictures out of its own:
    here a picture that shows less than all that has happened is a fault.
    """
    found = []
    if not report["raw_tap"]:
        found.append("the tap on the X server was off: what only it sees was not judged")
    not_sayable = {item["entry_id"]: item["reason"] for item in report["not_measurable"]}
    for entry, reason in not_sayable.items():
        if entry not in NOT_SAYABLE[runner]:
            found.append(f"{entry}: not measured, because {reason}")
    for summary in report["entries"]:
        entry, passes, reps = summary["entry_id"], summary["passes"], summary["reps"]
        if entry in EXPECTED_TO_FAIL:
            if summary["statuses"] != ["fail"] * reps:
                found.append(f"{entry}: expected to fail, but: {', '.join(summary['statuses'])}")
        elif entry in NOT_SAYABLE[runner]:
            found.append(f"{entry}: expected to have no words in the {runner}'s language, but was measured")
        elif passes < reps:
            found.append(f"{entry}: passed in {passes} of {reps} repetitions")
    for verdict in verdicts:
        picture = verdict["visual_channel"]
        # The tap has no window: there is no picture of what it alone has seen.
        tap_only = verdict["event_channel"]["status"] == "unavailable" and verdict["raw_channel"]
        if picture["detail"] != FINAL_STATE and not tap_only:
            found.append(f"{verdict['entry_id']} #{verdict['rep']}: the picture: {picture['detail']}")
    return found


def rows(report: Mapping[str, Any], catalogue: Mapping[str, Iterable[str]]) -> list[Row]:
    """The report by the files of the catalogue, each given with its entries; files that were not run are
    left out."""
    summaries = {summary["entry_id"]: summary for summary in report["entries"]}
    table = []
    for name, entries in catalogue.items():
        run = [summaries[entry] for entry in entries if entry in summaries]
        if run:
            passed = sum(summary["passes"] == summary["reps"] for summary in run)
            repetitions = sum(summary["reps"] for summary in run)
            table.append(Row(name, len(run), passed, repetitions, sum(summary["passes"] for summary in run)))
    return table
