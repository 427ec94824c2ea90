"""Real tables drawn by a browser, in layouts and mostly in fonts that no page of training has, as a folder for the evaluation.

    python -m dev.browser_tables --tables PATH --out runs/browser
    python -m evaluation.run --model checkpoints/arrcoc-small --data runs/browser --methods arrcoc ...

Half of the questions are look-ups, half are people's. The tables are those that are held out of training. Needs Chromium,
Playwright (`pip install playwright`) and the fonts: `playwright install --with-deps chromium` brings them all. A font that the
machine has not is drawn in another, and named on stderr.
"""

import argparse
import json
import math
import sys
from html import escape
from pathlib import Path
from random import Random

from demo.browser import open_browser
from training.data.table_archive import read_archive
from training.data.table_lookups import lookup_task
from training.data.table_page import TableCell, Task
from training.data.tables import human_task

FONTS = (
    "DejaVu Sans", "DejaVu Serif", "Liberation Sans", "Liberation Serif", "Liberation Sans Narrow", "Liberation Mono", "FreeSans",
    "FreeSerif", "WenQuanYi Zen Hei", "Loma",
)  # fmt: skip
PAPERS = ("#fff;color:#222", "#fdf6e3;color:#073642", "#f0f4f8;color:#111", "#1e1e1e;color:#ddd")
HEADERS = (
    "", "background:#2a4d7c;color:#fff", "background:#333;color:#eee", "background:#eaecf0;color:#111",
    "border-bottom:2px solid currentColor", "text-transform:uppercase;letter-spacing:1px",
)  # fmt: skip
BORDERS = ("1px solid #a2a9b1", "1px solid currentColor", "none", "none none dotted none")
STRIPES = ("", "tr:nth-child(even){background:rgba(128,128,128,.2)}")
TITLES = ("", "", "<p>Table 4. Data of the season</p>", "<p><b>Results</b> (see notes)</p>")
_ROWS = (20, 14, 10, 7, 5, 3)  # tried in turn, until the table fits
_INK = """cell => [...document.querySelector(`[data-cell="${cell}"] span`).getClientRects()]
    .map(box => [box.left, box.top, box.right, box.bottom])"""
_END = """() => { const box = document.querySelector("table").getBoundingClientRect();
    return [Math.max(box.right, document.documentElement.scrollWidth), box.bottom]; }"""
# as wide as either of two others is no font but the other
_MISSING = """fonts => { const pen = document.createElement("canvas").getContext("2d");
    const width = font => { pen.font = `40px ${font}`; return pen.measureText("Quick 10 mills, iii").width; };
    return fonts.filter(font => ["serif", "monospace"].every(other => width(`'${font}', ${other}`) === width(other))); }"""


def tell_missing_fonts(page) -> None:
    """Says on stderr which of `FONTS` a browser's page draws in another font: the pages are then not those of the results."""
    if missing := page.evaluate(_MISSING, list(FONTS)):
        print(
            f"this machine lacks {', '.join(missing)}, which are drawn in other fonts: playwright install --with-deps chromium "
            "brings them",
            file=sys.stderr,
        )


def style(random: Random, width: int, height: int) -> str:
    """A page's CSS."""
    font, size = random.choice(FONTS), random.randint(10, 14)
    return (
        "*{margin:0;box-sizing:border-box}"
        f"body{{background:{random.choice(PAPERS)};font:{size}px '{font}';width:{width}px;height:{height}px;overflow:hidden;"
        f"padding:{random.randint(2, 10)}px}}table{{border-collapse:collapse;max-width:100%}}"
        f"td,th{{border:{random.choice(BORDERS)};padding:{random.randint(0, 3)}px {random.randint(2, 6)}px;"
        f"text-align:{random.choice(('left', 'left', 'right', 'center'))};overflow-wrap:anywhere}}"
        f"th{{{random.choice(HEADERS)}}}{random.choice(STRIPES)}p{{font-size:{size + random.choice((0, 2))}px}}"
    )


