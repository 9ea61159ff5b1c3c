"""Pure: what the true Responses API would refuse in a request with computer calls."""

from __future__ import annotations

from typing import Any


def problem(body: Any) -> str | None:
    """The sentence that an HTTP 400 carries, None if the request is in order."""
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        return "Missing required parameter: 'model'."
    if {"type": "computer"} not in (body.get("tools") or []):
        return "The request has no computer tool."
    history = body.get("input")
    if isinstance(history, str):
        return None
    if not isinstance(history, list) or not all(isinstance(item, dict) for item in history):
        return "Invalid type for 'input': expected a string or a list of objects."
    return _pairing_problem(history)


def _pairing_problem(history: list[dict[str, Any]]) -> str | None:
    """Each call has exactly one output after it, which acknowledges the call's safety checks."""
    calls: dict[str, dict[str, Any]] = {}
    answered: set[str] = set()
    for item in history:
        call_id = str(item.get("call_id"))
        if item.get("type") == "computer_call":
            if call_id in calls:
                return f"Duplicate item found with call_id {call_id}."
            calls[call_id] = item
        elif item.get("type") == "computer_call_output":
            if call_id not in calls:
                return f"No tool call found for computer call with call_id {call_id}."
            if call_id in answered:
                return f"Duplicate output found for computer call with call_id {call_id}."
            answered.add(call_id)
            found = _output_problem(calls[call_id], item)
            if found:
                return found
    unanswered = [call_id for call_id in calls if call_id not in answered]
    return f"No tool output found for computer call {unanswered[0]}." if unanswered else None


def _output_problem(call: dict[str, Any], output: dict[str, Any]) -> str | None:
    image = output.get("output")
    if not isinstance(image, dict) or image.get("type") != "computer_screenshot":
        return "Invalid value for 'output': expected a computer_screenshot."
    if not image.get("image_url") and not image.get("file_id"):
        return "A computer_screenshot needs an image_url or a file_id."
    acknowledged = {check.get("id") for check in output.get("acknowledged_safety_checks") or []}
    for check in call.get("pending_safety_checks") or []:
        if check["id"] not in acknowledged:
            return f"Computer call has an unacknowledged safety check: {check['id']}."
    return None
