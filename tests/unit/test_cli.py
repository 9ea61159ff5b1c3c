"""The command line's own part: arguments, exit codes, what is printed. No desktop is involved."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import deskbox
from deskbox import errors
from deskbox.cli import app
from deskbox.cli.act import join_script
from deskbox_guest.protocol import EXEC_STDERR, EXEC_STDOUT, Held, StepResult, Window


def png(size: tuple[int, int] = (8, 4)) -> bytes:
    image = Image.new("RGB", size)
    image.putpixel((1, 1), (255, 0, 0))
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


@dataclass
class World:
    """What stands in for desktops, and what was asked of it."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    infos: list[SimpleNamespace] = field(default_factory=list)
    error: Exception | None = None
    exec_result: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(
            exit_code=0, stdout=b"", stderr=b"", timed_out=False, truncated=False
        )
    )
    emitted: list[tuple[int, bytes]] = field(default_factory=list)
    held: Held = field(default_factory=Held)
    image: bytes = field(default_factory=png)
    checks: list[SimpleNamespace] = field(default_factory=list)

    def named(self, *names: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] in names]

    def run(self, name: str = "default", state: str = "running", backend: str = "docker") -> None:
        self.infos.append(
            SimpleNamespace(
                name=name,
                backend=backend,
                size=(1280, 800),
                packages=(),
                engine="xtest",
                state=state,
                timings_ms={"agent": 300.0, "painted": 1700.0},
                created=0.0,
            )
        )


def desktop_class(world: World) -> type:
    class Desktop:
        backend = "docker"
        size = (1280, 800)
        engine = "xtest"

        def __init__(self, name: str) -> None:
            self.name = name
            self.timings_ms = {"agent": 300.0, "painted": 1700.0}

        @classmethod
        def attach(cls, name: str = "default", *, observe: bool = False, wait: float = 0.0) -> Desktop:
            world.calls.append(("attach", name, observe))
            if world.error is not None:
                raise world.error
            return cls(name)

        @classmethod
        def launch(cls, name: str, **options: Any) -> Desktop:
            options.pop("progress")("starting")
            world.calls.append(("launch", name, options))
            return cls(name)

        def __enter__(self) -> Desktop:
            return self

        def __exit__(self, *_: object) -> None:
            world.calls.append(("close",))

        def step(
            self, script: str = "", *, settle: Any = None, frame: Any = None, cancelled: Any = None
        ) -> SimpleNamespace:
            world.calls.append(("step", script, settle, frame))
            assert cancelled is None or not cancelled()
            result = StepResult(settled="settled", settle_ms=301.0, image_width=8, image_height=4)
            return SimpleNamespace(result=result, image=world.image)

        def type_text(self, text: str, *, pace: float | None, cancelled: Callable[[], bool]) -> None:
            assert not cancelled()
            world.calls.append(("type_text", text, pace))

        def pause(self) -> None:
            world.calls.append(("pause",))

        def resume(self) -> None:
            world.calls.append(("resume",))

        def open_url(self, url: str) -> None:
            world.calls.append(("open_url", url))

        def exec(self, argv: list[str], *, on_output: Any, cancelled: Any, **options: Any) -> SimpleNamespace:
            world.calls.append(("exec", argv, options))
            for kind, data in world.emitted if on_output else []:
                on_output(kind, data)
            return world.exec_result

        def read_file(self, path: str) -> bytes:
            world.calls.append(("read_file", path))
            return b"content"

        def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
            world.calls.append(("write_file", path, data))

        def windows(self) -> list[Window]:
            return [Window(7, "Notes [draft]", "L3afpad", 10, 20, 300, 200, True, 42)]

        def held_inputs(self) -> Held:
            return world.held

        def view_url(self) -> str:
            return "http://127.0.0.1:6080/one-time"

    return Desktop


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    for name in ("DESKBOX_BACKEND", "DESKBOX_ENGINE"):
        monkeypatch.delenv(name, raising=False)

    def find(name: str) -> SimpleNamespace | None:
        return next((info for info in world.infos if info.name == name), None)

    def stop(name: str) -> bool:
        world.calls.append(("stop", name))
        return find(name) is not None

    def stop_all() -> list[str]:
        world.calls.append(("stop_all",))
        return [info.name for info in world.infos]

    def ensure_host(progress: Callable[[str], None], install: bool, backend: str | None) -> str:
        world.calls.append(("ensure_host", install, backend))
        return backend or "docker"

    stand_ins: dict[str, dict[str, Any]] = {
        "desktop": {"Desktop": desktop_class(world)},
        "backends": {
            "ImageSpec": lambda: "the usual",
            "create": lambda name: SimpleNamespace(
                prepare=lambda wanted, progress: world.calls.append(("prepare", name)),
                build_for=lambda arch, progress: world.calls.append(("build_for", arch, name)),
                builds_for_others=name == "qemu",
            ),
        },
        "launcher": {"DEFAULT_SIZE": (1280, 800), "DEFAULT_ENGINE": "xtest"},
        "registry": {
            "list_desktops": lambda: world.infos,
            "stop": stop,
            "stop_all": stop_all,
            "find": find,
            "strays": list,
            "clear_locks": lambda: None,
        },
        "snapshots": {"leftovers": list, "sweep": list},
        "provision": {
            "ensure_host": ensure_host,
            "ask_for_password": lambda backend, arch=None: None,
            "ensure_runs": lambda arch, progress: world.calls.append(("ensure_runs", arch)),
            "check_host": lambda: world.checks,
            "stop_engine": lambda: world.calls.append(("stop_engine",)),
        },
    }
    for name, members in stand_ins.items():
        module = ModuleType(f"deskbox.{name}")
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, f"deskbox.{name}", module)
        monkeypatch.setattr(deskbox, name, module, raising=False)
    return world


