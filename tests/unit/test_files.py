"""The guest's file service and the host's copying, on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskbox import copying
from deskbox.errors import InvalidInput, Refused
from deskbox_guest import files
from deskbox_guest.protocol import Fault


def read(path: str | Path) -> tuple[bytes, int]:
    file, size, mode = files.open_for_read(str(path))
    with file:
        data = b"".join(files.read_exactly(file, size))
    assert len(data) == size
    return data, mode


def put(path: str | Path, data: bytes, mode: int = 0o644) -> int:
    return files.put(str(path), len(data), mode, [data])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no mount here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


class TestPut:
    def test_new_file_with_its_mode(self, home: Path) -> None:
        assert put("x.bin", b"data", 0o600) == 4
        assert read("x.bin") == (b"data", 0o600)
        assert read("~/x.bin") == read(home / "x.bin")

    def test_replaces_a_file_at_once(self, home: Path) -> None:
        put("x", b"old")
        with open(home / "x", "rb") as before:
            put("x", b"new", 0o755)
            assert before.read() == b"old"
        assert read("x") == (b"new", 0o755)
        assert os.listdir(home) == ["x"]

    def test_follows_a_link_to_the_file_behind_it(self, home: Path) -> None:
        (home / "real").write_bytes(b"1")
        (home / "link").symlink_to("real")
        put("link", b"2")
        assert (home / "link").is_symlink()
        assert (home / "real").read_bytes() == b"2"

    @pytest.mark.parametrize("sent", [b"abc", b"abcdef", b""])
    def test_another_size_than_announced_changes_nothing(self, home: Path, sent: bytes) -> None:
        put("x", b"old")
        with pytest.raises(Fault, match="nothing was written"):
            files.put("x", 4, 0o644, [sent])
        assert read("x")[0] == b"old"
        assert os.listdir(home) == ["x"]

    def test_a_stream_that_breaks_changes_nothing(self, home: Path) -> None:
        def chunks() -> Iterator[bytes]:
            yield b"ab"
            raise ConnectionError

        put("x", b"old")
        with pytest.raises(ConnectionError):
            files.put("x", 4, 0o644, chunks())
        assert read("x")[0] == b"old"
        assert os.listdir(home) == ["x"]

    def test_what_does_not_fit_is_refused_before_a_byte_is_read(self, small: Path) -> None:
        def chunks() -> Iterator[bytes]:
            pytest.fail("asked for data")
            yield b""

        with pytest.raises(Fault, match="does not fit: 100000 bytes are needed") as caught:
            files.put(str(small / "x"), 100_000, 0o644, chunks())
        assert caught.value.data["needed"] == 100_000
        assert os.listdir(small) == []

    def test_a_disk_that_fills_up_meanwhile(self, small: Path) -> None:
        def chunks() -> Iterator[bytes]:
            yield b"a" * 30_000
            (small / "other").write_bytes(b"b" * 30_000)
            yield b"a" * 30_000

        with pytest.raises(Fault, match="became full"):
            files.put(str(small / "x"), 60_000, 0o644, chunks())
        assert os.listdir(small) == ["other"]

    @pytest.mark.parametrize(
        ("path", "sentence"),
        [
            ("", "path is empty"),
            ("a\0", "NUL"),
            ("dir", "is a directory"),
            ("dir/", "is a directory"),
            ("fifo", "not a regular file"),
            ("/dev/null", "not a regular file"),
            ("none/x", "no directory '.*/none' in the desktop"),
            ("file/x", "is not a directory"),
            ("loop", "symbolic links"),
            ("x" * 300, "too long"),
        ],
    )
    def test_what_is_no_place_for_a_file(self, home: Path, path: str, sentence: str) -> None:
        (home / "dir").mkdir()
        (home / "file").touch()
        (home / "loop").symlink_to("loop")
        os.mkfifo(home / "fifo")
        before = sorted(os.listdir(home))
        with pytest.raises(Fault, match=sentence) as caught:
            put(path, b"x")
        assert caught.value.kind == "refused"
        assert caught.value.data == ({"is_directory": True} if "dir" in path else {})
        assert sorted(os.listdir(home)) == before

    @pytest.mark.parametrize("mode", [-1, 0o4755, 0o1000])
    def test_no_special_modes(self, home: Path, mode: int) -> None:
        with pytest.raises(Fault, match="permission bits"):
            put("x", b"", mode)


class TestRead:
    @pytest.mark.parametrize(
        ("path", "sentence"),
        [
            ("none", "There is no file '.*/none' in the desktop"),
            ("dir", "is a directory"),
            ("fifo", "not a regular file"),
            ("/dev/zero", "not a regular file"),
        ],
    )
    def test_what_is_no_file(self, home: Path, path: str, sentence: str) -> None:
        (home / "dir").mkdir()
        os.mkfifo(home / "fifo")
        with pytest.raises(Fault, match=sentence) as caught:
            files.open_for_read(path)
        assert caught.value.kind == "refused"

    def test_empty_and_pseudo_files(self, home: Path) -> None:
        (home / "empty").touch()
        assert read("empty")[0] == b""
        assert read("/proc/version")[0] == Path("/proc/version").read_bytes()

    def test_a_file_that_shrinks(self, home: Path) -> None:
        (home / "x").write_bytes(b"x" * 1_000_000)
        file, size, _ = files.open_for_read("x")
        os.truncate(home / "x", 10)
        with file, pytest.raises(Fault, match="10 of 1000000 bytes"):
            list(files.read_exactly(file, size))

    def test_a_file_that_grows_is_read_as_announced(self, home: Path) -> None:
        (home / "x").write_bytes(b"abc")
        file, size, _ = files.open_for_read("x")
        (home / "x").write_bytes(b"abcdef")
        with file:
            assert b"".join(files.read_exactly(file, size)) == b"abc"


class Guest:
    """The two methods of a desktop that copying uses, on the guest's own code."""

    def read_file(self, path: str) -> bytes:
        try:
            return read(path)[0]
        except Fault as fault:
            raise Refused(fault.message, **fault.data) from None

    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        try:
            put(path, data, mode)
        except Fault as fault:
            raise Refused(fault.message, **fault.data) from None


