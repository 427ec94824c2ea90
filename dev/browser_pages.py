"""Everyday pages drawn by a browser, with questions in people's words, as a folder for the evaluation; nothing here is training's.

    python -m dev.browser_pages --out runs/pages
    python -m evaluation.run --model checkpoints/arrcoc-small --data runs/pages --methods arrcoc ...

Invoices, bookings, departures and the like: what they say, how they look and how they are asked about is all in this file. Needs
what `dev.browser_tables` needs.
"""

import argparse
import json
import re
from collections import namedtuple
from dataclasses import dataclass
from html import escape
from pathlib import Path
from random import Random

from demo.browser import open_browser
from dev.browser_tables import FONTS, tell_missing_fonts

PAPERS = ("#fff;color:#222", "#fffaf0;color:#312", "#eef3f7;color:#123", "#f3f0ea;color:#000", "#17202a;color:#dde")
TITLES = ("", "text-align:center", "background:#35607a;color:#fff", "border-bottom:2px solid", "letter-spacing:1px")
LABELS = ("opacity:.7", "font-weight:bold", "", "font-style:italic", "text-transform:uppercase;font-size:85%")
RULES = ("none", "none", "1px solid #8888", "1px dotted currentColor", "1px solid currentColor")
CARDS = ("border:1px solid #888", "background:#8882", "border:1px solid;border-radius:5px", "border-left:3px solid")
MONEY = ("$", "€", "£", "CHF ", "")
NOTES = ("", "", "Thank you.", "Subject to change.", "Please keep this page.", "Help and contact", "Page 1 / 1")
TIMES = ("{08-20}:{00|15|30|45|05}", "{1-11}:{00|15|30|45} {am|pm}", "{7-19}.{10|20|30|50} h")
DATES = ("{1-28} {month} {2024-2027}", "{month} {1-28}", "{weekday}, {1-28} {month}", "{01-28}.{01-12}.{2024-2027}")
WORDS = {
    "first": "Amara|Bogdan|Chiara|Dmitri|Elin|Farid|Greta|Hiro|Ines|Jonas|Kavita|Luca|Maren|Nadia|Oskar|Priya|Quentin|Rosa|Sven",
    "last": "Abara|Brandt|Costa|Dubois|Eriksen|Fontaine|Gupta|Haas|Ito|Jansen|Kowal|Lindqvist|Moretti|Novak|Okoye|Petrov|Quiroga",
    "city": "Lisbon|Oslo|Turin|Ghent|Kraków|Porto|Vienna|Cork|Riga|Basel|Lyon|Malmö|Seville|Zagreb|Leeds|Bergen|Nantes|Graz",
    "firm": "Nordlicht|Brightwell|Casa Verde|Kestrel|Mondo|Ostrava Tools|Pinecone|Quayside|Rivulet|Sundial|Tandem|Umbra|Velora",
    "month": "January|February|March|April|June|July|August|September|October|November",
    "weekday": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    "work": "Web hosting|Logo design|Window cleaning|Translation|Desk lamps|Printer paper|Toner|Chair repair|USB cables|Catering",
    "grocery": "Oat milk|Rye bread|Bananas|Olive oil|Cheddar|Coffee beans|Tomatoes|Washing powder|Apple juice|Yoghurt|Spaghetti",
    "food": "Flour|Sugar|Butter|Cream|Rice|Lentils|Onions|Garlic|Carrots|Basil|Lemon juice|Almonds|Paprika|Chicken|Mushrooms",
    "team": "{The |}{Velvet|Paper|Silver|Northern|Hollow|Electric} {Owls|Lanterns|Tigers|Quartet|Rivers|Parade}",
    "thing": "{Aero|Luma|Vox|Terra|Nim}{pad|buds|cam|kettle|light} {2-9}{00|0| Pro|X}",
    "colour": "Graphite|Blue|Olive|Coral red|White|Copper", "song": "Ocean Drive|Soft Bells|Marimba|Night Owl|Raindrops|Old Phone",
    "phone": "{+44 |+49 |0|0}{20-99} {100-999} {1000-9999}", "code": "{A|B|C|H|K|M|R|T|X}{B|D|J|L|N|Q|W|Z}{1000-9999}",
    "hall": "Kulturhaus|Old Brewery|City Park|Pier 7|St. Anna's|The Cellar", "hour": "{06-22}:{05|10|20|25|35|40|50|55}",
    "street": "{Mill|Station|Garden|Church|Harbour|Linden|Castle|Meadow} {Street|Road|Lane} {2-98}", "gate": "{A|B|C|D|E}{1-48}",
    "room": "{Double|Single|Twin|Family} {room|suite}{| with balcony|, sea view|, quiet side}",
}  # fmt: skip
# A kind: "## name: its layouts: titles"; "label = value = sentence around the value" (* for it; may be left out) >> wordings".
# With rows: "@ what a row is about = value", then "+ column = value" and wordings. {a|b}, {1-9}: see fill.
KINDS = """
## invoice: side above: Invoice / {firm} Ltd - Invoice / TAX INVOICE
Invoice no. = {INV-|R|#}{1000-9999} >> What number does this bill have? / bill reference / how is the bill numbered
Issued = {date} >> When was the bill written? / date of the invoice / On which day did they make out this invoice?
Due = {date} >> By when must I pay? / payment deadline / What's the last day to settle this bill?
VAT {7|19|20}% = {$}{20-99}.{00-99} >> How much of it is tax? / tax amount / What goes to the tax office?
Amount due = {$}{1000-2900}.{00-99} >> What do I owe in all? / full sum to pay / How much must be transferred altogether?
@ Item = {work}
+ Price = {$}{10-299}.{00-99} >> What did they charge for {key}? / cost of {key} / How expensive was {key}?
## receipt: side poster: {firm} Market / *** {firm} *** / {firm} - {street}
Date = {date} = * >> When did I go shopping? / day of the purchase / On what day was this bought?
Total = {$}{50-89}.{00-99} = TOTAL * >> How much did I spend altogether? / sum of the shopping / What did everything come to?
Change = {$}{0-9}.{00-99} = Change * >> What did I get back? / money returned / How much was handed back to me?
@ Article = {grocery}
+ Price = {$}{0-9}.{00-99} >> How much did I pay for {key}? / {key} price / What did the {key} cost?
## recipe: side above cards prose: {city} stew / Grandma {last}'s pie / {first}'s Sunday bake
Preparation = {5-40} min = Preparing takes *. >> How long does chopping and mixing take? / time before baking / prep time?
In the oven = {45-95} min = Bake it for *. >> When can I take it out after putting it in? / baking time / How long is it cooked?
Heat = {150-230} °C = Heat to *. >> How hot should the oven be? / oven temperature / What do I set the dial to?
@ Ingredient = {food}
+ Amount = {{20-450} g|{2-9} cups|{2-7} tbsp} >> How much {key} do I need? / quantity of {key} / Tell me how much {key} to buy.
## hotel_booking: side above cards prose: Booking confirmed / Hotel {firm} / Your stay in {city}
Confirmation = {code} = Your code is *. >> What do I tell the front desk to find my booking? / reservation number / booking code
Arrival = {date} = You come on *. >> On what day does the stay begin? / first day at the hotel / Which day do we get there?
Check-in = from {13-16}:{00|30} = Rooms are ready *. >> What's the earliest I can get my room? / when can we move in / arrival hour
Check-out = until {9-12}:{00|15} = Leave *. >> When do I have to leave the room? / When must we be gone? / latest departure
Room = {room} = You have a *. >> What sort of room did I get? / type of accommodation / Which room category has been booked?
Per night = {$}{60-310} = A night costs *. >> How much is one night? / nightly rate / What does sleeping there cost a day?
## flight_board: side: Departures / {city} Airport / Abflug · Departures / Terminal {1-4}
@ To = {city}
+ Time = {hour} >> When does the plane to {key} take off? / {key} departure / At what hour does one fly to {key}?
+ Flight = {LX|BA|KL|SK|TP|AZ} {100-999} >> What is the plane to {key} called? / which flight to {key} / {key}, flight code
+ Gate = {gate} >> Where do I board for {key}? / gate for {key} / Where must passengers to {key} go?
## phone_settings: side above cards: Settings / My phone / System / About this device
Wi-Fi = {first}s-{Home|Net|WLAN|Cafe} >> Which wireless network am I on? / internet connection / name of this network
Battery = {12-98} % >> How much charge is left? / power remaining / Will it last - how full is it?
Ringtone = {song} >> What plays when someone calls? / call sound / Which melody is set for calls?
Storage used = {20-250} GB >> How much space is taken up? / memory occupied / How many gigabytes are full?
Screen off = {after {2-10} min} >> When does the display go dark? / How long until the display sleeps? / sleep timeout
Software = {11-18}.{0-9}.{1-9} >> Which version of the system is installed? / OS version / What release does it run?
Language = {English|Deutsch|Français|Italiano|Español} >> What tongue are the menus in? / menu language / Which tongue is set?
## product_page: above side cards prose: {thing} / New: {thing} / {firm} {thing}
Price = {$}{19-899}.{99|90|49} = Now only *. >> What does it cost? / how expensive is it / How much money do I need to buy this?
Delivery = {in {2-9} days|by {weekday}} = Arrives *. >> How soon will it be here? / shipping time / When would I receive it?
Weight = {110-990} g = It weighs *. >> How heavy is it? / what do the scales say / Tell me how many grams this has.
Battery life = up to {6-60} hours = Runs *. >> How long does it run on one charge? / time until it needs charging / endurance
Colour = {colour} = Finish: *. >> What does it look like, which shade? / which color is shown / In what tint do they sell it?
Warranty = {18-60} months = Guarantee: *. >> How long is it covered if it breaks? / guarantee period / How long is repair free?
## dashboard: cards above side: {firm} today / Overview / Shop report {month} / KPIs
Visitors = {2-48},{000-999} >> How many people came to the site? / traffic / What was the number of guests on the page?
Revenue = {$}{12-95}k >> How much money came in? / turnover / What did we earn from sales?
Orders = {120-990} >> How many purchases were made? / number of sales / How often did somebody buy?
Conversion = {1-9}.{0-9} % >> What share of visitors buys? / buying rate / What percentage ended up purchasing?
Load time = {101-990} ms >> How fast does the page come up? / speed of the site / How long do people wait for the page?
Top country = {Chile|Norway|Kenya|Spain|India} >> Where do most users come from? / leading market / Which nation is in front?
## email: prose: Re: team day / Workshop in {city} / Plans for {weekday} / Hello {first},
Sent = {date} = Sent on *. >> When was this mail written? / date of the message / On which day did this mail go out?
Start = {time} = We begin at *, >> What time does it start? / beginning of the meeting / When do I have to be there?
Room = {room |hall |lab }{101-480} = and meet in *. >> Where do we come together? / place of the meeting / Where should I go?
Bring = {your laptop|a pen|warm clothes|your badge} = Bring *. >> What do I need to have with me? / what to pack / What to take?
Reply by = {weekday} {noon|evening|morning} = Answer before *. >> How long can I take to respond? / deadline / By when must I reply?
Call = {phone} = If you are lost, call *. >> Which number do I ring if I can't find it? / phone for help / How can I reach them?
From = {first} {last} = Best wishes, * >> Who wrote this? / sender / Whose message is this? / Can you see who it is from?
## event_poster: poster prose side: LIVE / Open Air {city} / {month} Sessions / One night only
Band = {team} = * >> Who is going to play? / name of the group / Which musicians can I hear?
Support = {first} {last} = with special guest * >> Who opens for the main act? / supporting artist / Who else, before the band?
Date = {date} = on * >> What day is the concert? / when does it take place, the date / For which day should I keep free?
Place = {hall} = at * >> Where does it happen? / venue / Which location is it in? / Where do I have to go for the show?
Doors = {time} = Doors: * >> From what time are people let in? / admission begins / When can we enter?
Tickets = {$}{12-78} = Tickets * >> How much is admission? / cost to get in / What must I pay to see the show?
## opening_hours: side poster above: Opening hours / {last} & Sons / We are open / Library {city}
Phone = {phone} = Call * >> Under which number can I reach the shop? / telephone? / How do I ring them?
Holidays = closed until {date} = Holidays: * >> When are they back from vacation? / What about the holidays? / vacation notice
@ Day = {weekday}
+ Hours = {7-11}:{00|30} - {14-21}:{00|15|30|45} >> When can I go there on {key}? / {key} hours / Is it open {key}, and when?
## pay_slip: side above cards: Pay slip {month} / {firm} - Salary / Earnings statement
Employee = {first} {last} >> Who is paid here? / name of the worker / Whose salary is this?
Gross pay = {$}{3-6},{100-999} >> How much was earned before anything was taken off? / salary before deductions / pay prior to tax?
Income tax = {$}{310-890} >> What is kept for the state? / tax withheld / How much tax was taken off?
Pension = {$}{90-290} >> How much is put aside for retirement? / contribution for old age / What goes towards being retired?
Leave left = {2-29} days >> How many days off remain? / vacation available / How much holiday can still be taken?
Net pay = {$}{2},{100-999} >> What lands on my account? / take-home amount / How much is left in the end? / money I really receive
"""
_PAGES_TRIED = 60
_TRIES = (12, 9, 8, 7, 6, 5, 4, 3, 2)  # fields, and rows but no fewer than three, until the page fits
_INK = """cell => [...document.querySelector(`[data-cell="${cell}"]`).getClientRects()]
    .map(box => [Math.floor(box.left), Math.floor(box.top), Math.ceil(box.right), Math.ceil(box.bottom)])"""
