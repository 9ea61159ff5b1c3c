"""The scripted endpoint, spoken to by the real client: answers, refusals, and a clean end."""

from __future__ import annotations

import socket
import threading
from typing import Any

import httpx2
import openai
import pytest
from openai import ComputerToolset, OpenAI
from openai.lib.computer import Screenshot
from openai.lib.responses_tool_runner import ResponsesToolRunner

from deskbox.drill import rules, wire
from deskbox.drill.endpoint import Endpoint
from deskbox.runs import model_client

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5E"
    "rkJggg=="
)


class Driver:
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def click(self, action: Any) -> None:
        self.done.append(f"click {action.x},{action.y}")

    def double_click(self, action: Any) -> None:
        self.done.append("double_click")

    def drag(self, action: Any) -> None:
        self.done.append("drag")

    def keypress(self, action: Any) -> None:
        self.done.append("keypress " + "+".join(action.keys))

    def move(self, action: Any) -> None:
        self.done.append("move")

    def scroll(self, action: Any) -> None:
        self.done.append("scroll")

    def type(self, action: Any) -> None:
        self.done.append(f"type {action.text}")

    def wait(self, action: Any) -> None:
        self.done.append("wait")

    def screenshot(self) -> Screenshot:
        self.done.append("screenshot")
        return {"type": "computer_screenshot", "image_url": PIXEL}


CHECK = {"id": "sc_1", "code": "irrelevant_domain", "message": "Are you sure?"}


class Model:
    """A batch, then a legacy call, then a call with a safety check, then the end."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        click = {"type": "click", "button": "left", "x": 3, "y": 4}
        output = [
            [
                wire.message("On it.", final=False),
                wire.computer_call(click, {"type": "type", "text": "“größe” 窓 🍜"}),
            ],
            [wire.legacy_computer_call({"type": "keypress", "keys": ["CTRL", "S"]})],
            [wire.computer_call({"type": "wait"}, checks=[CHECK])],
            [wire.message("Done: ½ 窓 🍜", final=True)],
        ][len(self.bodies) - 1]
        return wire.response(*output, model=body["model"], input_tokens=10, output_tokens=2)


DONE = [
    *("click 3,4", "type “größe” 窓 🍜", "screenshot"),
    *("keypress CTRL+S", "screenshot"),
    *("wait", "screenshot"),
]


@pytest.mark.parametrize("stream", [False, True])
def test_the_runner_of_the_sdk_goes_through(stream: bool) -> None:
    model, driver = Model(), Driver()
    with Endpoint(model) as endpoint, model_client(endpoint.base_url, endpoint.api_key) as client:
        runner = ResponsesToolRunner(computer=ComputerToolset(driver))
        response = runner.run(
            client, {"model": "m", "input": "x"}, stream=stream, approve_safety_checks=lambda call: True
        )
    assert response.output_text == "Done: ½ 窓 🍜"
    assert driver.done == DONE
    assert endpoint.requests == 4
    assert bool(model.bodies[0].get("stream")) is stream


def test_the_toolset_of_the_sdk_goes_through() -> None:
    driver = Driver()
    with Endpoint(Model()) as endpoint, model_client(endpoint.base_url, endpoint.api_key) as client:
        response = ComputerToolset(driver).run(
            client, {"model": "m", "input": "x"}, approve_safety_checks=lambda call: True
        )
    assert response.output_text == "Done: ½ 窓 🍜"
    assert driver.done == DONE


def test_each_endpoint_has_a_key_and_a_port_of_its_own() -> None:
    with Endpoint(Model()) as one, Endpoint(Model()) as other:
        assert one.api_key != other.api_key
        assert one.base_url != other.base_url
        for key in (other.api_key, "none"):
            with model_client(one.base_url, key) as client, pytest.raises(openai.AuthenticationError):
                client.responses.create(model="m", input="x", tools=[{"type": "computer"}])
        assert one.requests == 0


def ask(
    endpoint: Endpoint, body: Any = None, path: str = "/responses", raw: bytes | None = None
) -> httpx2.Response:
    return httpx2.post(
        endpoint.base_url + path,
        headers={"Authorization": f"Bearer {endpoint.api_key}"},
        content=raw,
        json=body if raw is None else None,
        trust_env=False,
    )


def test_bad_requests_are_refused_in_the_way_of_the_api() -> None:
    with Endpoint(Model()) as endpoint:
        assert httpx2.post(endpoint.base_url + "/responses", trust_env=False).status_code == 401
        assert ask(endpoint, {}, path="/chat").status_code == 404
        assert ask(endpoint, raw=b"{").status_code == 400
        refused = ask(endpoint, {"model": "m", "input": "x"})
        assert refused.status_code == 400
        assert refused.json()["error"] == {
            "message": "The request has no computer tool.",
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        }
        assert endpoint.requests == 0


CALL = {
    "type": "computer_call",
    "id": "cu",
    "call_id": "a",
    "status": "completed",
    "pending_safety_checks": [CHECK],
}
OUTPUT = {
    "type": "computer_call_output",
    "call_id": "a",
    "output": {"type": "computer_screenshot", "image_url": PIXEL},
    "acknowledged_safety_checks": [CHECK],
}


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ([CALL, OUTPUT], None),
        ([CALL], "No tool output found for computer call a."),
        ([OUTPUT], "No tool call found for computer call with call_id a."),
        ([OUTPUT, CALL], "No tool call found for computer call with call_id a."),
        ([CALL, OUTPUT, OUTPUT], "Duplicate output found for computer call with call_id a."),
        ([CALL, CALL, OUTPUT], "Duplicate item found with call_id a."),
        (
            [CALL, {**OUTPUT, "acknowledged_safety_checks": []}],
            "Computer call has an unacknowledged safety check: sc_1.",
        ),
        (
            [CALL, {**OUTPUT, "output": {"type": "input_image", "image_url": PIXEL}}],
            "Invalid value for 'output': expected a computer_screenshot.",
        ),
        (
            [CALL, {**OUTPUT, "output": {"type": "computer_screenshot"}}],
            "A computer_screenshot needs an image_url or a file_id.",
        ),
        (["text"], "Invalid type for 'input': expected a string or a list of objects."),
    ],
)
def test_the_rules_of_pairing(history: list[Any], said: str | None) -> None:
    assert rules.problem({"model": "m", "tools": [{"type": "computer"}], "input": history}) == said


def test_a_model_is_required() -> None:
    assert rules.problem({"input": "x"}) == "Missing required parameter: 'model'."
    assert rules.problem([]) == "Missing required parameter: 'model'."


def test_it_ends_while_a_client_keeps_its_connection() -> None:
    before = threading.active_count()
    with Endpoint(Model()) as endpoint:
        client = OpenAI(
            base_url=endpoint.base_url,
            api_key=endpoint.api_key,
            http_client=openai.DefaultHttpx2Client(trust_env=False),
        )
        client.responses.create(model="m", input="x", tools=[{"type": "computer"}])
        port = int(endpoint.base_url.split(":")[2].split("/")[0])
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
    client.close()