def call(*words: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app, list(words), input=stdin)


def document(result: Result) -> Any:
    """The one JSON document that standard output must be."""
    return json.loads(result.stdout)


# --- the frame -------------------------------------------------------------------------------------------
COMMANDS = (
    *("up", "ls", "down", "image", "shot", "windows", "view", "do", "type", "key", "open"),
    *("exec", "cp", "drill", "run", "doctor"),
)
HEAVY = ("openai", "docker", "PIL", "h2", "websockets", "deskbox.desktop")


@pytest.mark.parametrize("words", [["--help"], ["shot", "--help"], ["shot", "--region", "no"]])
def test_help_and_bad_usage_import_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\nfrom deskbox.cli import app\n"
        f"try: app({words!r})\nexcept SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_help_lists_every_command(world: World) -> None:
    result = call("--help")
    assert result.exit_code == 0
    for command in COMMANDS:
        assert f" {command} " in result.stdout


def test_no_command_shows_help_as_bad_usage(world: World) -> None:
    assert call().exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["shot", "--nope"],
        ["shot", "--region", "1,2,3"],
        ["shot", "--region", "0,0,0,5"],
        ["shot", "--region", "-1,0,5,5"],
        ["shot", "--image-size", "640"],
        ["shot", "--image-size", "0x400"],
        ["shot", "-o", "shot.gif"],
        ["shot", "--settle", "soon"],
        ["shot", "--settle", "0.3"],
        ["run", "--settle", "0.3,", "task"],
        ["up", "--size", "wide"],
        ["up", "--backend", "abacus"],
        ["do"],
        ["do", "--nope", "click 1"],
        ["key"],
        ["key", "CTRL+NOPE"],
        ["key", "CTRL++A"],
        ["type"],
        ["type", "two", "words"],
        ["type", "text", "--pace", "fast"],
        ["shot", "--max-bytes", "0"],
        ["shot", "--shrink"],
        ["open"],
        ["exec"],
        ["exec", "--timeout", "0", "--", "true"],
        ["cp", "one"],
        ["down", "this", "--all"],
    ],
)
def test_bad_usage_exits_2_before_anything_happens(world: World, words: list[str]) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.strip()
    assert world.calls == []

    as_json = call(words[0], "--json", *words[1:])
    assert as_json.exit_code == 2
    if words[0] != "nonsense":
        assert document(as_json)["error"]["message"]
    assert world.calls == []


