"""What the desktop shows: pictures of it, and when it has become quiet.

A desktop gets it when somebody looks for the first time: the libraries for images take as long to import as
all else that the agent needs, and it answers the host before.
"""

from __future__ import annotations

from deskbox_guest.protocol import Frame
from deskbox_guest.x11.capture import Screen
from deskbox_guest.x11.display import Link
from deskbox_guest.x11.picture import NO_PICTURE, Encoded, region
from deskbox_guest.x11.settle import Observer


class Sight:
    def __init__(self, display: str | None) -> None:
        link = Link(display)
        self._size = link.size
        self.screen = Screen(link, display)
        self.observer = Observer(self.screen)

    def check(self, frame: Frame | None) -> None:
        """Fault "refused" if there can be no such picture."""
        if frame is not None:
            region(frame, self._size)

    def picture(self, frame: Frame | None) -> Encoded:
        """The picture, or an empty one if none is asked for. Raises what `Screen.picture` does."""
        return self.screen.picture(frame) if frame is not None else NO_PICTURE

    def close(self) -> None:
        self.observer.close()
        self.screen.close()
