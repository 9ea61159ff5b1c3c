"""The system calls that a guest may make, as a program for the kernel.

`seccomp.json` is the profile, in Docker's format; Docker compiles it itself. Here libseccomp does, for what
takes a compiled filter.
"""

from __future__ import annotations

import json
import tempfile
from importlib import resources
from typing import Any

from deskbox.errors import Refused


def profile() -> dict[str, Any]:
    """The profile that all guests on a kernel of the host have."""
    text = resources.files("deskbox.backends").joinpath("seccomp.json").read_text()
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def compiled() -> bytes:
    """The profile as a classic BPF program (struct sock_filter[]) for this machine's architecture.

    Raises Refused if libseccomp is not installed.
    """
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
