"""The few requests of the XKEYBOARD extension that typing needs; python-xlib has none of that extension."""

from __future__ import annotations

from dataclasses import dataclass

from Xlib.display import Display
from Xlib.protocol import rq

from deskbox_guest.protocol import Fault

_EXTENSION = "XKEYBOARD"
_CORE_KEYBOARD = 0x100
_ENABLED_CONTROLS = 0x80000000

# The controls that make other keys of those that are pressed, or more, or fewer: repeat, slow, bounce and
# sticky keys, mouse keys, and the switching on of these by keys.
ALTERING_CONTROLS = 0b1011111


class _UseExtension(rq.ReplyRequest):
    _request = rq.Struct(
        rq.Card8("opcode"),
        rq.Opcode(0),
        rq.RequestLength(),
        rq.Card16("major"),
        rq.Card16("minor"),
    )
    _reply = rq.Struct(
        rq.ReplyCode(),
        rq.Bool("supported"),
        rq.Card16("sequence_number"),
        rq.ReplyLength(),
        rq.Card16("major"),
        rq.Card16("minor"),
        rq.Pad(20),
    )


class _GetState(rq.ReplyRequest):
    _request = rq.Struct(
        rq.Card8("opcode"),
        rq.Opcode(4),
        rq.RequestLength(),
        rq.Card16("device"),
        rq.Pad(2),
    )
    _reply = rq.Struct(
        rq.ReplyCode(),
        rq.Card8("device"),
        rq.Card16("sequence_number"),
        rq.ReplyLength(),
        rq.Card8("modifiers"),
        rq.Card8("base_modifiers"),
        rq.Card8("latched_modifiers"),
        rq.Card8("locked_modifiers"),
        rq.Card8("group"),
        rq.Pad(19),
    )


class _LatchLockState(rq.Request):
    _request = rq.Struct(
        rq.Card8("opcode"),
        rq.Opcode(5),
        rq.RequestLength(),
        rq.Card16("device"),
        rq.Card8("affect_locks"),
        rq.Card8("locks"),
        rq.Bool("lock_group"),
        rq.Card8("group"),
        rq.Card8("affect_latches"),
        rq.Card8("latches"),
        rq.Pad(1),
        rq.Bool("latch_group"),
        rq.Card16("group_latch"),
    )


class _GetControls(rq.ReplyRequest):
    _request = rq.Struct(
        rq.Card8("opcode"),
        rq.Opcode(6),
        rq.RequestLength(),
        rq.Card16("device"),
        rq.Pad(2),
    )
    _reply = rq.Struct(
        rq.ReplyCode(),
        rq.Card8("device"),
        rq.Card16("sequence_number"),
        rq.ReplyLength(),
        rq.Pad(48),
        rq.Card32("enabled"),
        rq.Pad(32),
    )


class _SetControls(rq.Request):
    _request = rq.Struct(
        rq.Card8("opcode"),
        rq.Opcode(7),
        rq.RequestLength(),
        rq.Card16("device"),
        rq.Pad(18),
        rq.Card32("affect_enabled"),
        rq.Card32("enabled"),
        rq.Card32("change"),
        rq.Pad(64),
    )


@dataclass(frozen=True)
class State:
    """Modifier bits: 1 Shift, 2 Lock, 4 Control, 8 to 128 Mod1 to Mod5. `group`: the active layout from 0."""

    held: int
    latched: int
    locked: int
    group: int


class Xkb:
    def __init__(self, display: Display) -> None:
        self._display = display
        found = display.query_extension(_EXTENSION)
        if found is None:
            raise Fault("unavailable", "the X server lacks the XKEYBOARD extension, which typing needs")
        self._opcode: int = found.major_opcode
        _UseExtension(display=display.display, opcode=self._opcode, major=1, minor=0)

    def state(self) -> State:
        reply = _GetState(display=self._display.display, opcode=self._opcode, device=_CORE_KEYBOARD)
        return State(reply.base_modifiers, reply.latched_modifiers, reply.locked_modifiers, reply.group)

    def set_locks(self, locks: int, affect: int) -> None:
        """Lock the modifiers `locks` and unlock the others in `affect`; latched ones are cleared."""
        _LatchLockState(
            display=self._display.display,
            opcode=self._opcode,
            device=_CORE_KEYBOARD,
            affect_locks=affect,
            locks=locks,
            lock_group=0,
            group=0,
            affect_latches=0xFF,
            latches=0,
            latch_group=0,
            group_latch=0,
        )

    def controls(self) -> int:
        """Which controls are switched on."""
        reply = _GetControls(display=self._display.display, opcode=self._opcode, device=_CORE_KEYBOARD)
        return int(reply.enabled)

    def set_controls(self, enabled: int, affect: int) -> None:
        """Switch the controls `enabled` on and the others in `affect` off."""
        _SetControls(
            display=self._display.display,
            opcode=self._opcode,
            device=_CORE_KEYBOARD,
            affect_enabled=affect,
            enabled=enabled,
            change=_ENABLED_CONTROLS,
        )
