"""Folders in Hugging Face's `imagefolder` form: pictures beside a metadata.jsonl or metadata.csv."""

import csv
import json
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from io import StringIO
from pathlib import Path
from random import Random

from tqdm import tqdm

from training.data.check import (
    OPTIONAL,
    SPLIT_NAMES,
    DataError,
    Duplicates,
    Problems,
    check_boxes,
    check_columns,
    check_record,
    picture_size,
    question_key,
    shown,
    tell_taken,
)
from training.data.examples import Example, Examples

COLUMNS = ("file_name", "question", "answers")
_METADATA = ("metadata.jsonl", "metadata.csv")


def load_imagefolder(
    folder: str | Path, split: str | None = None, seed: int = 0, limit: int | None = None, skip_bad: bool = False
) -> Examples:
    """The examples of a folder, in the order of its metadata, after every record and picture was checked.

    Each metadata file names pictures below its own folder, and has at least one row. A row has `file_name`, `question`,
    `answers` (a text or a list of texts; in CSV a list in JSON), and may have `evidence` and `context` (boxes in pixels of
    the upright picture) and `family`.

    Args:
        split: "train" or "held_out": only the pictures in that sub-folder (training is train too; validation, valid, val,
            dev, test, testing, eval and evaluation are held out, the first there is of these), where the folder has
            sub-folders of these names in any case; a picture in none of them is a problem. A folder without them is one
            split, whatever is asked for. The name of such a sub-folder: the pictures in that one. None: all.
        seed: of the choice that `limit` makes.
        limit: at most so many examples, drawn at random; only their pictures are read.
        skip_bad: leave out what is wrong, print how much, and go on.

    Raises:
        DataError: what is wrong, with file and line; also with `skip_bad` if a file can't be read to its end, or two
            sub-folders are the same split.
    """
    folder = Path(folder)
    splits = _wanted_first(folder, split)
    problems = Problems(str(folder / splits[0]) if splits else str(folder))
    asked = list(_asked_once(_good_rows(folder, splits, problems)).values())
    if split is not None and not splits:
        _refuse_splits_below(folder, {picture for alike in asked for _, picture, _, _ in alike})
    if limit is not None and limit < len(asked):
        Random(seed).shuffle(asked)
    kept, sizes, duplicates = [], {}, Duplicates()
    progress = tqdm(total=min(limit or len(asked), len(asked)), desc=f"checking {folder}", disable=None, leave=False)
    with progress:
        for alike in asked:
            enough = limit is not None and len(kept) == limit  # of pictures that are opened
            for number, picture, place, fields in alike:  # the first whose boxes fit counts, the others say it again
                boxes = (*fields["evidence"], *fields["context"])
                fits = enough or _picture_fits(picture, boxes, place, sizes, problems)
                if fits and duplicates.check(str(picture), fields["question"], place, problems) and not enough:
                    kept.append((number, Example(picture, **fields, name=place)))
                    progress.update()
    left_out = problems.settle(len(kept), skip_bad)
    return Examples([example for _, example in sorted(kept, key=lambda entry: entry[0])], left_out)


def split_folders(folder: Path) -> dict[str, list[str]]:
    """The sub-folders of "train" and of "held_out", the one that is taken first. `DataError` if two are the same one."""
    known = {name: place for names in SPLIT_NAMES.values() for place, name in enumerate(names)}
    below = sorted(path.name for path in folder.iterdir() if path.name.lower() in known and path.is_dir())
    below.sort(key=lambda name: known[name.lower()])
    found = {split: [name for name in below if name.lower() in names] for split, names in SPLIT_NAMES.items()}
    for split, (first, *others) in ((split, names) for split, names in found.items() if names):
        if others and (split == "train" or others[0].lower() == first.lower()):
            raise DataError(f"{folder} has {first} and {others[0]} for split={split!r}; make one folder of them")
    return found