def test_unknown_command_with_json_is_a_document(world: World) -> None:
    assert document(call("shoot", "--json"))["error"]["kind"] == "usage"


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (errors.InvalidInput("no such thing"), 2, "invalid_input"),
        (errors.Refused("not now"), 1, "refused"),
        (errors.ImageTooLarge("too many bytes"), 1, "image_too_large"),
        (errors.Interrupted("half done", characters=3), 1, "interrupted"),
        (errors.Cancelled("stopped"), 130, "cancelled"),
        (errors.Unavailable("gone"), 1, "unavailable"),
        (errors.DeskboxError("other"), 1, "failed"),
        (OSError(28, "No space left on device"), 1, "failed"),
        (ZeroDivisionError("a bug"), 1, "internal"),
        (KeyboardInterrupt(), 130, "cancelled"),
    ],
)
def test_every_error_has_its_exit_code_and_document(
    world: World, error: Exception, code: int, kind: str
) -> None:
    world.error = error
    plain = call("windows")
    assert (plain.exit_code, plain.stdout) == (code, "")
    assert str(error) in plain.stderr
    as_json = call("windows", "--json")
    assert as_json.exit_code == code
    assert document(as_json)["error"]["kind"] == kind
    if getattr(error, "data", None):
        assert document(as_json)["error"]["data"] == {"characters": 3}


def test_the_name_comes_from_the_option_then_the_environment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("windows")
    monkeypatch.setenv("DESKBOX_NAME", "other")
    call("windows")
    call("windows", "--name", "third")
    assert [name for _, name, _ in world.named("attach")] == ["default", "other", "third"]


# --- up, ls, down ----------------------------------------------------------------------------------------
def test_up_launches_a_detached_desktop_and_says_how_to_use_it(world: World) -> None:
    result = call("up", "--name", "a", "--size", "1024x768", "--url", "about:blank", "--package", "gimp")
    assert result.exit_code == 0
    launched = {
        "backend": "docker",
        "size": (1024, 768),
        "url": "about:blank",
        "packages": ["gimp"],
        "engine": "xtest",
        "detach": True,
    }
    assert world.named("ensure_host", "launch") == [("ensure_host", False, None), ("launch", "a", launched)]
    for part in ("a is running", "docker", "1280x800", "http://127.0.0.1:6080/one-time", "shot --name a"):
        assert part in result.stdout
    for part in ("do --name a", "drill --name a", "down a"):
        assert part in result.stdout
    assert "starting" in result.stderr


def test_up_setup_may_install(world: World) -> None:
    call("up", "--setup")
    assert world.named("ensure_host") == [("ensure_host", True, None)]


def test_up_json(world: World) -> None:
    assert document(call("up", "--json")) == {
        "name": "default",
        "backend": "docker",
        "size": [1280, 800],
        "engine": "xtest",
        "state": "running",
        "timings_ms": {"agent": 300.0, "painted": 1700.0},
        "view_url": "http://127.0.0.1:6080/one-time",
    }


def test_the_engine_comes_from_the_option_then_the_environment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESKBOX_ENGINE", "xdotool")
    call("up", "--name", "a")
    call("up", "--name", "b", "--engine", "xtest")
    assert [options["engine"] for _, _, options in world.named("launch")] == ["xdotool", "xtest"]
    assert call("up", "--name", "c", "--engine", "other").exit_code == 2


def test_up_of_a_running_desktop_only_looks(world: World) -> None:
    world.run()
    result = call("up")
    assert result.exit_code == 0
    assert "already running" in result.stdout
    assert world.named("launch", "ensure_host") == []
    assert world.named("attach") == [("attach", "default", True)]


