"""The scripted model: it answers requests as a model would, from nothing but the newest image.

What it does next follows from the marks that the image shows. So it acts on the wrong place if the image is
wrongly scaled or cropped, and is told of work that it has done already if the image is stale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PIL import Image

from deskbox.drill import wire
from deskbox.drill.job import Job
from deskbox.drill.marks import PARTY_RANGE
from deskbox.drill.vision import Spot, find, last_image, read_number

SAFETY_CHECK = {
    "id": "sc_drill_submit",
    "code": "irrelevant_domain",
    "message": "Submitting this form makes a reservation in your name.",
}

_PATIENCE = 8  # waits for a page that shows nothing known yet
_SCROLLS = 6

Item = dict[str, Any]


class ScriptedModel:
    """Call it with a request's body; it returns the Response. One object plays one run."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._acted: set[str] = set()  # targets acted on, each allowed once
        self._waits = 0
        self._scrolls = 0

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        image = last_image(body)
        output = [wire.computer_call({"type": "screenshot"})] if image is None else self._act(image)
        words = sum(len(str(item)) for item in output)
        return wire.response(
            *output, model=body["model"], input_tokens=_image_tokens(body), output_tokens=words // 4
        )

    def _act(self, image: Image.Image) -> list[Item]:
        number = read_number(image)
        if number is not None:
            return self._confirm(image, number)
        for target, act in self._targets():
            spot = find(image, target)
            call = None if spot is None else act(spot, image)
            if spot is None or call is None:
                continue
            if target in self._acted:
                return _give_up(
                    f"I have acted on {target!r} already, and the screenshot shows it unchanged at "
                    f"{spot.x},{spot.y}: the action was lost, or the screenshot is older than it."
                )
            if target != "more":
                self._acted.add(target)
            return [wire.message(f"{target} is at {spot.x},{spot.y}.", final=False), call]
        return self._wait()

    def _targets(self) -> list[tuple[str, Callable[[Spot, Image.Image], Item | None]]]:
        """What can be left to do, in the order of doing it; a function that returns None finds it done."""
        job = self._job
        return [
            ("name", lambda spot, image: _batch(_click(spot), _type(job.name))),
            ("party", self._drag_party),
            (job.time, lambda spot, image: _batch(_click(spot))),
            ("time", lambda spot, image: _batch({"type": "move", "x": spot.x, "y": spot.y})),
            (job.seat, lambda spot, image: _batch({"type": "double_click", "x": spot.x, "y": spot.y})),
            ("note_focused", lambda spot, image: _batch(_type(job.note))),
            ("note", lambda spot, image: wire.legacy_computer_call(_click(spot))),
            ("more", self._scroll),
            ("submit", self._submit),
        ]

    def _drag_party(self, handle: Spot, image: Image.Image) -> Item | None:
        low, high = find(image, "party_low"), find(image, "party_high")
        if low is None or high is None:
            return None  # scrolled away with the handle half visible
        smallest, largest = PARTY_RANGE
        per_person = (high.x - low.x) / (largest - smallest)
        if round((handle.x - low.x) / per_person) + smallest == self._job.party:
            return None
        target = round(low.x + per_person * (self._job.party - smallest))
        path = [(handle.x, handle.y), ((handle.x + target) // 2, handle.y), (target, handle.y)]
        return _batch({"type": "drag", "path": [{"x": x, "y": y} for x, y in path]})

    def _scroll(self, spot: Spot, image: Image.Image) -> Item | None:
        self._scrolls += 1
        if self._scrolls > _SCROLLS:
            return None
        return _batch(
            {"type": "scroll", "x": spot.x, "y": spot.y, "scroll_x": 0, "scroll_y": image.height // 2}
        )

    def _submit(self, spot: Spot, image: Image.Image) -> Item:
        return wire.computer_call(_click(spot), {"type": "wait"}, checks=[SAFETY_CHECK])

    def _confirm(self, image: Image.Image, number: str) -> list[Item]:
        editor = find(image, "editor")
        if editor is None and "editor" in self._acted:
            return [wire.message(f"Reserved under {number}; the confirmation is saved.", final=True)]
        if editor is None:
            return _give_up("The reservation is confirmed, but I see no editor to write to.")
        if "editor" in self._acted:
            return _give_up("I have written the confirmation, and the screenshot still shows the old text.")
        self._acted.add("editor")
        return [
            wire.message(f"The number is {number}, and the editor is at {editor.x},{editor.y}.", final=False),
            _batch(
                _click(editor),
                {"type": "keypress", "keys": ["CTRL", "A"]},
                _type(self._job.confirmation(number)),
                {"type": "keypress", "keys": ["CTRL", "S"]},
            ),
        ]

    def _wait(self) -> list[Item]:
        self._waits += 1
        if self._waits > _PATIENCE:
            return _give_up("The screenshot shows nothing that I know.")
        return [_batch({"type": "wait"})]


def _give_up(why: str) -> list[Item]:
    return [wire.message(why, final=True)]


def _batch(*actions: Item) -> Item:
    return wire.computer_call(*actions)


def _click(spot: Spot) -> Item:
    return {"type": "click", "button": "left", "x": spot.x, "y": spot.y}


def _type(text: str) -> Item:
    return {"type": "type", "text": text}


def _image_tokens(body: dict[str, Any]) -> int:
    """A figure that grows with the history, as a real bill does; its scale means nothing."""
    history = body["input"] if isinstance(body["input"], list) else []
    return 200 + 1000 * [item.get("type") for item in history].count("computer_call_output")
