"""How a run ended, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["done", "step_limit", "refused", "cancelled", "failed"]


@dataclass(frozen=True)
class Usage:
    """Tokens over all requests of a run: each figure is a sum of what the endpoint reported."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    requests: int  # that the sums include
    complete: bool  # False: at least one request was made whose tokens are unknown

    def __str__(self) -> str:
        if not self.complete and not self.requests:
            return "tokens unknown: the endpoint or the loop did not report them"
        sums = f"{self.total_tokens} tokens ({self.input_tokens} in, {self.output_tokens} out)"
        return sums if self.complete else f"at least {sums}: some requests did not report theirs"


@dataclass(frozen=True)
class RunOutcome:
    """`done` says that the model ended the run with a message, never that the task was achieved."""

    status: Status
    final_text: str  # the model's last words; "" if it had none
    steps: int  # computer calls begun, each a batch of actions that ends with one screenshot
    usage: Usage
    error: str = ""  # one sentence for every status but `done`
