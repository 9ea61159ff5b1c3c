"""What a run tells whoever watches it, as it happens."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class RunEvent:
    """One thing that happened.

    kind   action      about to be carried out; `text` describes it
           screenshot  the frame that the model is about to see; `image_url` holds it
           message     words of the model; `text` holds them
           approval    safety checks were put to the user; `text` names them, `approved` is the answer
    step   counts the computer calls of the run from 1; several actions can belong to one
    """

    kind: Literal["action", "screenshot", "message", "approval"]
    step: int
    text: str = ""
    approved: bool | None = None
    image_url: str = field(default="", repr=False)  # a data URL, exactly as the model gets it

    def image(self) -> bytes:
        """The encoded picture of a `screenshot` event; empty for the others."""
        _, _, data = self.image_url.partition("base64,")
        return base64.b64decode(data)
