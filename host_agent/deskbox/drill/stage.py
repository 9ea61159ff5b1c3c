"""Sets the drill's stage in a guest: the site, a browser window on it, an editor beside it. And clears it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, TypeVar, cast

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from deskbox.drill import marks
from deskbox.drill.process import GuestProcess
from deskbox.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from deskbox.desktop import Desktop

T = TypeVar("T")

SMALLEST_SCREEN = (1280, 800)
# Screen pixels: x, y, width, height of what is inside the frames. The crop of the drill covers both.
BROWSER_AREA = (40, 50, 690, 680)
EDITOR_AREA = (750, 50, 490, 680)

_BROWSER_PROFILE = ".config/mozilla/deskbox"
_SITE_TITLE = "Bistro Zwölf"
_STARTS_WITHIN_S = 30.0
_CLOSES_WITHIN_S = 5.0


@dataclass(frozen=True)
class Stage:
    """What the run leaves in the guest for the verifier."""

    desktop: Desktop
    database_path: str
    file_path: str

    def database(self) -> bytes:
        return self.desktop.read_file(self.database_path)

    def saved_file(self) -> bytes:
        return self.desktop.read_file(self.file_path)


def site_source() -> bytes:
    return _guest_source("guest_site.py")


@contextmanager
def set_stage(desktop: Desktop, site: bytes) -> Iterator[Stage]:
    """Everything is new: an empty database, an unwritten file, windows of their own in a free corner.

    site    the program that serves the form, as `site_source` gives it

    Raises InvalidInput if the screen is too small, Unavailable if something does not start in time.
    """
    if desktop.size[0] < SMALLEST_SCREEN[0] or desktop.size[1] < SMALLEST_SCREEN[1]:
        raise InvalidInput(
            "the drill needs a screen of at least {}x{} pixels, and this one has {}x{}: use a desktop "
            "that was started with a larger --size".format(*SMALLEST_SCREEN, *desktop.size)
        )
    with ExitStack() as clearing:
        home = desktop.facts().home
        folder = _run(desktop, "mktemp", "--directory", f"{home}/drill-XXXXXXXX").strip()
        clearing.callback(_run, desktop, "rm", "--recursive", "--", folder)
        stage = Stage(desktop, f"{folder}/reservations.db", f"{folder}/confirmation.txt")
        desktop.write_file(f"{folder}/site.py", site)
        desktop.write_file(f"{folder}/windows.py", _guest_source("guest_windows.py"))
        desktop.write_file(
            stage.file_path, f"{marks.EDITOR_GLYPH * 6}\n\nThe confirmation goes here.\n".encode()
        )

        served = clearing.enter_context(
            GuestProcess(desktop, "python3", f"{folder}/site.py", stage.database_path, _colours())
        )
        address = served.first_line(_STARTS_WITHIN_S)
        earlier = {window.id for window in desktop.windows()}
        clearing.enter_context(GuestProcess(desktop, "l3afpad", stage.file_path))
        # Ends at once if it hands the page to a Firefox that runs already, else it is the Firefox.
        profile = f"{home}/{_BROWSER_PROFILE}"
        clearing.enter_context(
            GuestProcess(desktop, "firefox-esr", "--profile", profile, "--new-window", address)
        )
        browser = _new_window(desktop, earlier, _SITE_TITLE)
        clearing.callback(_close, desktop, folder, browser)
        editor = _new_window(desktop, earlier, "confirmation.txt")
        _place(desktop, folder, {editor: EDITOR_AREA, browser: BROWSER_AREA})
        yield stage


def _colours() -> str:
    return json.dumps({"marks": marks.MARKS, "digits": marks.DIGITS, "party": marks.PARTY_RANGE})


def _guest_source(name: str) -> bytes:
    return resources.files("deskbox.drill").joinpath(name).read_bytes()


def _run(desktop: Desktop, *argv: str) -> str:
    result = desktop.exec(argv)
    if result.exit_code != 0:
        raise Unavailable(f"{argv[0]} failed in the guest: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout.decode()


def _new_window(desktop: Desktop, earlier: set[int], title: str) -> int:
    def find() -> int | None:
        return next((w.id for w in desktop.windows() if w.id not in earlier and title in w.title), None)

    return _wait_until(find, _STARTS_WITHIN_S, f"no window with {title!r} in its title appeared")


def _place(desktop: Desktop, folder: str, areas: dict[int, tuple[int, int, int, int]]) -> None:
    words = [str(number) for window, area in areas.items() for number in (window, *area)]
    _run(desktop, "python3", f"{folder}/windows.py", "place", *words)

    def placed() -> bool | None:
        sizes = {window.id: (window.width, window.height) for window in desktop.windows()}
        return all(sizes.get(window) == area[2:] for window, area in areas.items()) or None

    _wait_until(placed, _STARTS_WITHIN_S, "the windows could not be placed side by side")


def _close(desktop: Desktop, folder: str, window: int) -> None:
    _run(desktop, "python3", f"{folder}/windows.py", "close", str(window))

    def gone() -> bool | None:
        return all(other.id != window for other in desktop.windows()) or None

    _wait_until(gone, _CLOSES_WITHIN_S, "the drill's browser window did not close")


def _wait_until(found: Callable[[], T | None], seconds: float, otherwise: str) -> T:
    """Ask until the answer is not None: the guest tells nobody when its windows change."""
    asking = Retrying(
        retry=retry_if_result(lambda answer: answer is None),
        stop=stop_after_delay(seconds),
        wait=wait_fixed(0.05),
    )
    try:
        return cast(T, asking(found))
    except RetryError:
        raise Unavailable(f"{otherwise} within {seconds:g} s") from None
