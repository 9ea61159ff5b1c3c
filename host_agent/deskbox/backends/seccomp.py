"""The system calls that a guest may make, as a program for the kernel.

`seccomp.json` is the profile, in Docker's format; Docker compiles it itself. Here libseccomp does, for what
takes a compiled filter.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from deskbox.cache import cache_dir
from deskbox.errors import Refused

# Changed whenever a library of the system is: another libseccomp knows other names of system calls.
_LIBRARIES = Path("/etc/ld.so.cache")


def profile() -> dict[str, Any]:
    """The profile that all guests on a kernel of the host have."""
    loaded: dict[str, Any] = json.loads(_text())
    return loaded


def _text() -> str:
    return resources.files("deskbox.backends").joinpath("seccomp.json").read_text()


def compiled() -> bytes:
    """The profile as a classic BPF program (struct sock_filter[]) for this machine's architecture.

    Kept in the cache, because to compile it takes as long as bubblewrap does to make a sandbox.
    Raises Refused if libseccomp is not installed.
    """
    libraries = _LIBRARIES.stat().st_mtime_ns if _LIBRARIES.exists() else 0
    name = hashlib.sha256(f"{os.uname().machine} {libraries}\n{_text()}".encode()).hexdigest()[:12]
    kept = cache_dir() / f"seccomp-{name}.bpf"
    with contextlib.suppress(FileNotFoundError):
        return kept.read_bytes()
    program = _compile()
    with contextlib.suppress(OSError):  # a cache that can't be written to costs time alone
        _keep(program, kept)
    return program


def _keep(program: bytes, kept: Path) -> None:
    """In place of those that were compiled from other things."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="partial-") as directory:
        part = Path(directory) / kept.name
        part.write_bytes(program)
        for old in kept.parent.glob("seccomp-*.bpf"):
            old.unlink(missing_ok=True)
        part.rename(kept)


def _compile() -> bytes:
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise Refused("libseccomp is missing: install the Debian package libseccomp2") from error
    rules = profile()
    default = pyseccomp.ERRNO(rules["defaultErrnoRet"])
    program = pyseccomp.SyscallFilter(default)
    for rule in rules["syscalls"]:
        action = pyseccomp.ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else pyseccomp.ERRNO(rule["errnoRet"])
        if action == default:
            continue  # libseccomp takes no rule that says what holds anyway
        arguments = [_argument(pyseccomp, each) for each in rule.get("args", [])]
        for name in rule["names"]:
            number = pyseccomp.resolve_syscall(pyseccomp.system_arch(), name)
            if number >= 0:  # else this architecture, or this libseccomp, has none of that name
                program.add_rule(action, name, *arguments)
    with tempfile.TemporaryFile() as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()


def _argument(pyseccomp: Any, given: dict[str, Any]) -> Any:
    if given["op"] == "SCMP_CMP_MASKED_EQ":  # here `value` is the mask and `valueTwo` what it must leave
        return pyseccomp.Arg(given["index"], pyseccomp.MASKED_EQ, given["value"], given["valueTwo"])
    assert given["op"] == "SCMP_CMP_EQ", given
    return pyseccomp.Arg(given["index"], pyseccomp.EQ, given["value"])
