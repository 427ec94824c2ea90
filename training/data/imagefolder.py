"""Folders in Hugging Face's `imagefolder` form: pictures beside a metadata.jsonl or metadata.csv."""

import contextlib
import csv
import json
import os
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from random import Random

from tqdm import tqdm

from training.data.check import (
    OPTIONAL,
    DataError,
    Duplicates,
    Problems,
    check_boxes,
    check_columns,
    check_record,
    picture_size,
)
from training.data.examples import Example, Examples

COLUMNS = ("file_name", "question", "answers")
_METADATA = ("metadata.jsonl", "metadata.csv")
_SPLIT_FOLDERS = {"train": ("train",), "held_out": ("held_out", "validation", "val", "dev", "test")}


def load_imagefolder(
    folder: str | Path, split: str | None = None, seed: int = 0, limit: int | None = None, skip_bad: bool = False
) -> Examples:
    """The examples of a folder, in the order of its metadata, after every record and picture was checked.

    Each metadata file names pictures below its own folder, and has at least one row. A row has `file_name`, `question`,
    `answers` (a text or a list of texts; in CSV a list in JSON), and may have `evidence` and `context` (boxes in pixels of
    the upright picture) and `family`.

    Args:
        split: "train" or "held_out": only the pictures in that sub-folder (validation, val, dev and test are held out too;
            the first there is of these), where the folder has sub-folders of these names; a picture in none of them is a
            problem. A folder without them is one split, whatever is asked for. None: all.
        seed: of the choice that `limit` makes.
        limit: at most so many examples, drawn at random; only their pictures are read.
        skip_bad: leave out what is wrong, print how much, and go on.

    Raises:
        DataError: what is wrong, with file and line; also with `skip_bad` if a file can't be read to its end.
    """
    folder = Path(folder)
    splits = _split_folders(folder, split)
    problems = Problems(str(folder / splits[0]) if splits else str(folder))
    rows = list(_good_rows(folder, splits, problems))
    if limit is not None and limit < len(rows):
        Random(seed).shuffle(rows)
    kept, sizes = [], {}
    progress = tqdm(total=min(limit or len(rows), len(rows)), desc=f"checking {folder}", disable=None, leave=False)
    with progress:
        for number, picture, place, fields in rows:
            if limit is not None and len(kept) == limit:
                break
            if _picture_fits(picture, (*fields["evidence"], *fields["context"]), place, sizes, problems):
                kept.append((number, Example(picture, **fields, name=place)))
                progress.update()
    left_out = problems.settle(len(kept), skip_bad)
    return Examples([example for _, example in sorted(kept, key=lambda entry: entry[0])], left_out)


def _split_folders(folder: Path, split: str | None) -> list[str]:
    """The sub-folders that are splits, the wanted one first; none where the folder has none or all of it is wanted."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; pass a folder with pictures and metadata.jsonl")
    if split is None:
        return []
    if split not in _SPLIT_FOLDERS:
        raise ValueError(f"split={split!r} is not one of {', '.join(_SPLIT_FOLDERS)}")
    present = [name for names in _SPLIT_FOLDERS.values() for name in names if (folder / name).is_dir()]
    wanted = next((name for name in present if name in _SPLIT_FOLDERS[split]), None)
    if present and wanted is None:
        raise DataError(f"{folder} has no folder {' or '.join(_SPLIT_FOLDERS[split])} for split={split!r}")
    return sorted(present, key=lambda name: name != wanted)


def _metadata_files(folder: Path, splits: list[str]) -> list[Path]:
    others = {folder / name for name in splits[1:]}
    files = [path for name in _METADATA for path in folder.rglob(name) if path.is_file()]
    files = [path for path in files if others.isdisjoint(path.parents)]
    files.sort(key=lambda path: (len(path.parts), path))  # the folder's own first
    if not files:
        wanted = folder / splits[0] if splits else folder
        near = sorted(
            path.name
            for place in {folder, wanted}
            for path in place.iterdir()
            if path.is_file() and path.suffix in (".jsonl", ".json", ".csv", ".parquet")
        )
        hint = f"; there is {', '.join(near)}" if near else ""
        raise DataError(f"{wanted} has no metadata.jsonl or metadata.csv{hint}. One line per question is wanted: "
                        '{"file_name": "a.png", "question": "...", "answers": ["..."]}')  # fmt: skip
    for file in files:
        if file.suffix == ".csv" and file.with_suffix(".jsonl") in files:
            raise DataError(f"{file.parent} has both metadata.jsonl and metadata.csv; keep one of them")
    return files


def _good_rows(folder: Path, splits: list[str], problems: Problems) -> Iterator[tuple[int, Path, str, dict]]:
    """(number, picture, place, checked fields) of every row of the first split that is right as far as its text can tell."""
    duplicates, number = Duplicates(), 0
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
            elif duplicates.check(str(picture), fields["question"], place, problems):
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
    content = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if file.suffix == ".csv":
        yield from _csv_rows(file, content, problems)
        return
    for number, line in enumerate(content.split(b"\n"), start=1):
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


def _unrepeated(pairs: list[tuple[str, object]]) -> dict:
    """The JSON object of these names and values. `DataError` for a name that comes twice, of which the last would win."""
    repeated = _repeated([name for name, _ in pairs])
    if repeated is not None:
        raise DataError(f"{repeated!r} stands twice in one object; keep one of them")
    return dict(pairs)


def _repeated(names: list[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _csv_rows(file: Path, content: bytes, problems: Problems) -> Iterator[tuple[int, dict]]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{file}:{line} is not UTF-8 ({error.reason}); save the file as UTF-8") from error
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
                yield first, _from_csv(dict(zip(header, values, strict=True)))
    except csv.Error as error:
        message = f"{error}; the rest of the file can't be read: correct this row"
        problems.add(f"{file}:{number}", "not CSV", message, unread=True)


def _from_csv(row: dict[str, str]) -> dict:
    """A row with lists where a value is one in JSON; empty optional values are dropped."""
    for name in ("answers", "evidence", "context"):
        if row.get(name, "").startswith("["):
            # a text that begins with a bracket stays one; as evidence it is refused later
            with contextlib.suppress(ValueError, RecursionError):
                row[name] = json.loads(row[name])
    return {name: value for name, value in row.items() if value or name not in OPTIONAL}


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
        problems.add(place, "missing picture", f"there is no file {picture}")
    elif isinstance(size, str):
        problems.add(place, "unreadable picture", size)
    else:
        return check_boxes(boxes, size, place, problems)
    return False
