"""`up`, `ls`, `logs`, `pause`, `resume`, `down`, `image`: a desktop's life, and what it is made from."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deskbox.cli import output
from deskbox.cli.options import PATIENCE, JsonOption, NameOption, Size, parse_size

if TYPE_CHECKING:
    from deskbox.desktop import Desktop
    from deskbox.registry import DesktopInfo
    from deskbox_guest.protocol import EngineName


BackendOption = Annotated[
    Literal["docker", "bwrap", "qemu", "auto"] | None,
    typer.Option(
        envvar="DESKBOX_BACKEND",
        help="What runs the desktop; auto takes the first that works on this machine.",
        show_default="auto",
    ),
]
EngineOption = Annotated[
    Literal["xtest", "xdotool"] | None,
    typer.Option(
        envvar="DESKBOX_ENGINE",
        help="What carries out scripts; xdotool is the program of that name.",
        show_default="xtest",
    ),
]
SizeOption = Annotated[
    Size | None,
    typer.Option(
        parser=parse_size,
        metavar="WxH",
        show_default="1280x800",
        help="The screen, in pixels, up to 3840x2160.",
    ),
]
PackageOption = Annotated[
    list[str] | None,
    typer.Option("--package", metavar="NAME", help="A Debian package to add to the guest; repeatable."),
]
WhichArgument = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="The desktop.", show_default="default")
]
WhichOption = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", envvar="DESKBOX_NAME", help="The same, as for other commands."),
]
SetupOption = Annotated[
    bool, typer.Option("--setup", help="First install on this machine what is missing (root or sudo).")
]


def up(
    name: NameOption = "default",
    backend: BackendOption = None,
    size: SizeOption = None,
    url: Annotated[str | None, typer.Option(metavar="URL", help="The page that Firefox shows.")] = None,
    packages: PackageOption = None,
    engine: EngineOption = None,
    setup: SetupOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start a desktop and wait until it is usable.

    It stays up until `deskbox down`. If it runs already, this says so and how to use it.
    """
    from deskbox import registry
    from deskbox.desktop import Desktop

    there = registry.find(name)
    running = there is not None and there.state in ("running", "paused", "orphaned")
    if there is not None and running:
        _check_same(there, backend, size, packages or [], engine)
        desktop = Desktop.attach(name, observe=url is None, wait=PATIENCE)  # it adopts an orphan
        if there.state == "paused":
            desktop.resume()
    else:
        if there is not None and there.state == "dead":
            registry.stop(name)  # nothing of it is left to lose, as after a restart of the machine
        desktop = _start(name, backend, size, url, packages or [], engine, setup)
    with desktop:
        if running and url is not None:
            desktop.open_url(url)
        report(desktop, as_json, already=running)


def _start(
    name: str,
    backend: str | None,
    size: Size | None,
    url: str | None,
    packages: list[str],
    engine: EngineName | None,
    setup: bool,
) -> Desktop:
    from deskbox import provision
    from deskbox.desktop import Desktop
    from deskbox.launcher import DEFAULT_ENGINE, DEFAULT_SIZE

    if setup:
        provision.ask_for_password(backend)
    with output.progress() as progress:
        chosen = provision.ensure_host(progress, install=setup, backend=backend)
        return Desktop.launch(
            name,
            backend=chosen,
            size=size or DEFAULT_SIZE,
            url=url,
            packages=packages,
            engine=engine or DEFAULT_ENGINE,
            detach=True,
            progress=progress,
        )


def report(desktop: Desktop, as_json: bool, *, already: bool = False) -> None:
    """Say that a desktop runs, and how to use it."""
    view_url, problem = _view_url(desktop)
    if as_json:
        output.print_json({**_facts(desktop), "state": "running", "view_url": view_url})
    else:
        _print_summary(desktop, view_url, problem, already=already)


