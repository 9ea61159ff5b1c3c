"""The four files that a machine boots from, built without root and kept by the hash of what they came from.

    linux-image-cloud, busybox ──▶ machine-kernel-<hash>/kernel, initramfs      vm/
    images.build_rootfs (a tar) ─▶ machine-root-<hash>.squashfs                 a container's root
    the agent and its wheels ────▶ machine-agent-<hash>.squashfs                built in a second

Everything is written under another name first and then renamed, by one builder at a time (`images.locked`).
"""

from __future__ import annotations

import hashlib
import io
import platform
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from deskbox import images, machine_kernel
from deskbox.backends.qemu.command import ARCHITECTURES, Architecture, architecture
from deskbox.cache import cache_dir
from deskbox.compiled import compiled
from deskbox.errors import DeskboxError, Refused
from deskbox.images import Progress

# lz4 is the fastest to read while a processor is emulated, and to write: harder compression (-Xhc) makes the
# root a sixth smaller and takes forty times as long.
_SQUASHFS = ["-comp", "lz4", "-b", "128K", "-no-xattrs", "-quiet", "-no-progress"]
_SQUASHFS += ["-root-mode", "0755", "-root-uid", "0", "-root-gid", "0"]


@dataclass(frozen=True)
class MachineImage:
    arch: Architecture
    kernel: Path
    initramfs: Path
    root: Path
    agent: Path
    digest: str  # another one whenever any of the files is another

    @property
    def disks(self) -> tuple[Path, ...]:
        return (self.root, self.agent)


def ensure_machine_image(
    progress: Progress, *, packages: Sequence[str] = (), arch: str | None = None, fresh: bool = False
) -> MachineImage:
    """Return the files of a machine, building what is missing.

    `packages` are Debian packages that it has besides those of the recipe; `arch` is that of this computer if
    it is not given. `fresh` builds all anew, with today's packages.
    Raises InvalidInput for what is no package's name or architecture, Refused if this computer can't build
    the image, DeskboxError if the build failed.
    """
    chosen = architecture(arch or platform.machine())
    kernel = _kernel_path(chosen)
    if fresh or not kernel.exists():
        with images.locked(progress):
            kernel = _kernel(progress, chosen, fresh)
    rootfs = images.rootfs_path(packages, chosen)
    root, agent = _root_path(rootfs), _agent_path()
    # Once the disks are made the archive is not needed, unless it was built anew for another backend.
    if fresh or not agent.exists() or not _is_newer(root, rootfs):
        _require("sqfstar", "squashfs-tools", "it makes the disks")
        images.build_rootfs(progress, packages=packages, arch=chosen, fresh=fresh)
        with images.locked(progress):
            _pack_root(progress, rootfs, root)
            _pack_agent(progress, rootfs, agent)
    files = (kernel / "kernel", kernel / "initramfs", root, agent)
    digest = hashlib.sha256(f"{chosen}\n".encode())
    for path in files:
        status = path.stat()
        digest.update(f"{path.name} {path.parent.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return MachineImage(chosen, *files, digest.hexdigest())


def prune(progress: Progress) -> None:
    """Delete what was built from earlier recipes and agents. Machines that run keep what they have open."""
    with images.locked(progress):
        keep = {_agent_path(), *(_kernel_path(arch) for arch in ARCHITECTURES)}
        keep |= {_root_path(images.rootfs_path(arch=arch)) for arch in ARCHITECTURES}
        keep |= {_root_path(rootfs) for rootfs in cache_dir().glob("rootfs-*.tar")}
        for path in sorted(set(cache_dir().glob("machine-*")) - keep):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            progress(f"deleted {path}")


def _require(program: str, package: str, reason: str) -> None:
    if shutil.which(program) is None:
        raise Refused(
            f"A machine's image can't be built because {program} is not installed ({reason}): run "
            f"`apt-get install {package}`, then repeat."
        )


# --- the kernel ------------------------------------------------------------------------------------------
def recipe() -> dict[str, bytes]:
    files = images.tree("deskbox_vm")
    return {name: path.read_bytes() for name, path in files.items() if path.suffix != ".py"}


def _kernel_path(arch: Architecture) -> Path:
    digest = hashlib.sha256(f"{arch} {images.SUITE}\n".encode())
    for name, data in recipe().items():
        digest.update(f"{name}\n{len(data)}\n".encode() + data)
    return cache_dir() / f"machine-kernel-{digest.hexdigest()[:12]}"


def _packages(arch: Architecture) -> list[str]:
    lines = (line.split("#", 1)[0].split() for line in recipe()["packages.txt"].decode().splitlines())
    return [words[1] for words in lines if words and words[0] in (arch, "all")]


def _kernel(progress: Progress, arch: Architecture, fresh: bool) -> Path:
    target = _kernel_path(arch)
    if target.exists() and not fresh:
        return target
    started = time.monotonic()
    progress("fetching the machine's kernel")
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="partial-") as directory:
        archive = Path(directory) / "kernel.tar"
        options = ["--variant", "extract", "--include", ",".join(_packages(arch))]
        options += ["--architectures", images.DEBIAN_ARCHITECTURES[arch]]
        log = cache_dir() / "mmdebstrap-kernel.log"
        images.run_mmdebstrap(options, archive, log, progress, "the machine's kernel")
        result = Path(directory) / "kernel"
        result.mkdir()
        for name, data in kernel_files(archive, arch).items():
            (result / name).write_bytes(data)
        _replace(result, target)
    progress(f"made {target} in {time.monotonic() - started:.0f} s")
    return target


