"""Which backend is taken. None of them is tried here."""

from __future__ import annotations

import pytest

from deskbox import backends
from deskbox.backends import Verdict
from deskbox.errors import InvalidInput, Refused


@pytest.fixture
def usable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of those that work."""
    names: set[str] = set()
    monkeypatch.delenv("DESKBOX_BACKEND", raising=False)
    monkeypatch.setattr(backends, "check", lambda name: Verdict(name in names, f"of {name} this was found"))
    return names


def test_auto_takes_the_first_that_works(usable: set[str]) -> None:
    usable |= {"qemu"}
    assert backends.resolve(None) == backends.resolve("auto") == "qemu"
    usable |= {"bwrap"}
    assert backends.resolve(None) == "bwrap"
    usable |= {"docker"}
    assert backends.resolve(None) == "docker"


def test_without_any_the_sentence_says_what_was_found_and_what_to_install(usable: set[str]) -> None:
    with pytest.raises(Refused) as caught:
        backends.resolve("auto")
    for name in backends.NAMES:
        assert f"{name}: of {name} this was found" in str(caught.value)
    for package in ("docker.io", "bubblewrap", "qemu-system-x86"):
        assert package in str(caught.value)


def test_a_name_is_taken_as_it_is_and_the_environment_stands_in_for_one(
    usable: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert backends.resolve("bwrap") == "bwrap"
    monkeypatch.setenv("DESKBOX_BACKEND", "qemu")
    assert backends.resolve(None) == "qemu"
    assert backends.resolve("bwrap") == "bwrap"
    monkeypatch.setenv("DESKBOX_BACKEND", "vmware")
    with pytest.raises(InvalidInput, match="'vmware' is not known: use auto or docker, bwrap, qemu"):
        backends.resolve(None)
