"""A run around the SDK's loops: how it ends, what it tells, what it costs. The desktop is a stand-in."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from openai import OpenAI
from openai.types.responses import computer_action as modern
from typer.testing import CliRunner

from deskbox.cli import app
from deskbox.drill import wire
from deskbox.drill.endpoint import Endpoint
from deskbox.errors import InvalidInput, Unavailable
from deskbox.runs import RunEvent, RunOutcome, Usage, model_client, run_task
from deskbox.runs.wording import describe
from deskbox_guest.protocol import Held

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5E"
    "rkJggg=="
)
CLICK = {"type": "click", "button": "left", "x": 3, "y": 4}
TYPE = {"type": "type", "text": "hello"}
CHECK = {"id": "sc_1", "code": "malicious_instructions", "message": "Are you sure?"}
LOOPS = pytest.mark.parametrize("loop", ["runner", "toolset"])

Item = dict[str, Any]


class Desktop:
    """What a run needs of a desktop, with one thing that can go wrong at a time."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.down = Held(buttons=(1,))
        self.on_click: Callable[[Callable[[], bool] | None], None] = lambda cancelled: None
        self.gone = False
        self.released = 0

    def computer_driver(self, image_size: Any = None, crop: Any = None, *, settle: Any = None) -> Desktop:
        return self

    def held_inputs(self) -> Held:
        if self.gone:
            raise Unavailable("the desktop is gone")
        return self.down

    def release_inputs(self) -> Held:
        self.released += 1
        held, self.down = self.down, Held()
        return held

    def _note(self, action: Any, *, cancelled: Any = None) -> None:
        self.done.append(action.type)

    double_click = drag = keypress = move = scroll = type = wait = _note

    def click(self, action: Any, *, cancelled: Callable[[], bool] | None = None) -> None:
        self.on_click(cancelled)
        self.done.append("click")

    def screenshot(self, *, cancelled: Any = None) -> Any:
        self.done.append("screenshot")
        return {"type": "computer_screenshot", "image_url": PIXEL}


class Model:
    """Answers with one list of items a request; a callable among them is called for its list."""

    def __init__(self, *turns: Any, usage: bool = True) -> None:
        self.turns = list(turns)
        self.usage = usage
        self.bodies: list[Item] = []

    def __call__(self, body: Item) -> Item:
        self.bodies.append(body)
        turn = self.turns.pop(0)
        items = turn() if callable(turn) else turn
        answer = wire.response(*items, model="m", input_tokens=10, output_tokens=2)
        return answer if self.usage else {**answer, "usage": None}


def work(
    model: Callable[[Item], Item], desktop: Desktop | None = None, **options: Any
) -> tuple[RunOutcome, list[RunEvent], Desktop]:
    desktop = desktop or Desktop()
    events: list[RunEvent] = []
    with Endpoint(model) as endpoint, model_client(endpoint.base_url, endpoint.api_key) as client:
        outcome = run_task(
            desktop,  # type: ignore[arg-type]
            "do it",
            client=client.with_options(max_retries=0),
            on_event=events.append,
            **options,
        )
    return outcome, events, desktop


def done(text: str = "Done.") -> list[Item]:
    return [wire.message(text, final=True)]


@LOOPS
def test_a_run_that_is_done(loop: str) -> None:
    model = Model([wire.computer_call(CLICK, TYPE)], [wire.legacy_computer_call(CLICK)], done())
    outcome, events, desktop = work(model, loop=loop)
    assert (outcome.status, outcome.final_text, outcome.steps, outcome.error) == ("done", "Done.", 2, "")
    assert desktop.done == ["click", "type", "screenshot", "click", "screenshot"]
    assert [(event.kind, event.step, event.text) for event in events] == [
        ("action", 1, "click left at 3,4"),
        ("action", 1, "type 'hello'"),
        ("screenshot", 1, ""),
        ("action", 2, "click left at 3,4"),
        ("screenshot", 2, ""),
        ("message", 3, "Done."),
    ]
    assert events[2].image().startswith(b"\x89PNG")
    assert desktop.released == 1
    assert not desktop.down
    assert model.bodies[0]["model"] == "gpt-5.4"
    assert model.bodies[0]["tools"] == [{"type": "computer"}]
    assert model.bodies[0]["input"] == [{"role": "user", "content": "do it"}]


def test_what_the_model_says_on_the_way_is_told() -> None:
    _, events, _ = work(Model([wire.message("I click.", final=False), wire.computer_call(CLICK)], done()))
    assert [event.text for event in events if event.kind == "message"] == ["I click.", "Done."]


def test_tokens_are_summed() -> None:
    outcome, _, _ = work(Model([wire.computer_call(CLICK)], done()))
    assert outcome.usage == Usage(20, 4, 24, requests=2, complete=True)
    assert str(outcome.usage) == "24 tokens (20 in, 4 out)"


