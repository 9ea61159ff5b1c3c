"""What each call asks of the guest, and how long it waits for the answer."""

from __future__ import annotations

from deskbox import calls


def test_a_slow_text_has_the_time_that_it_takes() -> None:
    at_once, slowly = (calls.type_text("x" * 5000, pace) for pace in (None, 2.0))
    assert at_once.timeout == calls.SCRIPT
    assert slowly.timeout == calls.SCRIPT + 2500
    assert slowly.head["script"].startswith("type --delay 500 -- xxx")
    assert slowly.acts