def test_up_takes_an_orphan_over_and_starts_a_dead_one_anew(world: World) -> None:
    world.run("a", state="orphaned")
    world.run("b", state="dead")
    assert call("up", "--name", "a").exit_code == 0
    assert world.named("launch") == []
    assert call("up", "--name", "b").exit_code == 0
    assert [call[:2] for call in world.named("stop", "launch")] == [("stop", "b"), ("launch", "b")]


def test_up_of_a_running_desktop_opens_the_url_asked_for(world: World) -> None:
    world.run()
    assert call("up", "--url", "about:about", "--size", "1280x800", "--backend", "docker").exit_code == 0
    assert world.named("open_url") == [("open_url", "about:about")]


def test_up_refuses_what_the_running_desktop_is_not(world: World) -> None:
    world.run()
    result = call("up", "--size", "800x600", "--json")
    assert result.exit_code == 1
    assert document(result)["error"]["kind"] == "refused"
    assert "1280x800" in document(result)["error"]["message"]
    error = document(call("up", "--engine", "xdotool", "--json"))["error"]
    assert "already runs with the engine xtest" in error["message"]
    assert "another one with the engine xdotool" in error["message"]
    assert world.calls == []


def test_image_prepares_the_backend(world: World) -> None:
    assert document(call("image", "--setup", "--json"))["backend"] == "docker"
    assert world.calls == [("ensure_host", True, None), ("prepare", "docker")]


def test_image_for_another_processor(world: World) -> None:
    call("image", "--backend", "qemu", "--arch", "arm64")
    assert world.named("ensure_runs", "build_for") == [("build_for", "arm64", "qemu")]
    world.calls.clear()
    call("image", "--setup", "--backend", "qemu", "--arch", "arm64")
    assert world.named("ensure_runs", "build_for") == [
        ("ensure_runs", "arm64"),
        ("build_for", "arm64", "qemu"),
    ]
    world.calls.clear()
    call("image", "--setup", "--arch", "arm64")  # docker will refuse it: nothing is installed for that
    assert world.named("ensure_runs", "build_for") == [("build_for", "arm64", "docker")]


def test_ls(world: World) -> None:
    assert "No desktop" in call("ls").stdout
    assert document(call("ls", "--json")) == []
    world.run("a")
    world.run("b", state="dead")
    table = call("ls").stdout
    assert "1280x800" in table
    assert "dead" in table
    first = document(call("ls", "--json"))[0]
    assert {key: first[key] for key in ("name", "backend", "size", "engine", "state", "timings_ms")} == {
        "name": "a",
        "backend": "docker",
        "size": [1280, 800],
        "engine": "xtest",
        "state": "running",
        "timings_ms": {"agent": 300.0, "painted": 1700.0},
    }


@pytest.mark.parametrize(("words", "name"), [([], "default"), (["a"], "a"), (["--name", "b"], "b")])
def test_down_stops_one(world: World, words: list[str], name: str) -> None:
    missing = call("down", *words)
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert name in missing.stderr
    world.run(name)
    assert document(call("down", *words, "--json")) == {"stopped": [name]}
    assert world.calls == [("stop", name)] * 2


def test_down_all(world: World) -> None:
    assert call("down", "--all").stdout == "No desktop is running.\n"
    world.run("a")
    world.run("b")
    assert document(call("down", "--all", "--json")) == {"stopped": ["a", "b"]}
    assert world.named("stop", "stop_all", "stop_engine") == [("stop_all",), ("stop_engine",)] * 2