@pytest.fixture
def host() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


class TestSpecs:
    def test_one_side_names_a_desktop(self) -> None:
        assert copying.parse("a.txt", "work:/tmp/b") == copying.CopyIn("work", Path("a.txt"), "/tmp/b")
        assert copying.parse("work:x:y", "./a:b") == copying.CopyOut("work", "x:y", "./a:b")
        assert copying.parse(":/tmp/x", ".") == copying.CopyOut("default", "/tmp/x", ".")
        assert copying.parse("a", "work:") == copying.CopyIn("work", Path("a"), "")

    @pytest.mark.parametrize(
        ("source", "destination", "sentence"),
        [
            ("a", "b", "Neither"),
            ("x:a", "y:b", "Both"),
            ("x:", "b", "name the file"),
            ("x:/a/", "b", "name the file"),
            ("x:/a/..", "b", "name the file"),
            ("", "x:b", "empty"),
        ],
    )
    def test_what_is_no_copy(self, source: str, destination: str, sentence: str) -> None:
        with pytest.raises(InvalidInput, match=sentence):
            copying.parse(source, destination)


class TestCopyIn:
    def test_file_directory_and_home(self, home: Path, host: Path) -> None:
        (home / "dir").mkdir()
        source = host / "a.txt"
        source.write_bytes(b"abc")
        source.chmod(0o750)
        for destination, lands in [
            ("new", "new"),
            ("dir", "dir/a.txt"),
            ("dir/", "dir/a.txt"),
            ("", "a.txt"),
        ]:
            assert copying.copy_in(Guest(), source, destination) == 3
            assert read(home / lands) == (b"abc", 0o750)
            (home / lands).unlink()

    def test_special_bits_stay_behind(self, home: Path, host: Path) -> None:
        source = host / "a"
        source.touch()
        source.chmod(0o4755)
        copying.copy_in(Guest(), source, "a")
        assert read("a")[1] == 0o755

    def test_what_cannot_be_read(self, home: Path, host: Path) -> None:
        for source, sentence in [
            (host, "is a directory"),
            (host / "x", "no file"),
            (Path("/dev/zero"), "regular"),
        ]:
            with pytest.raises(Refused, match=sentence):
                copying.copy_in(Guest(), source, "a")


class TestCopyOut:
    def test_file_and_directory(self, home: Path, host: Path) -> None:
        put("a.txt", b"abc", 0o777)
        assert copying.copy_out(Guest(), "a.txt", host / "b") == host / "b"
        assert copying.copy_out(Guest(), "~/a.txt", host) == host / "a.txt"
        assert (host / "b").read_bytes() == (host / "a.txt").read_bytes() == b"abc"
        assert not (host / "b").stat().st_mode & 0o111  # the guest decides nothing but the content

    def test_replaces_at_once(self, home: Path, host: Path) -> None:
        put("a", b"new")
        (host / "b").write_bytes(b"old")
        with open(host / "b", "rb") as before:
            copying.copy_out(Guest(), "a", host / "b")
            assert before.read() == b"old"
        assert os.listdir(host) == ["b"]

    def test_the_name_in_a_directory_is_the_one_asked_for(self, home: Path, host: Path) -> None:
        """A link in the guest may lead anywhere: its target's name is never used."""
        (home / "secret-name").write_bytes(b"abc")
        (home / "link").symlink_to("secret-name")
        assert copying.copy_out(Guest(), "link", host) == host / "link"
        assert os.listdir(host) == ["link"]

    @pytest.mark.parametrize("target", ["elsewhere", "/etc/hostname", "none"])
    def test_a_link_at_the_destination_is_refused(self, home: Path, host: Path, target: str) -> None:
        put("a", b"abc")
        (host / "elsewhere").write_bytes(b"keep")
        (host / "link").symlink_to(target)
        with pytest.raises(Refused, match="symbolic link"):
            copying.copy_out(Guest(), "a", host / "link")
        assert (host / "elsewhere").read_bytes() == b"keep"

    def test_no_place(self, home: Path, host: Path) -> None:
        put("a", b"abc")
        os.mkfifo(host / "fifo")
        for destination, sentence in [
            (host / "none" / "b", "is no directory to write to: No such"),
            (Path("/dev/null"), "not a regular file"),
            (host / "fifo", "not a regular file"),
        ]:
            with pytest.raises(Refused, match=sentence):
                copying.copy_out(Guest(), "a", destination)

    def test_a_trailing_slash_wants_a_directory(self, home: Path, host: Path) -> None:
        put("a", b"abc")
        job = copying.parse("x:a", f"{host}/none/")
        assert isinstance(job, copying.CopyOut)
        with pytest.raises(Refused, match=re.escape(f"'{host}/none' is no directory")):
            copying.copy_out(Guest(), job.source, job.destination)

    def test_a_full_disk_leaves_nothing(self, home: Path, small: Path) -> None:
        put("a", b"x" * 100_000)
        with pytest.raises(Refused, match="No space left"):
            copying.copy_out(Guest(), "a", small / "b")
        assert os.listdir(small) == []
