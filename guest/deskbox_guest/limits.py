"""What is the same in every guest, whatever runs it, and what it may use: limits, not reservations."""

from __future__ import annotations

HOSTNAME = "deskbox"  # of a machine that goes on from a frozen one, only the beginning
UID = 1000  # of the guest's one user, as the guest sees it

_MB = 1024 * 1024

# Firefox with a few tabs needs 300 MB to 1 GB.
MEMORY = 2048 * _MB
SHM = 256 * _MB
TASKS = 512
OPEN_FILES = 65536
# The places that can be written to: bytes, and the mode. Those that are closed to others belong to the user.
TMPFS = {
    "/tmp": (512 * _MB, 0o1777),
    "/run": (16 * _MB, 0o755),
    "/home/user": (512 * _MB, 0o700),
}
