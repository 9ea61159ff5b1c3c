"""The guest's image: one recipe (`images/`), built once and kept by the hash of what it was built from.

    recipe ──mmdebstrap──▶ rootfs-<hash>.tar ──docker import──▶ deskbox/base:<hash>
    recipe ──docker build on a stock Debian image─────────────▶ deskbox/base:<hash>
    deskbox/base:<hash> ──more packages, if asked for─────────▶ deskbox/base-more:<hash>
    deskbox/base… ──thin layer: the agent and its wheels──────▶ deskbox/guest:<hash>

The root takes a minute, the thin layer a second. Everything is written under another name first and then
renamed, and a lock admits one builder at a time: an archive or image that exists is whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from deskbox.cache import cache_dir
from deskbox.errors import DeskboxError, InvalidInput, Refused

if TYPE_CHECKING:  # half of the guests need no Docker engine, and its client takes a while to import
    import docker

Progress = Callable[[str], None]
"""Told one line of text at each step of a build."""

SUITE = "trixie"
DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # by Linux's names for them
LINUX_ARCHITECTURES = {debian: linux for linux, debian in DEBIAN_ARCHITECTURES.items()}
BASE_REPOSITORY = "deskbox/base"
MORE_REPOSITORY = "deskbox/base-more"
GUEST_REPOSITORY = "deskbox/guest"
LABEL = "deskbox.recipe"  # on every image; its value is the hash that the base's tag shortens

_STAGE_LABEL = "deskbox.stage"  # on the first stage of images/Dockerfile: a gigabyte that nothing needs later

_SPACE_NEEDED = 2_500_000_000  # bytes: the root while it is built, and its archive
_APT_SETTINGS = (
    "Acquire::http::Proxy",
    "Acquire::https::Proxy",
    "Acquire::https::CAInfo",
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
)
_LOCK_FILE = "guest-requirements.lock"
# What mmdebstrap says of itself rather than of the root; its log has it all.
_OWN_AFFAIRS = (
    "chroot",
    "done",
    "finding",
    "removing",
    "running -",
    "running special",
    "skipping",
    "success",
    "using",
)
_GUEST_ONLY = {"guest.Dockerfile", _LOCK_FILE}  # files of the recipe that only the thin layer depends on
_MORE_ONLY = {"packages.Dockerfile"}  # and only the layer with more packages
_APT_ERROR = re.compile(r"(\x1b\[\d+m)*E: ")
_PACKAGE_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")  # Debian Policy, 5.6.1


def ensure_docker_image(
    client: docker.DockerClient, progress: Progress, *, packages: Sequence[str] = (), fresh: bool = False
) -> str:
    """Return the tag of the guest's image in `client`'s engine, building what is missing.

    With DESKBOX_BASE_IMAGE set to a stock Debian image (such as `debian:trixie-slim`) the root is built by
    `docker build` from it, otherwise by mmdebstrap. `packages` are Debian packages that it has besides those
    of the recipe. `fresh` builds the root anew, with today's packages.
    Raises InvalidInput for what is no package's name, Refused if this machine can't build the image,
    DeskboxError if the build failed.
    """
    wanted = _checked(packages)
    if not fresh and (there := _find(client, wanted)):
        return there  # without waiting for who builds another one
    with locked(progress):
        recipe = recipe_hash()
        base = _base_tag()
        if fresh or not _exists(client, base):
            stock = os.environ.get("DESKBOX_BASE_IMAGE")
            if stock:
                build_docker(client, stock, progress)
            else:
                _import(client, _rootfs(progress, recipe, fresh), base, recipe, progress)
        if wanted:
            base = _with_packages(client, base, wanted, recipe, progress)
        tag = _guest_tag(client, base)
        if not _exists(client, tag):
            progress("adding the agent to the image")
            context = {PurePosixPath("Dockerfile"): _recipe_files()["guest.Dockerfile"].read_bytes()}
            context |= {PurePosixPath("site") / name: data for name, data in site_packages(progress).items()}
            _docker_build(client, context, tag, {"BASE": base}, recipe, "none", lambda line: None)
        return tag


def rootfs_path(packages: Sequence[str] = (), arch: str | None = None) -> Path:
    """Where `build_rootfs` leaves the archive that it is asked for. Raises InvalidInput."""
    return _rootfs_path(recipe_hash(_checked(packages), arch))


def build_rootfs(
    progress: Progress, *, packages: Sequence[str] = (), arch: str | None = None, fresh: bool = False
) -> Path:
    """Return the cached archive of the guest's root (a tar, without the agent), built if it is missing.

    `packages` are Debian packages that it has besides those of the recipe; `arch` is "x86_64" or "aarch64",
    or else this computer's. Raises like `ensure_docker_image`.
    """
    wanted = _checked(packages)
    recipe = recipe_hash(wanted, arch)
    if not fresh and (there := _rootfs_path(recipe)).exists():
        return there
    with locked(progress):
        return _rootfs(progress, recipe, fresh, wanted, arch)


def build_docker(
    client: docker.DockerClient, stock: str, progress: Progress, *, tag: str | None = None
) -> str:
    """Build the root from the stock Debian image `stock` with `images/Dockerfile`; return its tag.

    That is `tag`, or else the one that desktops are built on.
    """
    recipe = recipe_hash()
    tag = tag or f"{BASE_REPOSITORY}:{recipe[:12]}"
    context = {PurePosixPath(name): path.read_bytes() for name, path in _recipe_files().items()}
    started = time.monotonic()
    progress(f"building the guest's root from the image {stock}")
    try:
        _docker_build(client, context, tag, {"BASE": stock}, recipe, "bridge", progress)
    finally:
        client.images.prune(filters={"dangling": True, "label": _STAGE_LABEL})
    progress(f"built {tag} in {time.monotonic() - started:.0f} s")
    return tag


def prune(client: docker.DockerClient, progress: Progress) -> None:
    """Delete the images and archives of other recipes and earlier agents, except those in use."""
    with locked(progress):
        recipe = recipe_hash()
        base = f"{BASE_REPOSITORY}:{recipe[:12]}"
        keep = {base}
        if _exists(client, base):
            keep.add(f"{GUEST_REPOSITORY}:{guest_hash(str(client.images.get(base).id))[:12]}")
        used = {str(container["ImageID"]) for container in client.api.containers(all=True)}
        # Guests first: a base can't go while a layer stands on it.
        for repository in (GUEST_REPOSITORY, MORE_REPOSITORY, BASE_REPOSITORY):
            for image in client.images.list(name=repository):
                for tag in image.tags:
                    if tag not in keep and str(image.id) not in used:
                        client.images.remove(tag)
                        progress(f"deleted the image {tag}")
        for path in cache_dir().glob("rootfs-*.tar"):
            if path != _rootfs_path(recipe):
                path.unlink()
                progress(f"deleted {path}")


# --- what an image is made of ----------------------------------------------------------------------------
def recipe_hash(packages: Sequence[str] = (), arch: str | None = None) -> str:
    """What the root is built from: the recipe's files, the release, the architecture, further packages."""
    digest = hashlib.sha256(f"{arch or _own_architecture()} {SUITE}\n".encode())
    if packages:
        digest.update(f"{' '.join(packages)}\n".encode())
    for name, path in _recipe_files().items():
        if name not in _GUEST_ONLY | _MORE_ONLY:
            _add(digest, name, path.read_bytes())
    return digest.hexdigest()