_FITS = """() => [...document.querySelectorAll("main, main *")].map(one => one.getBoundingClientRect())
    .every(box => box.right <= innerWidth && box.bottom < innerHeight)"""
Kind = namedtuple("Kind", "name layouts titles key fields columns")  # key: label and value of what a row is about


@dataclass
class Said:
    """Something a page says, or templates of it in a kind; `cell` names its place on the page."""

    label: str
    value: str
    sentence: str
    wordings: list[str]
    cell: str = ""

    def ink(self) -> str:
        """The value as HTML."""
        return f'<span data-cell="{self.cell}">{escape(self.value)}</span>'


def kinds() -> list[Kind]:
    """The kinds of pages, read from KINDS."""
    found = []
    for line in KINDS.strip().splitlines():
        if line.startswith("## "):
            name, layouts, titles = line[3:].split(": ", 2)
            found.append(Kind(name, layouts.split(), titles.split(" / "), [], [], []))
        elif line.startswith("@ "):
            found[-1].key.extend(line[2:].split(" = "))
        else:
            said, wordings = line.removeprefix("+ ").split(" >> ")
            label, value, sentence = [*said.split(" = "), f"{said.split(' = ')[0]}: *."][:3]
            to = found[-1].columns if line.startswith("+ ") else found[-1].fields
            to.append(Said(label, value, sentence, wordings.split(" / ")))
    return found


