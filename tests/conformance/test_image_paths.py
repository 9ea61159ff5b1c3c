"""Both ways to the guest's root, mmdebstrap and a Docker build on a stock Debian image, give the same."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

import docker
import pytest
from docker.errors import ImageNotFound

from deskbox import images

# What the maker of the stock images puts into each of them beyond Debian's packages.
STOCK_EXTRAS = {
    "etc/apt/apt.conf.d/docker-clean": 'Dir::Cache::pkgcache "";\n',
    "etc/apt/apt.conf.d/docker-no-languages": 'Acquire::Languages "none";\n',
    "etc/dpkg/dpkg.cfg.d/docker-apt-speedup": "force-unsafe-io\n",
    "usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
}

# Files that differ between any two builds, also of the same kind. They must be there in both, with the same
# mode and owner; their content may differ.
ANY_CONTENT = re.compile(
    # What Firefox compiled, in the order in which its threads came to it, its list of extensions with the
    # time and a random id of each, and the compressed list of what to start, in the order of their answers.
    r"usr/share/deskbox/profile/(startupCache/.*|extensions\.json|addonStartup\.json\.lz4)"
)

# Text files that are the same but for random ids, or the order in which packages were installed.
ANY_IDS = "usr/share/deskbox/profile/prefs.js"
ANY_ORDER = "var/lib/apt/extended_states"

# Files and directories whose time an index or a compiled module holds: a build must keep it, or the guest
# would make the index again at each start.
TIMED = re.compile(r"usr/lib/python3.*\.py|(usr/share|usr/local/share|usr/lib/firefox-esr)/fonts(/.*)?")


class Entry(NamedTuple):
    """All of a path in an image that a guest could notice."""

    kind: bytes
    mode: int
    owner: tuple[int, int]
    target: str
    content: str
    time: float


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env(timeout=300)
    yield client
    client.close()


@pytest.fixture
def tags(client: docker.DockerClient) -> Iterator[tuple[str, str]]:
    """The names of a stock image and of the root built on it; both images are deleted afterwards."""
    version = uuid.uuid4().hex[:12]
    names = (f"deskbox-test/stock:{version}", f"deskbox-test/base:{version}")
    yield names
    for name in reversed(names):
        with contextlib.suppress(ImageNotFound):  # if the test ended before it was built
            client.images.remove(name)


def import_stock_image(client: docker.DockerClient, tag: str, directory: Path) -> None:
    """A stock Debian image without a registry: the packages that they have, and what else they bring."""
    extras, root = directory / "extras.tar", directory / "stock.tar"
    with extras.open("wb") as file:
        images.write_tar(file, {PurePosixPath(name): text.encode() for name, text in STOCK_EXTRAS.items()})
    command = ["mmdebstrap", "--variant", "minbase", "--format", "tar", "--skip", "output/dev"]
    command += [argument for option in images._apt_options() for argument in ("--aptopt", option)]
    command += ["--customize-hook", f"tar-in {extras} /"]
    command += [images.SUITE, str(root), *images.debian_sources(print)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    repository, _, version = tag.partition(":")
    client.api.import_image_from_file(str(root), repository=repository, tag=version)


def contents(client: docker.DockerClient, tag: str) -> dict[str, Entry]:
    """Every path of an image of one layer.

    From the layer itself: in a container the engine's own hosts and resolv.conf hide the image's.
    """
    with tempfile.TemporaryFile() as file:
        for chunk in client.images.get(tag).save():
            file.write(chunk)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            (manifest,) = json.load(member(archive, "manifest.json"))
            (layer,) = manifest["Layers"]
            with tarfile.open(fileobj=member(archive, layer)) as root:
                return dict(entry(root, info) for info in root if info.name.strip("./"))


def member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    file = archive.extractfile(name)
    assert file is not None
    return file


def entry(root: tarfile.TarFile, info: tarfile.TarInfo) -> tuple[str, Entry]:
    name = info.name.removeprefix("./").rstrip("/")
    mode = info.mode & 0o7777  # some writers put the kind into it too
    target = info.linkname.removeprefix("./") if info.islnk() else info.linkname
    content = ""
    if info.isfile() and not ANY_CONTENT.fullmatch(name):
        data = member(root, info.name).read()
        if name == ANY_IDS:
            data = re.sub(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", b"", data)
        elif name == ANY_ORDER:
            data = b"\n\n".join(sorted(data.strip().split(b"\n\n")))
        content = f"{len(data)} bytes, {hashlib.sha256(data).hexdigest()}"
    time = int(info.mtime) if TIMED.fullmatch(name) and not info.issym() else 0
    return name, Entry(info.type, mode, (info.uid, info.gid), target, content, time)


@pytest.mark.backends("docker")
@pytest.mark.timeout(600)
def test_both_ways_give_the_same_root(
    client: docker.DockerClient, tags: tuple[str, str], tmp_path: Path
) -> None:
    images.ensure_docker_image(client, print)
    base = f"{images.BASE_REPOSITORY}:{images.recipe_hash()[:12]}"
    real = client.images.get(base).id
    dangling = {image.id for image in client.images.list(filters={"dangling": True})}
    stock, built = tags

    import_stock_image(client, stock, tmp_path)
    assert images.build_docker(client, stock, print, tag=built) == built

    # Nothing else of the engine has changed.
    assert client.images.get(base).id == real
    left = {image.id for image in client.images.list(filters={"dangling": True, "label": "deskbox.stage"})}
    assert left <= dangling

    ours, theirs = contents(client, base), contents(client, built)
    different = {
        name: (ours.get(name), theirs.get(name))
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    }
    assert different == {}
    # That the comparison compared: programs, the overlay, and nothing of the stock image's own.
    assert {"usr/bin/xdotool", "etc/jwm/system.jwmrc", "usr/share/deskbox/profile/prefs.js"} <= ours.keys()
    assert ours.keys().isdisjoint(STOCK_EXTRAS)
    assert len(ours) > 5000