# --- shot, windows, view ---------------------------------------------------------------------------------
def test_shot_writes_a_file_and_says_what_it_shows(world: World, tmp_path: Path) -> None:
    path = tmp_path / "s.png"
    result = document(
        call("shot", "-o", str(path), "--region", "10,20,300,200", "--image-size", "150x100", "--json")
    )
    assert path.read_bytes() == world.image
    assert result == {
        "path": str(path),
        "format": "png",
        "bytes": len(world.image),
        "image_size": [8, 4],
        "region": [10, 20, 300, 200],
        "settled": "settled",
        "settle_ms": 301.0,
    }
    assert world.named("attach") == [("attach", "default", True)]
    [(_, script, settle, frame)] = world.named("step")
    assert (script, settle is not None) == ("", True)
    assert (frame.x, frame.y, frame.width, frame.height) == (10, 20, 300, 200)
    assert (frame.image_width, frame.image_height, frame.format) == (150, 100, "png")


def test_shot_names_the_file_itself(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("shot", "--name", "a").exit_code == 0
    [path] = tmp_path.iterdir()
    assert path.name.startswith("a-")
    assert path.suffix == ".png"


@pytest.mark.parametrize(
    ("file", "kind"), [("s.JPG", "jpeg"), ("s.jpeg", "jpeg"), ("s.webp", "webp"), ("s", "png")]
)
def test_shot_takes_the_format_from_the_file_name(world: World, tmp_path: Path, file: str, kind: str) -> None:
    assert call("shot", "-o", str(tmp_path / file)).exit_code == 0
    assert world.named("step")[0][3].format == kind


def test_shot_to_standard_output(world: World) -> None:
    assert call("shot", "-o", "-").stdout_bytes == world.image
    both = call("shot", "-o", "-", "--json")
    assert (both.exit_code, document(both)["error"]["kind"]) == (2, "usage")


def test_shot_takes_a_limit(world: World, tmp_path: Path) -> None:
    path = str(tmp_path / "s.png")
    assert call("shot", "-o", path, "--max-bytes", "5000").exit_code == 0
    assert call("shot", "-o", path, "--max-bytes", "5000", "--shrink").exit_code == 0
    frames = [frame for *_, frame in world.named("step")]
    assert [(frame.max_bytes, frame.oversize) for frame in frames] == [(5000, "error"), (5000, "shrink")]


def test_shot_that_cannot_be_written_fails(world: World, tmp_path: Path) -> None:
    result = call("shot", "-o", str(tmp_path / "absent" / "s.png"))
    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr


def test_windows(world: World) -> None:
    table = call("windows").stdout
    assert "Notes [draft]" in table
    assert "active" in table
    [window] = document(call("windows", "--json"))
    assert (window["id"], window["title"], window["x"], window["active"]) == (7, "Notes [draft]", 10, True)


def test_view(world: World) -> None:
    assert call("view").stdout == "http://127.0.0.1:6080/one-time\n"
    assert document(call("view", "--json"))["url"] == "http://127.0.0.1:6080/one-time"
    assert world.named("attach")[0] == ("attach", "default", True)


# --- do, type, key, open ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["mousemove 640 400 click 1"], "mousemove 640 400 click 1"),
        (["mousemove", "640", "400", "click", "1"], "mousemove 640 400 click 1"),
        (["mousemove 1 2", "click --repeat 2 1"], "mousemove 1 2\nclick --repeat 2 1"),
        (["click", "--repeat", "2", "--delay", "50", "1"], "click --repeat 2 --delay 50 1"),
        (["type", "--", "two words"], "type -- 'two words'"),
        (["type", "--", "--json"], "type -- --json"),
        (["--", "mousemove_relative", "--", "-5", "10"], "mousemove_relative -- -5 10"),
        (["type", "--", "it's"], """type -- 'it'"'"'s'"""),
    ],
)
def test_do_makes_one_script_of_its_arguments(world: World, words: list[str], script: str) -> None:
    assert call("do", *words).exit_code == 0
    assert world.named("attach") == [("attach", "default", False)]
    assert world.named("step") == [("step", script, None, None)]


