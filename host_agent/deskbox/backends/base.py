"""What a backend is: start a guest, connect to it, see whether it lives, freeze it, stop it."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from deskbox.errors import Refused

if TYPE_CHECKING:  # a guest is started before anything is needed that waits for it
    from deskbox.backends.connections import Connections

Progress = Callable[[str], None]
# What a snapshot holds: the files of the home directory, or all that runs.
Contents = Literal["home", "machine"]
HOME_ARCHIVE = "home.tar"
# Where a guest dials, in the directory that it shares with the host.
SOCKET = "guest.sock"


@dataclass(frozen=True)
class ImageSpec:
    """What guests are to be started from. Size and engine matter where a running guest is frozen for it."""

    packages: tuple[str, ...] = ()  # of Debian, besides those that every guest has
    size: tuple[int, int] = (1280, 800)
    engine: str = "xtest"


@dataclass(frozen=True)
class Verdict:
    """Whether this machine can run guests in one way, found by trying it."""

    usable: bool
    found: str  # a clause: what was found
    fix: str = ""  # what to do, if it is not usable


@dataclass(frozen=True)
class GuestSpec:
    """What to start."""

    name: str
    size: tuple[int, int]  # of the screen, pixels
    url: str  # the page that the browser opens with; "": the start page
    directory: Path  # of the host, for this guest alone: what the two share, such as sockets
    owner: str  # tells this state directory's guests from another's
    image: str  # what `prepare` returned
    engine: str = "xtest"  # what carries out scripts
    snapshot: Path | None = None  # the directory of the snapshot to start from

    def environment(self) -> dict[str, str]:
        """What the guest's session is told; see `deskbox_guest.session`."""
        told = {
            "DESKBOX_SIZE": "{}x{}".format(*self.size),
            "DESKBOX_ENGINE": self.engine,
            "DESKBOX_SOCKET": f"/rpc/{SOCKET}",
        }
        if self.url:
            told["DESKBOX_URL"] = self.url
        if self.snapshot is not None:
            told["DESKBOX_HOME_ARCHIVE"] = f"/rpc/{HOME_ARCHIVE}"
        return told

    def hand_over_home(self) -> None:
        """Put the snapshot's home directory where the guest's session finds it."""
        if self.snapshot is not None:
            shutil.copyfile(self.snapshot / HOME_ARCHIVE, self.directory / HOME_ARCHIVE)
            (self.directory / HOME_ARCHIVE).chmod(0o644)


@dataclass
class Guest:
    """A guest that was started: enough to find it again after the process that started it is gone."""

    id: str
    facts: dict[str, str] = field(
        default_factory=dict
    )  # what the user should know, such as the seccomp profile


class Backend(ABC):
    """All methods block; the keeper calls them in threads."""

    name: str
    saves: Contents = "home"
    builds_for_others = False  # images for other computers; see `build_for`

    @classmethod
    @abstractmethod
    def check(cls) -> Verdict:
        """Whether this machine can run such guests. Changes nothing, but for what it keeps in the cache."""

    @abstractmethod
    def prepare(self, wanted: ImageSpec, progress: Progress) -> str:
        """Make what guests start from, if it is missing, and return its name.

        This may take minutes, and says so through `progress`; interrupted, it leaves nothing half made.
        """

    def discard(self, image: str) -> None:  # noqa: B027
        """Delete what was made for guests of this image alone, such as a machine frozen at their size.

        On backends without such things there is nothing to do.
        """

    def build_for(self, arch: str, progress: Progress) -> None:
        """Make the image for computers of an architecture, in Debian's words. Refused, DeskboxError."""
        raise Refused(
            f"an image for {arch} can only be made for the backend qemu: repeat with `--backend qemu`, or "
            "without an architecture"
        )

    @abstractmethod
    def prune(self, progress: Progress) -> None:
        """Delete the images of earlier versions that no guest uses."""

    @abstractmethod
    def start(self, spec: GuestSpec) -> Guest:
        """Start a guest. If this raises, nothing is left of it."""

    def connections(self, directory: Path) -> Connections:
        """How the keeper gets byte streams to the guest of that directory."""
        from deskbox.backends.connections import Dialled

        return Dialled(directory)

    @abstractmethod
    def wait(self, guest_id: str) -> str:
        """Block until the guest has ended; return why, as a clause for a sentence."""

    @abstractmethod
    def alive(self, guest_id: str) -> bool: ...

    @abstractmethod
    def pause(self, guest_id: str) -> None:
        """Freeze all that runs in the guest. Idempotent."""

    @abstractmethod
    def resume(self, guest_id: str) -> None:
        """Let it go on. Idempotent."""

    def save(self, guest_id: str, into: Path, progress: Progress) -> None:
        """Write all that runs to files in the directory `into`, for `GuestSpec.snapshot`; the guest goes on.

        Nothing is held in the guest. Raises OSError, Unavailable, and Refused if this backend `saves` none.
        """
        raise Refused(f"on {self.name} a desktop's home directory can be saved, and not what runs in it")

    def console(self, guest_id: str, directory: Path) -> str:
        """The last of what the guest has said on its console, if it has one."""
        return ""

    @abstractmethod
    def stop(self, guest_id: str) -> None:
        """End the guest, also a frozen one, and remove all that it used. Idempotent."""

    @abstractmethod
    def guests(self, owner: str) -> dict[str, str]:
        """Every guest of this owner that has left a trace: id -> desktop name."""

    def stop_named(self, name: str, owner: str) -> None:
        """End whatever guests this desktop has, known by id or not."""
        for guest_id, found in self.guests(owner).items():
            if found == name:
                self.stop(guest_id)
