"""Pure: why a run stopped, as a status and one sentence.

The SDK's runner replaces whatever went wrong by "Tool run stopped before completion."; the reason is kept
only in `__context__`. People need the reason.
"""

from __future__ import annotations

from collections.abc import Iterator

import openai
from openai.lib.computer import ComputerUseError
from openai.lib.responses_tool_runner import ToolRunnerError

from deskbox.errors import DeskboxError
from deskbox.runs.outcome import Status


def explain(error: BaseException) -> tuple[Status, str]:
    """The status is never `done` or `cancelled`: whether a run was cancelled only its caller knows."""
    chain = list(_chain(error))
    for found in chain:
        text = str(found)
        if isinstance(found, DeskboxError):
            return "failed", _sentence(text)
        if isinstance(found, openai.OpenAIError):
            return "failed", _endpoint_sentence(found)
        if "reached max_steps" in text:
            return "step_limit", "The model was not done when it reached the limit of steps (--max-steps)."
        if "safety checks require explicit approval" in text:
            return (
                "refused",
                "The model asked for a safety check that was not approved; nothing of that step was done.",
            )
    # The innermost one says the most: the others are the SDK's general words for it.
    for found in reversed(chain):
        if not isinstance(found, ToolRunnerError):
            kind = "" if isinstance(found, ComputerUseError) else f"{type(found).__name__}: "
            return "failed", _sentence(f"{kind}{found}")
    return "failed", _sentence(str(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """`error` and what it came from, outermost first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _endpoint_sentence(error: openai.OpenAIError) -> str:
    if isinstance(error, openai.APITimeoutError):
        return "The model's endpoint did not answer in time."
    if isinstance(error, openai.APIConnectionError):
        return _sentence(
            f"The model's endpoint at {_origin(error)} could not be reached: {error.__cause__ or error}"
        )
    if isinstance(error, openai.AuthenticationError):
        return "The model's endpoint refused the API key: check OPENAI_API_KEY."
    if isinstance(error, openai.APIStatusError):
        return _sentence(f"The model's endpoint answered HTTP {error.status_code}: {_told(error)}")
    return _sentence(f"The model's endpoint failed: {error}")


def _origin(error: openai.APIConnectionError) -> str:
    """Scheme, host and port: a path or a query may hold what should not be shown."""
    url = error.request.url
    return f"{url.scheme}://{url.netloc.decode()}"


def _told(error: openai.APIStatusError) -> str:
    told = error.body.get("message") if isinstance(error.body, dict) else None
    return told if isinstance(told, str) else error.message


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?")) else text + "."