def fill(template: str, random: Random, words: dict[str, str]) -> str:
    """`template` with one of the words for {name}, one of the choices for {a|b} and a number for {01-12}, innermost first."""

    def one(found: re.Match) -> str:
        inside = words.get(found[1], found[1])
        if ends := re.fullmatch(r"(\d+)-(\d+)", inside):
            return f"{random.randint(int(ends[1]), int(ends[2])):0{len(ends[1])}}"
        return f"{{{inside}}}" if "{" in inside else random.choice(inside.split("|"))

    while "{" in template:
        template = re.sub(r"\{([^{}]*)\}", one, template)
    return template


def style(random: Random, width: int, height: int) -> str:
    """A page's CSS."""
    size, wide = random.randint(10, 14), width >= 400 and random.random() < 0.5
    return (
        f"*{{margin:0;box-sizing:border-box}}body{{background:{random.choice(PAPERS)};font:{size}px '{random.choice(FONTS)}';"
        f"width:{width}px;height:{height}px;overflow:hidden;padding:{random.randint(2, 10)}px}}"
        f"main{{width:{random.choice((100, 100, 85, 70))}%;margin:{random.randint(0, max(9, height - 192))}px auto}}"
        f"h1{{font-size:{size + random.choice((0, 2, 5))}px;{random.choice(TITLES)};margin-bottom:{random.randint(1, 6)}px}}"
        f".parts{{display:flex;flex-direction:{'row' if wide else 'column'};gap:{random.randint(3, 9) * (1 + wide)}px}}"
        f".label,th{{font-weight:normal;{random.choice(LABELS)}}}th,td{{text-align:left;vertical-align:top;"
        f"padding:{random.randint(0, 3)}px {random.randint(2, 8)}px;border-bottom:{random.choice(RULES)}}}"
        f"table{{border-collapse:collapse;width:{random.choice(('auto', '100%'))}}}"
        f"td:last-child,th:last-child{{text-align:{random.choice(('left', 'right'))}}}"
        f".above,.cards{{display:grid;grid-template-columns:repeat({random.randint(1, 2 + (width > 400))},auto);"
        f"gap:{random.randint(2, 6)}px}}.cards div{{{random.choice(CARDS)};padding:{random.randint(1, 5)}px}}"
        f".cards [data-cell]{{font-weight:bold}}.poster{{text-align:{random.choice(('center', 'center', 'left', 'right'))}}}"
    )


