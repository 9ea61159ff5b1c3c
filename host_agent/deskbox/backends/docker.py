"""Guests as Docker containers: no network, no capabilities, a read-only root, hard limits."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests.exceptions

from deskbox import images
from deskbox.backends import seccomp
from deskbox.backends.base import Backend, Guest, GuestSpec, ImageSpec, Progress, Verdict
from deskbox.errors import Refused, Unavailable
from deskbox_guest import limits

LABEL = "deskbox.name"
OWNER_LABEL = "deskbox.owner"

# The engine lists a container a moment before it finds it by its id: so often that is tried.
_TRIES = 100


class DockerBackend(Backend):
    name = "docker"

    def __init__(self) -> None:
        self._client = connect()

    @classmethod
    def check(cls) -> Verdict:
        try:
            client = connect()
        except Unavailable as error:
            return Verdict(False, "no engine answers", str(error))
        try:
            return Verdict(True, f"engine {client.version()['Version']} answers")
        finally:
            client.close()

    def prepare(self, wanted: ImageSpec, progress: Progress) -> str:
        return images.ensure_docker_image(self._client, progress, packages=wanted.packages)

    def prune(self, progress: Progress) -> None:
        images.prune(self._client, progress)

    def start(self, spec: GuestSpec) -> Guest:
        given = Limits()
        spec.hand_over_home()
        while True:
            try:
                return self._start(spec, given)
            except docker.errors.APIError as error:
                weaker = given.without(str(error))
                if weaker is None:
                    reason = error.explanation or error
                    raise Refused(f"the Docker engine refused to start the guest: {reason}") from error
                given = weaker

    def _start(self, spec: GuestSpec, given: Limits) -> Guest:
        container: Any = self._client.containers.create(
            spec.image,
            name=f"deskbox-{spec.name}-{secrets.token_hex(4)}",
            hostname=limits.HOSTNAME,
            labels={LABEL: spec.name, OWNER_LABEL: spec.owner},
            environment=spec.environment(),
            volumes=[f"{spec.directory}:/rpc:ro"],
            **hardening(given),
        )
        try:
            container.start()
        except BaseException:
            container.remove(force=True)
            raise
        return Guest(container.id, given.facts())

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

    def pause(self, guest_id: str) -> None:
        self._freeze(guest_id, "paused")

    def resume(self, guest_id: str) -> None:
        self._freeze(guest_id, "running")

    def _freeze(self, guest_id: str, wanted: str) -> None:
        try:
            container = self._client.containers.get(guest_id)
            if container.status != wanted:
                container.pause() if wanted == "paused" else container.unpause()
        except (requests.exceptions.RequestException, docker.errors.DockerException) as error:
            raise Unavailable(f"the Docker engine did not do it: {error}") from error

    def console(self, guest_id: str, directory: Path) -> str:
        try:
            said: bytes = self._client.containers.get(guest_id).logs(tail=1000)
        except (requests.exceptions.RequestException, docker.errors.DockerException) as error:
            raise Unavailable(f"the Docker engine has no log of the guest: {error}") from error
        return said.decode(errors="replace")

    def stop(self, guest_id: str) -> None:
        for _ in range(_TRIES):
            try:
                self._client.api.remove_container(guest_id, force=True, v=True)
                return
            except docker.errors.NotFound:
                if not self._list(id=guest_id):
                    return
            except docker.errors.APIError as error:
                if error.status_code == 409:  # its removal is already in progress
                    return
                raise
        raise Unavailable(f"the Docker engine lists the guest {guest_id} and does not find it: restart it")

    def guests(self, owner: str) -> dict[str, str]:
        found = self._list(label=[LABEL, f"{OWNER_LABEL}={owner}"])
        return {container["Id"]: container["Labels"][LABEL] for container in found}

    def _list(self, **filters: str | list[str]) -> list[dict[str, Any]]:
        """Containers, running or not. `containers.list` asks about each again, which may be gone by then."""
        found: list[dict[str, Any]] = self._client.api.containers(all=True, filters=filters)
        return found


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
            "open_files": str(limits.OPEN_FILES) if self.open_files else "engine default",
        }


def hardening(given: Limits) -> dict[str, Any]:
    """The container options that isolate a guest."""
    security = ["no-new-privileges:true"]
    if given.seccomp:
        security.append(f"seccomp={json.dumps(seccomp.profile(), separators=(',', ':'))}")
    ulimit = docker.types.Ulimit(name="nofile", soft=limits.OPEN_FILES, hard=limits.OPEN_FILES)
    return {
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "security_opt": security,
        "read_only": True,
        "user": f"{limits.UID}:{limits.UID}",
        "tmpfs": {path: _tmpfs(*place) for path, place in limits.TMPFS.items()},
        "mem_limit": limits.MEMORY,
        "memswap_limit": limits.MEMORY,
        "shm_size": limits.SHM,
        "pids_limit": limits.TASKS,
        "ulimits": [ulimit] if given.open_files else [],
    }


def _tmpfs(size: int, mode: int) -> str:
    """The options of one of the guest's writable places, which belongs to its user unless it is for all."""
    owner = "" if mode & 0o002 else f"uid={limits.UID},gid={limits.UID},"
    # Docker mounts tmpfs `noexec` unless told otherwise; a desktop's user may run what they wrote.
    return f"rw,exec,nosuid,nodev,{owner}mode={mode:o},size={size}"
