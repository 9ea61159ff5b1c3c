"""The guest's root as directories: what bubblewrap mounts, read-only, for all guests of one image.

    rootfs-<hash>.tar ──tar──▶ trees/root-<hash>/
    the agent, its wheels ───▶ trees/site-<hash>/     compiled by the Python of that root

Everything is made under another name first and then renamed: a directory that exists is whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from deskbox import images
from deskbox.backends.base import Progress
from deskbox.backends.bubblewrap.sandbox import trees
from deskbox.cache import cache_dir
from deskbox.compiled import compiled
from deskbox.errors import DeskboxError


def image(packages: Sequence[str], progress: Progress) -> str:
    """The name of an image, which is made if it is missing: its two directories, `root-…/site-…`."""
    archive = images.build_rootfs(progress, packages=packages)
    found = archive.stat()
    root = trees() / f"root-{_hash(archive.name, str(found.st_size), str(found.st_mtime_ns))}"
    site = trees() / f"site-{_hash(images.guest_hash(root.name))}"
    name = f"{root.name}/{site.name}"
    if root.exists() and site.exists():
        return name
    with images.locked(progress):
        trees().mkdir(exist_ok=True)
        _make(root, progress, "unpacking the root", lambda into: _unpack(archive, into))
        _make(
            site, progress, "adding the agent to the image", lambda into: _write_site(archive, into, progress)
        )
    return name


def prune(current: str, used: Collection[str], progress: Progress) -> None:
    """Delete the directories of images that are neither current nor used by a guest."""
    keep = {part for name in (current, *used) for part in name.split("/")}
    with images.locked(progress):
        for path in sorted(trees().iterdir()):
            if path.name not in keep:
                remove(path)
                progress(f"deleted {path}")


def remove(path: Path) -> None:
    """Remove a tree, also directories in it that do not let their owner change them."""
    subprocess.run(["chmod", "--recursive", "u+rwX", str(path)], stderr=subprocess.DEVNULL)
    shutil.rmtree(path)


def _make(target: Path, progress: Progress, what: str, fill: Callable[[Path], None]) -> None:
    if target.exists():
        return
    progress(what)
    # In the cache's own directory: whoever locks it next clears away what a killed builder left there.
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="partial-", ignore_cleanup_errors=True) as part:
        into = Path(part) / "tree"
        into.mkdir()
        umask = os.umask(0o022)  # the guest's user must be able to read what is made
        try:
            fill(into)
        finally:
            os.umask(umask)
        into.rename(target)


def _unpack(archive: Path, into: Path) -> None:
    # All files become ours, whoever we are; a guest can't write to them anyway.
    command = ["tar", "--extract", "--file", str(archive), "--directory", str(into), "--no-same-owner", "-p"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise DeskboxError(f"The guest's root could not be unpacked: {said}")
    for name in ("dev", "proc"):  # whatever runs the root brings its own: the archive may have none
        (into / name).mkdir(exist_ok=True)


def _write_site(archive: Path, into: Path, progress: Progress) -> None:
    for name, data in compiled(archive, images.site_packages(progress)).items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
