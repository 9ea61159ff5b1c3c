"""What runs a guest. Nothing above this package knows which one does."""

from __future__ import annotations

from deskbox.backends.base import Backend, Guest, GuestSpec, Progress
from deskbox.errors import InvalidInput

NAMES = ("docker",)

__all__ = ["NAMES", "Backend", "Guest", "GuestSpec", "Progress", "create", "remove_strays", "resolve"]


def resolve(name: str) -> str:
    """The backend that `name` means; "auto" picks the first one. Raises InvalidInput."""
    if name == "auto":
        return NAMES[0]
    if name not in NAMES:
        raise InvalidInput(f"backend {name!r} is not known: use auto or {', '.join(NAMES)}")
    return name


def create(name: str) -> Backend:
    """Connect to the backend. Raises InvalidInput or Unavailable."""
    resolve(name)
    from deskbox.backends.docker import DockerBackend  # the SDK takes 0.2 s to import

    return DockerBackend()


def remove_strays(owner: str) -> list[str]:
    """Stop every guest of this owner, whether a desktop knows it or not. Returns their desktops' names."""
    stopped = []
    for name in NAMES:
        backend = create(name)
        for guest_id, desktop in backend.guests(owner).items():
            backend.stop(guest_id)
            stopped.append(desktop)
    return stopped
