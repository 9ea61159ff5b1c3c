"""Pure: what a Responses endpoint answers, as JSON objects and as server-sent events."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

Item = dict[str, Any]


def response(*output: Item, model: str, input_tokens: int, output_tokens: int) -> dict[str, Any]:
    return {
        "id": _identity("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": model,
        "output": list(output),
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [{"type": "computer"}],
        "usage": {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def computer_call(*actions: Item, checks: list[Item] | None = None) -> Item:
    """The modern form: a batch of actions, the list of safety checks left out when there are none."""
    call: Item = {"type": "computer_call", **_call_identity(), "actions": list(actions)}
    return call if checks is None else {**call, "pending_safety_checks": checks}


def legacy_computer_call(action: Item) -> Item:
    """The form of earlier models: one action, the list of safety checks always there."""
    return {"type": "computer_call", **_call_identity(), "action": action, "pending_safety_checks": []}


def message(text: str, *, final: bool) -> Item:
    return {
        "type": "message",
        "id": _identity("msg"),
        "role": "assistant",
        "status": "completed",
        "phase": "final_answer" if final else "commentary",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def error(text: str, *, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


def events(finished: dict[str, Any]) -> Iterator[bytes]:
    """A finished response as the stream that leads to it."""
    for number, event in enumerate(_events(finished)):
        numbered = {**event, "sequence_number": number}
        yield f"event: {event['type']}\ndata: {json.dumps(numbered)}\n\n".encode()


def _events(finished: dict[str, Any]) -> Iterator[Item]:
    begun = {**finished, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(finished["output"]):
        at = {"output_index": index}
        yield {
            "type": "response.output_item.added",
            **at,
            "item": {
                **item,
                "status": "in_progress",
                **({"content": []} if item["type"] == "message" else {}),
            },
        }
        if item["type"] == "message":
            yield from _text_events(item, at)
        yield {"type": "response.output_item.done", **at, "item": item}
    yield {"type": "response.completed", "response": finished}


def _text_events(item: Item, at: Item) -> Iterator[Item]:
    for index, part in enumerate(item["content"]):
        here = {**at, "item_id": item["id"], "content_index": index}
        text = part["text"]
        yield {"type": "response.content_part.added", **here, "part": {**part, "text": ""}}
        yield {"type": "response.output_text.delta", **here, "delta": text, "logprobs": []}
        yield {"type": "response.output_text.done", **here, "text": text, "logprobs": []}
        yield {"type": "response.content_part.done", **here, "part": part}


def _call_identity() -> Item:
    return {"id": _identity("cu"), "call_id": _identity("call"), "status": "completed"}


def _identity(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"
