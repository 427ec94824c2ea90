"""Datasets of the Hugging Face Hub, by name, with a column mapping."""

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from random import Random

from PIL import Image

from arrcoc.picture import open_picture
from training.data.check import (
    OPTIONAL,
    SPLIT_NAMES,
    DataError,
    Duplicates,
    Problems,
    check_boxes,
    check_record,
    misnamed,
    near_name,
    picture_size,
    tell_taken,
)
from training.data.examples import Example, Examples

_REQUIRED = ("image", "question", "answers")
_WANTED = dict.fromkeys(OPTIONAL, "boxes as [left, top, right, bottom] in pixels") | {"family": "a text"}


@dataclass(frozen=True)
class _RowPicture:
    """Reads the picture of a row out of the dataset's own file, so that no pixels are held."""

    rows: object
    index: int
    column: str

    def __call__(self) -> Image.Image:
        return _decode(self.rows[self.index][self.column])


@dataclass(frozen=True)
class _HeldPicture:
    """The picture of a streamed row, as it was encoded."""

    value: dict

    def __call__(self) -> Image.Image:
        return _decode(self.value)


def load_hub(
    name: str,
    columns: Mapping[str, str] | None = None,
    split: str = "train",
    config: str | None = None,
    revision: str | None = None,
    streaming: bool = False,
    seed: int = 0,
    limit: int | None = None,
    skip_bad: bool = False,
) -> Examples:
    """The examples of a Hub dataset, or of a local folder of parquet files, after every one of them was checked.

    Args:
        name: repository id, or a local folder, as `datasets.load_dataset` takes it.
        columns: which column is `image`, `question`, `answers`, `evidence`, `context` and `family`; by default the one of the
            same name.
        split: the dataset's own name of a split; "train" and "held_out" take what folders of images call so (`load_imagefolder`),
            whichever there is first.
        streaming: read rows as they are needed, without a download; `limit` takes the first rows then, and has to be given.
        seed: of the choice that `limit` makes without streaming.

    Raises:
        DataError: a dataset that can't be read; a column that isn't there, with those that are, or holds no pictures or no texts;
            bad rows, each with its number.
        ImportError: the library `datasets` is missing.
    """
    if streaming and limit is None:
        raise ValueError(
            "streaming=True reads an unknown number of rows: pass a limit (--limit N), or leave streaming out to download all of it"
        )
    rows, split = _open(name, split, config, revision, streaming)
    chosen = _choose_columns(rows, columns or {}, name)
    classes = {"answers": _classes(rows.features[chosen["answers"]], chosen["answers"], name)}
    if "family" in chosen:
        classes["family"] = getattr(rows.features[chosen["family"]], "names", [])
    rows = _undecoded(rows, chosen, name)
    problems, duplicates = Problems(f"hub:{name}[{split}]"), Duplicates()
    order = range(len(rows)) if not streaming else ()
    if limit is not None and not streaming and limit < len(rows):
        order = Random(seed).sample(order, len(rows))
    numbered = ((index, rows[index]) for index in order) if not streaming else enumerate(rows)
    kept, pictures = [], {}  # rows of one picture share it and its size: what is asked of it is grouped by that
    for index, row in _read(numbered, name):
        if limit is not None and len(kept) == limit:
            break
        named = {chosen[field]: _by_name(row[chosen[field]], names) for field, names in classes.items() if names}
        row = {**row, **named}
        value = row[chosen["image"]]
        shown = _identity(value)
        if shown in pictures:
            picture, size = pictures[shown]
        else:
            picture = _HeldPicture(value) if streaming else _RowPicture(rows, index, chosen["image"])
            size = picture_size(picture)
        example = _checked(row, chosen, picture, size, shown, f"{problems.source}:row {index}", problems, duplicates)
        if example is not None:
            pictures[shown] = picture, size
            kept.append((index, example))
    left_out = problems.settle(len(kept), skip_bad)
    return Examples([example for _, example in sorted(kept, key=lambda entry: entry[0])], left_out)