def show_fields(fields: list[Said], layout: str, random: Random) -> str:
    """The fields as HTML: in a table, in blocks with the label above or under the value, in sentences, or each on a line."""
    colon = random.choice(("", ":")) if layout == "side" else ""
    pairs = [(f'<span class="label">{escape(one.label)}{colon}</span>', one.ink()) for one in fields]
    if layout == "side":
        return f"<table>{''.join(f'<tr><td>{label}<td>{ink}' for label, ink in pairs)}</table>"
    if layout in ("above", "cards"):
        turn = random.choice((1, 1, -1)) if layout == "cards" else 1
        return f'<div class="{layout}">{"".join(f"<div>{a}<br>{b}</div>" for a, b in (pair[::turn] for pair in pairs))}</div>'
    told = [escape(one.sentence).replace("*", one.ink()) for one in fields]
    if layout == "prose":
        return random.choice((" ", "<br>")).join(told)
    lines = (f'<p style="font-size:{random.choice((85, 100, 130))}%">{one}</p>' for one in told)
    return f'<div class="poster">{"".join(lines)}</div>'


def show_rows(rows: list[tuple[str, list[Said]]], key: str, random: Random) -> str:
    """The rows as HTML: a table whose first or second column is the key."""
    place = random.choice((0, 0, 1))
    lines = [[one.label for one in rows[0][1]], *([one.ink() for one in cells] for _, cells in rows)]
    for line, name in zip(lines, (key, *(name for name, _ in rows)), strict=True):
        line.insert(place, escape(name))
    top = f"<tr><th>{'<th>'.join(lines[0])}" if len(lines[0]) > 2 or random.random() < 0.5 else ""
    return f"<table>{top}{''.join('<tr><td>' + '<td>'.join(line) for line in lines[1:])}</table>"


