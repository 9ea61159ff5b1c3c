"""The check of the harness's report against every way in which it can be wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.external.verdict import EXPECTED_TO_FAIL, FINAL_STATE, Row, faults, rows

EXPECTED = next(iter(EXPECTED_TO_FAIL))


def summary(entry: str, *statuses: str) -> dict[str, Any]:
    passes = statuses.count("pass")
    return {"entry_id": entry, "reps": len(statuses), "passes": passes, "statuses": list(statuses)}


def report(*summaries: dict[str, Any], raw_tap: bool = True, not_measurable: str = "") -> dict[str, Any]:
    missing = [{"entry_id": not_measurable, "reason": "no words"}] if not_measurable else []
    return {"raw_tap": raw_tap, "entries": list(summaries), "not_measurable": missing}


def judged(picture: str, event: str = "pass", tap: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "entry_id": "click",
        "rep": 0,
        "event_channel": {"status": event},
        "visual_channel": {"detail": picture},
        "raw_channel": tap,
    }


GOOD = report(summary("click", "pass", "pass"), summary(EXPECTED, "fail", "fail"))


def test_a_good_report_has_no_faults() -> None:
    assert faults(GOOD, "script", [judged(FINAL_STATE)]) == []
    assert faults(report(not_measurable="drag_right_button"), "driver", []) == []
    # What the tap alone has seen has no picture.
    assert faults(GOOD, "script", [judged("", event="unavailable", tap={"status": "pass"})]) == []


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (report(summary("click", "pass", "fail")), "click: passed in 1 of 2"),
        (report(summary("click", "pass", "error")), "click: passed in 1 of 2"),
        (report(summary(EXPECTED, "fail", "pass")), f"{EXPECTED}: expected to fail, but: fail, pass"),
        (report(summary(EXPECTED, "fail", "error")), f"{EXPECTED}: expected to fail, but: fail, error"),
        (report(raw_tap=False), "the tap on the X server was off"),
        (report(not_measurable="drag_right_button"), "drag_right_button: not measured"),
    ],
)
def test_what_is_wrong_is_named(bad: dict[str, Any], fault: str) -> None:
    (found,) = faults(bad, "script", [])
    assert found.startswith(fault)


def test_what_has_words_after_all_is_named() -> None:
    (found,) = faults(report(summary("drag_right_button", "pass")), "driver", [])
    assert found.startswith("drag_right_button: expected to have no words")


@pytest.mark.parametrize("picture", ["screenshot faithfully shows seq 4 of 6: it lags", "no valid strip"])
def test_a_picture_of_the_past_is_a_fault(picture: str) -> None:
    assert faults(GOOD, "script", [judged(picture)]) == [f"click #0: the picture: {picture}"]
    # Nor does it help that the harness did not observe the repetition at all.
    assert faults(GOOD, "script", [judged(picture, event="unavailable")])


def test_the_table_counts_entries_that_always_pass() -> None:
    run = report(summary("click", "pass", "pass"), summary("drag", "pass", "fail"), summary("type", "pass"))
    catalogue = {"pointer": ["click", "drag", "move"], "text": ["type"], "keys": ["enter"]}
    table = rows(run, catalogue)
    assert table == [Row("pointer", 2, 1, 4, 3), Row("text", 1, 1, 1, 1)]
    assert str(sum(table, start=Row("all", 0, 0, 0, 0))) == "| all | 3 | 2 | 5 | 4 |"