def html(task: Task, rows: list[int], columns: list[int], title: str) -> str:
    """The table's rows and columns, each cell marked with its place in the whole table."""
    lines = "".join(
        "<tr>" + "".join(
            f'<{tag} data-cell="{row},{column}"><span>{escape(task.text(row, column))}</span></{tag}>' for column in columns
        ) + "</tr>"
        for row, tag in ((-1, "th"), *((row, "td") for row in rows))
    )  # fmt: skip
    return f"{title}<table>{lines}</table>"


def draw(page, task: Task, random: Random, width: int, height: int) -> bool:
    """Shows on a browser's page as much of the table as fits around what `task` needs; whether that does."""
    cells = (task.answer, *task.needed, *task.mentioned)
    columns = list(dict.fromkeys(column for _, column in cells))
    others = [column for column in range(len(task.header)) if column not in columns]
    random.shuffle(others)
    columns = sorted(columns + others[: random.randint(0, max(0, 5 - len(columns)))])
    rows = list(dict.fromkeys(row for row, _ in cells if row >= 0))
    near = sorted(
        set(range(len(task.rows))) - set(rows), key=lambda row: abs(row - task.answer[0]) + 2 * random.random()
    )
    css, title = style(random, width, height), random.choice(TITLES)
    for count in _ROWS:
        shown = sorted((rows + near)[: max(len(rows), count)])
        page.set_content(f"<style>{css}</style>{html(task, shown, columns, title)}")
        right, bottom = page.evaluate(_END)
        if right <= width and bottom < height:
            return len(shown) > 2
    return False


def boxes(page, cell: TableCell, width: int, height: int) -> list[list[int]]:
    """Where the ink of a cell is, a box for each of its lines: whole pixels inside of the page."""
    found = page.evaluate(_INK, f"{cell[0]},{cell[1]}")
    ends = (width, height) * 2
    return [
        [max(0, math.floor(side)) if place < 2 else min(ends[place], math.ceil(side)) for place, side in enumerate(box)]
        for box in found
    ]


def tasks(tables: Path, random: Random) -> dict[str, list[tuple[str, Task]]]:
    """The questions about held-out tables, by family, in a random order."""
    archive = read_archive(tables)
    held = {context: table for context, table in archive.tables.items() if table.split == "held_out"}
    asked = [(one.question, human_task(held[one.context], one)) for one in archive.questions if one.context in held]
    made = [(found[0].question, found[1]) for table in held.values() if (found := lookup_task(table, random))]
    families = {"table_human": [pair for pair in asked if pair[1] is not None], "table_lookup": made}
    for pairs in families.values():
        random.shuffle(pairs)
    return families


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True, help="folder of WikiTableQuestions")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the pages and metadata.jsonl to")
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--size", type=int, nargs=2, default=(192, 256), metavar=("HEIGHT", "WIDTH"), help="in pixels")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.out.exists() and any(options.out.iterdir()):
        parser.error(
            f"{options.out} holds files already; name a new folder, so that no page of another run is left in it"
        )
    height, width = options.size
    random, lines = Random(options.seed), []
    families = tasks(options.tables, random)
    options.out.mkdir(parents=True, exist_ok=True)
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": width, "height": height})
        tell_missing_fonts(page)
        for family, pairs in families.items():
            drawn = (pair for pair in pairs if draw(page, pair[1], random, width, height))
            for (question, task), _ in zip(drawn, range(options.pages // len(families)), strict=False):
                name = f"{len(lines):04}.png"
                page.screenshot(path=options.out / name)
                answer, evidence = task.text(*task.answer), boxes(page, task.answer, width, height)
                lines.append(
                    {
                        "file_name": name,
                        "question": question,
                        "answers": [answer],
                        "evidence": evidence,
                        "family": family,
                    }
                )
    (options.out / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{len(lines)} pages in {options.out}")


if __name__ == "__main__":
    main()