def draw(page, kind: Kind, random: Random, width: int, height: int) -> list[Said]:
    """Shows a page of this kind on a browser's page and returns what it says once; nothing, if it does not fit."""
    words = WORDS | {"$": random.choice(MONEY), "time": random.choice(TIMES), "date": random.choice(DATES)}

    def filled(one: Said, key: str = "") -> Said:
        label, value, sentence = (fill(text, random, words) for text in (one.label, one.value, one.sentence))
        return Said(label, value, sentence, [text.format(key=key) for text in one.wordings], f"{key},{label}")

    fields = [filled(one) for one in kind.fields]
    names = list(dict.fromkeys(fill(kind.key[1], random, words) for _ in range(40)))[:12] if kind.columns else []
    names.sort(key=WORDS["weekday"].find)  # days in their order; others stay
    columns = [one for one in kind.columns if random.random() < 0.8] or kind.columns[:1]
    rows = [(name, [filled(one, name) for one in columns]) for name in names]
    layout, css, title = random.choice(kind.layouts), style(random, width, height), random.choice(kind.titles)
    top, end, seed = fill(title, random, words), random.choice(NOTES), random.random()
    first, turn = random.sample(fields, len(fields)), random.sample(rows, len(rows))
    for most in _TRIES[random.randint(0, 2) :]:
        look = Random(seed)
        some = [one for one in fields if one in first[:most]]
        lines = [row for row in rows if row in turn[: max(3, most)]]
        cut = look.choice((len(some), len(some), 0, len(some) // 2)) if lines else len(some)
        parts = [show_fields(part, layout, look) if part else "" for part in (some[:cut], some[cut:])]
        parts.insert(1, show_rows(lines, kind.key[0], look) if lines else "")
        inside = (
            f'<h1>{escape(top)}</h1><div class="parts">{"".join(f"<div>{part}</div>" for part in parts if part)}</div>'
        )
        page.set_content(f"<!doctype html><style>{css}</style><main>{inside}<small>{end}</small></main>")
        if page.evaluate(_FITS):
            text = " ".join(page.inner_text("main").split()).casefold()
            said = [*some, *(one for _, cells in lines for one in cells)]
            once = [rf"(?<!\w){re.escape(one.value.casefold())}(?!\w)" for one in said]
            return [one for one, value in zip(said, once, strict=True) if len(re.findall(value, text)) == 1]
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the pages and metadata.jsonl to")
    parser.add_argument("--pages", type=int, default=150)
    parser.add_argument("--size", type=int, nargs=2, default=(192, 256), metavar=("HEIGHT", "WIDTH"), help="in pixels")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.out.exists() and any(options.out.iterdir()):
        parser.error(f"{options.out} holds files already; name a new folder")
    (height, width), random, families, lines = options.size, Random(options.seed), kinds(), []
    options.out.mkdir(parents=True, exist_ok=True)
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": width, "height": height})
        tell_missing_fonts(page)
        for number in range(options.pages):
            name, kind, asked = f"{number:04}.png", families[number % len(families)], []
            for _ in range(_PAGES_TRIED):
                if len(asked := draw(page, kind, random, width, height)) > 1:
                    break
            else:
                raise SystemExit(
                    f"error: no {kind.name} fits a page of {height} x {width} pixels; pass a larger --size"
                )
            page.screenshot(path=options.out / name)
            for one in random.sample(asked, min(4, len(asked))):
                question = random.choice(one.wordings)
                question = question.lower() if random.random() < 0.15 else question
                line = {"file_name": name, "question": question, "answers": [one.value]}
                lines.append(line | {"evidence": page.evaluate(_INK, one.cell), "family": kind.name})
    (options.out / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{len(lines)} questions about {options.pages} pages in {options.out}")


if __name__ == "__main__":
    main()
