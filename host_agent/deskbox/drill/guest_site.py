"""A reservation form with SQLite behind it, for a browser on the same machine. Standard library only.

    python3 guest_site.py DATABASE COLOURS

COLOURS is a JSON object: "marks" maps the name of each target to [r, g, b], "digits" lists the ten colours
that digits are shown in, "party" holds the smallest and largest party. Prints the address it listens on.
"""

import json
import secrets
import sqlite3
import sys
from contextlib import closing
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from string import Template

DATABASE, COLOURS = sys.argv[1], json.loads(sys.argv[2])

SCHEMA = """
CREATE TABLE reservations (
    number TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    party INTEGER NOT NULL,
    time TEXT NOT NULL,
    seat TEXT NOT NULL,
    note TEXT NOT NULL
)"""
FIELDS = {"name": str, "party": int, "time": str, "seat": str, "note": str}

STYLE = """
* { box-sizing: border-box; }
body { margin: 0; background: #f3eee4; color: #2b2a27; font: 16px/1.4 "DejaVu Sans", sans-serif; }
header { background: #1d3a3d; color: #f3eee4; padding: 18px 28px; }
header b { font: bold 26px "DejaVu Serif", serif; }
header span { display: block; opacity: .75; font-size: 14px; }
main { padding: 16px 28px 40px; }
section { background: #fffdf8; border: 1px solid #ddd4c3; border-radius: 8px;
  padding: 14px 18px; margin-bottom: 14px; }
h2 { font-size: 15px; margin: 0 0 8px; }
small { color: #7a7468; font-weight: normal; }
input[type=text], textarea {
  width: 100%; font: inherit; padding: 9px 12px; border: 1px solid #bbb09b; border-left: 28px solid;
  background: #fff; outline: none; resize: none; }
textarea { height: 92px; }
.done { border-left-color: #7d9c86 !important; }
input[type=range] { width: 100%; margin: 4px 0; background: none; appearance: none; }
::-moz-range-track { height: 6px; background: #d8cfbd; border-radius: 3px; }
::-moz-range-thumb { width: 28px; height: 28px; border: 0; border-radius: 3px; background: $party; }
.scale { display: flex; justify-content: space-between; }
.scale i, .choice i, .opener i { display: inline-block; width: 28px; height: 28px; vertical-align: middle; }
.time { display: flex; gap: 16px; height: 40px; align-items: center; }
.opener, .choice { padding: 5px 10px; border: 1px solid #bbb09b; border-radius: 6px; cursor: pointer; }
.choices { display: none; gap: 10px; }
.time:hover .choices { display: flex; }
.time.chosen .choices { display: none; }
.plan { display: flex; gap: 26px; justify-content: center; user-select: none; text-align: center; }
.plan i { display: block; width: 84px; height: 64px; margin-bottom: 4px; border-radius: 6px; }
.plan .picked i { background: #7d9c86 !important; }
button { font: bold 18px "DejaVu Sans", sans-serif; color: #fff; background: #1d3a3d; border: 0;
  border-radius: 8px; display: flex; align-items: center; gap: 16px; padding: 10px 24px 10px 12px; }
button i { width: 40px; height: 36px; background: $submit; }
button:disabled { opacity: .6; }
button:disabled i { background: #7d9c86; }
.more { position: fixed; right: 18px; bottom: 14px; background: #1d3a3d; color: #fff; border-radius: 20px;
  padding: 6px 16px 6px 10px; }
.more i { display: inline-block; width: 26px; height: 26px; vertical-align: middle; background: $more; }
.more[hidden] { display: none; }
.number { font: bold 54px "DejaVu Sans Mono", monospace; letter-spacing: 4px; margin: 6px 0 14px; }
.code { display: flex; } .code i { width: 36px; height: 36px; }
dt { color: #7a7468; font-size: 14px; }
dl { margin: 0; }
dd { margin: 0 0 10px; white-space: pre-wrap; }
"""