def hub_splits(name: str, config: str | None = None, revision: str | None = None) -> dict[str, list[str]]:
    """What a dataset calls its parts of "train" and of "held_out", the one that is taken first. Errors as `load_hub`."""
    parts = _parts(name, config, revision, streaming=True)
    return {split: [part for part in names if part in parts] for split, names in SPLIT_NAMES.items()}


def _parts(name: str, config: str | None, revision: str | None, streaming: bool) -> Mapping:
    """The splits of a dataset by their own names."""
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise ImportError("Hub datasets need the library `datasets`; run: pip install -e '.[train]'") from error
    with _refused(name, f"loaded (config={config}, revision={revision}); check its name, the network and its files"):
        return datasets.load_dataset(name, config, revision=revision, streaming=streaming)


def _open(name: str, split: str, config: str | None, revision: str | None, streaming: bool):
    """The rows of a split, whose columns are known, and the name that the dataset has for it."""
    parts = _parts(name, config, revision, streaming)
    found = [wanted for wanted in dict.fromkeys((split, *SPLIT_NAMES.get(split, ()))) if wanted in parts]
    if not found:
        raise DataError(
            f"the dataset {name!r} has no split {split!r}; it has {', '.join(parts)}: pass one of them as split"
        )
    tell_taken(f"hub:{name}", split, found)
    rows = parts[found[0]]
    with _refused(name):
        return (rows._resolve_features() if rows.features is None else rows), found[0]


@contextmanager
def _refused(name: str, what: str = "read; correct its files, or load them anew if they are cut off") -> Iterator[None]:
    """Makes a `DataError` of what `datasets` raises, which are also errors of its own and of Arrow."""
    own = importlib.import_module("datasets.exceptions")
    try:
        yield
    except (own.DatasetsError, ValueError, OSError, TypeError, NotImplementedError) as error:
        # that one says of itself only that there was an error
        cause = error.__cause__ if isinstance(error, own.DatasetGenerationError) else None
        raise DataError(f"the dataset {name!r} can't be {what}: {cause or error}") from error


def _read(numbered: Iterable[tuple[int, Mapping]], name: str) -> Iterator[tuple[int, Mapping]]:
    with _refused(name):
        yield from numbered


def _choose_columns(rows, columns: Mapping[str, str], name: str) -> dict[str, str]:
    unknown = [field for field in columns if field not in (*_REQUIRED, *OPTIONAL)]
    if unknown:
        raise DataError(f"{unknown[0]!r} can't be mapped; the fields are {', '.join((*_REQUIRED, *OPTIONAL))}")
    present = list(rows.column_names or ())
    chosen, lacking, told = {}, [], set()
    for field in (*_REQUIRED, *OPTIONAL):
        column = columns.get(field, field)
        if field in OPTIONAL and column == "":
            continue
        unmapped = field in OPTIONAL and field not in columns and column in present
        if unmapped and not _may_be(field, rows.features[column]):
            told.add(column)
            print(
                f"hub:{name}: {column!r} is {rows.features[column]} and is not used: {field} would be {_WANTED[field]}",
                file=sys.stderr,
            )
        elif column in present:
            chosen[field] = column
        elif field in columns or field in _REQUIRED:
            near = near_name(column, present)
            lacking.append(f"no column {column!r} for {field}" + (f" (is it {field}={near}?)" if near else ""))
    if lacking:
        raise DataError(f"the dataset {name!r} has {'; '.join(lacking)}. Its columns are {', '.join(present)}")
    unused = [column for column in present if column not in chosen.values() and column not in told]
    for field in OPTIONAL:
        other = None if field in chosen or field in columns else misnamed(field, unused)
        if other:  # a dataset has columns of its own, so that this is no mistake for certain
            boxes = "" if field == "family" else " with boxes as [left, top, right, bottom] in pixels"
            print(f"hub:{name}: {other!r} is not used; if it is {field}{boxes}, add &{field}={other}", file=sys.stderr)
    return chosen


def _may_be(field: str, feature) -> bool:
    """Whether a column of this type may hold an optional field; datasets of other purposes have columns of the same names."""
    datasets = importlib.import_module("datasets")
    is_value = isinstance(feature, datasets.Value)
    if field != "family":
        return not is_value
    return isinstance(feature, datasets.ClassLabel) or (is_value and feature.dtype.removeprefix("large_") == "string")


