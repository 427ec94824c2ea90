"""Everyday pages and real tables of training drawn by a browser, as a folder to train on: how a browser sets and smooths text is
another look than the one that `training.data` draws.

    python -m dev.browser_training --tables PATH --pages 1500 --out runs/browser_training

Texts, tables and fonts are those of training (`documents:` with `varied=1`, and the tables that are not held out); the layouts are
neither those of `dev.browser_pages` nor of `dev.browser_tables`, which measure. Needs what these need, and no fonts of the machine.
"""

import argparse
import base64
import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from random import Random

from demo.browser import open_browser
from training.data.document_content import Block, Text
from training.data.document_variety import varied
from training.data.document_writing import make_content, phrases_of
from training.data.documents import stands_once
from training.data.table_archive import Archive, Table, read_archive
from training.data.table_comparing import evidence_of
from training.data.table_lookups import further_lookups, lookup_task, words_of
from training.data.table_page import Task
from training.data.tables import HUMAN, LOOKUP, context_of, human_task
from training.world.fonts import TRAIN_FONTS, load_font
from training.world.phrasing import phrased

_ASKED = 12  # questions of a page at most
_PAGES_OF_A_FONT = 20  # in a row, which is quicker
_PAGES_TRIED = 400  # in a row, before it is said that the size is too small
_ROWS = (16, 10, 7, 5, 3)  # of a table, tried in turn until it fits
_INK = """name => [...document.querySelector(`[data-text="${name}"]`).getClientRects()]
    .map(box => [Math.max(0, Math.floor(box.left)), Math.max(0, Math.floor(box.top)),
                 Math.min(innerWidth, Math.ceil(box.right)), Math.min(innerHeight, Math.ceil(box.bottom))])"""
_SHOW = (
    """([css, inside]) => { document.getElementById("look").textContent = css; document.body.innerHTML = inside; }"""
)
_FITS = """() => [...document.querySelectorAll("body *")].map(one => one.getBoundingClientRect())
    .every(box => box.right <= innerWidth && box.bottom <= innerHeight)"""
_COLOURS = (
    "#fff;color:#000",
    "#fff;color:#333",
    "#f7f7f2;color:#1a1a1a",
    "#eef;color:#113",
    "#202124;color:#e8eaed",
    "#10182a;color:#cde",
)
_EDGES = ("0", "1px solid #ccc", "1px solid currentColor", "1px dashed #999", "0 0 1px;border-style:solid")
_STRONG = (
    "font-weight:bold",
    "font-weight:bold",
    "font-style:italic",
    "color:#2563c9",
    "text-decoration:underline",
    "letter-spacing:1px",
)
_BADGE = "background:#2563c9;color:#fff;padding:0 4px;border-radius:5px"
_LABELS = ("", "", "opacity:.7", "font-size:.85em", "font-size:.85em;opacity:.7", "text-transform:uppercase", *_STRONG)
_HEADS = (
    "",
    "",
    *_STRONG,
    "background:#334155;color:#fff",
    "background:#d8e2f0;color:#223",
    "text-transform:uppercase",
)
_ROWS_OF_TWO = ("", "", "", "background:#8882", "border-bottom:1px solid #8888")  # every second row of a table
_TITLES = (
    "",
    "",
    "background:#334155;color:#fff;padding:3px",
    "border-bottom:1px solid #8888",
    "text-transform:uppercase",
)


def take_font(page, name: str) -> None:
    """Empties a browser's page, whose font is then that of training of this name."""
    # the file itself: a page that is set has no files beside it
    file = base64.b64encode(Path(str(load_font(name, 10).path)).read_bytes()).decode()
    face = f"@font-face{{font-family:'face';src:url(data:font/ttf;base64,{file})}}"
    page.set_content(
        f"<!doctype html><style>{face}</style><style id='look'></style><body style=\"font-family:'face'\">."
    )
    page.evaluate("document.fonts.ready.then(() => null)")


def show(page, css: str, inside: str) -> bool:
    """Shows HTML in the page's font; whether it fits."""
    page.evaluate(_SHOW, [css, inside])
    return page.evaluate(_FITS)