@pytest.mark.parametrize(
    "words",
    [
        ["--name", "a", "--json", "click 1"],
        ["click 1", "--json", "--name", "a"],
        ["--json", "click", "1", "--name=a"],
        ["--name", "a", "--json", "--", "click", "1"],
    ],
)
def test_do_takes_its_own_options_before_and_after_the_script(world: World, words: list[str]) -> None:
    assert document(call("do", *words))["pointer"] == [0, 0]
    assert world.named("attach", "step") == [("attach", "a", False), ("step", "click 1", None, None)]


def test_do_reads_standard_input(world: World) -> None:
    assert call("do", "-", stdin="type -- 'żółw'\nclick 1\n".encode()).exit_code == 0
    assert world.named("step") == [("step", "type -- 'żółw'\nclick 1\n", None, None)]
    assert call("do", "-", stdin=b"\xff").exit_code == 2


def test_do_shows_its_help(world: World) -> None:
    result = call("do", "--help")
    assert (result.exit_code, world.calls) == (0, [])
    assert "xdotool" in result.stdout


def test_join_script_keeps_one_word() -> None:
    assert join_script(["getmouselocation"]) == "getmouselocation"


def test_type(world: World) -> None:
    assert call("type", "Zażółć 漢字 🙂").exit_code == 0
    assert call("type", "--", "--json").exit_code == 0
    assert document(call("type", "-", "--json", stdin=b"a\nb")) == {"characters": 3}
    assert call("type", "slow", "--pace", "5").exit_code == 0
    assert world.named("type_text") == [
        ("type_text", "Zażółć 漢字 🙂", None),
        ("type_text", "--json", None),
        ("type_text", "a\nb", None),
        ("type_text", "slow", 5.0),
    ]


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["CTRL+SHIFT+T"], "key ctrl+shift+t"),
        (["enter"], "key Return"),
        (["CTRL++"], "key ctrl+plus"),
        (["-"], "key minus"),
        (["CTRL+A", "DELETE"], "key ctrl+a Delete"),
    ],
)
def test_key(world: World, words: list[str], script: str) -> None:
    assert call("key", *words).exit_code == 0
    assert world.named("step") == [("step", script, None, None)]


def test_open(world: World) -> None:
    assert document(call("open", "http://127.0.0.1:8000/", "--json")) == {"url": "http://127.0.0.1:8000/"}
    assert world.named("open_url") == [("open_url", "http://127.0.0.1:8000/")]


# --- exec ------------------------------------------------------------------------------------------------
def test_exec_passes_output_and_exit_code_on(world: World) -> None:
    world.emitted = [(EXEC_STDOUT, b"out\xff"), (EXEC_STDERR, b"err")]
    world.exec_result.exit_code = 7
    result = call("exec", "--name", "a", "--timeout", "5", "--", "sh", "-c", "exit 7", "--", "--json")
    assert (result.exit_code, result.stdout_bytes, result.stderr_bytes) == (7, b"out\xff", b"err")
    [(_, argv, options)] = world.named("exec")
    assert argv == ["sh", "-c", "exit 7", "--", "--json"]
    assert (options["timeout"], options["stdin"]) == (5.0, b"")


def test_exec_needs_no_dashes(world: World) -> None:
    assert call("exec", "ls", "-l", "--name").exit_code == 0
    assert world.named("exec")[0][1] == ["ls", "-l", "--name"]


def test_exec_json(world: World) -> None:
    world.exec_result = SimpleNamespace(
        exit_code=3, stdout="é".encode(), stderr=b"\xff", timed_out=False, truncated=True
    )
    result = call("exec", "--json", "--", "x")
    assert result.exit_code == 3
    assert document(result) == {
        "exit_code": 3,
        "stdout": "é",
        "stderr": "\\xff",
        "timed_out": False,
        "truncated": True,
    }
    assert "--output-limit" in result.stderr


def test_exec_says_when_it_ran_out_of_time(world: World) -> None:
    world.exec_result.timed_out = True
    world.exec_result.exit_code = 137
    result = call("exec", "--timeout", "1", "--", "sleep", "9")
    assert result.exit_code == 124
    assert "killed after 1 s" in result.stderr


