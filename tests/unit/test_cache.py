"""Where what was built is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deskbox.cache import cache_dir


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": "/home/someone"})
    assert cache_dir() == Path("/home/someone/.cache/deskbox")
    os.environ["XDG_CACHE_HOME"] = "/var/cache/someone"
    assert cache_dir() == Path("/var/cache/someone/deskbox")
    os.environ["DESKBOX_CACHE_DIR"] = "/data"
    assert cache_dir() == Path("/data")
