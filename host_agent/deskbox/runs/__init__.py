"""A task run: a model works on a desktop, step by step, until it says that it is done.

`task.run_task` is the one entrance. Around it: `events` (what a watcher is told), `outcome` (how it ended),
`observe` (the driver that reports), `wording` (an action as a line of text), `failure` (an exception as a
sentence), `client` (the HTTP client for the model's endpoint).
"""

from __future__ import annotations

from deskbox.runs.client import model_client
from deskbox.runs.events import RunEvent
from deskbox.runs.outcome import RunOutcome, Usage
from deskbox.runs.task import deny, run_task

__all__ = ["RunEvent", "RunOutcome", "Usage", "deny", "model_client", "run_task"]
