"""Every example in README.md and docs/ is run as it stands, against a real desktop named `default`.

The examples of one document run in order, in one directory, so that a later one can use what an earlier one
wrote. A fence whose info string says `no-run=REASON` is left out; the few reasons are listed here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REASONS = {
    "needs-api-key": "asks a real model",
    "sets-up-this-machine": "installs packages",
    "runs-these-tests": "would never end",
    "is-for-a-mac": "prepares and runs it on another machine",
    "takes-ten-minutes": "measures, and writes into the documents",
}
# Every other language is text to read: json, text, none at all.
RUNNABLE = {"python", "bash"}
# Would look like an example and not be run.
OTHER_NAMES = {"py", "python3", "sh", "shell", "console"}

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$", re.M | re.S
)


@dataclass(frozen=True)
class Snippet:
    document: Path
    line: int
    language: str
    info: str
    code: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def snippets(document: Path) -> list[Snippet]:
    text = document.read_text()
    return [
        Snippet(
            document,
            text.count("\n", 0, match.start()) + 1,
            match["language"],
            match["info"].strip(),
            re.sub(f"^{match['indent']}", "", match["code"], flags=re.M),
        )
        for match in _FENCE.finditer(text)
    ]


ALL = [snippet for document in DOCUMENTS for snippet in snippets(document)]
# What stands in several places, such as `deskbox drill`, is run where it is first.
TO_RUN: dict[str, Snippet] = {}
for _snippet in ALL:
    if _snippet.language in RUNNABLE and not _snippet.info:
        TO_RUN.setdefault(_snippet.code, _snippet)


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """A state directory of its own: a desktop `default` that the user has is left in peace."""
    with tempfile.TemporaryDirectory(prefix="dbx-", dir="/tmp") as state:
        environment = {**os.environ, "DESKBOX_STATE_DIR": state, "PATH": f"{BIN}:{os.environ['PATH']}"}
        for key in ("DESKBOX_NAME", "DESKBOX_ENGINE", "OPENAI_API_KEY"):
            environment.pop(key, None)
        yield environment
        subprocess.run([BIN / "deskbox", "down", "--all"], env=environment, check=True)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    return {document: tmp_path_factory.mktemp(document.stem) for document in DOCUMENTS}


@pytest.mark.timeout(900)  # the first one may build the image
@pytest.mark.parametrize("snippet", TO_RUN.values(), ids=str)
def test_snippet(snippet: Snippet, environment: dict[str, str], directories: dict[Path, Path]) -> None:
    subprocess.run([BIN / "deskbox", "up"], env=environment, check=True, capture_output=True)
    if snippet.language == "python":
        command = [sys.executable, "-c", snippet.code]
    else:
        command = ["bash", "-euo", "pipefail", "-c", snippet.code]
    done = subprocess.run(
        command,
        cwd=directories[snippet.document],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, f"{snippet.code}\n--- printed:\n{done.stdout}\n--- and:\n{done.stderr}"


def test_what_is_not_run_has_a_reason() -> None:
    for snippet in ALL:
        assert snippet.language not in OTHER_NAMES, f"{snippet}: write {snippet.language!r} as python or bash"
        if snippet.language in RUNNABLE and snippet.info:
            assert snippet.info.removeprefix("no-run=") in REASONS, f"{snippet}: {snippet.info}"


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.relative_to(ROOT)}: {target}"


def test_tests_that_are_named_exist() -> None:
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for document in DOCUMENTS:
        for name in re.findall(r"`((?:test_|Test)\w+)`", document.read_text()):
            assert re.search(rf"\b(def|class) {name}\b", written), f"{document.relative_to(ROOT)}: {name}"
