"""The scripted model by itself: from an image to what it does next."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from PIL import Image, ImageDraw

from deskbox.drill.job import JOBS
from deskbox.drill.marks import DIGITS, MARKS
from deskbox.drill.script import SAFETY_CHECK, ScriptedModel

JOB = JOBS[0]  # six people, time_2, seat_3

Box = tuple[int, int, int, int]


def body(*marks: tuple[str, Box], number: str = "") -> dict[str, Any]:
    image = Image.new("RGB", (640, 400), "white")
    draw = ImageDraw.Draw(image)
    for mark, box in marks:
        draw.rectangle(box, fill=MARKS[mark])
    digits = [int(digit) for digit in number]
    if digits:
        cells = [DIGITS[digit] for digit in [*digits, sum(digits) % 10]]
        for index, colour in enumerate([MARKS["code_start"], *cells, MARKS["code_end"]]):
            draw.rectangle((100 + 20 * index, 300, 119 + 20 * index, 319), fill=colour)
    data = io.BytesIO()
    image.save(data, "PNG")
    url = "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
    output = {"type": "computer_screenshot", "image_url": url}
    return {"model": "m", "input": [{"type": "computer_call_output", "call_id": "a", "output": output}]}


def call(model: ScriptedModel, request: dict[str, Any]) -> dict[str, Any]:
    answer = model(request)["output"][-1]
    assert isinstance(answer, dict)
    return answer


def actions(model: ScriptedModel, request: dict[str, Any]) -> list[dict[str, Any]]:
    answer = call(model, request)
    return answer["actions"] if "actions" in answer else [answer["action"]]


def said(model: ScriptedModel, request: dict[str, Any]) -> str:
    answer = call(model, request)
    assert answer["phase"] == "final_answer"
    return str(answer["content"][0]["text"])


NAME = ("name", (40, 50, 59, 69))
SLIDER = [("party_low", (20, 120, 39, 139)), ("party_high", (160, 120, 179, 139))]


def test_it_looks_first() -> None:
    assert actions(ScriptedModel(JOB), {"model": "m", "input": "x"}) == [{"type": "screenshot"}]


def test_it_acts_where_the_image_shows_the_mark() -> None:
    assert actions(ScriptedModel(JOB), body(NAME)) == [
        {"type": "click", "button": "left", "x": 50, "y": 60},
        {"type": "type", "text": JOB.name},
    ]


def test_an_image_in_which_nothing_has_changed_ends_the_run() -> None:
    model = ScriptedModel(JOB)
    model(body(NAME))
    assert "acted on 'name' already" in said(model, body(NAME))


def test_it_reads_the_slider_and_drags_its_handle_to_the_number_wanted() -> None:
    (drag,) = actions(ScriptedModel(JOB), body(*SLIDER, ("party", (40, 90, 59, 109))))
    assert [(point["x"], point["y"]) for point in drag["path"]] == [(50, 100), (90, 100), (130, 100)]
    there = body(*SLIDER, ("party", (120, 90, 139, 109)), ("submit", (40, 200, 59, 219)))
    assert actions(ScriptedModel(JOB), there)[0]["y"] == 210, "six people: nothing to drag"


def test_only_what_the_job_asks_for_is_chosen() -> None:
    model = ScriptedModel(JOB)
    times = [(f"time_{n}", (40 * n, 50, 40 * n + 19, 69)) for n in (1, 2, 3)]
    opener = ("time", (10, 50, 29, 69))
    assert actions(model, body(opener)) == [{"type": "move", "x": 20, "y": 60}]
    assert actions(model, body(opener, *times)) == [{"type": "click", "button": "left", "x": 90, "y": 60}]
    seats = [(f"seat_{n}", (40 * n, 50, 40 * n + 19, 69)) for n in (1, 2, 3)]
    assert actions(model, body(*seats)) == [{"type": "double_click", "x": 130, "y": 60}]


def test_it_scrolls_before_it_submits() -> None:
    both = body(("more", (40, 300, 59, 319)), ("submit", (40, 200, 59, 219)))
    assert actions(ScriptedModel(JOB), both) == [
        {"type": "scroll", "x": 50, "y": 310, "scroll_x": 0, "scroll_y": 200}
    ]


def test_the_submit_waits_for_a_safety_check() -> None:
    answer = call(ScriptedModel(JOB), body(("submit", (40, 200, 59, 219))))
    assert answer["pending_safety_checks"] == [SAFETY_CHECK]
    assert [action["type"] for action in answer["actions"]] == ["click", "wait"]


def test_the_note_is_entered_by_a_legacy_call_and_typed_when_the_field_is_seen_to_have_the_focus() -> None:
    model = ScriptedModel(JOB)
    assert call(model, body(("note", (40, 200, 59, 219))))["action"]["type"] == "click"
    assert actions(model, body(("note_focused", (40, 200, 59, 219)))) == [{"type": "type", "text": JOB.note}]


def test_the_number_that_it_reads_goes_into_the_editor() -> None:
    model = ScriptedModel(JOB)
    click, select, text, save = actions(model, body(("editor", (500, 50, 599, 65)), number="04711815"))
    assert (click["x"], click["y"]) == (550, 58)
    assert (select["keys"], save["keys"]) == (["CTRL", "A"], ["CTRL", "S"])
    assert text["text"] == JOB.confirmation("04711815")
    assert said(model, body(number="04711815")) == "Reserved under 04711815; the confirmation is saved."


@pytest.mark.parametrize("editor", [[], [("editor", (500, 50, 599, 65))]])
def test_it_does_not_claim_to_be_done_without_having_seen_it(editor: list[tuple[str, Box]]) -> None:
    model = ScriptedModel(JOB)
    if editor:
        model(body(*editor, number="04711815"))
    assert "saved" not in said(model, body(*editor, number="04711815"))


def test_it_waits_for_a_page_but_not_for_ever() -> None:
    model = ScriptedModel(JOB)
    for _ in range(8):
        assert actions(model, body()) == [{"type": "wait"}]
    assert said(model, body()) == "The screenshot shows nothing that I know."


def test_its_tokens_grow_with_the_history() -> None:
    request = body(NAME)
    once = ScriptedModel(JOB)(request)["usage"]["input_tokens"]
    twice = ScriptedModel(JOB)({**request, "input": request["input"] * 2})["usage"]["input_tokens"]
    assert twice > once