def _view_url(desktop: Desktop) -> tuple[str | None, str]:
    """The address, or why there is none: a desktop that can't be watched is still one that can be used."""
    from deskbox.errors import DeskboxError

    try:
        return desktop.view_url(), ""
    except DeskboxError as error:
        return None, str(error)


def _check_same(
    running: DesktopInfo,
    backend: str | None,
    size: Size | None,
    packages: list[str],
    engine: EngineName | None,
) -> None:
    """What was asked for explicitly must be what runs: nothing is ignored silently."""
    from deskbox.errors import Refused

    if size is not None and tuple(running.size) != tuple(size):
        asked, there = f"at {size.width}x{size.height}", f"at {_size(running.size)}"
    elif backend not in (None, "auto", running.backend):
        asked, there = f"on {backend}", f"on {running.backend}"
    elif missing := set(packages) - set(running.packages):
        names = ", ".join(sorted(missing))
        asked, there = f"with {names}", f"without {names}"
    elif engine not in (None, running.engine):
        asked, there = f"with the engine {engine}", f"with the engine {running.engine}"
    else:
        return
    raise Refused(
        f"the desktop {running.name!r} already runs {there}: stop it first with "
        f"`{output.command()} down {running.name}`, or start another one {asked} with --name"
    )


def _facts(desktop: Desktop) -> dict[str, Any]:
    return {
        "name": desktop.name,
        "backend": desktop.backend,
        "size": list(desktop.size),
        "engine": desktop.engine,
        "timings_ms": desktop.timings_ms,
    }


def _print_summary(desktop: Desktop, view_url: str | None, problem: str, *, already: bool) -> None:
    deskbox = output.command()
    name = "" if desktop.name == "default" else f" --name {desktop.name}"
    watch = f"not possible: {problem}"
    if view_url is not None:
        watch = f"""{view_url}
           Open it in a browser on this machine: it shows the desktop and takes no input. The address
           works once; `{deskbox} view{name}` gives another one."""
    center = f"mousemove {desktop.size[0] // 2} {desktop.size[1] // 2} click 1"
    painted = desktop.timings_ms.get("painted")
    state = "is already running" if already else "is running"
    if painted is not None and not already:
        state += f", painted {painted / 1000:.1f} s after its start"
    typer.echo(f"""\
Desktop {desktop.name} {state}.
  backend  {desktop.backend}
  size     {_size(desktop.size)}
  engine   {desktop.engine}
  watch    {watch}
  look     {deskbox} shot{name} -o desktop.png
  act      {deskbox} do{name} "{center}"
  drill    {deskbox} drill{name}
  stop     {deskbox} down{" " + desktop.name if name else ""}""")


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def ls(as_json: JsonOption = False) -> None:
    """List your desktops."""
    from deskbox import registry

    desktops = registry.list_desktops()
    if as_json:
        output.print_json(
            [
                {
                    "name": d.name,
                    "backend": d.backend,
                    "size": list(d.size),
                    "engine": d.engine,
                    "state": d.state,
                    "timings_ms": d.timings_ms,
                    "created": d.created,
                }
                for d in desktops
            ]
        )
    elif not desktops:
        typer.echo(f"No desktop. `{output.command()} up` starts one.")
    else:
        output.print_table(
            ("NAME", "BACKEND", "SIZE", "STATE", "PAINTED", "AGE"),
            [
                (d.name, d.backend, _size(d.size), d.state, _painted(d), output.age(d.created))
                for d in desktops
            ],
        )


def _painted(desktop: DesktopInfo) -> str:
    painted = desktop.timings_ms.get("painted")
    return "-" if painted is None else f"{painted / 1000:.1f} s"