def guest_hash(base_id: str) -> str:
    """What the thin layer is built from: the root beneath it, the agent's sources, its wheels' hashes."""
    digest = hashlib.sha256(f"{base_id}\n".encode())
    files = _recipe_files()
    for name in sorted(_GUEST_ONLY):
        _add(digest, name, files[name].read_bytes())
    for path_name, data in _agent_sources().items():
        _add(digest, str(path_name), data)
    return digest.hexdigest()


def site_packages(progress: Progress) -> dict[PurePosixPath, bytes]:
    """The files of the thin layer, by their path in the guest's site-packages: the agent and its wheels."""
    files = _agent_sources()
    for wheel in _wheels(progress):
        with zipfile.ZipFile(wheel) as archive:
            files |= {
                PurePosixPath(name): archive.read(name) for name in archive.namelist() if name[-1] != "/"
            }
    return files


def _add(digest: hashlib._Hash, name: str, data: bytes) -> None:
    digest.update(f"{name}\n{len(data)}\n".encode())
    digest.update(data)


def _package(name: str) -> Path:
    return Path(str(resources.files(name)))


def tree(package: str) -> dict[str, Path]:
    """The files of an installed package, by their path in it, sorted; without what Python leaves there."""
    root = _package(package)
    paths = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return dict(sorted((path.relative_to(root).as_posix(), path) for path in paths))


def _recipe_files() -> dict[str, Path]:
    return {name: path for name, path in tree("deskbox_images").items() if name != "__init__.py"}


