"""What is installed is all there is: an editable install would not notice that a package is missing."""

from __future__ import annotations

import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def test_every_package_is_listed() -> None:
    told = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = set()
    for name, directory in told["package-dir"].items():
        for init in (PROJECT / directory).rglob("__init__.py"):
            found.add(".".join((name, *init.parent.relative_to(PROJECT / directory).parts)))
    assert set(told["packages"]) == found
