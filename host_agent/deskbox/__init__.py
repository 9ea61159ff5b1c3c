"""Deskbox: an isolated Linux desktop that a model can use, and the computer driver for it.

Names are imported when they are first used, so that `import deskbox` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deskbox.async_desktop import AsyncDesktop as AsyncDesktop
    from deskbox.desktop import Desktop as Desktop
    from deskbox.driver import AsyncDesktopComputerDriver as AsyncDesktopComputerDriver
    from deskbox.driver import DesktopComputerDriver as DesktopComputerDriver
    from deskbox.errors import Cancelled as Cancelled
    from deskbox.errors import DeskboxError as DeskboxError
    from deskbox.errors import Interrupted as Interrupted
    from deskbox.errors import InvalidInput as InvalidInput
    from deskbox.errors import Refused as Refused
    from deskbox.errors import Unavailable as Unavailable
    from deskbox.geometry import Geometry as Geometry

_HOMES = {
    "AsyncDesktop": "deskbox.async_desktop",
    "AsyncDesktopComputerDriver": "deskbox.driver",
    "Cancelled": "deskbox.errors",
    "Desktop": "deskbox.desktop",
    "DesktopComputerDriver": "deskbox.driver",
    "DeskboxError": "deskbox.errors",
    "Geometry": "deskbox.geometry",
    "Interrupted": "deskbox.errors",
    "InvalidInput": "deskbox.errors",
    "Refused": "deskbox.errors",
    "Unavailable": "deskbox.errors",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