def _agent_sources() -> dict[PurePosixPath, bytes]:
    return {
        PurePosixPath("deskbox_guest") / name: path.read_bytes()
        for name, path in tree("deskbox_guest").items()
        if path.suffix == ".py"
    }


def _wheels(progress: Progress) -> list[Path]:
    """The wheels of the guest's lock, downloaded once; pip checks their hashes."""
    lock = _recipe_files()[_LOCK_FILE]
    target = cache_dir() / f"wheels-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not target.exists():
        progress("downloading the guest's Python wheels")
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="partial-") as partial:
            into = Path(partial) / "wheels"
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
            # Pure Python wheels for the guest's Python, whatever runs on the host.
            command += ["--only-binary", ":all:", "--python-version", "3.13", "--platform", "any"]
            command += ["--dest", str(into), "--requirement", str(lock)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
                raise DeskboxError(f"The guest's Python wheels could not be downloaded: {reason}")
            into.rename(target)
    return sorted(target.glob("*.whl"))


# --- the root, by mmdebstrap -----------------------------------------------------------------------------
def _rootfs_path(recipe: str) -> Path:
    return cache_dir() / f"rootfs-{recipe[:12]}.tar"


def _own_architecture() -> str:
    """This computer's, by Linux's name for it: a Mac has another."""
    machine = platform.machine()
    return {"arm64": "aarch64"}.get(machine, machine)


def runs_programs_of(arch: str) -> bool:
    """Whether this computer runs programs for "x86_64" or "aarch64": the build of a root for it does."""
    return arch == _own_architecture() or Path(f"/proc/sys/fs/binfmt_misc/qemu-{arch}").exists()


def _foreign_options(arch: str | None) -> list[str]:
    """What mmdebstrap is told if a root is not for this computer. Raises Refused if this can't run it."""
    if arch is None or arch == _own_architecture():
        return []
    debian = DEBIAN_ARCHITECTURES[arch]
    if not runs_programs_of(arch):
        raise Refused(
            f"A root for {arch} can't be built on this computer, which can't run its programs: run `deskbox "
            f"image --setup --backend qemu --arch {debian}`, which installs what emulates them."
        )
    return ["--architectures", debian]


def _rootfs(
    progress: Progress, recipe: str, fresh: bool, packages: Sequence[str] = (), arch: str | None = None
) -> Path:
    target = _rootfs_path(recipe)
    if target.exists() and not fresh:
        return target
    free = shutil.disk_usage(cache_dir()).free
    if free < _SPACE_NEEDED:
        raise Refused(
            f"The guest's image can't be built: {cache_dir()} has {free / 1e9:.1f} GB free and the build "
            f"needs {_SPACE_NEEDED / 1e9:.1f} GB; free some or set DESKBOX_CACHE_DIR to another disk."
        )
    started = time.monotonic()
    progress("building the guest's root with mmdebstrap (about a minute)")
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="partial-") as directory:
        partial = Path(directory) / "rootfs.tar"
        overlay = Path(directory) / "overlay.tar"
        with overlay.open("wb") as file:
            write_tar(file, _overlay_files())
        options = ["--variant", "minbase", "--include", ",".join([*_packages(), *packages])]
        options += _root_options(overlay)
        options += _foreign_options(arch)
        run_mmdebstrap(options, partial, cache_dir() / "mmdebstrap.log", progress)
        partial.rename(target)
    size = target.stat().st_size / 1e6
    progress(f"built {target} ({size:.0f} MB) in {time.monotonic() - started:.0f} s")
    return target


def _overlay_files() -> dict[PurePosixPath, bytes]:
    """What goes into the root before configure.sh runs there: the overlay, and configure.sh itself."""
    files = {}
    for name, path in _recipe_files().items():
        if name.startswith("overlay/"):
            files[PurePosixPath(name).relative_to("overlay")] = path.read_bytes()
        elif name == "configure.sh":
            files[PurePosixPath("tmp/deskbox/configure.sh")] = path.read_bytes()
    return files


def _packages() -> list[str]:
    text = _recipe_files()["packages.txt"].read_text()
    return [word for line in text.splitlines() for word in line.split("#", 1)[0].split()]


def _root_options(overlay: Path) -> list[str]:
    options = ["--dpkgopt", str(_recipe_files()["overlay/etc/dpkg/dpkg.cfg.d/90-deskbox"])]
    options += ["--skip", "output/dev"]  # whatever runs the root brings its own /dev
    options += ["--skip", "cleanup/apt"]  # configure.sh does that, and leaves less
    options += ["--customize-hook", f"tar-in {shlex.quote(str(overlay))} /"]
    configure = 'chroot "$1" sh /tmp/deskbox/configure.sh && rm -r "$1/tmp/deskbox"'
    return [*options, "--customize-hook", configure]


