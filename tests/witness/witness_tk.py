"""A Tk window that logs every input event with the X server's time, and the text of its field.

    python3 witness_tk.py LOG [WIDTHxHEIGHT+X+Y]

LOG gets one JSON object a line: events, and after each change {"type": "content", "text": …}. It may be
emptied meanwhile.
"""

from __future__ import annotations

import json
import sys
import tkinter
from typing import Any

KINDS = {
    "<KeyPress>": "keydown",
    "<KeyRelease>": "keyup",
    "<ButtonPress>": "mousedown",
    "<ButtonRelease>": "mouseup",
    "<Double-ButtonPress>": "dblclick",
    "<Motion>": "mousemove",
}


class Witness:
    def __init__(self, path: str, geometry: str) -> None:
        # Open for as long as the window is.
        self._log = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._log.truncate(0)
        self._root = tkinter.Tk()
        self._root.title("Tk witness")
        self._root.geometry(geometry)
        self._text = tkinter.Text(self._root, height=8, undo=False)
        self._text.pack(fill="both", expand=True)
        tkinter.Canvas(self._root, background="#ddddee", height=150).pack(fill="both")
        for sequence, kind in KINDS.items():
            self._root.bind_all(sequence, self._noter(kind), add="+")
        self._text.bind("<<Modified>>", lambda _: self._changed())
        self._text.focus_set()

    def run(self) -> None:
        self._root.mainloop()

    def _noter(self, kind: str) -> Any:
        def note(event: tkinter.Event[Any]) -> None:
            self._write(
                type=kind,
                time=event.time,
                on=str(event.widget),
                x=event.x_root,
                y=event.y_root,
                detail=event.keysym if kind.startswith("key") else event.num,
                state=event.state,
                sent=bool(event.send_event),
            )

        return note

    def _changed(self) -> None:
        if self._text.edit_modified():
            self._text.edit_modified(False)
            self._root.after_idle(lambda: self._write(type="content", text=self._text.get("1.0", "end-1c")))

    def _write(self, **fields: object) -> None:
        self._log.write(json.dumps(fields) + "\n")


if __name__ == "__main__":
    Witness(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "500x400+100+100").run()
