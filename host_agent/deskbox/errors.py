"""The errors that Deskbox raises, by the one question a caller has: may anything have happened?"""

from __future__ import annotations

from typing import Any


class DeskboxError(Exception):
    """Base of all errors of this package. `data` holds machine-readable details."""

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.data = data


class Refused(DeskboxError):
    """Nothing has happened: the state is wrong or the request is not allowed."""


class InvalidInput(Refused, ValueError):
    """Nothing has happened: the input is not one that Deskbox accepts. The message says what is."""


class ImageTooLarge(DeskboxError):
    """The picture takes more bytes than its limit, and is not given; all else has been done.

    It is none of the other kinds, because a script before the picture in the same step has run to its end:
    what it leaves down is down, and to repeat it would be to do it twice. Without a script nothing has
    happened. `data` has `bytes`, the `limit` and the `image_size` in pixels.
    """


class Interrupted(DeskboxError):
    """Some effect is certain or possible. No key and no button is held any more.

    `data` may say how much surely arrived, such as `characters` for text.
    """


class Cancelled(Interrupted):
    """Stopped because the caller's `cancelled` said so."""


class Unavailable(DeskboxError):
    """The desktop is gone, paused, not started, or owned by another."""


class Paused(Unavailable):
    """The desktop is frozen: `resume` lets it go on. Nothing is held in it."""
