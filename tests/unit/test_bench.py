"""The bench's own arithmetic, and what it writes."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from deskbox import backends, processes
from deskbox.errors import InvalidInput, Unavailable
from deskbox_bench import bench, documents, host, memory, plot, report
from deskbox_bench.bench import Report, from_document
from deskbox_bench.host import Host
from deskbox_bench.rotation import Turn, rotate
from deskbox_bench.starts import KINDS, MEMORY, MOMENTS, STARTS, differ
from deskbox_bench.statistics import Measured, Result, Sample, percentile, results, wrong_characters
from deskbox_bench.targets import targets
from deskbox_bench.texts import ascii_text, mixed_text
from deskbox_bench.works import PADS, WORKS, Work
from deskbox_guest.protocol import POLICIES


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 10.0), (50, 30.0), (95, 48.0), (100, 50.0), (37.5, 25.0)]
)
def test_percentiles_lie_between_the_ranks(percent: float, expected: float) -> None:
    assert percentile([50, 10, 40, 20, 30], percent) == pytest.approx(expected)


def test_one_value_is_every_percentile() -> None:
    assert percentile([7.0], 95) == 7.0


@pytest.mark.parametrize(
    ("wanted", "got", "wrong"),
    [
        ("", "", 0),
        ("exact", "exact", 0),
        ("abc", "", 3),
        ("", "abc", 3),
        ("zażółć", "zazolc", 4),
        ("hello world", "helo world", 1),  # one that is missing makes those behind it no more wrong
        ("hello", "hheello", 2),
        ("ab", "ba", 2),
    ],
)
def test_wrong_characters(wanted: str, got: str, wrong: int) -> None:
    assert wrong_characters(wanted, got) == wrong


@given(st.text(max_size=20), st.text(max_size=20))
def test_wrong_characters_count_both_ways(wanted: str, got: str) -> None:
    wrong = wrong_characters(wanted, got)
    assert wrong == wrong_characters(got, wanted)
    assert abs(len(wanted) - len(got)) <= wrong <= max(len(wanted), len(got))
    assert (wrong == 0) == (wanted == got)


def test_turns_alternate_and_are_spread_evenly() -> None:
    taken: list[str] = []

    def turn(name: str, rounds: int) -> Turn:
        def take() -> Iterator[Measured]:
            taken.append(name)
            yield Measured("work", name, Sample(1.0))

        return Turn(rounds, take)

    measured = rotate([turn("a", 6), turn("b", 6), turn("c", 2)], seconds=60, on_round=lambda *_: None)
    assert "".join(taken) == "abababcabababc"
    assert [each.subject for each in measured] == taken


def test_who_has_used_up_the_time_drops_out_after_one_turn() -> None:
    turns = [Turn(5, lambda: [Measured("work", "slow", Sample(1.0))])]
    assert len(rotate(turns, seconds=1e-9, on_round=lambda *_: None)) == 1


def test_samples_become_figures() -> None:
    samples = [
        Sample(100.0, stale=True, size=1000, cpu_ms=4.0),
        Sample(300.0, stale=False, size=3000, cpu_ms=8.0),
    ]
    (result,) = results([Measured("work", "subject", sample) for sample in samples])
    assert result == Result(
        "work", "subject", 2, 200.0, 290.0, stale=1, bytes_per_frame=2000.0, cpu_ms_per_step=6.0
    )
    (typed,) = results([Measured("type", "subject", Sample(500.0, wrong=3, characters=1000))])
    assert (typed.wrong_chars, typed.chars, typed.chars_per_s) == (3, 1000, 2000.0)
    samples = [Sample(5000.0, memory_mb=300.0), Sample(5000.0, memory_mb=310.0)]
    (resting,) = results([Measured("memory", "subject", sample) for sample in samples])
    assert (resting.n, resting.memory_mb) == (2, 305.0)


def test_targets_are_ratios_within_the_run() -> None:
    found = [
        Result("screenshot", "deskbox", 9, 10.0, 11.0),
        Result("screenshot", "limit", 9, 5.0, 6.0),
        Result("screenshot", "xdotool+scrot", 9, 40.0, 50.0),
        Result("true-frame-timer", "deskbox", 200, 500.0, 510.0, stale=1),
        Result("type-mixed-1000", "deskbox", 5, 1000.0, 1000.0, wrong_chars=0, chars=5000, chars_per_s=1000),
    ]
    assert [(target.value, target.met) for target in targets(found)] == [
        (2.0, True),
        (4.0, False),
        (500.0, True),
        (1, False),
        (1000, True),
        (0, True),
    ]


def test_targets_of_a_start_are_those_of_its_backend() -> None:
    def started(backend: str, *times: float) -> list[Result]:
        return [
            Result(f"start-warm {moment}", backend, 9, ms, ms)
            for moment, ms in zip(MOMENTS, times, strict=True)
        ]

    assert targets(started("docker", 200, 500, 1700, 1710)) == []
    wanted = [(290, 300, True), (2100, 2000, False)]
    assert [(t.value, t.bound, t.met) for t in targets(started("bwrap", 200, 290, 2100, 2110))] == wanted
    wanted = [(450, 500, True), (1001, 1000, False)]
    assert [(t.value, t.bound, t.met) for t in targets(started("qemu", 200, 450, 900, 1001))] == wanted


@pytest.mark.parametrize("length", [100, 1000])
def test_texts_are_as_long_as_they_say_and_always_the_same(length: int) -> None:
    assert ascii_text(length).isascii()
    assert ascii_text(length).isprintable()
    mixed = mixed_text(length)
    assert length / 3 < sum(not character.isascii() for character in mixed) < length * 2 / 3
    assert len(mixed) == len(ascii_text(length)) == length
    assert mixed == mixed_text(length)


def a_report() -> Report:
    found = [
        Result(work.name, subject, 4, 12.5, 20.0, stale=1, bytes_per_frame=1e5, cpu_ms_per_step=3.0)
        for work in WORKS
        if work.name not in ("settle", "agent")
        for subject in work.rounds
    ]
    found += [
        Result(f"settle {pad}", policy, 4, 340.0, 350.0, stale=2) for pad in PADS for policy in POLICIES
    ]
    found.append(Result("agent", "deskbox", 1, 5000.0, 5000.0, cpu_percent=0.4, memory_mb=57.0))
    found += [
        Result(f"{kind} {moment}", backend, 5, 400.0 * step, 450.0 * step)
        for kind in KINDS
        for step, moment in enumerate(MOMENTS, 1)
        for backend in ("docker", "qemu")
    ]
    found.append(Result("template", "qemu", 1, 31000.0, 31000.0))
    found += [
        Result(f"memory {kind}", backend, 2, 5000.0, 5000.0, memory_mb=mb)
        for kind, mb in zip((*MEMORY, "keeper"), (400.0, 300.0, 35.0), strict=True)
        for backend in ("docker", "qemu")
    ]
    return Report(
        {"date": "2026-01-01", "cpu": "a <fast> one"}, found, 300.0, left_out=["bwrap: it is not there"]
    )


def test_a_report_can_be_read_back() -> None:
    written = a_report()
    assert from_document(json.dumps(written.document())) == written
    earlier = written.document()
    del earlier["left_out"]
    assert from_document(json.dumps(earlier)).left_out == []
    with pytest.raises(ValueError, match="no report of the bench"):
        from_document('{"results": []}')


def test_the_figures_show_everybody() -> None:
    found = a_report().results
    for figure in (plot.bars(found), plot.settling(found), plot.starts(found), plot.starts([])):
        assert ElementTree.fromstring(figure).tag.endswith("svg")
    bars = plot.bars(a_report().results)
    assert bars.count("pictures stale") == sum(bars.count(f">{subject}<") for subject in WORKS[1].rounds)
    assert "50 %, 340 ms" in plot.settling(a_report().results)
    starts = plot.starts(a_report().results)
    assert all(f">{backend}, {kind}<" in starts for backend in ("docker", "qemu") for kind in KINDS.values())
    assert starts.count(">1.60 s<") == 2 * len(KINDS)


def test_documents_are_written_anew_between_the_marks(tmp_path: Path) -> None:
    (tmp_path / "img").mkdir()
    page = tmp_path / "performance.md"
    with pytest.raises(InvalidInput, match=r"there is no .*performance\.md"):
        documents.write(a_report(), tmp_path)
    kept = "After <!-- bench: other -->\nkept\n<!-- /bench -->"
    blocks = "<!-- bench: starts -->\n<!-- /bench -->\n<!-- bench: left-out -->\n<!-- /bench -->\n"
    page.write_text(f"Before.\n<!-- bench: click -->\nof yore\n<!-- /bench -->\n{blocks}{kept}")
    assert len(documents.write(a_report(), tmp_path)) == 5
    text = page.read_text()
    assert "| deskbox | 12 ms | 20 ms |" in text
    assert "of yore" not in text
    assert "| qemu, fork | 800 ms | 900 ms | 1.20 s | 1.35 s | 1.60 s | 1.80 s | 0 of 5 |" in text
    assert "<!-- bench: left-out -->\n- bwrap: it is not there\n<!-- /bench -->" in text
    assert text.startswith("Before.\n")
    assert text.endswith(kept)
    assert json.loads((tmp_path / "bench.json").read_text())["results"]


def test_every_table_is_whole() -> None:
    for table in report.tables(a_report()):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_the_second_desktop_costs_what_both_take_more_than_one() -> None:
    (table,) = (table for table in report.tables(a_report()) if table.name == "memory")
    assert table.rows[0] == ("docker", "400 MB", "300 MB", "200 MB", "35 MB")


# --- starts ----------------------------------------------------------------------------------------------
def a_picture(*drawn: tuple[int, int, int, int]) -> bytes:
    picture = Image.new("RGB", (640, 400), "white")
    for box in drawn:
        ImageDraw.Draw(picture).rectangle(box, fill="navy")
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def test_a_picture_of_what_comes_later_differs_and_one_with_a_caret_does_not() -> None:
    page, caret = (20, 20, 600, 300), (30, 350, 31, 366)
    assert not differ(a_picture(page), a_picture(page))
    assert not differ(a_picture(page), a_picture(page, caret))
    assert differ(a_picture(), a_picture(page))


def test_memory_of_a_process_is_at_most_what_it_has_mapped() -> None:
    mapped = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    assert 1 < memory.of_process(os.getpid()) < 1.5 * mapped
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        memory.of_process(2**22)


def test_memory_of_a_machine_is_that_of_its_one_process() -> None:
    """It is in our own namespace, as is all else that runs here."""
    assert os.getpid() in processes.members(processes.namespace(os.getpid()))
    ours = memory.of_process(os.getpid())
    assert memory.of_guest("qemu", f"{processes.Process.of(os.getpid())}:a.b") == pytest.approx(ours, rel=0.2)


def test_a_backend_that_does_not_work_here_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "check", lambda name: backends.Verdict(False, "it is not there"))
    found = host.find(lambda _: None)
    assert found.backends == ()
    assert found.left_out == [f"{name}: it is not there" for name in backends.NAMES]
    assert [start.run(found, start.rounds, lambda *_: None) for start in STARTS] == [[] for _ in STARTS]


def test_cold_starts_are_left_out_where_the_page_cache_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host, "_DROP_CACHES", tmp_path)  # a directory: it can't be written to
    (cold,) = (start for start in STARTS if start.name == "start-cold")
    here = Host(("docker", "bwrap"))
    assert cold.run(here, cold.rounds, lambda *_: None) == []
    assert here.left_out == [
        "cold starts: the page cache can't be dropped here (Is a directory), only root may"
    ]


def test_a_start_that_fails_spoils_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[Result]:
        raise Unavailable("it went away")

    worked = Result("second", "bwrap", 1, 1.0, 1.0)
    works: list[Work[Host]] = [
        Work("first", "The first", fail, {"bwrap": 1}, {}),
        Work("second", "The second", lambda *_: [worked], {"bwrap": 1}, {}),
    ]
    monkeypatch.setattr(
        bench, "find", lambda progress: Host(("bwrap",), progress, facts={"guest on bwrap": "kept in"})
    )
    done = bench.run([], works)
    assert done.results == [worked]
    assert done.left_out == ["The first: it went away"]
    assert done.machine["backend bwrap"]
    assert done.machine["guest on bwrap"] == "kept in"
