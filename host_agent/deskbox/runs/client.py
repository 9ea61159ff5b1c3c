"""The HTTP client for the model's endpoint."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import openai

from deskbox.errors import InvalidInput

_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def model_client(base_url: str | None = None, api_key: str | None = None) -> openai.OpenAI:
    """A client for `base_url`, by default the one that the SDK knows.

    The key is OPENAI_API_KEY's unless one is given; it is neither stored nor shown. An endpoint of one's own
    may need none. An endpoint on this machine is never asked for through a proxy of the environment.
    """
    key = api_key or os.environ.get("OPENAI_API_KEY", "")
    if not key and base_url is None:
        raise InvalidInput(
            "OPENAI_API_KEY is not set: export it, or name an endpoint of your own with --base-url."
        )
    if base_url is not None and urlsplit(base_url).scheme not in ("http", "https"):
        raise InvalidInput(
            f"{base_url!r} is not an endpoint: give an http or https URL such as http://127.0.0.1:8080/v1."
        )
    local = base_url is not None and urlsplit(base_url).hostname in _LOOPBACK
    return openai.OpenAI(
        base_url=base_url,
        api_key=key or "none",
        http_client=openai.DefaultHttpx2Client(trust_env=not local),
    )
