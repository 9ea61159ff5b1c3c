"""Guests as Docker containers: no network, no capabilities, a read-only root, hard limits."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import docker
import docker.errors
import requests.exceptions

from deskbox import images
from deskbox.backends.base import Backend, Guest, GuestSpec, Progress
from deskbox.errors import Refused, Unavailable

LABEL = "deskbox.name"
OWNER_LABEL = "deskbox.owner"
UID = 1000

# Sizes are the guest's own limits, not reservations. Firefox with a few tabs needs 300 MB to 1 GB.
MEMORY = "2g"
SHM = "256m"
PIDS = 512
OPEN_FILES = 65536
# Docker mounts tmpfs `noexec` unless told otherwise; a desktop's user may run what they wrote.
TMPFS = {
    "/tmp": "rw,exec,nosuid,nodev,mode=1777,size=512m",
    "/run": f"rw,nosuid,nodev,uid={UID},gid={UID},mode=755,size=16m",
    "/home/user": f"rw,exec,nosuid,nodev,uid={UID},gid={UID},mode=700,size=512m",
}


class DockerBackend(Backend):
    name = "docker"

    def __init__(self) -> None:
        self._client = connect()

    def prepare(self, progress: Progress, packages: Sequence[str] = ()) -> str:
        return images.ensure_docker_image(self._client, progress, packages=packages)

    def prune(self, progress: Progress) -> None:
        images.prune(self._client, progress)

    def start(self, spec: GuestSpec) -> Guest:
        limits = Limits()
        while True:
            try:
                return self._start(spec, limits)
            except docker.errors.APIError as error:
                weaker = limits.without(str(error))
                if weaker is None:
                    reason = error.explanation or error
                    raise Refused(f"the Docker engine refused to start the guest: {reason}") from error
                limits = weaker

    def _start(self, spec: GuestSpec, limits: Limits) -> Guest:
        container: Any = self._client.containers.create(
            spec.image,
            name=f"deskbox-{spec.name}-{secrets.token_hex(4)}",
            hostname="deskbox",
            labels={LABEL: spec.name, OWNER_LABEL: spec.owner},
            environment=spec.environment(),
            volumes=[f"{spec.socket_dir}:/rpc:ro"],
            **hardening(limits),
        )
        try:
            container.start()
        except BaseException:
            container.remove(force=True)
            raise
        return Guest(container.id, limits.facts())

    def wait(self, guest_id: str) -> str:
        while True:
            try:
                status = self._client.api.wait(guest_id, timeout=None)["StatusCode"]
            except docker.errors.NotFound:
                return "its container was removed"
            except (requests.exceptions.RequestException, docker.errors.APIError) as error:
                # The engine went away or was restarted: the container's fate is what counts.
                try:
                    if self.alive(guest_id):
                        continue
                except Unavailable:
                    return f"the Docker engine went away ({error})"
                return "its container ended while the Docker engine was away"
            return f"its container ended with exit code {status}"

    def alive(self, guest_id: str) -> bool:
        try:
            return bool(self._client.containers.get(guest_id).status in ("running", "paused"))
        except docker.errors.NotFound:
            return False
        except (requests.exceptions.RequestException, docker.errors.DockerException) as error:
            raise Unavailable(f"the Docker engine does not answer: {error}") from error

    def stop(self, guest_id: str) -> None:
        try:
            self._client.api.remove_container(guest_id, force=True, v=True)
        except docker.errors.NotFound:
            pass
        except docker.errors.APIError as error:
            if error.status_code != 409:  # 409: its removal is already in progress
                raise

    def guests(self, owner: str) -> dict[str, str]:
        found: list[Any] = self._client.containers.list(
            all=True, filters={"label": [LABEL, f"{OWNER_LABEL}={owner}"]}
        )
        return {container.id: container.labels[LABEL] for container in found}


def connect() -> docker.DockerClient:
    """A client of the local engine. Raises Unavailable with what to do."""
    try:
        client = docker.from_env(timeout=60)
        client.ping()
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise Unavailable(
            "no Docker engine answers: start it (`systemctl start docker`), or let `make up` install and "
            "start one"
        ) from error
    return client


@dataclass(frozen=True)
class Limits:
    """The two protections that not every engine can give, and what takes their place then."""

    # Our seccomp profile lets Firefox build its own sandbox. Under the engine's default profile, which is
    # also a sandbox, Firefox's is weaker.
    seccomp: bool = True
    # An engine whose own hard limit is lower can't raise it.
    open_files: bool = True

    def without(self, error: str) -> Limits | None:
        """What to try after the engine refused with `error`; None if nothing is left to give up."""
        if self.seccomp and "seccomp" in error.lower():
            return replace(self, seccomp=False)
        if self.open_files and "rlimit" in error.lower():
            return replace(self, open_files=False)
        return None

    def facts(self) -> dict[str, str]:
        return {
            "seccomp": "deskbox" if self.seccomp else "engine default",
            "open_files": str(OPEN_FILES) if self.open_files else "engine default",
        }


def hardening(limits: Limits) -> dict[str, Any]:
    """The container options that isolate a guest."""
    security = ["no-new-privileges:true"]
    if limits.seccomp:
        text = resources.files("deskbox.backends").joinpath("seccomp.json").read_text()
        security.append(f"seccomp={json.dumps(json.loads(text), separators=(',', ':'))}")
    ulimit = docker.types.Ulimit(name="nofile", soft=OPEN_FILES, hard=OPEN_FILES)
    return {
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "security_opt": security,
        "read_only": True,
        "user": f"{UID}:{UID}",
        "tmpfs": TMPFS,
        "mem_limit": MEMORY,
        "memswap_limit": MEMORY,
        "shm_size": SHM,
        "pids_limit": PIDS,
        "ulimits": [ulimit] if limits.open_files else [],
    }
