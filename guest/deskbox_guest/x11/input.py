"""Runs a parsed script: decides which keys and buttons are pressed when, and waits for what they cause.

How fast it does so is told in `timing`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from Xlib import X
from Xlib.ext import xtest
from Xlib.xobject.drawable import Window as XWindow

from deskbox_guest.protocol import Fault, Held
from deskbox_guest.x11.barrier import Barrier, Focus
from deskbox_guest.x11.display import Link
from deskbox_guest.x11.drain import FamilyWatch
from deskbox_guest.x11.focus import FocusMoves
from deskbox_guest.x11.held import button_down, buttons_down, held, keys_down, pointer
from deskbox_guest.x11.inject import Injector, InputEvent
from deskbox_guest.x11.keyboard import Keyboard
from deskbox_guest.x11.keymap import SHIFT_L, Layout, Stroke, keysym_of_character, name_of
from deskbox_guest.x11.presses import NO_PRESS, Press, presses
from deskbox_guest.x11.script import (
    WHEEL,
    ButtonDown,
    ButtonUp,
    Click,
    Command,
    GetMouseLocation,
    Key,
    KeyDown,
    KeyUp,
    MouseMove,
    Sleep,
    Type,
)
from deskbox_guest.x11.timing import (
    BROWSER_HOLD_S,
    CLICK_GAP_S,
    CLICK_HOLD_MOST_S,
    CLICK_HOLD_S,
    CLICK_QUIET_S,
    CORNER_MOST_S,
    CORNER_QUIET_S,
    DOUBLE_CLICK_S,
    DRAG_REST_S,
    DRAG_STEP_PX,
    DRAG_STEP_S,
    DROP_MOST_S,
    DROP_QUIET_S,
)
from deskbox_guest.x11.typing import Typist, pause, typing_cancelled
from deskbox_guest.x11.windows import BROWSER, app_under_pointer, pid_under_pointer

if TYPE_CHECKING:
    from deskbox_guest.x11.activity import Work

# How long a window manager may look at a press before its release is let through; and how often we look
# whether it has been. It takes half a millisecond.
RELEASE_S, RELEASE_LOOK_S = 1.0, 0.0005

# How long the end of a script waits for the application to have handled it. A busy one is left to the wait
# for a quiet screen.
FINAL_BARRIER_S = 0.25

# An application that is found running by so many looks in a row has not drawn all that it will: four looks
# are 100 ms, and a page whose animation needs that much in one piece does not move any more. Nor has one,
# most likely, that takes so much of a processor during them.
WORK_LOOKS, WORK_LOAD = 4, 0.5


class Engine:
    """Runs one script at a time. Not safe for threads."""

    def __init__(self, link: Link, injector: Injector) -> None:
        """The engine closes the injector, not the link."""
        self._link = link
        self._injector = injector
        self._keyboard = Keyboard(link)
        self._barrier = Barrier(link)
        self._typist = Typist(self._keyboard, self._barrier, self._press_strokes)
        self._focus_moves = FocusMoves(link, self._barrier)
        self._layout: Layout | None = None
        # Until their keyup: keysyms that a keydown put on a spare keycode, and those that Shift is down for.
        self._on_spares: dict[int, int] = {}
        self._shifted: set[int] = set()
        self._buttons: set[int] = set()  # that are down
        self._unfinished: Focus | None = None  # where the last script's keys may still wait to be handled
        self._presses: Iterator[Press] = iter(())  # that the script has still to do
        self._pressed, self._pressed_at = NO_PRESS, -math.inf  # the last press of a button that is no wheel
        self._dragged_at = -math.inf  # the last motion of a drag
        self._drag_step: float = DRAG_STEP_PX  # screen pixels from one such motion to the next

    def close(self) -> None:
        self._injector.close()
        self._barrier.close()

    # --- running -----------------------------------------------------------------------------------------

    def run(self, commands: Sequence[Command], cancelled: Callable[[], bool]) -> str:
        """Run the commands and wait until the application has handled them; return what they printed.

        Keys and buttons that the script leaves down on purpose (`keydown ctrl`) stay down if it ends well. If
        it fails, nothing is held any more when the Fault leaves.
        """
        self._layout = None
        self._check(commands)
        self._buttons = set(buttons_down(self._link))
        self._presses = iter(presses(commands, pointer(self._link)))
        self._drag_step = DRAG_STEP_PX
        output: list[str] = []
        done = 0
        try:
            for command in commands:
                self._run_one(command, output, cancelled)
                if cancelled():
                    raise _cancelled_after(command)
                done += 1
            self._link.sync()
            self._finish(cancelled)
        except BaseException as error:
            refused = isinstance(error, Fault) and error.kind == "refused"
            if refused and not done:
                raise  # nothing has happened, so nothing that an earlier script holds is let go
            self.release_all()
            if isinstance(error, Fault) and refused:
                error.kind = "interrupted"  # the commands before this one have had their effects
            raise
        return "".join(output)

    def release_all(self) -> Held:
        """Release every key and button, undo every change to the keyboard; return what was down.

        By XTEST with any injector, which may be what has failed.
        """
        was_held = held(self._link)
        for button in was_held.buttons:
            xtest.fake_input(self._link.display, X.ButtonRelease, button)
        for keycode in keys_down(self._link):
            xtest.fake_input(self._link.display, X.KeyRelease, keycode)
        self._link.sync()
        self._on_spares.clear()
        self._shifted.clear()
        self._keyboard.restore()
        return was_held

    def _run_one(self, command: Command, output: list[str], cancelled: Callable[[], bool]) -> None:
        match command:
            case MouseMove(x, y):
                self._move(x, y, cancelled)
            case ButtonDown(button):
                self._await_turn(button, cancelled)
                if not cancelled():
                    self._button(X.ButtonPress, button)
            case ButtonUp(button):
                if self._dragged_at > self._pressed_at:
                    self._rest_drag(self._dragged_at, cancelled)
                    # One that is slow gets ready for what is about to be dropped on it.
                    self._await_family(DROP_QUIET_S, DROP_MOST_S, cancelled)
                self._button(X.ButtonRelease, button)
                self._await_release(button, cancelled)
            case Click(button, repeat, delay):
                self._click(button, repeat, delay, cancelled)
            case Key(chords, delay):
                self._chords(chords, delay, cancelled)
            case KeyDown(chord):
                self._key_down(chord, cancelled)
            case KeyUp(chord):
                self._key_up(chord, cancelled)
            case Type(text, delay):
                self._type(text, delay, cancelled)
            case Sleep(seconds):
                self._link.sync()
                pause(seconds, cancelled)
            case GetMouseLocation():
                self._link.sync()
                found = self._link.root.query_pointer()
                child = found.child.id if isinstance(found.child, XWindow) else self._link.root.id
                output.append(f"x:{found.root_x} y:{found.root_y} screen:0 window:{child}\n")

    def watch(self) -> Callable[[], Work]:
        """Start to watch the focused application and the one under the pointer; the function tells what they
        do: the focused one has not handled the last script yet, or a main thread has been running ever since
        the last `WORK_LOOKS` calls ("behind"), or they have taken a processor since then ("works")."""
        focus = self._barrier.focus()
        pids = {focus.pid if focus else 0, pid_under_pointer(self._link)} - {0}
        family = FamilyWatch(*pids, looks=WORK_LOOKS)

        def work() -> Work:
            if self._unfinished is not None and self._barrier.handled(self._unfinished):
                self._unfinished = None
            runs, load = family.works(), family.load()
            if self._unfinished is not None or runs:
                return "behind"
            return "works" if load >= WORK_LOAD else "rests"

        return work

    def _finish(self, cancelled: Callable[[], bool]) -> None:
        self._focus_moves.await_click(cancelled)
        focus = self._barrier.focus()
        handled = focus is None or self._barrier.wait(focus, FINAL_BARRIER_S, cancelled)
        self._unfinished = None if handled else focus  # `watch` finds out if it is gone

    # --- pointer -----------------------------------------------------------------------------------------

    def _move(self, x: int, y: int, cancelled: Callable[[], bool]) -> None:
        if self._buttons:
            self._drag(x, y, cancelled)
        else:
            self._motion(x, y)

    def _drag(self, x: int, y: int, cancelled: Callable[[], bool]) -> None:
        from_x, from_y = pointer(self._link)
        distance = math.dist((from_x, from_y), (x, y))
        # A diagonal of n pixels has room for n different points.
        steps = min(math.ceil(distance / self._drag_step), max(abs(x - from_x), abs(y - from_y)))
        if steps and self._dragged_at < self._pressed_at:
            self._rest_drag(self._pressed_at, cancelled)
        elif steps > 1:
            self._await_family(CORNER_QUIET_S, CORNER_MOST_S, cancelled)
        for step in range(1, steps + 1):
            if cancelled():
                return
            self._motion(
                from_x + round((x - from_x) * step / steps), from_y + round((y - from_y) * step / steps)
            )
            self._link.display.flush()
            self._dragged_at = time.monotonic()
            pause(DRAG_STEP_S, cancelled)

    def _rest_drag(self, since: float, cancelled: Callable[[], bool]) -> None:
        """After the press and before the release of a drag: everyone is to have seen what came before."""
        pause(since + DRAG_REST_S - time.monotonic(), cancelled)
        self._barrier.wait_window_manager(RELEASE_S, cancelled)
        self._await_application(cancelled)

    def _await_family(self, quiet: float, most: float, cancelled: Callable[[], bool]) -> None:
        focus = self._barrier.focus()
        if focus is not None:
            self._barrier.wait_family(focus, quiet, most, cancelled)

    def _motion(self, x: int, y: int) -> None:
        self._injector.inject([InputEvent(X.MotionNotify, x=x, y=y)])

    def _button(self, event_type: int, button: int, after: float = 0.0) -> None:
        """`after`: so many seconds later, in which the injector does nothing else."""
        if event_type == X.ButtonPress:
            self._buttons.add(button)
            if button not in WHEEL:
                self._pressed_at = time.monotonic() + after
                self._focus_moves.note_click()
        else:
            self._buttons.discard(button)
        self._injector.inject([InputEvent(event_type, button, after=after)])
        self._link.display.flush()

    def _await_turn(self, button: int, cancelled: Callable[[], bool]) -> None:
        """Before a press: let time pass if toolkits could mix it up with the last one."""
        if button in WHEEL:
            return
        press = next(self._presses)
        if press.waits_for(self._pressed):
            pause(self._pressed_at + DOUBLE_CLICK_S - time.monotonic(), cancelled)
        elif not press.first:
            pause(self._pressed_at + CLICK_GAP_S - time.monotonic(), cancelled)
        self._pressed, self._drag_step = press, press.drag_step

    def _click(self, button: int, repeat: int, delay: float, cancelled: Callable[[], bool]) -> None:
        self._await_turn(button, cancelled)
        in_browser = button not in WHEEL and app_under_pointer(self._link) == BROWSER
        for index in range(repeat):
            if index:
                pause(delay, cancelled)
            if cancelled():
                return
            self._button(X.ButtonPress, button)
            if button in WHEEL:
                self._button(X.ButtonRelease, button)
            elif in_browser:
                self._button(X.ButtonRelease, button, BROWSER_HOLD_S)
            else:
                self._hold(cancelled)
                self._button(X.ButtonRelease, button)
            self._await_release(button, cancelled)

    def _hold(self, cancelled: Callable[[], bool]) -> None:
        """Between the press and the release of a click: let the application handle the press."""
        self._barrier.wait_window_manager(RELEASE_S, cancelled)
        pause(CLICK_HOLD_S, cancelled)
        focus = self._barrier.focus()
        if focus is not None:
            self._barrier.wait_family(focus, CLICK_QUIET_S, CLICK_HOLD_MOST_S, cancelled)

    def _await_release(self, button: int, cancelled: Callable[[], bool]) -> None:
        """Wait until the server has released a button.

        A window manager looks at every press before the application gets it. Until it has, the server keeps
        back what follows from the pointer, but not from the keyboard: a key-up would overtake the button.
        """
        self._link.pump_until(
            lambda: not button_down(self._link, button), RELEASE_S, cancelled, RELEASE_LOOK_S
        )

    # --- keys --------------------------------------------------------------------------------------------

    def _current_layout(self) -> Layout:
        if self._layout is None:
            self._layout = self._keyboard.layout(self._injector.group)
        return self._layout

    def _spares(self) -> list[int]:
        in_use = set(self._on_spares.values())
        return [code for code in self._current_layout().spare_keycodes() if code not in in_use]

    def _strokes(self, chord: Sequence[int], cancelled: Callable[[], bool]) -> list[Stroke]:
        """The keys of a chord; keysyms that the layout lacks are put on spare keycodes."""
        layout = self._current_layout()
        strokes = []
        borrowed: dict[int, int] = {}
        spares = self._spares()
        for keysym in chord:
            stroke = layout.stroke(keysym)
            if stroke is None:
                keycode = self._on_spares.get(keysym) or (spares.pop(0) if spares else 0)
                if not keycode:
                    raise Fault(
                        "interrupted", f"no spare key is left on the keyboard to press {name_of(keysym)!r}"
                    )
                if keysym not in self._on_spares:
                    borrowed[keycode] = keysym
                    self._on_spares[keysym] = keycode
                stroke = Stroke(keycode, shift=False)
            strokes.append(stroke)
        if borrowed:
            self._keyboard.borrow(layout, borrowed)
            self._await_application(cancelled)
        return strokes

    def _await_application(self, cancelled: Callable[[], bool]) -> None:
        focus = self._barrier.focus()
        if focus is not None:
            self._barrier.wait(focus, FINAL_BARRIER_S, cancelled)

    def _chords(self, chords: Sequence[Sequence[int]], delay: float, cancelled: Callable[[], bool]) -> None:
        held_before = set(self._on_spares)
        for index, chord in enumerate(chords):
            if index:
                pause(delay, cancelled)
            self._focus_moves.await_all(cancelled)
            if cancelled():
                return
            strokes = self._strokes(chord, cancelled)
            shift = self._shift_for(chord, strokes)
            self._press_all(strokes, shift)
            for stroke in reversed(strokes):
                self._key(X.KeyRelease, stroke.keycode)
            if shift:
                self._key(X.KeyRelease, shift)
            modifiers = self._keyboard.held_modifiers() & ~X.ShiftMask
            self._focus_moves.note_chord(chord, with_modifiers=bool(modifiers))
        self._give_back(self._on_spares.keys() - held_before, cancelled)

    def _shift_for(self, chord: Sequence[int], strokes: Sequence[Stroke]) -> int:
        """The keycode of the Shift to press along with a chord such as `plus`; 0 if none is needed."""
        layout = self._current_layout()
        down = SHIFT_L in chord or self._keyboard.held_modifiers() & X.ShiftMask
        return layout.shift if any(stroke.shift for stroke in strokes) and not down else 0

    def _press_all(self, strokes: Sequence[Stroke], shift: int) -> None:
        if shift:
            self._key(X.KeyPress, shift)
        for stroke in strokes:
            self._key(X.KeyPress, stroke.keycode)

    def _key_down(self, chord: Sequence[int], cancelled: Callable[[], bool]) -> None:
        self._focus_moves.await_all(cancelled)
        if cancelled():
            return
        strokes = self._strokes(chord, cancelled)
        shift = self._shift_for(chord, strokes)
        if shift:
            self._shifted.update(chord)
        self._press_all(strokes, shift)
        self._link.display.flush()

    def _key_up(self, chord: Sequence[int], cancelled: Callable[[], bool]) -> None:
        layout = self._current_layout()
        lent = self._on_spares.keys() & set(chord)
        for keysym in reversed(chord):
            stroke = layout.stroke(keysym)
            keycode = stroke.keycode if stroke else self._on_spares.get(keysym, 0)
            if keycode:
                self._key(X.KeyRelease, keycode)
        if self._shifted.intersection(chord):
            self._shifted.difference_update(chord)
            if not self._shifted:
                self._key(X.KeyRelease, layout.shift)
        self._link.display.flush()
        self._give_back(lent, cancelled)

    def _give_back(self, keysyms: Collection[int], cancelled: Callable[[], bool]) -> None:
        """Take keysyms off their spare keycodes, once the application has handled those keys."""
        if keysyms:
            self._await_application(cancelled)
            for keysym in keysyms:
                del self._on_spares[keysym]
            self._keyboard.restore(keep=self._on_spares.values())

    def _key(self, event_type: int, keycode: int) -> None:
        self._injector.inject([InputEvent(event_type, keycode)])

    # --- text --------------------------------------------------------------------------------------------

    def _type(self, text: str, delay: float, cancelled: Callable[[], bool]) -> None:
        self._focus_moves.await_all(cancelled)
        if cancelled():
            raise typing_cancelled(0)
        try:
            self._typist.type(text, self._current_layout(), self._spares(), delay, cancelled)
        finally:
            self._keyboard.restore(keep=self._on_spares.values())

    def _press_strokes(self, strokes: Sequence[Stroke], layout: Layout) -> None:
        shifted = False
        events = []
        for stroke in strokes:
            if stroke.shift != shifted:
                events.append(InputEvent(X.KeyPress if stroke.shift else X.KeyRelease, layout.shift))
                shifted = stroke.shift
            events += [InputEvent(X.KeyPress, stroke.keycode), InputEvent(X.KeyRelease, stroke.keycode)]
        if shifted:
            events.append(InputEvent(X.KeyRelease, layout.shift))
        self._injector.inject(events)
        self._link.display.flush()

    def _check(self, commands: Sequence[Command]) -> None:
        """Refuse, before the first effect, what this keyboard can't do.

        Text while Ctrl or Shift is down would be something else, and what the layout lacks needs spare keys.
        """
        keysyms = dict.fromkeys(_keysyms(commands))  # each once, in its order
        if not keysyms:
            return
        layout = self._current_layout()
        missing = [keysym for keysym in keysyms if layout.stroke(keysym) is None]
        if missing and not self._spares():
            raise Fault(
                "refused", f"the keyboard layout lacks {name_of(missing[0])!r} and has no spare key for it"
            )
        down = {code for code in keys_down(self._link) if code in layout.modifier_keycodes}
        for command in commands:
            match command:
                case Type(text) if text and down:
                    names = ", ".join(sorted(name_of(layout.keysym(code)) for code in down))
                    why = f"text can't be typed exactly while {names} is down: release it first"
                    raise Fault("refused", why, {"input": False})
                case KeyDown(chord):
                    down = down | (_keycodes(layout, chord) & layout.modifier_keycodes)
                case KeyUp(chord):
                    down = down - _keycodes(layout, chord)
                case _:
                    pass


def _cancelled_after(command: Command) -> Fault:
    if isinstance(command, Type):
        return typing_cancelled(len(command.text))
    return Fault("interrupted", "cancelled in the middle of a script", {"cancelled": True})


def _keysyms(commands: Sequence[Command]) -> Iterator[int]:
    """Every keysym that the commands press."""
    for command in commands:
        match command:
            case Type(text):
                yield from (keysym_of_character(character) for character in dict.fromkeys(text))
            case Key(chords):
                yield from (keysym for chord in chords for keysym in chord)
            case KeyDown(chord) | KeyUp(chord):
                yield from chord
            case _:
                pass


def _keycodes(layout: Layout, chord: Sequence[int]) -> set[int]:
    """The keys that a chord presses, with the Shift that some of them need."""
    strokes = [stroke for keysym in chord if (stroke := layout.stroke(keysym)) is not None]
    shift = {layout.shift} if any(stroke.shift for stroke in strokes) else set()
    return {stroke.keycode for stroke in strokes} | shift