def test_tokens_that_were_not_reported_make_the_totals_incomplete() -> None:
    outcome, _, _ = work(Model([wire.computer_call(CLICK)], done(), usage=False))
    assert outcome.usage == Usage(0, 0, 0, requests=0, complete=False)
    assert "unknown" in str(outcome.usage)
    partly = Usage(20, 4, 24, requests=2, complete=False)
    assert str(partly) == "at least 24 tokens (20 in, 4 out): some requests did not report theirs"


def test_the_toolset_loop_does_not_claim_to_know_the_tokens() -> None:
    outcome, _, _ = work(Model(done()), loop="toolset")
    assert not outcome.usage.complete


@LOOPS
def test_a_safety_check_that_is_approved(loop: str) -> None:
    asked: list[str] = []

    def approve(call: Any, cancelled: Callable[[], bool]) -> bool:
        asked.append(call.pending_safety_checks[0].id)
        return True

    model = Model([wire.computer_call(CLICK, checks=[CHECK])], done())
    outcome, events, _ = work(model, approve=approve, loop=loop)
    assert outcome.status == "done"
    assert asked == ["sc_1"]
    assert events[0] == RunEvent("approval", 1, "Are you sure?", approved=True)
    assert model.bodies[1]["input"][-1]["acknowledged_safety_checks"] == [CHECK]


@LOOPS
@pytest.mark.parametrize("answer", [None, False, 1, "yes"])
def test_a_safety_check_that_is_not_approved(loop: str, answer: object) -> None:
    options: Item = {} if answer is None else {"approve": lambda call, cancelled: answer}
    model = Model([wire.computer_call(CLICK, checks=[CHECK])], done())
    outcome, events, desktop = work(model, loop=loop, **options)
    assert outcome.status == "refused"
    assert "was not approved" in outcome.error
    assert desktop.done == []
    assert [event.approved for event in events] == [False]


@LOOPS
def test_the_limit_of_steps(loop: str) -> None:
    model = Model(*[[wire.computer_call(CLICK)] for _ in range(3)])
    outcome, _, desktop = work(model, max_steps=3, loop=loop)
    assert outcome.status == "step_limit"
    assert "--max-steps" in outcome.error
    assert desktop.done == ["click", "screenshot"] * 2, "the last request starts no effect"


def test_a_limit_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 1 request"):
        work(Model(), max_steps=0)


@LOOPS
def test_an_error_of_the_driver_is_told_in_its_own_words(loop: str) -> None:
    desktop = Desktop()

    def fail(cancelled: object) -> None:
        raise InvalidInput("the point 9999,4 is outside the image of 640x400")

    desktop.on_click = fail
    outcome, _, _ = work(Model([wire.computer_call(CLICK)], done()), desktop, loop=loop)
    assert (outcome.status, outcome.steps) == ("failed", 1)
    assert outcome.error == "the point 9999,4 is outside the image of 640x400."
    assert desktop.released == 1


@LOOPS
@pytest.mark.filterwarnings("ignore::UserWarning:pydantic")  # it quotes the action
def test_an_action_that_the_sdk_refuses(loop: str) -> None:
    outcome, _, desktop = work(Model([wire.computer_call({"type": "dance"})]), loop=loop)
    assert outcome.status == "failed"
    assert outcome.error == "Invalid computer action."
    assert desktop.done == []


@LOOPS
def test_errors_of_the_endpoint(loop: str) -> None:
    def refuse(body: Item) -> Item:
        raise ValueError("the model does not exist")

    outcome, _, _ = work(refuse, loop=loop)
    assert outcome.status == "failed"
    assert outcome.error == "The model's endpoint answered HTTP 400: the model does not exist."
    assert not outcome.usage.complete


def outcome_at(base_url: str, key: str = "sk-secret") -> RunOutcome:
    with model_client(base_url, key) as client:
        return run_task(Desktop(), "x", client=client.with_options(max_retries=0))  # type: ignore[arg-type]


def test_a_wrong_key_is_not_shown() -> None:
    with Endpoint(Model(done())) as endpoint:
        outcome = outcome_at(endpoint.base_url)
    assert outcome.error == "The model's endpoint refused the API key: check OPENAI_API_KEY."


def test_an_endpoint_that_is_not_there() -> None:
    outcome = outcome_at("http://127.0.0.1:1/v1?token=secret")
    assert outcome.error.startswith("The model's endpoint at http://127.0.0.1:1 could not be reached: ")
    assert "secret" not in outcome.error


def test_before_action_can_forbid() -> None:
    model = Model([wire.computer_call(CLICK, TYPE)], done())
    outcome, _, desktop = work(model, before_action=lambda action: action.type != "type")
    assert outcome.status == "failed"
    assert outcome.error == "Computer action was not approved."
    assert desktop.done == ["click"]


