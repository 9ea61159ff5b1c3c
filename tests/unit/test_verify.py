"""The verifier against every way in which the evidence can be wrong."""

from __future__ import annotations

import sqlite3
import unicodedata
from contextlib import closing
from dataclasses import replace

import pytest

from deskbox.drill.job import JOBS, Job
from deskbox.drill.verify import differences

JOB = JOBS[0]
NUMBER = "04711815"
COLUMNS = "number, name, party, time, seat, note"


def database(*rows: dict[str, str | int]) -> bytes:
    with closing(sqlite3.connect(":memory:")) as opened:
        opened.execute(f"CREATE TABLE reservations ({COLUMNS})")
        for row in rows:
            values = [row[column] for column in COLUMNS.split(", ")]
            opened.execute("INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?)", values)
        opened.commit()
        return opened.serialize()


RECORD = JOB.record(NUMBER)
FILE = JOB.confirmation(NUMBER).encode()


@pytest.mark.parametrize("job", JOBS)
def test_an_exact_record_and_file_have_no_differences(job: Job) -> None:
    saved = job.confirmation(NUMBER).encode()
    assert differences(job, database(job.record(NUMBER)), saved) == []


def test_a_missing_record() -> None:
    assert differences(JOB, database(), FILE) == ["The record is missing: the database holds no reservation."]


def test_a_duplicated_record() -> None:
    twice = database(RECORD, JOB.record("04711816"))
    assert differences(JOB, twice, FILE) == ["The record is duplicated: the database holds 2 reservations."]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", "Zoe Müller-Łukasik"),
        ("name", unicodedata.normalize("NFD", JOB.name)),  # the same to the eye
        ("name", "Zoë Müller-Łukasik "),
        ("party", 5),
        ("party", "6"),
        ("time", "19.30"),
        ("seat", "garden"),
        ("note", JOB.note.replace("\n", "\r\n")),
        ("note", JOB.note[:-1]),
    ],
)
def test_an_altered_record(column: str, value: str | int) -> None:
    found = differences(JOB, database({**RECORD, column: value}), FILE)
    assert found == [f"The record is altered: {column} is {value!r}, asked for was {RECORD[column]!r}."]


@pytest.mark.parametrize("number", ["", "none", 4711815])
def test_an_altered_number(number: str | int) -> None:
    (found,) = differences(JOB, database({**RECORD, "number": number}), FILE)
    assert found == f"The record is altered: its confirmation number is {number!r}."


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        (b"", "The saved file is empty."),
        (FILE + b"\n", f"altered from byte {len(FILE)} on"),
        (FILE[:-1], f"altered from byte {len(FILE) - 1} on"),
        (FILE.replace(b"6 people", b"5 people"), "altered from byte 45 on"),
        (JOB.confirmation("04711816").encode(), "altered from byte 20 on: it has ' 04711816"),
        ("🟪🟪🟪🟪🟪🟪\n".encode(), "altered from byte 0 on"),
    ],
)
def test_an_altered_file(saved: bytes, said: str) -> None:
    (found,) = differences(JOB, database(RECORD), saved)
    assert said in found


def test_all_differences_are_told() -> None:
    job = replace(JOB, name="Ann", party=2)
    assert len(differences(job, database(RECORD), FILE)) == 3


@pytest.mark.parametrize("data", [b"", b"not a database at all" * 100])
def test_a_database_that_is_none(data: bytes) -> None:
    (found,) = differences(JOB, data, FILE)
    assert found.startswith("The database can't be read: ")