def style(random: Random) -> str:
    """A page's CSS."""
    size = random.randint(10, 15)
    return (
        f"*{{margin:0;box-sizing:border-box}}body{{background:{random.choice(_COLOURS)};"
        f"font:{size}px/{random.choice((1, 1.15, 1.3, 1.5))} 'face';padding:{random.randint(1, 16)}px;overflow:hidden}}"
        f"b{{font-weight:normal;{random.choice((*_STRONG, _BADGE))}}}i{{font-style:normal;{random.choice(_LABELS)}}}"
        f"h2{{font-size:{size + random.choice((0, 1, 3, 6))}px;text-align:{random.choice(('left', 'left', 'center', 'right'))};"
        f"{random.choice(_TITLES)}}}tr:nth-child(even){{{random.choice(_ROWS_OF_TWO)}}}"
        f"h2 b{{color:inherit}}body{{columns:{random.choice((1, 1, 1, 1, 2))}}}table{{break-inside:avoid}}"
        f"section{{margin-bottom:{random.randint(0, 8)}px}}table{{border-collapse:collapse;"
        f"width:{random.choice(('auto', 'auto', '100%'))}}}td,th{{border:{random.choice(_EDGES)};"
        f"padding:{random.randint(0, 3)}px {random.randint(1, 9)}px;"
        f"overflow-wrap:{random.choice(('normal', 'normal', 'anywhere'))};"
        f"text-align:{random.choice(('left', 'left', 'left', 'right', 'center'))}}}"
        f"th{{font-weight:normal;{random.choice(_HEADS)}}}.grid{{display:grid;gap:{random.randint(1, 7)}px;"
        f"grid-template-columns:repeat({random.randint(1, 3)},auto)}}.line{{display:flex;gap:{random.randint(4, 14)}px;"
        f"justify-content:{random.choice(('flex-start', 'flex-start', 'space-between'))}}}"
        f".box{{border:{random.choice(_EDGES)};border-radius:{random.choice((0, 0, 6))}px;padding:{random.randint(0, 4)}px}}"
    )


def _ink(text: Text, number: int) -> str:
    tag = "b" if text.strong else "span"
    return f'<{tag} data-text="{number}">{escape(text.text)}</{tag}>'


def _block(block: Block, names: dict[Text, int], random: Random) -> str:
    lines = [[_ink(text, names[text]) for text in line] for line in block.lines]
    if block.shape == "text":
        return "<section>" + random.choice((" ", "<br>")).join(" ".join(line) for line in lines) + "</section>"
    if block.shape == "pairs":
        lines = [[f"<i>{first}</i>", *rest] for first, *rest in lines]
    way = random.choice(
        ("table", "table", "grid", "line", "box") if block.shape == "pairs" else ("table", "table", "line")
    )
    if block.shape == "bar" or way == "line":
        return "<section>" + "".join(f'<div class="line">{"".join(line)}</div>' for line in lines) + "</section>"
    if way in ("grid", "box"):
        turn = random.choice((1, 1, 1, -1))
        cells = "".join(f'<div class="box">{"<br>".join(line[::turn])}</div>' for line in lines)
        return f'<section class="{"grid" if way == "grid" else ""}">{cells}</section>'
    return "<section><table>" + "".join(f"<tr><td>{'<td>'.join(line)}" for line in lines) + "</table></section>"


def document(page, archive_tables: Sequence[Table], phrases: Sequence[str], random: Random) -> list[dict]:
    """Shows an everyday page, and returns what is asked of it; nothing where it does not fit."""
    content = make_content(random, archive_tables, phrases, random.randint(3, 18))
    content = varied(content, phrases, random, "train")
    texts = [*([content.title] if content.title else []), *(text for line in content.lines for text in line)]
    names = {text: number for number, text in enumerate(texts)}
    title = f"<h2>{_ink(content.title, names[content.title])}</h2>" if content.title else ""
    inside = title + "".join(_block(block, names, random) for block in content.blocks)
    if not show(page, style(random), inside):
        return []
    shown, found = [words_of(text.text) for text in texts], []
    for one in random.sample(content.questions, len(content.questions)):
        if stands_once(one, shown):
            answer, named = _boxes(page, [names[one.answer]]), _boxes(page, [names[text] for text in one.named])
            found.append(_line(one.question, one.answer.text, answer, named, content.family))
    return found[:_ASKED]


def _boxes(page, names: Sequence) -> list[list[int]]:
    return [box for name in names for box in page.evaluate(_INK, str(name))]


def _line(question: str, answer: str, evidence: list, context: list, family: str) -> dict:
    return {"question": question, "answers": [answer], "evidence": evidence, "context": context, "family": family}


def as_asked(line: dict, file_name: str, percent: int, random: Random) -> dict:
    """A line of the metadata: what `document` and `table` return, `percent` of it asked with small words."""
    chosen = random.uniform(0, 100) < percent
    question = phrased(line["question"], "train", random) if chosen else line["question"]
    return {"file_name": file_name, **line, "question": question}


