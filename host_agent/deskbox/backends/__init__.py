"""What runs a guest. Nothing above this package knows which one does."""

from __future__ import annotations

import os

from deskbox.backends.base import (
    HOME_ARCHIVE,
    Backend,
    Contents,
    Guest,
    GuestSpec,
    ImageSpec,
    Progress,
    Verdict,
)
from deskbox.errors import DeskboxError, InvalidInput, Refused

NAMES = ("docker", "bwrap", "qemu")  # in the order in which "auto" tries them
AUTO = "auto"

__all__ = [
    "AUTO",
    "HOME_ARCHIVE",
    "NAMES",
    "Backend",
    "Contents",
    "Guest",
    "GuestSpec",
    "ImageSpec",
    "Progress",
    "Verdict",
    "check",
    "create",
    "guests",
    "kind",
    "named",
    "resolve",
]


def named(name: str | None) -> str:
    """The backend that `name` means, or else DESKBOX_BACKEND; "auto" if neither says. Raises InvalidInput."""
    name = name or os.environ.get("DESKBOX_BACKEND") or AUTO
    if name != AUTO and name not in NAMES:
        raise InvalidInput(f"backend {name!r} is not known: use {AUTO} or {', '.join(NAMES)}")
    return name


def resolve(name: str | None) -> str:
    """The same, and for "auto" the first one that works on this machine. Raises InvalidInput, Refused."""
    name = named(name)
    if name != AUTO:
        return name
    found = {}
    for candidate in NAMES:
        found[candidate] = check(candidate)
        if found[candidate].usable:
            return candidate
    reasons = "; ".join(f"{candidate}: {verdict.found}" for candidate, verdict in found.items())
    raise Refused(
        f"nothing on this machine can run a desktop ({reasons}): let `make up` install what is missing, or "
        "install the Debian package docker.io, bubblewrap or qemu-system-x86"
    )


def check(name: str) -> Verdict:
    """Whether this backend works on this machine, found by trying it."""
    return kind(named(name)).check()


def create(name: str) -> Backend:
    """The backend of that name. Raises InvalidInput, or Unavailable if what it needs does not answer."""
    return kind(named(name))()


def kind(name: str) -> type[Backend]:
    """The backend of that name, not made yet."""
    # Imported here: the Docker SDK takes 0.2 s, and nobody needs all of them.
    if name == "docker":
        from deskbox.backends.docker import DockerBackend

        return DockerBackend
    if name == "qemu":
        from deskbox.backends.qemu.backend import QemuBackend

        return QemuBackend
    from deskbox.backends.bubblewrap import BubblewrapBackend

    return BubblewrapBackend


def guests(owner: str) -> list[tuple[Backend, str, str]]:
    """Every guest of this owner, whether a desktop knows it or not: backend, id, desktop's name."""
    found = []
    for name in NAMES:
        try:
            backend = create(name)
        except DeskboxError:
            continue  # what does not answer runs no guest that could be ended
        found += [(backend, guest, desktop) for guest, desktop in backend.guests(owner).items()]
    return found