def _classes(feature, column: str, name: str) -> list[str]:
    """The names of the classes that a column of answers counts; none where it holds texts."""
    datasets = importlib.import_module("datasets")
    inner = _inner(feature, datasets)
    if isinstance(inner, datasets.ClassLabel):
        return inner.names
    if isinstance(inner, datasets.Value) and inner.dtype.removeprefix("large_") in ("string", "null"):
        return []
    raise DataError(
        f"the dataset {name!r} has {feature} in its column {column!r}, and answers are texts or lists of texts; map another "
        "as answers=COLUMN, or make texts of it: dataset.map(...), to_parquet(...) into a folder, then hub:FOLDER"
    )


def _by_name(value, classes: list[str]):
    if isinstance(value, list):
        return [_by_name(one, classes) for one in value]
    return None if value is None or value < 0 else classes[value]  # -1 stands for none


def _inner(feature, datasets):
    while isinstance(feature, (datasets.List, datasets.LargeList)):
        feature = feature.feature
    return feature


def _undecoded(rows, chosen: Mapping[str, str], name: str):
    """`rows` with the wanted columns alone, and pictures as {"bytes", "path"}, which are opened like any other picture."""
    datasets = importlib.import_module("datasets")
    column = chosen["image"]
    if not _holds_pictures(rows.features[column], datasets):
        raise DataError(
            f"the dataset {name!r} has {rows.features[column]} in its column {column!r}, not one picture a row; map another "
            f"as image=COLUMN. Its columns are {', '.join(rows.column_names)}"
        )
    rows = rows.select_columns(list(dict.fromkeys(chosen.values())))
    with _refused(name):
        return rows.cast_column(column, datasets.Image(decode=False))


def _holds_pictures(feature, datasets) -> bool:
    """Whether a column of this type casts to pictures: encoded ones, paths, or arrays of pixels."""
    if isinstance(feature, dict):
        return bool({"bytes", "path"} & feature.keys())
    inner = _inner(feature, datasets)
    if isinstance(inner, datasets.Value):  # a text or bytes by themselves, numbers in lists
        return (inner.dtype.removeprefix("large_") in ("string", "binary")) == (inner is feature)
    return isinstance(feature, (datasets.Image, datasets.Array2D, datasets.Array3D))


def _decode(value) -> Image.Image:
    if not isinstance(value, dict) or not (value.get("bytes") or value.get("path")):
        raise ValueError("the row has no picture")
    content, path = value.get("bytes"), value.get("path")
    if not content and "://" in path:  # in an archive, on the Hub, or a URL
        content = _fetched(path)
    if not content:
        return open_picture(Path(path))
    try:
        return open_picture(content)
    except ValueError as error:  # which knows no name
        raise ValueError(f"{path}: {error}" if path else str(error)) from error


def _fetched(url: str) -> bytes:
    fsspec = importlib.import_module("fsspec")  # `datasets` reads its files by it
    try:
        with fsspec.open(url, "rb") as file:
            return file.read()
    except Exception as error:  # each kind of place raises errors of its own
        raise ValueError(f"{url} can't be read ({type(error).__name__}: {error})") from error


def _checked(
    row: Mapping,
    chosen: Mapping[str, str],
    picture,
    size,
    shown: str,
    place: str,
    problems: Problems,
    duplicates: Duplicates,
) -> Example | None:
    record = {field: row[column] for field, column in chosen.items() if field != "image"}
    fields = check_record(record, place, problems)
    if isinstance(size, str):
        problems.add(place, "unreadable picture", size)
    elif (
        fields is not None
        and check_boxes((*fields["evidence"], *fields["context"]), size, place, problems)
        and duplicates.check(shown, fields["question"], place, problems)
    ):
        return Example(picture, **fields, name=place)
    return None


def _identity(value: Mapping | None) -> str:
    """What the pictures of rows are told apart by: a digest of their bytes, or their path; nothing of a row without one."""
    value = value or {}
    return blake2b(value["bytes"]).hexdigest() if value.get("bytes") else value.get("path") or ""