@LOOPS
def test_a_cancelled_action(loop: str) -> None:
    stop = threading.Event()
    desktop = Desktop()

    def act(cancelled: Callable[[], bool] | None) -> None:
        stop.set()
        assert cancelled is not None
        while not cancelled():
            time.sleep(0.01)

    desktop.on_click = act
    started = time.monotonic()
    model = Model([wire.computer_call(CLICK)], done())
    outcome, _, _ = work(model, desktop, cancelled=stop.is_set, loop=loop)
    assert time.monotonic() - started < 1
    assert (outcome.status, outcome.error) == ("cancelled", "The run was cancelled.")
    assert desktop.released == 1


@LOOPS
def test_cancelled_while_the_model_does_not_answer(loop: str) -> None:
    stop, asked, answer = threading.Event(), threading.Event(), threading.Event()
    desktop = Desktop()

    def slow() -> list[Item]:
        asked.set()
        answer.wait(10)
        return [wire.computer_call(CLICK)]

    model = Model([wire.computer_call(CLICK)], slow)
    outcomes: list[RunOutcome] = []
    with Endpoint(model) as endpoint, model_client(endpoint.base_url, endpoint.api_key) as client:

        def run() -> None:
            outcomes.append(
                run_task(desktop, "x", client=client, cancelled=stop.is_set, loop=loop)  # type: ignore[arg-type]
            )

        running = threading.Thread(target=run)
        running.start()
        assert asked.wait(5)
        stop.set()
        started = time.monotonic()
        running.join()
        assert time.monotonic() - started < 1
        assert outcomes[0].status == "cancelled"
        assert not outcomes[0].usage.complete
        stop.clear()
        answer.set()
        time.sleep(0.3)
        assert desktop.done == ["click", "screenshot"], "a late answer has no effect"


def test_a_desktop_that_went_away_leaves_open_whether_anything_is_held() -> None:
    desktop = Desktop()
    desktop.gone = True
    outcome, _, _ = work(Model(done()), desktop)
    assert outcome.status == "failed"
    assert outcome.error == "Whether keys or buttons are still held is unknown: the desktop is gone"


def test_an_error_in_the_watcher_stops_the_run() -> None:
    def watch(event: RunEvent) -> None:
        raise RuntimeError("no more paper")

    model = Model([wire.computer_call(CLICK)])
    with Endpoint(model) as endpoint, model_client(endpoint.base_url, endpoint.api_key) as client:
        outcome = run_task(Desktop(), "x", client=client, on_event=watch)  # type: ignore[arg-type]
    assert (outcome.status, outcome.error) == ("failed", "RuntimeError: no more paper.")


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (modern.Click(type="click", button="wheel", x=1, y=2, keys=["CTRL"]), "click wheel at 1,2 with CTRL"),
        (modern.DoubleClick(type="double_click", x=1, y=2), "double click at 1,2"),
        (modern.Move(type="move", x=1, y=2), "move to 1,2"),
        (
            modern.Drag(
                type="drag", path=[modern.DragPath(x=1, y=2), modern.DragPath(x=3, y=4)], keys=["ALT"]
            ),
            "drag 1,2 → 3,4 with ALT",
        ),
        (modern.Scroll(type="scroll", x=1, y=2, scroll_x=0, scroll_y=-300), "scroll by 0,-300 at 1,2"),
        (modern.Keypress(type="keypress", keys=["CTRL", "A"]), "press CTRL+A"),
        (modern.Type(type="type", text="a" * 100), f"type '{'a' * 60}'… (100 characters)"),
        (modern.Wait(type="wait"), "wait"),
        (modern.Screenshot(type="screenshot"), "screenshot"),
    ],
)
def test_actions_in_words(action: Any, text: str) -> None:
    assert describe(action) == text


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InvalidInput, match="OPENAI_API_KEY is not set"):
        model_client()
    with pytest.raises(InvalidInput, match="not an endpoint"):
        model_client("127.0.0.1:8080")
    assert model_client("http://127.0.0.1:8080/v1").api_key == "none"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    client: OpenAI = model_client()
    assert client.api_key == "sk-1"


def test_a_proxy_of_the_environment_does_not_come_between(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    outcome, _, _ = work(Model(done()))
    assert outcome.status == "done"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["run", "do it"], "invalid_input"),
        (["run", " ", "--base-url", "http://127.0.0.1:1/v1"], "invalid_input"),
        (["run", "do it", "--max-steps", "0"], "usage"),
        (["run", "do it", "--approve", "always"], "usage"),
        (["run", "do it", "--image-size", "big"], "usage"),
    ],
)
def test_bad_usage_of_the_command(arguments: list[str], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["kind"] == kind