def test_exec_gives_standard_input_only_when_asked(world: World) -> None:
    call("exec", "--", "cat", stdin=b"unread")
    call("exec", "-i", "--", "cat", stdin=b"read")
    assert [options["stdin"] for _, _, options in world.named("exec")] == [b"", b"read"]


# --- cp --------------------------------------------------------------------------------------------------
def test_cp_goes_both_ways(world: World, tmp_path: Path) -> None:
    here = tmp_path / "here.txt"
    here.write_bytes(b"1234")
    assert document(call("cp", str(here), "a:/tmp/there.txt", "--json")) == {
        "source": str(here),
        "destination": "a:/tmp/there.txt",
        "bytes": 4,
    }
    back = tmp_path / "back.txt"
    assert call("cp", "a:there.txt", str(back)).stdout == f"{back}: 7 bytes\n"
    assert back.read_bytes() == b"content"
    assert world.named("attach", "write_file", "read_file") == [
        ("attach", "a", False),
        ("write_file", "/tmp/there.txt", b"1234"),
        ("attach", "a", True),
        ("read_file", "there.txt"),
    ]


def test_cp_takes_the_name_of_a_bare_colon_from_the_option(world: World, tmp_path: Path) -> None:
    target = str(tmp_path / "x")
    assert call("cp", ":x", target).exit_code == 0
    assert call("cp", ":x", target, "--name", "b").exit_code == 0
    assert [name for _, name, _ in world.named("attach")] == ["default", "b"]
    assert call("cp", "a:x", target, "--name", "b").exit_code == 2
    for sides in (("here", "there"), ("a:x", "b:y")):
        assert call("cp", *sides).exit_code == 2


# --- doctor ----------------------------------------------------------------------------------------------
def test_doctor_is_content(world: World) -> None:
    world.checks = [SimpleNamespace(name="docker", ok=True, detail="answers", fix="", needed=True)]
    world.run()
    result = call("doctor", "--json")
    assert result.exit_code == 0
    assert document(result)["ok"] is True
    assert {(check["subject"], check["name"]) for check in document(result)["checks"]} == {
        ("host", "docker"),
        ("default", "answer"),
        ("default", "input"),
        ("default", "screen"),
    }


def test_doctor_reports_an_orphan_as_taken_over(world: World) -> None:
    world.run(state="orphaned")
    result = call("doctor")
    assert result.exit_code == 0
    assert "taken over" in result.stdout


def test_doctor_says_what_is_wrong_and_what_to_do(world: World) -> None:
    fix = "apt install docker.io"
    world.checks = [SimpleNamespace(name="docker", ok=False, detail="no engine", fix=fix, needed=True)]
    result = call("doctor")
    assert result.exit_code == 1
    assert "apt install docker.io" in result.stdout


@pytest.mark.parametrize(
    ("state", "held", "blank", "error", "wrong", "fix"),
    [
        ("dead", Held(), False, None, "state", "down a"),
        ("running", Held(("Control_L",), (1,)), False, None, "input", "keyup Control_L mouseup 1"),
        ("running", Held(), True, None, "screen", "down a"),
        ("running", Held(), False, errors.Unavailable("no answer"), "answer", "down a"),
    ],
)
def test_doctor_examines_desktops(
    world: World, state: str, held: Held, blank: bool, error: Exception | None, wrong: str, fix: str
) -> None:
    world.run("a", state=state)
    world.held, world.error = held, error
    if blank:
        data = io.BytesIO()
        Image.new("RGB", (8, 4)).save(data, "PNG")
        world.image = data.getvalue()
    result = call("doctor", "--json")
    assert result.exit_code == 1
    [finding] = [check for check in document(result)["checks"] if not check["ok"]]
    assert finding["name"] == wrong
    assert fix in finding["fix"]
