"""What a call's answer means: shared by the blocking and the async client."""

from __future__ import annotations

from typing import Any

from deskbox.errors import (
    Cancelled,
    DeskboxError,
    ImageTooLarge,
    Interrupted,
    InvalidInput,
    Refused,
    Unavailable,
)


class Disconnected(ConnectionError):
    """The byte stream ended before the answer. What the call did is not known here."""


_KINDS: dict[str, type[DeskboxError]] = {
    "refused": Refused,
    "too_large": ImageTooLarge,
    "interrupted": Interrupted,
    "unavailable": Unavailable,
}


def check_head(head: dict[str, Any]) -> dict[str, Any]:
    """Return the result, or raise the fault that the guest reported in its place."""
    fault = head.get("fault")
    if fault is None:
        return head
    data = fault["data"]
    kind = _KINDS.get(fault["kind"], Interrupted)
    if kind is Refused and data.get("input"):
        kind = InvalidInput
    elif data.get("cancelled"):
        kind = Cancelled
    raise kind(fault["message"], **data)


def timed_out(path: str, seconds: float) -> Unavailable:
    return Unavailable(f"the guest did not answer {path} within {seconds:g} s")