def _wanted_first(folder: Path, split: str | None) -> list[str]:
    """The sub-folders that are splits, the wanted one first; none where the folder has none or all of it is wanted."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; pass a folder with pictures and metadata.jsonl")
    if split is None:
        return []
    found = split_folders(folder)
    every = [name for names in found.values() for name in names]
    if split not in (*SPLIT_NAMES, *every):
        raise ValueError(f"split={split!r} is not one of {', '.join(dict.fromkeys([*SPLIT_NAMES, *every]))}")
    wanted = found[split][:1] if split in found else [split]
    tell_taken(folder, split, found.get(split, wanted))
    if every and not wanted:
        raise DataError(
            f"{folder} has no folder {' or '.join(SPLIT_NAMES[split])} for split={split!r}; it has {', '.join(every)}: pass one of "
            "these as --split, or add the folder"
        )
    return wanted + [name for name in every if name not in wanted]


def _refuse_splits_below(folder: Path, pictures: Iterable[Path]) -> None:
    """`DataError` if the pictures of a folder that is one split stand in sub-folders further down that are called as two."""
    found: dict[str, str] = {}
    for place in sorted({picture.parent for picture in pictures}):
        below = Path(os.path.relpath(place, folder))
        called = (
            split for part in reversed(below.parts) for split, names in SPLIT_NAMES.items() if part.lower() in names
        )
        if (split := next(called, None)) is not None:
            found.setdefault(split, str(below))
    if len(found) > 1:
        raise DataError(
            f"{folder} is one split, since it has no folder {' or '.join(SPLIT_NAMES['train'])} itself; but there are pictures in "
            f"{' and '.join(found.values())}: pass the folder that holds these"
        )


def _metadata_files(folder: Path, splits: list[str]) -> list[Path]:
    others = {folder / name for name in splits[1:]}
    files = [path for path in _below(folder) if path.name in _METADATA and path.is_file()]
    files = [path for path in files if others.isdisjoint(path.parents) and not _is_hidden(path, folder)]
    files.sort(key=lambda path: (len(path.parts), path))  # the folder's own first
    if not files:
        wanted = folder / splits[0] if splits else folder
        near = sorted(
            path.name
            for place in {folder, wanted}
            for path in place.iterdir()
            if path.is_file() and path.suffix.lower() in (".jsonl", ".json", ".csv", ".parquet")
        )
        hint = f"; there is {', '.join(near)}" if near else ""
        raise DataError(f"{wanted} has no metadata.jsonl or metadata.csv{hint}. One line per question is wanted: "
                        '{"file_name": "a.png", "question": "...", "answers": ["..."]}')  # fmt: skip
    for file in files:
        if file.suffix == ".csv" and file.with_suffix(".jsonl") in files:
            raise DataError(f"{file.parent} has both metadata.jsonl and metadata.csv; keep one of them")
    for path in _below(folder):
        if path.name == "metadata.parquet" and others.isdisjoint(path.parents) and not _is_hidden(path, folder):
            raise DataError(
                f"{path} is not read beside {files[0].name}; take it away, or write its rows into a metadata.jsonl. Without other "
                f"metadata hub:{folder} reads it"
            )
    return files


def _below(folder: Path) -> Iterator[Path]:
    """The files of a folder and all below it, those behind links too, each folder once."""
    entered = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in entered:
            folders.clear()  # a link that leads back
            continue
        entered.add(real)
        folders.sort()
        yield from (Path(place) / name for name in names)


def _is_hidden(path: Path, folder: Path) -> bool:
    # such as the copies in .ipynb_checkpoints
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _asked_once(rows: Iterable[tuple]) -> dict[tuple[str, str], list[tuple]]:
    """The rows of each question to each picture, in their order."""
    found: dict[tuple[str, str], list[tuple]] = {}
    for row in rows:
        found.setdefault(question_key(str(row[1]), row[3]["question"]), []).append(row)
    return found


def _good_rows(folder: Path, splits: list[str], problems: Problems) -> Iterator[tuple[int, Path, str, dict]]:
    """(number, picture, place, checked fields) of every row of the first split that is right as far as its text can tell."""
    number = 0
    for file in _metadata_files(folder, splits):
        row, noted = None, len(problems.found)
        for line, row in _rows(file, problems):
            place, top = f"{file}:{line}", _top_folder(folder, file, row)
            if top in splits[1:] or not check_columns(row, place, problems, COLUMNS):
                continue
            fields = check_record(row, place, problems)
            picture = _picture_path(file.parent, row["file_name"], place, problems)
            if fields is None or picture is None:
                continue
            if splits and top != splits[0]:
                problems.add(
                    place, "no split", f"{picture} is in none of {', '.join(splits)}; move it into one of them"
                )
            else:
                number += 1
                yield number, picture, place, fields
        if row is None and len(problems.found) == noted:
            problems.add(
                str(file), "empty file", "there is no row in it; write one per question, or take the file away"
            )


def _top_folder(folder: Path, file: Path, row: dict) -> str | None:
    """The sub-folder of `folder` that holds the picture of a row of `file`; None if it is in none, or there is no path."""
    name = row.get("file_name")
    parts = (file.parent.relative_to(folder) / name).parts if isinstance(name, str) else ()
    return parts[0] if len(parts) > 1 else None


def _rows(file: Path, problems: Problems) -> Iterator[tuple[int, dict]]:
    text = _text(file)
    if file.suffix == ".csv":
        yield from _csv_rows(file, text, problems)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        place = f"{file}:{number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_unrepeated)
        except DataError as error:
            problems.add(place, "repeated column", str(error))
            continue
        except (ValueError, RecursionError) as error:
            problems.add(place, "not JSON", f"{error}; one JSON object per line is wanted")
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            problems.add(place, "not JSON", f"the line is a {type(row).__name__}; a JSON object is wanted")


def _text(file: Path) -> str:
    """What stands in a file, without a byte order mark. `DataError` if it is not UTF-8."""
    content = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{file}:{line} is not UTF-8 ({error.reason}); save the file as UTF-8") from error
    if "\0" in text[:2]:  # UTF-16 without a mark decodes, to every other character a NUL
        raise DataError(f"{file}:1 is not UTF-8 (it begins with a NUL); save the file as UTF-8")
    return text


def _unrepeated(pairs: list[tuple[str, object]]) -> dict:
    """The JSON object of these names and values. `DataError` for a name that comes twice, of which the last would win."""
    repeated = _repeated([name for name, _ in pairs])
    if repeated is not None:
        raise DataError(f"{repeated!r} stands twice in one object; keep one of them")
    return dict(pairs)


def _repeated(names: list[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _csv_rows(file: Path, text: str, problems: Problems) -> Iterator[tuple[int, dict]]:
    top = text.lstrip("\r\n").partition("\n")[0]
    if "," not in top and (";" in top or "\t" in top):
        came = "semicolons" if ";" in top else "tabs"
        problems.add(str(file), "not CSV", f"its columns are separated by {came}; separate them by commas", unread=True)
        return
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    header, number = None, 1
    try:
        for values in reader:
            place, first, number = f"{file}:{number}", number, reader.line_num + 1
            if not values:
                continue
            if header is None:
                header, repeated = values, _repeated([name for name in values if name])
                if repeated is not None:
                    message = f"{repeated!r} is the name of two columns; keep one of them, or rename one"
                    problems.add(place, "repeated column", message, unread=True)
                    return
            elif len(values) != len(header):
                problems.add(
                    place, "not CSV", f"the row has {len(values)} values; the header has {len(header)} columns"
                )
            else:
                row = _from_csv(dict(zip(header, values, strict=True)), place, problems)
                if row is not None:
                    yield first, row
    except csv.Error as error:
        message = f"{error}; the rest of the file can't be read: correct this row"
        problems.add(f"{file}:{number}", "not CSV", message, unread=True)


def _from_csv(row: dict[str, str], place: str, problems: Problems) -> dict | None:
    """A row with lists where a value is one in JSON, and None where an optional one is empty. None, with the problem noted, if
    its answers are a list of another kind."""
    for name in ("answers", "evidence", "context"):
        text = row.get(name, "").strip()
        if text.startswith("["):
            try:
                row[name] = json.loads(text)
            except (ValueError, RecursionError):
                # a text that begins with a bracket stays one; as evidence it is refused later
                if name == "answers" and text.endswith("]"):
                    message = f'answers is {shown(text)}; a list in JSON is wanted, e.g. ["42"]'
                    problems.add(place, "not JSON", message)
                    return None
    return {name: value or None if name in OPTIONAL else value for name, value in row.items()}


def _picture_path(folder: Path, name, place: str, problems: Problems) -> Path | None:
    if not isinstance(name, str) or not name.strip():
        problems.add(place, "wrong type", f"file_name is {name!r}; give the picture's path from the folder")
        return None
    if os.path.isabs(name) or ".." in name.replace("\\", "/").split("/") or "\0" in name:
        problems.add(place, "path outside", f"file_name {name!r} leaves the folder; keep the pictures below it")
        return None
    return folder / os.path.normpath(name)


def _picture_fits(picture: Path, boxes, place: str, sizes: dict, problems: Problems) -> bool:
    if picture not in sizes:
        # unlike Path.is_file it takes names that are too long for the file system
        sizes[picture] = picture_size(picture) if os.path.isfile(picture) else None
    size = sizes[picture]
    if size is None:
        problems.add(place, "missing picture", f"there is no file {picture}{_of_like_name(picture)}")
    elif isinstance(size, str):
        problems.add(place, "unreadable picture", size)
    else:
        return check_boxes(boxes, size, place, problems)
    return False


def _of_like_name(picture: Path) -> str:
    """What a file beside a missing picture is called whose name differs in capitals or in how Unicode writes it."""
    folder = picture.parent
    changed = os.stat(folder).st_mtime_ns if os.path.isdir(folder) else 0
    name = _names_in(folder, changed).get(_plain(picture.name), picture.name)
    if name == picture.name:
        return ""
    alike = unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", picture.name)
    how = "whose letters Unicode writes otherwise" if alike else "in other capitals"
    return f", but {name!r} {how}; write its name as it is on disk"


@lru_cache(maxsize=4)
def _names_in(folder: Path, changed: int) -> dict[str, str]:
    # `changed` is part of what the cache knows a folder by
    return {_plain(name): name for name in os.listdir(folder)} if changed else {}


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
