"""Where what was built is kept, for any later start; a machine can do without."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """DESKBOX_CACHE_DIR, or `deskbox` in XDG_CACHE_HOME, or in ~/.cache."""
    own = os.environ.get("DESKBOX_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deskbox"
