"""Compiles the agent with the guest's own Python, taken out of the root's archive and run without a chroot.

A machine's disks are read-only: what is not compiled before is compiled at every start, which costs an
emulated processor five seconds. The compiled form belongs to a version of Python, which is seldom the host's.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from deskbox.errors import DeskboxError

SITE = PurePosixPath("/usr/local/lib/python3.13/dist-packages")  # where the guest has the agent

# The interpreter, its standard library, its loader, and what `ldd` says it needs.
_PYTHON = re.compile(
    r"\./usr/(bin/python3\.13$|lib/python3\.13/.*\.py$|lib/[^/]+/(ld-linux[^/]*|lib(c|m|z|expat)\.so[^/]*)$)"
)


def compiled(rootfs: Path, sources: Mapping[PurePosixPath, bytes]) -> dict[PurePosixPath, bytes]:
    """`sources` (files of the guest's site-packages) and what Python makes of them.

    Raises DeskboxError if the root's Python does not run here.
    """
    with tempfile.TemporaryDirectory(prefix="deskbox-python-") as directory:
        python = _unpack_python(rootfs, Path(directory))
        site = Path(directory) / "site"
        for name, data in sources.items():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_bytes(data)
        # Unchecked: no start compares times.
        command = [*python, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
        command += ["-s", str(site), "-p", str(SITE), str(site)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:  # it is for another architecture, and nothing emulates that
            raise DeskboxError(
                f"The root's Python can't be run on this computer: {error.strerror}."
            ) from error
        if done.returncode != 0:
            said = ((done.stdout + done.stderr).strip().splitlines() or ["it said nothing"])[-1]
            raise DeskboxError(f"The agent could not be compiled by the root's Python: {said}")
        files = (path for path in site.rglob("*") if path.is_file())
        return {PurePosixPath(path.relative_to(site).as_posix()): path.read_bytes() for path in files}


def _unpack_python(rootfs: Path, into: Path) -> list[str]:
    """The words that start it."""
    with tarfile.open(rootfs) as archive:
        for member in archive:
            if not _PYTHON.match(member.name):
                continue
            path = into / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                path.symlink_to(PurePosixPath(member.linkname).name)
            elif (file := archive.extractfile(member)) is not None:
                path.write_bytes(file.read())
                path.chmod(member.mode & 0o777)
    loaders = sorted((into / "usr/lib").glob("*/ld-linux*"))
    if not loaders:
        raise DeskboxError(f"There is no Python in {rootfs}.")
    libraries = loaders[0].parent
    return [str(loaders[0]), "--library-path", str(libraries), str(into / "usr/bin/python3.13")]
