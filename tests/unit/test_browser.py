"""Firefox's URLs and its profile, without Firefox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deskbox_guest import browser
from deskbox_guest.protocol import Fault


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/a?b=c#d",
        "HTTPS://example.test",
        "file:///etc/hosts",
        "about:blank",
        "http://[::1]/ü",
    ],
)
def test_pages_and_files_are_opened(url: str) -> None:
    browser.check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.test",
        "--help",
        "ftp://example.test/",
        "javascript:alert(1)",
        "data:text/html,hello",  # Firefox shows none that comes from outside
        "about:config",
        "view-source:http://example.test/",
        "http://",
        "https:///path",
        "file://host/path",
        "file:",
        "http://[::1",
        "http://example.test/a b",
        "http://example.test/\n",
        "http://example.test/\x00",
        "http://example.test/" + "a" * browser.MAX_URL,
    ],
)
def test_everything_else_is_refused_in_one_sentence(url: str) -> None:
    with pytest.raises(Fault) as caught:
        browser.check_url(url)
    assert caught.value.kind == "refused"
    assert len(caught.value.message) < 300


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    seed = tmp_path / "seed"
    (seed / "startupCache").mkdir(parents=True)
    (seed / "startupCache" / "scripts").write_text("compiled")
    monkeypatch.setattr(browser, "_SEED", seed)
    return tmp_path


def test_a_new_profile_grows_from_the_seed_and_an_old_one_is_kept(home: Path) -> None:
    browser.prepare_profile()
    profile = browser.profile()
    assert (profile / "startupCache" / "scripts").read_text() == "compiled"
    assert profile.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in profile.parent.iterdir()] == ["deskbox"]
    (profile / "startupCache" / "scripts").write_text("newer")
    browser.prepare_profile()
    assert (profile / "startupCache" / "scripts").read_text() == "newer"


def test_a_profile_without_a_seed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "_SEED", home / "nothing")
    browser.prepare_profile()
    assert list(browser.profile().iterdir()) == []


@pytest.mark.parametrize("target", ["127.0.0.1:+999999999", f"127.0.0.1:+{os.getpid()}"])
def test_the_lock_of_a_dead_firefox_is_removed(home: Path, target: str) -> None:
    """Dead is also one whose number another program has now."""
    browser.prepare_profile()
    lock = browser.profile() / "lock"
    lock.symlink_to(target)
    assert not browser.is_running()
    browser.prepare_profile()
    assert not lock.is_symlink()


def test_the_lock_of_a_living_firefox_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser.prepare_profile()
    lock = browser.profile() / "lock"
    lock.symlink_to(f"127.0.0.1:+{os.getpid()}")
    monkeypatch.setattr(browser, "_is_firefox", lambda pid: pid == os.getpid())
    assert browser.is_running()
    browser.prepare_profile()
    assert lock.is_symlink()


def test_a_lock_of_another_form_names_nobody(home: Path) -> None:
    browser.prepare_profile()
    lock = browser.profile() / "lock"
    assert not browser.is_running()
    lock.symlink_to("somewhere")
    assert not browser.is_running()
