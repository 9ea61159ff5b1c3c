"""`doctor`: is this machine able to run desktops, and are those that run well?"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from deskbox.cli import output
from deskbox.cli.options import JsonOption

if TYPE_CHECKING:
    from deskbox.registry import DesktopInfo
    from deskbox_guest.protocol import Held


@dataclass(frozen=True)
class Finding:
    subject: str  # "host", or the name of a desktop
    name: str  # of the check
    ok: bool
    detail: str
    fix: str  # what to do, if it is not ok
    needed: bool = True  # whether it is a fault if it is not ok


def doctor(
    fix: Annotated[
        bool, typer.Option("--fix", help="First clear away what a power cut or a kill has left.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check this machine and every desktop; say what is wrong and what to do. Exit code 1 if anything is."""
    from deskbox import provision, registry

    left = _leftovers(fix)
    findings = [
        Finding("host", check.name, check.ok, check.detail, check.fix, check.needed)
        for check in provision.check_host()
    ]
    findings += left
    for info in registry.list_desktops():
        findings += _examine(info)
    healthy = all(finding.ok or not finding.needed for finding in findings)
    if as_json:
        output.print_json({"ok": healthy, "checks": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            _print(finding)
    raise typer.Exit(output.DONE if healthy else output.FAILED)


def _leftovers(fix: bool) -> list[Finding]:
    """What belongs to nobody any more; with `fix` it is cleared away."""
    from deskbox import registry, snapshots

    left = []
    for backend, guest, name in registry.strays():
        if fix:
            backend.stop(guest)
        left.append(f"a guest of a desktop {name} on {backend.name}")
    left += [
        f"a half-made snapshot {path.name}" for path in (snapshots.sweep() if fix else snapshots.leftovers())
    ]
    if fix:
        registry.clear_locks()
    advice = f"`{output.command()} doctor --fix` clears it away."
    return [
        Finding("host", "leftovers", fix, f"{what}{', cleared away' if fix else ''}", "" if fix else advice)
        for what in left
    ]


def _print(finding: Finding) -> None:
    mark, color = ("ok", "green") if finding.ok else ("WRONG", "red") if finding.needed else ("no", None)
    typer.echo(f"{typer.style(f'{mark:<6}', fg=color)} {finding.subject}: {finding.name}: {finding.detail}")
    if not finding.ok and finding.fix:
        typer.echo(f"       {finding.fix}")


def _examine(info: DesktopInfo) -> list[Finding]:
    """Probe one desktop as a user would meet it: does it answer, is anything stuck, is there a picture?"""
    from deskbox.desktop import Desktop
    from deskbox.errors import DeskboxError
    from deskbox_guest.protocol import Frame

    restart = f"`{output.command()} down {info.name}` removes it; `{output.command()} up` starts it anew."
    if info.state == "starting":
        return [Finding(info.name, "state", True, "it is starting", "")]
    if info.state == "paused":
        resume = f"`{output.command()} resume {info.name}` lets it go on"
        return [Finding(info.name, "state", True, f"it is paused; {resume}", "")]
    if info.state == "dead":
        return [Finding(info.name, "state", False, "nothing of it runs any more", restart)]

    started = time.monotonic()
    try:
        with Desktop.attach(info.name, observe=True) as desktop:
            held = desktop.held_inputs()
            answered = (time.monotonic() - started) * 1000
            windows = desktop.windows()
            image = desktop.step(frame=Frame()).image
    except DeskboxError as error:
        return [Finding(info.name, "answer", False, str(error), restart)]

    painted = _has_content(image)
    count = "1 window" if len(windows) == 1 else f"{len(windows)} windows"
    seen = f"there is a picture, with {count}" if painted else "it shows a single colour"
    adopted = "; its keeper had ended, and a new one has taken over" if info.state == "orphaned" else ""
    return [
        Finding(info.name, "answer", True, f"it answers in {answered:.0f} ms{adopted}", ""),
        _input(info.name, held),
        Finding(info.name, "screen", painted, seen, restart),
    ]


def _input(name: str, held: Held) -> Finding:
    if not held:
        return Finding(name, "input", True, "no key and no button is held", "")
    stuck = ", ".join([*held.keys, *(f"button {button}" for button in held.buttons)])
    release = " ".join(
        [f"keyup {key}" for key in held.keys] + [f"mouseup {button}" for button in held.buttons]
    )
    fix = f'If nothing acts on it at present: `{output.command()} do --name {name} "{release}"`'
    return Finding(name, "input", False, f"held down: {stuck}", fix)


def _has_content(png: bytes) -> bool:
    from io import BytesIO

    from PIL import Image

    with Image.open(BytesIO(png)) as image:
        # The limit of 1: any second colour makes it None.
        return image.convert("RGB").getcolors(1) is None