def kernel_files(archive: Path, arch: Architecture) -> dict[str, bytes]:
    """`kernel` and `initramfs`, from a tar of the unpacked packages."""
    kernel = busybox = b""
    builtin: set[str] = set()
    modules: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            if not member.isfile():
                continue
            path = PurePosixPath(member.name)
            inside = tar.extractfile(member)
            assert inside is not None
            if path.name.startswith("vmlinuz-"):
                kernel = inside.read()
            elif path.parts[-2:] == ("bin", "busybox"):
                busybox = inside.read()
            elif path.name == "modules.builtin":
                builtin = {_module_name(PurePosixPath(line)) for line in inside.read().decode().split()}
            elif "modules" in path.parts and ".ko" in path.suffixes:
                modules[_module_name(path)] = inside.read()
    if not kernel or not busybox:
        raise DeskboxError("The packages of vm/packages.txt hold no kernel, or no busybox.")
    unpacked = _Unpacked(modules)
    wanted = machine_kernel.modules_wanted(recipe()["modules.txt"].decode())
    order = machine_kernel.load_order(wanted, unpacked, builtin)
    return {
        "kernel": machine_kernel.kernel_image(kernel, arch),
        "initramfs": _initramfs(busybox, [(name, unpacked[name]) for name in order]),
    }


class _Unpacked(Mapping[str, bytes]):
    """Modules, decompressed when they are looked at: hundreds are there and a dozen is needed."""

    def __init__(self, packed: dict[str, bytes]) -> None:
        self._packed = packed

    def __getitem__(self, name: str) -> bytes:
        return machine_kernel.unpack(self._packed[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)


def _module_name(path: PurePosixPath) -> str:
    return path.name.split(".")[0].replace("-", "_")


def _initramfs(busybox: bytes, modules: list[tuple[str, bytes]]) -> bytes:
    folder, program, plain = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o755, stat.S_IFREG | 0o644
    files = dict.fromkeys(("bin", "dev", "proc", "sys", "system", "modules"), (folder, b""))
    files["init"] = (program, recipe()["init"])
    files["bin/busybox"] = (program, busybox)
    files["bin/sh"] = (stat.S_IFLNK | 0o777, b"busybox")
    for name, data in modules:
        files[f"modules/{name}.ko"] = (plain, data)
    files["modules/order"] = (plain, "".join(f"{name}.ko\n" for name, _ in modules).encode())
    return machine_kernel.cpio(files)


# --- the disks -------------------------------------------------------------------------------------------
def _disk_path(kind: str, source: str) -> Path:
    digest = hashlib.sha256(f"{source} {' '.join(_SQUASHFS)}".encode()).hexdigest()
    return cache_dir() / f"machine-{kind}-{digest[:12]}.squashfs"


def _is_newer(made: Path, source: Path) -> bool:
    """Whether it is there, and not older than what it is made of, which may be gone."""
    if not made.exists():
        return False
    return not source.exists() or made.stat().st_mtime >= source.stat().st_mtime


def _root_path(rootfs: Path) -> Path:
    return _disk_path("root", rootfs.name)


def _pack_root(progress: Progress, rootfs: Path, target: Path) -> None:
    if _is_newer(target, rootfs):
        return
    started = time.monotonic()
    progress("packing the root into the machine's disk")
    # Where the kernel's devices will be: the archive has none, for whatever runs it brings its own.
    device_folder = tarfile.TarInfo("dev")
    device_folder.type = tarfile.DIRTYPE
    device_folder.mode = 0o755
    with rootfs.open("rb") as tar:
        _pack(device_folder.tobuf(), tar, target)
    size = target.stat().st_size / 1e6
    progress(f"made {target} ({size:.0f} MB) in {time.monotonic() - started:.0f} s")


def _agent_path() -> Path:
    return _disk_path("agent", images.guest_hash(""))


def _pack_agent(progress: Progress, rootfs: Path, target: Path) -> None:
    if target.exists():
        return
    progress("compiling the agent and packing it into a disk")
    file = io.BytesIO()
    images.write_tar(file, compiled(rootfs, images.site_packages(progress)))
    file.seek(0)
    _pack(b"", file, target)


def _pack(first: bytes, tar: IO[bytes], target: Path) -> None:
    """A squashfs file of a tar, before which come the entries `first`. Owners and modes are the tar's."""
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="partial-") as directory:
        partial = Path(directory) / "disk.squashfs"
        command = ["sqfstar", *_SQUASHFS, str(partial)]
        with (Path(directory) / "log").open("w+") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
            assert process.stdin is not None
            try:
                with process.stdin as pipe:
                    pipe.write(first)
                    shutil.copyfileobj(tar, pipe, 1 << 20)
            except BrokenPipeError:
                pass  # it has said why
            except BaseException:
                process.kill()
                raise
            finally:
                process.wait()
            if process.returncode != 0:
                log.seek(0)
                said = (log.read().strip().splitlines() or ["it said nothing"])[-1]
                raise DeskboxError(f"sqfstar could not make the machine's disk: {said}")
        partial.rename(target)


def _replace(new: Path, target: Path) -> None:
    """Put a directory in the place of another."""
    if target.exists():
        target.rename(new.with_name("old"))
    new.rename(target)
