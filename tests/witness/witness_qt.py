"""A Qt window with a text area; its text is logged after each change.

    python3 witness_qt.py LOG [WIDTHxHEIGHT+X+Y]

LOG, which may be emptied meanwhile, gets one JSON object a line: {"type": "content", "text": …}.
"""

from __future__ import annotations

import json
import re
import sys

from PyQt5.QtCore import QTimer  # type: ignore[import-not-found]
from PyQt5.QtWidgets import QApplication, QPlainTextEdit  # type: ignore[import-not-found]

PARAGRAPH = "\u2029"  # what ends a line in a QTextDocument


class Witness:
    def __init__(self, path: str, geometry: str) -> None:
        # Open for as long as the window is.
        self._log = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._log.truncate(0)
        self._text = QPlainTextEdit()
        self._text.setUndoRedoEnabled(False)
        self._text.setWindowTitle("Qt witness")
        width, height, x, y = map(int, re.findall(r"\d+", geometry))
        self._text.setGeometry(x, y, width, height)
        # All changes of one moment are one entry: a line each would be quadratic in the length of the text.
        self._timer = QTimer(singleShot=True, interval=0)
        self._timer.timeout.connect(self._write)
        self._text.textChanged.connect(self._timer.start)
        self._text.show()

    def _write(self) -> None:
        # Not `toPlainText`, which makes plain spaces of no-break ones.
        text = self._text.document().toRawText().replace(PARAGRAPH, "\n")
        entry = {"type": "content", "text": text}
        self._log.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    application = QApplication(sys.argv[:1])
    witness = Witness(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "500x300+100+100")
    sys.exit(application.exec())
