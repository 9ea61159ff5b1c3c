"""The drivers in the SDK's own loops: the real client, toolsets and runners against a prepared endpoint."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest
from openai.lib.computer import ComputerUseError
from openai.lib.responses_tool_runner import AsyncResponsesToolRunner, ResponsesToolRunner, ToolRunnerError
from PIL import Image
from tests.support.recorded import AsyncRecordedDesktop, RecordedDesktop

from deskbox.drill import wire
from deskbox.drill.endpoint import Endpoint
from deskbox.drill.wire import computer_call
from deskbox.driver import AsyncDesktopComputerDriver, DesktopComputerDriver
from deskbox.errors import Cancelled, InvalidInput, Unavailable
from deskbox_guest.protocol import Step

Json = dict[str, Any]
Run = Callable[..., Any]
PARAMS: Any = {"model": "scripted", "input": "Do it."}


@dataclass
class Responses:
    """An endpoint that gives the n-th request the n-th list of output items, and keeps the requests."""

    endpoint: Endpoint
    requests: list[Json] = field(default_factory=list)

    def outputs(self) -> list[Json]:
        """What the last request gave back for computer calls, in order."""
        return [item for item in self.requests[-1]["input"] if item.get("type") == "computer_call_output"]


@contextmanager
def serve(*answers: list[Json]) -> Iterator[Responses]:
    waiting = iter(answers)

    def answer(body: Json) -> Json:
        responses.requests.append(body)
        return wire.response(*next(waiting), model="scripted", input_tokens=100, output_tokens=20)

    with Endpoint(answer) as endpoint:
        responses = Responses(endpoint)
        yield responses


def message(text: str) -> Json:
    return wire.message(text, final=True)


def run_toolset(responses: Responses, desktop: RecordedDesktop, **options: Any) -> Any:
    driver = DesktopComputerDriver(desktop, (640, 400))
    with openai.OpenAI(**client_options(responses), http_client=sync_http()) as client:
        return openai.ComputerToolset(driver).run(client, PARAMS, **options)


def run_runner(responses: Responses, desktop: RecordedDesktop, **options: Any) -> Any:
    driver = DesktopComputerDriver(desktop, (640, 400))
    runner = ResponsesToolRunner(computer=openai.ComputerToolset(driver))
    with openai.OpenAI(**client_options(responses), http_client=sync_http()) as client:
        return runner.run(client, PARAMS, **options)


def run_async_toolset(responses: Responses, desktop: RecordedDesktop, **options: Any) -> Any:
    async def run() -> Any:
        toolset = openai.AsyncComputerToolset(
            AsyncDesktopComputerDriver(AsyncRecordedDesktop(desktop), (640, 400))
        )
        async with openai.AsyncOpenAI(**client_options(responses), http_client=async_http()) as client:
            return await toolset.run(client, PARAMS, **awaitable(options))

    return asyncio.run(run())


def run_async_runner(responses: Responses, desktop: RecordedDesktop, **options: Any) -> Any:
    async def run() -> Any:
        toolset = openai.AsyncComputerToolset(
            AsyncDesktopComputerDriver(AsyncRecordedDesktop(desktop), (640, 400))
        )
        runner = AsyncResponsesToolRunner(computer=toolset)
        async with openai.AsyncOpenAI(**client_options(responses), http_client=async_http()) as client:
            return await runner.run(client, PARAMS, **awaitable(options))

    return asyncio.run(run())


def client_options(responses: Responses) -> Any:
    endpoint = responses.endpoint
    return {"base_url": endpoint.base_url, "api_key": endpoint.api_key, "max_retries": 0}


# A proxy in the environment would catch requests to 127.0.0.1 too.
def sync_http() -> Any:
    return openai.DefaultHttpx2Client(trust_env=False)


def async_http() -> Any:
    return openai.DefaultAsyncHttpx2Client(trust_env=False)


def awaitable(options: dict[str, Any]) -> dict[str, Any]:
    """The async helpers await each callback but `cancelled`."""

    def wrap(callback: Callable[[Any], bool]) -> Callable[[Any], Any]:
        async def call(argument: Any) -> bool:
            return callback(argument)

        return call

    return {name: value if name == "cancelled" else wrap(value) for name, value in options.items()}


TOOLSETS = [run_toolset, run_async_toolset]
ALL = [*TOOLSETS, run_runner, run_async_runner]
every_loop = pytest.mark.parametrize("run", ALL, ids=lambda run: run.__name__)
each_toolset = pytest.mark.parametrize("run", TOOLSETS, ids=lambda run: run.__name__)

BATCH: list[Json] = [
    {"type": "click", "x": 320, "y": 200, "button": "left", "keys": None},
    {"type": "screenshot"},
    {"type": "double_click", "x": 1, "y": 1, "keys": ["SHIFT"]},
    {"type": "drag", "path": [{"x": 1, "y": 1}, {"x": 2, "y": 1}], "keys": None},
    {"type": "keypress", "keys": ["CTRL", "S"]},
    {"type": "move", "x": 639, "y": 399, "keys": None},
    {"type": "scroll", "x": 0, "y": 0, "scroll_x": 0, "scroll_y": -48, "keys": None},
    {"type": "type", "text": "Zażółć 日本 👍"},
    {"type": "wait"},
]
SCRIPTS = [
    "mousemove 640 400 click 1",
    "mousemove 2 2 keydown shift click --repeat 2 1 keyup shift",
    "mousemove 2 2 mousedown 1 mousemove 4 2 mouseup 1",
    "key ctrl+s",
    "mousemove 1278 798",
    "mousemove 0 0 click --repeat 2 4",
    "type -- 'Zażółć 日本 👍'",
    "",
]


@every_loop
def test_a_batch_runs_in_order_with_one_screenshot_at_its_end(run: Run) -> None:
    desktop = RecordedDesktop()
    with serve([computer_call(*BATCH)], [message("Done.")]) as responses:
        assert run(responses, desktop).output_text == "Done."
        assert desktop.scripts == [*SCRIPTS, "screenshot"]
        assert responses.requests[0]["tools"] == [{"type": "computer"}]
        (output,) = responses.outputs()
    kind, encoded = output["output"]["image_url"].split(",")
    assert (output["output"]["type"], kind) == ("computer_screenshot", "data:image/png;base64")
    # The request holds the picture that the geometry assumes, pixel for pixel.
    assert Image.open(io.BytesIO(base64.b64decode(encoded))).size == (640, 400)


@every_loop
def test_legacy_actions_are_the_same(run: Run) -> None:
    desktop = RecordedDesktop()
    actions = [action for action in BATCH if action["type"] != "screenshot"]
    answers = [[wire.legacy_computer_call(action)] for action in actions]
    with serve(*answers, [message("Done.")]) as responses:
        assert run(responses, desktop).output_text == "Done."
    assert desktop.scripts == [part for script in SCRIPTS for part in (script, "screenshot")]


@every_loop
def test_two_calls_in_one_response_have_a_screenshot_each(run: Run) -> None:
    desktop = RecordedDesktop()
    with serve([computer_call(BATCH[0]), computer_call({"type": "screenshot"})], [message("")]) as responses:
        run(responses, desktop)
        assert len(responses.outputs()) == 2
    assert desktop.scripts == [SCRIPTS[0], "screenshot", "screenshot"]


@every_loop
def test_safety_checks_are_acknowledged_as_they_came(run: Run) -> None:
    desktop = RecordedDesktop()
    check = {"id": "sc_1", "code": "sensitive_domain", "message": "Look."}
    with serve([computer_call(BATCH[0], checks=[check])], [message("Done.")]) as responses:
        run(responses, desktop, approve_safety_checks=lambda call: True)
        (output,) = responses.outputs()
    assert output["acknowledged_safety_checks"] == [check]


@every_loop
def test_without_consent_nothing_happens(run: Run) -> None:
    desktop = RecordedDesktop()
    check = {"id": "sc_1", "code": "malicious_instructions", "message": "Look."}
    with (
        serve([computer_call(BATCH[0], checks=[check])]) as responses,
        pytest.raises((ComputerUseError, ToolRunnerError)),
    ):
        run(responses, desktop)
    assert desktop.steps == []


@every_loop
def test_before_action_sees_each_action_and_the_final_screenshot(run: Run) -> None:
    desktop, seen = RecordedDesktop(), []

    def allow(action: Any) -> bool:
        seen.append(action.type)
        return True

    with serve([computer_call(BATCH[0], BATCH[4])], [message("Done.")]) as responses:
        run(responses, desktop, before_action=allow)
    assert seen == ["click", "keypress", "screenshot"]


@every_loop
def test_cancelled_reaches_every_step(run: Run) -> None:
    desktop = RecordedDesktop()

    def cancelled() -> bool:
        return False

    with serve([computer_call(*BATCH)], [message("Done.")]) as responses:
        run(responses, desktop, cancelled=cancelled)
    assert desktop.cancels == [cancelled] * (len(SCRIPTS) + 1)


@every_loop
def test_a_cancelled_action_ends_the_run(run: Run) -> None:
    desktop, flag = RecordedDesktop(), []

    def stop(step: Step) -> None:
        if step.script.startswith("type"):
            flag.append(True)
            raise Cancelled("typing was stopped", characters=3)

    desktop.before_step = stop
    with (
        serve([computer_call(*BATCH)]) as responses,
        pytest.raises((ComputerUseError, ToolRunnerError)) as caught,
    ):
        run(responses, desktop, cancelled=lambda: bool(flag))
    assert desktop.scripts == SCRIPTS[:6]
    assert any(isinstance(error, Cancelled) for error in contexts(caught.value))


def contexts(error: BaseException) -> Iterator[BaseException]:
    """The errors that this one hides, which a log may show and the model never sees."""
    while error.__context__ is not None:
        error = error.__context__
        yield error


WRONG: list[tuple[Json, str]] = [
    ({"type": "click", "x": 640, "y": 5, "button": "left"}, "x must be 0 to 639"),
    ({"type": "click", "x": -1, "y": 5, "button": "left"}, "x must be 0 to 639"),
    ({"type": "drag", "path": []}, "has 0 points"),
    ({"type": "drag", "path": [{"x": 1, "y": 1}]}, "has 1 points"),
    ({"type": "keypress", "keys": []}, "keys is empty"),
    ({"type": "keypress", "keys": ["CNTRL"]}, "did you mean CTRL"),
    ({"type": "move", "x": 1, "y": 1, "keys": ["NOSUCH"]}, "unknown key"),
    ({"type": "scroll", "x": 1, "y": 1, "scroll_x": 0, "scroll_y": 10**9}, "press HOME or END"),
    ({"type": "type", "text": "a\x00b"}, "position 1 of the text"),
]


@each_toolset
@pytest.mark.parametrize(("action", "sentence"), WRONG)
def test_what_the_sdk_lets_through_is_refused_with_its_own_error(
    run: Run, action: Json, sentence: str
) -> None:
    desktop = RecordedDesktop()
    with (
        serve([computer_call(action)]) as responses,
        pytest.raises(InvalidInput, match=sentence),
    ):
        run(responses, desktop)
    assert desktop.steps == []


@pytest.mark.parametrize("run", [run_runner, run_async_runner])
def test_a_runner_keeps_the_error_as_context(run: Run) -> None:
    with serve([computer_call(WRONG[0][0])]) as responses, pytest.raises(ToolRunnerError) as caught:
        run(responses, RecordedDesktop())
    assert isinstance(caught.value.__context__, InvalidInput)
    assert len(caught.value.attempted_call_ids) == 1
    assert caught.value.completed_call_ids == ()


@each_toolset
@pytest.mark.parametrize(
    "action",
    [
        {"type": "hover", "x": 1, "y": 1},
        {"type": "click", "x": 1, "y": 1, "button": "middle"},
        {"type": "keypress", "keys": "ENTER"},
    ],
)
def test_what_the_sdk_refuses_stops_the_batch_before_its_first_effect(run: Run, action: Json) -> None:
    desktop = RecordedDesktop()
    with (
        serve([computer_call(BATCH[0], action)]) as responses,
        pytest.raises(ComputerUseError, match="Invalid computer action"),
    ):
        run(responses, desktop)
    assert desktop.steps == []


@each_toolset
def test_a_lost_desktop_ends_the_run_with_its_own_error(run: Run) -> None:
    desktop = RecordedDesktop()

    def gone(step: Step) -> None:
        raise Unavailable("the guest is gone")

    desktop.before_step = gone
    with (
        serve([computer_call(BATCH[0])]) as responses,
        pytest.raises(Unavailable, match="the guest is gone"),
    ):
        run(responses, desktop)


def test_the_wrong_flavour_is_noticed_at_once() -> None:
    desktop = RecordedDesktop()
    with pytest.raises(ValueError, match="use AsyncComputerToolset"):
        openai.ComputerToolset(AsyncDesktopComputerDriver(AsyncRecordedDesktop(desktop)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="use ComputerToolset"):
        openai.AsyncComputerToolset(DesktopComputerDriver(desktop))  # type: ignore[arg-type]
