"""Pure: whether the guest really holds what the drill asked for, told from bytes alone.

It knows neither the site's code nor what the model said: the database is opened here with SQLite of the host.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from deskbox.drill.job import Job


def differences(job: Job, database: bytes, saved: bytes) -> list[str]:
    """What is wrong, a sentence each; nothing if there is exactly one record, and it and the file are exact.

    database  the SQLite file of the site
    saved     the file that the editor was to save
    """
    try:
        if not database:  # which deserialize takes for a lack of memory
            raise sqlite3.DatabaseError("file is empty")
        rows = _reservations(database)
    except sqlite3.Error as error:
        return [f"The database can't be read: {error}."]
    if not rows:
        return ["The record is missing: the database holds no reservation."]
    if len(rows) > 1:
        return [f"The record is duplicated: the database holds {len(rows)} reservations."]
    row = rows[0]
    number = row.get("number")
    if not isinstance(number, str) or not number.isdigit():
        return [f"The record is altered: its confirmation number is {number!r}."]
    wrong = [
        f"The record is altered: {column} is {row.get(column)!r}, asked for was {value!r}."
        for column, value in job.record(number).items()
        if row.get(column) != value
    ]
    return wrong + _file_differences(job.confirmation(number).encode(), saved)


def _reservations(database: bytes) -> list[dict[str, object]]:
    with closing(sqlite3.connect(":memory:")) as opened:
        opened.deserialize(database)
        opened.row_factory = sqlite3.Row
        return [dict(row) for row in opened.execute("SELECT * FROM reservations")]


def _file_differences(wanted: bytes, saved: bytes) -> list[str]:
    if saved == wanted:
        return []
    if not saved.strip():
        return ["The saved file is empty."]
    at = next((i for i, pair in enumerate(zip(wanted, saved, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        at = min(len(wanted), len(saved))
    has, due = _excerpt(saved, at), _excerpt(wanted, at)
    return [f"The saved file is altered from byte {at} on: it has {has}, asked for was {due}."]


def _excerpt(data: bytes, at: int) -> str:
    """Some of the text around a byte, for a person to see where."""
    return repr(data[max(0, at - 8) : at + 16].decode(errors="replace"))
