"""What a drill asks for: the one source that both the scripted model and the verifier work from."""

from __future__ import annotations

from dataclasses import dataclass

TIMES = {"time_1": "18:00", "time_2": "19:30", "time_3": "21:00"}  # mark -> what the site stores
SEATS = {"seat_1": "garden", "seat_2": "hearth", "seat_3": "window"}


@dataclass(frozen=True)
class Job:
    """A reservation to make and to confirm in a file."""

    name: str
    party: int
    time: str  # a mark of TIMES
    seat: str  # a mark of SEATS
    note: str

    def record(self, number: str) -> dict[str, str | int]:
        """The row that the site's database must hold, by column."""
        return {
            "number": number,
            "name": self.name,
            "party": self.party,
            "time": TIMES[self.time],
            "seat": SEATS[self.seat],
            "note": self.note,
        }

    def confirmation(self, number: str) -> str:
        """The whole text of the file that must be saved."""
        return (
            f"Confirmation {number}\n"
            f"{self.name}, {self.party} people, {TIMES[self.time]}, {SEATS[self.seat]}\n"
            f"{self.note}\n"
        )

    def task(self) -> str:
        """The job in words, as a user would give it to a model."""
        return (
            f"Reserve the {SEATS[self.seat]} table in the web page for {self.name!r}, {self.party} people at "
            f"{TIMES[self.time]}, with the note {self.note!r}. Then replace the text in the editor by the "
            "confirmation with its number, and save it."
        )


JOBS = (
    Job(
        "Zoë Müller-Łukasik",
        6,
        "time_2",
        "seat_3",
        "Fenêtre s'il vous plaît — «calme»\n窓側の席をお願いします 🍜",
    ),
    Job(
        "Ñandú Ødegård 王小明",
        3,
        "time_3",
        "seat_1",
        'Größe "XL", ½ portion & 100 % végé\n靠窗的座位，谢谢 🎂',
    ),
    Job(
        "Björk Þórsdóttir",
        8,
        "time_1",
        "seat_2",
        "Çok teşekkürler! Ελλάς, Київ, Praha: ěščřž\n予約 #12 <b>✔</b> 🥂",
    ),
)