FORM = """<!doctype html><meta charset="utf-8"><title>Bistro Zwölf: reserve a table</title>
<style>$style</style>
<header><b>Bistro Zwölf</b><span>Reserve a table</span></header>
<main>
<section><h2>Your name</h2>
<input type="text" id="name" autocomplete="off" spellcheck="false" style="border-left-color: $name"></section>
<section><h2>How many are you? <output id="people">2</output> <small>drag the handle</small></h2>
<input type="range" id="party" min="$party_min" max="$party_max" value="2">
<div class="scale"><i style="background: $party_low"></i><i style="background: $party_high"></i></div>
</section>
<section><h2>When? <small>point at it to see the times</small></h2>
<div class="time" id="time"><div class="opener"><i style="background: $time"></i> <span>Tonight</span></div>
<div class="choices">
<div class="choice"><i style="background: $time_1"></i> <span>18:00</span></div>
<div class="choice"><i style="background: $time_2"></i> <span>19:30</span></div>
<div class="choice"><i style="background: $time_3"></i> <span>21:00</span></div>
</div></div></section>
<section><h2>Where? <small>double-click a table</small></h2>
<div class="plan" id="seat">
<div><i style="background: $seat_1"></i>garden</div>
<div><i style="background: $seat_2"></i>hearth</div>
<div><i style="background: $seat_3"></i>window</div>
</div></section>
<section><h2>Anything that we should know?</h2>
<textarea id="note" autocomplete="off" spellcheck="false"></textarea></section>
<button id="submit"><i></i><span>Reserve</span></button>
</main>
<div class="more" id="more"><i></i> more below</div>
<style>#note { border-left-color: $note } #note:focus { border-left-color: $note_focused }</style>
<script>
const $$ = id => document.getElementById(id);
const asked = {time: "", seat: ""};
for (const field of [$$("name"), $$("note")])
  field.oninput = () => field.classList.toggle("done", field.value !== "");
$$("party").oninput = () => { $$("people").value = $$("party").value; };
for (const choice of document.querySelectorAll(".choice"))
  choice.onclick = () => {
    asked.time = choice.innerText.trim();
    $$("time").classList.add("chosen");
    document.querySelector(".opener span").innerText = "Tonight at " + asked.time;
    document.querySelector(".opener i").style.background = "#7d9c86";
  };
for (const table of $$("seat").children)
  table.ondblclick = () => {
    asked.seat = table.innerText.trim();
    for (const other of $$("seat").children) other.classList.toggle("picked", other === table);
  };
const more = () => {
  const page = document.documentElement;
  $$("more").hidden = innerHeight + scrollY >= page.scrollHeight - 4;
};
addEventListener("scroll", more);
addEventListener("resize", more);
more();
$$("submit").onclick = async () => {
  $$("submit").disabled = true;
  $$("submit").lastChild.innerText = "Sending…";
  const answer = await fetch("/reserve", {method: "POST", body: JSON.stringify({
    name: $$("name").value, party: Number($$("party").value), note: $$("note").value, ...asked})});
  if (answer.ok) location.replace("/confirmed/" + await answer.text());
  else $$("submit").lastChild.innerText = await answer.text();
};
</script>"""

CONFIRMED = """<!doctype html><meta charset="utf-8"><title>Bistro Zwölf: reserved</title>
<style>$style</style>
<header><b>Bistro Zwölf</b><span>Your table is reserved</span></header>
<main><section><h2>Confirmation number</h2>
<div class="number">$number</div><div class="code">$cells</div></section>
<section><dl>
<dt>Name</dt><dd>$name</dd><dt>People</dt><dd>$party</dd><dt>Tonight at</dt><dd>$time</dd>
<dt>Table</dt><dd>$seat</dd><dt>Note</dt><dd>$note</dd>
</dl></section></main>"""


def css(colour: list[int]) -> str:
    return "rgb({}, {}, {})".format(*colour)


def page(template: str, **values: str) -> bytes:
    colours = {name: css(colour) for name, colour in COLOURS["marks"].items()}
    style = Template(STYLE).substitute(colours)
    return Template(template).substitute({**colours, **values, "style": style}).encode()


def form() -> bytes:
    smallest, largest = COLOURS["party"]
    return page(FORM, party_min=str(smallest), party_max=str(largest))


def confirmed(number: str) -> bytes | None:
    """The page for a stored reservation, None if there is none of that number."""
    with closing(sqlite3.connect(DATABASE)) as database, database:
        row = database.execute("SELECT * FROM reservations WHERE number = ?", (number,)).fetchone()
    if row is None:
        return None
    shown = {field: escape(str(value)) for field, value in zip(FIELDS, row[1:], strict=True)}
    digits = [int(digit) for digit in number]
    cell_colours = [COLOURS["digits"][digit] for digit in [*digits, sum(digits) % 10]]
    colours = [COLOURS["marks"]["code_start"], *cell_colours, COLOURS["marks"]["code_end"]]
    cells = "".join(f'<i style="background: {css(colour)}"></i>' for colour in colours)
    return page(CONFIRMED, number=number, cells=cells, **shown)


def reserve(body: bytes) -> str:
    """Store the reservation and return its number; ValueError if anything is missing."""
    asked = json.loads(body)
    for field, kind in FIELDS.items():
        if not isinstance(asked.get(field), kind) or asked[field] == "":
            raise ValueError(f"{field} is missing")
    number = f"{secrets.randbelow(10**8):08d}"
    row = (number, *(asked[field] for field in FIELDS))
    with closing(sqlite3.connect(DATABASE)) as database, database:
        database.execute("INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?)", row)
    return number


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = form() if self.path == "/" else confirmed(self.path.removeprefix("/confirmed/"))
        if found is None:
            self.answer(404, b"not found")
        else:
            self.answer(200, found)

    def do_POST(self) -> None:
        if self.path != "/reserve":
            self.answer(404, b"not found")
            return
        try:
            number = reserve(self.rfile.read(int(self.headers["Content-Length"])))
        except ValueError as error:
            self.answer(400, str(error).encode())
        else:
            self.answer(200, number.encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass  # standard output carries the address, nothing else


if __name__ == "__main__":
    with closing(sqlite3.connect(DATABASE)) as created, created:
        created.execute(SCHEMA)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