def run_mmdebstrap(
    options: Sequence[str], target: Path, log: Path, progress: Progress, what: str = "the guest's root"
) -> None:
    """Write a tar of packages of SUITE, from this machine's mirrors. `options` say which, and what is done.

    Raises Refused if mmdebstrap or a mirror is missing, DeskboxError if it failed: `what` could not be built.
    """
    if shutil.which("mmdebstrap") is None:
        raise Refused(
            "The guest's image can't be built because mmdebstrap is not installed: run "
            "`apt-get install mmdebstrap`, or set DESKBOX_BASE_IMAGE to a Debian 13 image to build from."
        )
    command = ["mmdebstrap", "--mode", "root" if os.geteuid() == 0 else "unshare", "--format", "tar"]
    command += ["--aptopt", 'APT::Install-Recommends "false"']
    command += [argument for option in _apt_options() for argument in ("--aptopt", option)]
    command += [*options, SUITE, "-", *debian_sources(progress)]
    # Rootless, the root is unpacked as another user id, which can't enter a private cache directory.
    environment = {**os.environ, "TMPDIR": os.environ.get("TMPDIR", "/var/tmp")}
    with target.open("wb") as output, log.open("w") as log_file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        assert process.stderr is not None
        failure = ""
        try:
            for line in process.stderr:
                log_file.write(line)
                if line.startswith("I: "):
                    step = line[3:].strip().removesuffix("...")
                    if not step.startswith(_OWN_AFFAIRS):
                        progress(step)
                elif line.startswith("E: "):
                    failure = failure or line[3:300].strip()  # the first is the cause
        except BaseException:
            # It unmounts and deletes what it has unpacked, and tells: who stopped listening would kill it.
            os.killpg(process.pid, signal.SIGINT)
            log_file.writelines(process.stderr)
            raise
        finally:
            process.wait()
            process.stderr.close()
    if process.returncode != 0:
        raise DeskboxError(
            f"mmdebstrap could not build {what} ({failure or f'exit code {process.returncode}'}); "
            f"its whole output is in {log}."
        )


def debian_sources(progress: Progress) -> list[str]:
    """Where the guest's packages come from: this machine's own Debian mirrors, as one-line apt sources."""
    found = _debian_mirrors([])
    if "Debian" not in found and shutil.which("apt-get") is not None:
        # apt knows who runs an archive only from its index; fetch that aside if the machine has none.
        progress("reading the package indexes of this machine's Debian mirrors")
        with tempfile.TemporaryDirectory(prefix="deskbox-apt-") as state:
            aside = ["-o", f"Dir::State::lists={state}", "-o", f"Dir::Cache={state}"]
            subprocess.run(["apt-get", *aside, "update"], capture_output=True)
            found = _debian_mirrors(aside)
    if "Debian" not in found:
        raise Refused(
            "The guest's image can't be built because apt on this machine knows no Debian mirror: add one to "
            "/etc/apt, or set DESKBOX_BASE_IMAGE to a Debian 13 image to build from."
        )
    lines = [f"deb {found['Debian']} {SUITE} main"]
    if "Debian-Security" in found:
        lines.append(f"deb {found['Debian-Security']} {SUITE}-security main")
    return lines


def _debian_mirrors(options: list[str]) -> dict[str, str]:
    """The addresses of Debian's archives in apt's configuration, by their label: Debian, Debian-Security."""
    if shutil.which("apt-get") is None:
        return {}
    command = ["apt-get", *options, "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)"]
    listing = subprocess.run([*command, "Created-By: Packages"], capture_output=True, text=True).stdout
    mirrors: dict[str, str] = {}
    for line in listing.splitlines():
        origin, label, component, uri = line.split("|", 3)
        if origin == "Debian" and component == "main":
            mirrors.setdefault(label, uri)
    return mirrors


def _apt_options() -> list[str]:
    """This machine's apt settings for reaching its mirrors: without them the mirrors may not answer."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True).stdout
    return [line.rstrip(";") for line in dump.splitlines() if line.startswith(_APT_SETTINGS)]


# --- docker ----------------------------------------------------------------------------------------------
def _find(client: docker.DockerClient, packages: Sequence[str]) -> str | None:
    """The tag of the guest's image, if it is there."""
    base = _base_tag()
    if packages and _exists(client, base):
        base = _more_tag(client, base, packages)
    if not _exists(client, base):
        return None
    tag = _guest_tag(client, base)
    return tag if _exists(client, tag) else None


