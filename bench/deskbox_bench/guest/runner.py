"""Runs in the guest: does what it is told, a line at a time, and times it.

    python3 runner.py SUBJECT      a module beside this one

A line is {"do": NAME, "with": [...]}: call that function of the module with these arguments. The answer is
{"ms", "started", "ended", "result" or "image"}; the two moments are seconds since 1970.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
import time
from typing import Any


def perform(subject: Any, order: dict[str, Any]) -> dict[str, Any]:
    action, arguments = getattr(subject, order["do"]), order["with"]
    started, clock = time.time(), time.perf_counter()
    result = action(*arguments)
    ms = (time.perf_counter() - clock) * 1000
    answer = {"ms": ms, "started": started, "ended": started + ms / 1000}
    if isinstance(result, bytes):
        return {**answer, "image": base64.b64encode(result).decode()}
    return {**answer, "result": result}


def main() -> None:
    # Libraries may print what they like, to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    subject = importlib.import_module(sys.argv[1])
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = perform(subject, json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
