"""One door to all data: what `--data` takes."""

import difflib
import sys
from pathlib import Path
from random import Random
from typing import NamedTuple
from urllib.parse import parse_qsl

from training.data.beside import put_more_words
from training.data.check import DataError
from training.data.documents import load_documents
from training.data.examples import Examples
from training.data.hub import hub_splits, load_hub
from training.data.imagefolder import load_imagefolder, split_folders
from training.data.tables import TableOptions, load_tables
from training.data.world import GRIDS, world_examples
from training.data.worn import wear
from training.world import SPLITS

ALLOWED = """\
  world                        all kinds of pages of the drawn world
  world:one_field,table        some kinds; ?grids=8x8,12x12 sets rows x columns of tokens, ?questions=2 how many a page,
                               &find=12 asks besides where up to 12 of its texts stand, &reworded=1 in further wordings,
                               &beside=50 puts other sentences beside 50 percent of the questions, &phrased=50 small words
                               ("on this page", "my") into 50 percent, &joined=50 asks another of the page behind 50 percent,
                               &worn=50 shows 50 percent of the pages as cameras and screens do (tinted, pale, in shadow,
                               blurred, with noise, in a frame, larger)
  FOLDER                       pictures with metadata.jsonl or metadata.csv (file_name, question, answers)
  wikitables:PATH              WikiTableQuestions, the folder that holds tables.tgz; ?page=20x24&questions=human|lookup|both;
                               &together=8 asks further look-ups of a page, up to 8 questions in all; &find=24 where
                               up to 24 texts of it stand; &reason=12 up to 12 questions that take more; &compared=1 has
                               the numbers that people's questions compare as evidence, too;
                               &varied=1 draws pages that differ in more; &reworded=1 asks in further wordings; &beside=50,
                               &phrased=50, &joined=50 and &worn=50 as above;
                               &lookups=2 how many pages of a table ask look-ups; &max_rows, &max_columns, &crop=0
                               leave large tables out
  documents:PATH               everyday pages (bills, lists, settings, messages) with made-up texts and some of these tables;
                               ?page=12x16&pages=1000&questions=8; &varied=1 has values above, below and before their
                               labels and larger, capitals, and further wordings; &beside=50, &phrased=50,
                               &joined=50 and &worn=50 as above
  hub:NAME                     a Hub dataset; ?config=..&split=..&revision=..&streaming=1 and, per field, its column:
                               &image=..&question=..&answers=..&evidence=..&context=..&family=.. (&context=
                               without a name leaves that column out)"""
_KINDS = ("world", "wikitables", "documents", "hub")
_PAGES = 100
_FLAGS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_PERCENTS = ("beside", "phrased", "joined", "worn")
_HUB_COLUMNS = ("image", "question", "answers", "evidence", "context", "family")
_HUB_OPTIONS = ("config", "split", "revision", "streaming", *_HUB_COLUMNS)