def table(page, task: Task, question: str, context: set, family: str, random: Random) -> list[dict]:
    """Shows part of a table with what `task` needs, and returns its question, of `family`, and look-ups; nothing where it does not
    fit."""
    needs = (task.answer, *task.needed, *task.mentioned)
    columns = list(dict.fromkeys(column for _, column in needs))
    others = [column for column in range(len(task.header)) if column not in columns]
    columns = sorted(columns + random.sample(others, min(len(others), random.randint(1, 4))))
    rows = list(dict.fromkeys(row for row, _ in needs if row >= 0))
    near = sorted(
        set(range(len(task.rows))) - set(rows), key=lambda row: abs(row - task.answer[0]) + 3 * random.random()
    )
    css = style(random)
    for count in _ROWS:
        shown = sorted((rows + near)[: max(len(rows), count)])
        lines = "".join(
            "<tr>" + "".join(f"<{tag}>{_cell(task, row, column)}" for column in columns)
            for row, tag in ((-1, "th"), *((row, "td") for row in shown))
        )
        if show(page, css, f"<table>{lines}</table>"):
            break
    else:
        return []
    drawn = {(row, column) for row in (-1, *shown) for column in columns}

    def boxes(cells) -> list[list[int]]:
        return _boxes(page, [f"{row},{column}" for row, column in cells])

    evidence = (task.answer,)
    if family == HUMAN:
        evidence = evidence_of(task, question, shown, drawn, context & drawn)
    found = [_line(question, task.text(*task.answer), boxes(evidence), boxes(sorted(context & drawn)), family)]
    for one in further_lookups(task, drawn, _ASKED - 1, random):
        answer = task.text(*one.answer)
        found.append(_line(one.question, answer, boxes([one.answer]), boxes(sorted(one.context)), LOOKUP))
    return found


def _cell(task: Task, row: int, column: int) -> str:
    return f'<span data-text="{row},{column}">{escape(task.text(row, column))}</span>'


def tasks(archive: Archive, random: Random) -> Iterator[tuple[Task, str, set, str]]:
    """Endlessly, what a page for a question about a table of training shows, the question, the cells that it names, and its family:
    three of four are people's, the others look-ups."""
    trained = {context: table for context, table in archive.tables.items() if table.split == "train"}
    asked = [one for one in archive.questions if one.context in trained]
    while True:
        one = random.choice(asked)
        if random.random() < 0.75:
            task = human_task(trained[one.context], one)
            if task is not None:
                cells = {(row, column) for row in range(-1, len(task.rows)) for column in range(len(task.header))}
                yield task, one.question, context_of(task, one.question, cells), HUMAN
        elif (found := lookup_task(trained[one.context], random)) is not None:
            yield found[1], found[0].question, found[0].context, LOOKUP


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True, help="folder of WikiTableQuestions")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the pages and metadata.jsonl to")
    parser.add_argument("--pages", type=int, default=1500)
    parser.add_argument("--size", type=int, nargs=2, default=(192, 256), metavar=("HEIGHT", "WIDTH"), help="in pixels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--phrased",
        type=int,
        choices=range(101),
        default=0,
        metavar="PERCENT",
        help="of the questions with small words in them",
    )
    options = parser.parse_args()
    if options.out.exists() and any(options.out.iterdir()):
        parser.error(f"{options.out} holds files already; name a new folder")
    random, words, lines, number, failed = Random(options.seed), Random(f"phrased {options.seed}"), [], 0, 0
    archive = read_archive(options.tables)
    trained = [table for table in archive.tables.values() if table.split == "train"]
    phrases, pairs = phrases_of(trained), tasks(archive, random)
    options.out.mkdir(parents=True, exist_ok=True)
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": options.size[1], "height": options.size[0]})
        while number < options.pages:
            if number % _PAGES_OF_A_FONT == 0:
                take_font(page, random.choice(TRAIN_FONTS))
            found = document(page, trained, phrases, random) if number % 2 else table(page, *next(pairs), random)
            failed = 0 if found else failed + 1
            if failed == _PAGES_TRIED:
                raise SystemExit(
                    f"error: nothing fits a page of {options.size[0]} x {options.size[1]} pixels; pass a larger --size"
                )
            if not found:
                continue
            page.screenshot(path=options.out / f"{number:05}.png")
            lines += [as_asked(line, f"{number:05}.png", options.phrased, words) for line in found]
            number += 1
    (options.out / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{len(lines)} questions about {number} pages in {options.out}")


if __name__ == "__main__":
    main()
