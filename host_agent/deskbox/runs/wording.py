"""Pure: a computer action as one line of text for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openai.lib.computer import ComputerActionInput

_TEXT_SHOWN = 60


def describe(action: ComputerActionInput) -> str:
    """Coordinates are those of the image that the model saw."""
    keys = getattr(action, "keys", None)
    held = f" with {'+'.join(keys)}" if keys and action.type != "keypress" else ""
    match action.type:
        case "click":
            return f"click {action.button} at {action.x},{action.y}{held}"
        case "double_click":
            return f"double click at {action.x},{action.y}{held}"
        case "move":
            return f"move to {action.x},{action.y}{held}"
        case "drag":
            path = " → ".join(f"{point.x},{point.y}" for point in action.path)
            return f"drag {path}{held}"
        case "scroll":
            return f"scroll by {action.scroll_x},{action.scroll_y} at {action.x},{action.y}{held}"
        case "keypress":
            return f"press {'+'.join(action.keys)}"
        case "type":
            return f"type {_shortened(action.text)}"
        case _:
            return action.type


def _shortened(text: str) -> str:
    if len(text) <= _TEXT_SHOWN:
        return repr(text)
    return f"{text[:_TEXT_SHOWN]!r}… ({len(text)} characters)"