def load_examples(
    spec: str, split: str = "held_out", seed: int = 0, limit: int | None = None, skip_bad: bool = False
) -> Examples:
    """The examples that `spec` names; every one of them is checked before they are returned.

    Args:
        spec: one of the forms in `ALLOWED`.
        split: "train" or "held_out"; of the world by layout and value, of tables by table, of folders and Hub
            datasets by their own parts, which may be named themselves.
        seed: of what is drawn, and of the choice that `limit` makes.
        limit: at most so many examples. The world, which has no end, gives 100 without one, or, with several questions to a
            page, those of as many pages as would have so many: fewer, since not every page has them.
        skip_bad: leave bad records out instead of refusing; how many is printed, and stands in `left_out`.

    Raises:
        DataError: the data are bad; the report names file and line.
        ValueError: an unknown spec, split or option; the message says what is allowed.
    """
    kind, _, rest = str(spec).partition(":")
    parted = Path(spec).is_dir() or kind == "hub"
    if split not in SPLITS and not parted:
        raise ValueError(f"split={split!r} is not one of {', '.join(SPLITS)}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit} leaves no example; pass at least 1, or None for all")
    if not str(spec).strip():
        raise DataError(f"the data have no name. They can be:\n{ALLOWED}")
    if Path(spec).is_dir():
        if str(spec) == "world":
            print("--data world is the folder of that name here, not the world that is drawn", file=sys.stderr)
        return load_imagefolder(spec, split, seed, limit, skip_bad)
    if (drawn := world_spec(spec)) is not None:
        return _world(drawn, split, seed, limit)
    if Path(spec).is_file():
        raise DataError(f"{str(spec)!r} is a file; pass the folder that it is in, {str(Path(spec).parent)!r}")
    if kind not in _KINDS[1:]:
        raise DataError(f"there is no folder {str(spec)!r}{_meant(kind)}. The data can be:\n{ALLOWED}")
    place, options = _options(rest)
    if not place:
        raise DataError(f"{spec!r} names no {'dataset' if kind == 'hub' else 'path'}. The data can be:\n{ALLOWED}")
    if kind == "wikitables":
        return _tables(place, options, split, seed, limit, skip_bad)
    if kind == "documents":
        return _documents(place, options, split, seed, limit, skip_bad)
    _only(options, _HUB_OPTIONS)
    return load_hub(
        place,
        {field: options[field] for field in _HUB_COLUMNS if field in options},
        split_read(spec, split),
        options.get("config"),
        options.get("revision"),
        _flag("streaming", options.get("streaming", "0")),
        seed,
        limit,
        skip_bad,
    )


def split_read(spec: str, split: str) -> str:
    """The split that `load_examples` reads of `spec`: that which it names itself (``hub:NAME?split=..``), else `split`.

    Raises:
        ValueError: `split` is another part's own name.
    """
    kind, _, rest = str(spec).partition(":")
    own = _options(rest)[1].get("split") if kind == "hub" and not Path(spec).is_dir() else None
    if own is not None and split not in (own, *SPLITS):
        raise ValueError(f"{spec!r} names the split {own!r}, and split={split!r} is asked for; pass one of them")
    return split if own is None else own


def parts_of(spec: str) -> dict[str, str]:
    """What each part of the data that `spec` names is called, and the split by which `load_examples` gives it.

    Data without parts are one. Raises what `load_examples` raises where the parts can't be found out.
    """
    if Path(spec).is_dir():
        return _labelled(split_folders(Path(spec))) or {"train and held_out": "held_out"}
    kind, _, rest = spec.partition(":")
    place, options = _options(rest) if kind == "hub" else ("", {})
    if place:
        _only(options, _HUB_OPTIONS)
        if "split" in options:
            return {options["split"]: "held_out"}
        # a dataset with neither is refused when it is loaded
        found = _labelled(hub_splits(place, options.get("config"), options.get("revision")))
        return found or {split: split for split in SPLITS}
    return {split: split for split in SPLITS}


def _labelled(found: dict[str, list[str]]) -> dict[str, str]:
    """The name by which each part is told, and that by which it is loaded; `found` has each split's names, first what is taken."""
    parts = {}
    for split, (first, *others) in ((split, names) for split, names in found.items() if names):
        parts[split if first == split else f"{split} ({first})"] = split
        parts |= {name: name for name in others}
    return parts


class WorldSpec(NamedTuple):
    """What a spec of the world sets; `kinds` is empty for all, `questions` 0 where it says nothing."""

    kinds: tuple[str, ...]
    grids: tuple[tuple[int, int], ...]
    questions: int
    find: int
    reworded: bool
    beside: int
    phrased: int
    joined: int
    worn: int


def world_spec(spec: str) -> WorldSpec | None:
    """What `spec` sets, `None` if it is not the world's. `DataError` for an option that the world has not, or one that can't be
    read."""
    place, options = _options(str(spec)) if str(spec).startswith(("world:", "world?")) else (str(spec), {})
    kind, _, names = place.partition(":")
    if kind != "world" or Path(spec).is_dir():
        return None
    _only(options, ("grids", "questions", "find", "reworded", *_PERCENTS))
    return WorldSpec(
        tuple(name.strip() for name in names.split(",") if name.strip()),
        tuple(_pair("grids", text) for text in options["grids"].split(",")) if "grids" in options else GRIDS,
        _number("questions", options["questions"]) if "questions" in options else 0,
        _number("find", options["find"]) if "find" in options else 0,
        _flag("reworded", options.get("reworded", "0")),
        **_percents(options),
    )


