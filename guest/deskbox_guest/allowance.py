"""What a guest may use, whatever runs it: the same numbers for a container and for a machine.

Sizes are the guest's own limits, not reservations. Firefox with a few tabs needs 300 MB to 1 GB.
"""

from __future__ import annotations

UID = 1000
MEMORY_MIB = 2048
SHM = "256m"
PROCESSES = 512  # threads count, too
OPEN_FILES = 65536
# The only places that can be written to, in memory. Options as mount(8) takes them for tmpfs.
# Docker mounts tmpfs `noexec` unless told otherwise; a desktop's user may run what they wrote.
TMPFS = {
    "/tmp": "rw,exec,nosuid,nodev,mode=1777,size=512m",
    "/run": f"rw,nosuid,nodev,uid={UID},gid={UID},mode=755,size=16m",
    "/home/user": f"rw,exec,nosuid,nodev,uid={UID},gid={UID},mode=700,size=512m",
}