def _base_tag() -> str:
    return f"{BASE_REPOSITORY}:{recipe_hash()[:12]}"


def _more_tag(client: docker.DockerClient, base: str, packages: Sequence[str]) -> str:
    digest = hashlib.sha256(f"{client.images.get(base).id} {' '.join(packages)}\n".encode())
    _add(digest, "packages.Dockerfile", _recipe_files()["packages.Dockerfile"].read_bytes())
    return f"{MORE_REPOSITORY}:{digest.hexdigest()[:12]}"


def _guest_tag(client: docker.DockerClient, base: str) -> str:
    return f"{GUEST_REPOSITORY}:{guest_hash(str(client.images.get(base).id))[:12]}"


def _exists(client: docker.DockerClient, tag: str) -> bool:
    from docker.errors import ImageNotFound

    try:
        client.images.get(tag)
    except ImageNotFound:
        return False
    return True


def _checked(packages: Sequence[str]) -> list[str]:
    wrong = next((name for name in packages if not _PACKAGE_NAME.fullmatch(name)), None)
    if wrong is not None:
        raise InvalidInput(
            f"{wrong!r} is no name of a Debian package: those are lower-case letters, digits and + - ."
        )
    return sorted(set(packages))


def _with_packages(
    client: docker.DockerClient, base: str, packages: Sequence[str], recipe: str, progress: Progress
) -> str:
    """The tag of `base` with more Debian packages, built if it is missing."""
    tag = _more_tag(client, base, packages)
    if not _exists(client, tag):
        progress(f"adding {', '.join(packages)} to the image")
        context = {
            PurePosixPath("Dockerfile"): _recipe_files()["packages.Dockerfile"].read_bytes(),
            PurePosixPath("sources.list"): "".join(f"{line}\n" for line in debian_sources(progress)).encode(),
            PurePosixPath("build.conf"): "".join(f"{line};\n" for line in _apt_options()).encode(),
        }
        arguments = {"BASE": base, "PACKAGES": " ".join(packages)}
        _docker_build(client, context, tag, arguments, recipe, "bridge", lambda line: None)
    return tag


def _import(client: docker.DockerClient, rootfs: Path, tag: str, recipe: str, progress: Progress) -> None:
    progress("loading the root into the Docker engine")
    repository, _, version = tag.partition(":")
    client.api.import_image_from_file(
        str(rootfs), repository=repository, tag=version, changes=[f"LABEL {LABEL}={recipe}"]
    )
    if not _exists(client, tag):
        raise DeskboxError(f"The Docker engine took {rootfs} but shows no image {tag}; is its disk full?")


def _docker_build(
    client: docker.DockerClient,
    context: Mapping[PurePosixPath, bytes],
    tag: str,
    arguments: dict[str, str],
    recipe: str,
    network: str,
    progress: Progress,
) -> None:
    with tempfile.TemporaryFile() as file:
        write_tar(file, context)
        file.seek(0)
        events = client.api.build(
            fileobj=file,
            custom_context=True,
            tag=tag,
            buildargs=arguments,
            labels={LABEL: recipe},
            network_mode=network,
            rm=True,
            forcerm=True,
            decode=True,
        )
        failure = ""
        for event in events:
            if "error" in event:
                reason = failure or str(event["error"]).strip()
                raise DeskboxError(f"The Docker engine could not build {tag}: {reason}")
            line = str(event.get("stream", "")).strip()
            if line:
                progress(line)
            for part in line.splitlines():
                if _APT_ERROR.match(part):
                    failure = failure or _APT_ERROR.sub("", part)  # the first is the cause


def write_tar(file: IO[bytes], files: Mapping[PurePosixPath, bytes]) -> None:
    """Files as root would have made them: the modes and owners of a checkout are no part of the recipe."""
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in sorted(files):
            info = tarfile.TarInfo(str(name))
            info.size = len(files[name])
            info.mode = 0o755 if "bin" in name.parts else 0o644
            archive.addfile(info, io.BytesIO(files[name]))


@contextmanager
def locked(progress: Progress) -> Iterator[None]:
    """One builder at a time. What a builder that was killed left behind is deleted by the next one."""
    directory = cache_dir()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is building the image; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        for path in directory.glob("partial-*"):
            shutil.rmtree(path, ignore_errors=True)
        yield