def _world(spec: WorldSpec, split: str, seed: int, limit: int | None) -> Examples:
    wanted, questions = limit or _PAGES, spec.questions or 1
    drawn = spec._replace(questions=questions)._asdict()
    found = world_examples(split, seed, pages=-(-wanted // questions), **drawn)
    if spec.find and len(found) > wanted:  # of all pages, not all of the first
        found = [found[place] for place in sorted(Random(seed).sample(range(len(found)), wanted))]
    if questions > 1 and len(found) < wanted:
        print(
            f"--data world with questions={questions}: {len(found)} questions, since not every page has as many; ask for more than "
            f"{wanted} with --limit",
            file=sys.stderr,
        )
    return Examples(found[:wanted])


def _tables(place: str, options: dict[str, str], split: str, seed: int, limit: int | None, skip_bad: bool) -> Examples:
    counts = ("lookups", "together", "find", "reason", "max_rows", "max_columns")
    flags = ("crop", "varied", "reworded", "compared")
    _only(options, ("page", "questions", *counts, *flags, *_PERCENTS))
    chosen = {name: _number(name, options[name]) for name in counts if name in options}
    chosen |= {name: _flag(name, options[name]) for name in flags if name in options}
    if "page" in options:
        chosen["page_cells"] = _pair("page", options["page"])
    questions = options.get("questions", "both")
    found = load_tables(place, split, seed, questions, TableOptions(**chosen), limit, skip_bad)
    return _with_percents(found, split, options)


def _documents(
    place: str, options: dict[str, str], split: str, seed: int, limit: int | None, skip_bad: bool
) -> Examples:
    _only(options, ("page", "pages", "questions", "varied", *_PERCENTS))
    chosen = {name: _number(name, options[name]) for name in ("pages", "questions") if name in options}
    if "page" in options:
        chosen["page_cells"] = _pair("page", options["page"])
    if "varied" in options:
        chosen["varied"] = _flag("varied", options["varied"])
    found = load_documents(place, split, seed, limit=limit, skip_bad=skip_bad, **chosen)
    return _with_percents(found, split, options)


def _with_percents(found: Examples, split: str, options: dict[str, str]) -> Examples:
    percents = _percents(options)
    worn = percents.pop("worn")
    return wear(put_more_words(found, split, **percents), split, worn)


def _options(text: str) -> tuple[str, dict[str, str]]:
    place, _, query = text.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise DataError(f"the options {query!r} can't be read; write them as name=value&name=value") from error
    options = dict(pairs)
    if len(options) < len(pairs):
        raise DataError(f"the options {query!r} name one of them twice; give each a single value")
    return place, options


def _only(options: dict[str, str], allowed: tuple[str, ...]) -> None:
    for name in options:
        if name not in allowed:
            raise DataError(f"{name!r} is no option here{_meant(name, allowed)}; there are {', '.join(allowed)}")


def _meant(name: str, allowed: tuple[str, ...] = _KINDS) -> str:
    near = difflib.get_close_matches(name, allowed, n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _flag(name: str, text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise DataError(f"{name}={text!r} is neither yes nor no; give 1 or 0")
    return _FLAGS[text.lower()]


def _percents(options: dict[str, str]) -> dict[str, int]:
    found = {name: _number(name, options[name]) if name in options else 0 for name in _PERCENTS}
    for name, percent in found.items():
        if percent > 100:
            raise DataError(f"{name}={percent} is no percentage; give a whole number from 1 to 100")
    return found


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise DataError(f"{name}={text!r} is no count; give a whole number from 1 on")
    return int(text)


def _pair(name: str, text: str) -> tuple[int, int]:
    rows, cross, columns = text.strip().partition("x")
    if not cross:
        raise DataError(f"{name} has {text!r}; give rows x columns, such as 12x12")
    return _number(name, rows), _number(name, columns)