def down(
    which: WhichArgument = None,
    name: WhichOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Stop every desktop of yours.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop a desktop, or all, and remove all that belongs to it."""
    from deskbox import provision, registry

    if everything and which is not None:
        raise typer.BadParameter("--all stops every desktop: give it no NAME.")
    if everything:
        stopped = registry.stop_all()
        provision.stop_engine()
    else:
        stopped = [which or name or "default"]
        if not registry.stop(stopped[0]):
            raise _absent(stopped[0])
    if as_json:
        output.print_json({"stopped": stopped})
    else:
        typer.echo("\n".join(f"Stopped {name}." for name in stopped) or "No desktop is running.")


def _absent(name: str) -> Exception:
    from deskbox import registry
    from deskbox.errors import Refused

    there = ", ".join(desktop.name for desktop in registry.list_desktops())
    return Refused(
        f"there is no desktop {name!r}; " + (f"there are: {there}" if there else "there is none at all")
    )


def pause(which: WhichArgument = None, name: WhichOption = None, as_json: JsonOption = False) -> None:
    """Freeze a desktop, so that it uses no processor, until `deskbox resume`.

    What is held in it is released first. A script or a text that is under way in it is stopped.
    """
    from deskbox.desktop import Desktop

    with Desktop.attach(which or name or "default", observe=True) as desktop:
        desktop.pause()
        if as_json:
            output.print_json({"name": desktop.name, "state": "paused"})
        else:
            typer.echo(f"Paused {desktop.name}; `{output.command()} resume {desktop.name}` lets it go on.")


def resume(which: WhichArgument = None, name: WhichOption = None, as_json: JsonOption = False) -> None:
    """Let a paused desktop go on."""
    from deskbox.desktop import Desktop

    with Desktop.attach(which or name or "default", observe=True) as desktop:
        desktop.resume()
        if as_json:
            output.print_json({"name": desktop.name, "state": "running"})
        else:
            typer.echo(f"{desktop.name} goes on.")


def logs(which: WhichArgument = None, name: WhichOption = None, as_json: JsonOption = False) -> None:
    """Show what a desktop's keeper, its console and the programs in it have said."""
    from deskbox import backends, registry
    from deskbox.desktop import Desktop
    from deskbox.errors import DeskboxError, Refused
    from deskbox_guest.protocol import LOGS, PROGRAMS

    home = registry.Home(which or name or "default")
    record = home.read()
    if record is None:
        raise _absent(home.name)
    said = {"keeper": home.log.read_text(errors="replace")}
    if record.guest_id:
        said["console"] = backends.create(record.backend).console(record.guest_id, home.guest_dir)
    try:
        with Desktop.attach(home.name, observe=True) as desktop:
            for program in PROGRAMS:
                with contextlib.suppress(Refused):  # not every one of them runs, or has said anything
                    said[program] = desktop.read_file(f"{LOGS}/{program}.log").decode(errors="replace")
    except DeskboxError as error:  # what the host knows is still of use
        said["guest"] = str(error)
    if as_json:
        output.print_json(said)
    else:
        for source, text in said.items():
            for line in text.splitlines():
                typer.echo(f"{source:<8} {output.harmless(line)}")


def image(
    backend: BackendOption = None,
    arch: Annotated[
        Literal["amd64", "arm64"] | None,
        typer.Option(help="For a computer with this processor; only on qemu.", show_default="this one's"),
    ] = None,
    setup: SetupOption = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Also delete the images of earlier versions, 0.6 GB each.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Build what desktops are started from, unless it is there. `up` does the same when it needs to."""
    from deskbox import backends, provision

    started = time.monotonic()
    if setup:
        provision.ask_for_password(backend, arch)
    with output.progress() as progress:
        chosen = provision.ensure_host(progress, install=setup, backend=backend)
        created = backends.create(chosen)
        if setup and arch is not None and created.builds_for_others:
            provision.ensure_runs(arch, progress)
        if arch is None:
            created.prepare(backends.ImageSpec(), progress)
        else:
            created.build_for(arch, progress)
        if prune:
            created.prune(progress)
    seconds = time.monotonic() - started
    if as_json:
        output.print_json({"backend": chosen, "seconds": seconds})
    else:
        typer.echo(f"The image for {chosen} is ready, after {seconds:.1f} s.")
