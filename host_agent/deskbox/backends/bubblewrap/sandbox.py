"""The commands that start a guest in bubblewrap, and what it sees of the host. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deskbox.cache import cache_dir
from deskbox.compiled import SITE
from deskbox_guest import limits

SESSION = ("dumb-init", "--", "python3", "-m", "deskbox_guest.session")
# Where everything that the sandbox is made of can be reached by a user who may not enter our directories.
STAGE = Path("/mnt")

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/home/user",
    "DISPLAY": ":0",
}


@dataclass(frozen=True)
class Places:
    """Directories of the host that a guest sees, read-only."""

    root: Path
    site: Path
    rpc: Path

    @classmethod
    def of(cls, image: str, rpc: Path) -> Places:
        """Those of an image by its name, which is that of two directories: see `tree`."""
        root, _, site = image.partition("/")
        return cls(trees() / root, trees() / site, rpc)

    def staged(self) -> Places:
        """The same, where `staging` puts them."""
        return Places(*(STAGE / name for name in ("root", "site", "rpc")))


def trees() -> Path:
    """Where the images are."""
    return cache_dir() / "trees"


def arguments(
    places: Places, environment: Mapping[str, str], *, open_files: int, seccomp_fd: int, info_fd: int
) -> tuple[list[str], list[str]]:
    """The options of bwrap(1) with which a guest starts, and the program that it runs in there.

    The options are for `--args`: what the guest sees of its own start names nothing of the host.
    """
    options = _isolation(seccomp_fd, info_fd)
    options += ["--uid", str(limits.UID), "--gid", str(limits.UID), "--hostname", limits.HOSTNAME]
    options += ["--clearenv"]
    for name, value in {**_ENVIRONMENT, **environment}.items():
        options += ["--setenv", name, value]
    options += ["--ro-bind", str(places.root), "/", "--ro-bind", str(places.site), str(SITE)]
    options += ["--ro-bind", str(places.rpc), "/rpc"]
    options += ["--dev", "/dev", "--proc", "/proc"]
    for path, (size, mode) in {**limits.TMPFS, "/dev/shm": (limits.SHM, 0o1777)}.items():
        options += ["--perms", f"{mode:o}", "--size", str(size), "--tmpfs", path]
    options += ["--chdir", "/home/user"]
    # Inside, so that the guest's processes alone are counted.
    program = ["prlimit", f"--nproc={limits.TASKS}", f"--nofile={open_files}", "--core=0", "--"]
    return options, [*program, *SESSION]


def trial(root: Path, *, seccomp_fd: int, info_fd: int) -> tuple[list[str], list[str]]:
    """The same for a program that does nothing, in a root that has one: the host's will do."""
    mounts = ["--ro-bind", str(root), "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    return [*_isolation(seccomp_fd, info_fd), "--uid", str(limits.UID), *mounts], ["true"]


def _isolation(seccomp_fd: int, info_fd: int) -> list[str]:
    # New namespaces of every kind, a user namespace among them: nothing of the host can be named.
    options = ["--unshare-all", "--unshare-user", "--cap-drop", "ALL"]
    options += ["--new-session", "--die-with-parent"]
    return [*options, "--seccomp", str(seccomp_fd), "--info-fd", str(info_fd)]


def staging(places: Places, user: int, command: Sequence[str]) -> list[str]:
    """`command` as a user without rights, with a view of `places` under STAGE. For root.

    The view is a mount namespace of its own: nobody else sees it, and it ends with its last process.
    """
    targets = (places.staged().root, places.staged().site, places.staged().rpc)
    steps = [f"mount -t tmpfs -o mode=755,size=64k,nosuid,nodev stage {STAGE}"]
    steps += [f"mkdir {' '.join(map(str, targets))}"]
    steps += [f'mount --rbind "${number}" {target}' for number, target in enumerate(targets, 1)]
    steps += [f"shift {len(targets)}"]
    steps += [f'exec setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs -- "$@"']
    return [
        *("unshare", "--mount", "--propagation", "private", "--", "sh", "-c", " && ".join(steps), "sh"),
        *(str(place) for place in (places.root, places.site, places.rpc)),
        *command,
    ]


def entering(entrances: Sequence[Path], command: Sequence[str]) -> list[str]:
    """`command` inside control groups, which a process enters by writing its number to these files."""
    if not entrances:
        return list(command)
    script = 'while [ "$1" != -- ]; do echo $$ >"$1" || exit; shift; done; shift; exec "$@"'
    return ["sh", "-c", script, "sh", *map(str, entrances), "--", *command]
