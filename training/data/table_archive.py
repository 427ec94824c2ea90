"""WikiTableQuestions as published: tables and questions, read from the archive without unpacking it, or from its folder."""

import csv
import re
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path

from training.data.check import DataError, Problems
from training.world.layout import stable_hash

QUESTIONS = "training.tsv"
_COLUMNS = ["id", "utterance", "context", "targetValue"]
_MOST_BYTES, _MOST_BYTES_IN_ALL = 16 << 20, 256 << 20  # of a file, of the archive
_HELD_OUT_SHARE = 5  # every fifth table
_CONTEXT = re.compile(r"csv/[\w-]+/[\w-]+\.csv")


@dataclass(frozen=True)
class Table:
    """A header and the rows below it, with single spaces in all texts; every row is as long as the header."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def split(self) -> str:
        """The split that owns the table: the hash of its content decides, so that copies of a table are never in both."""
        return "held_out" if stable_hash(f"table {self.header} {self.rows}") % _HELD_OUT_SHARE == 0 else "train"


@dataclass(frozen=True)
class Asked:
    """A question that people wrote about a table; `context` names it, `place` is where the question stands (file:line)."""

    name: str
    question: str
    context: str
    answer: str
    place: str


@dataclass(frozen=True)
class Archive:
    """All questions, and the tables that they are about by their context."""

    tables: dict[str, Table]
    questions: tuple[Asked, ...]
    problems: Problems


def spaced(text: str) -> str:
    """The text with single spaces."""
    return " ".join(text.split())


def read_archive(path: str | Path) -> Archive:
    """The archive at `path`: a folder that holds tables.tgz, the file itself, or the unpacked folder (training.tsv and csv/).

    Read once and kept. Bad lines and tables stand in `problems`. `DataError` if there is no such archive, or it is damaged.
    """
    place = Path(path).expanduser()
    if place.is_dir() and (place / "tables.tgz").is_file():
        place = place / "tables.tgz"
    if not place.exists():
        raise DataError(f"{path} does not exist; pass the folder of WikiTableQuestions that holds tables.tgz")
    changed = (place if place.is_file() else place / QUESTIONS).stat().st_mtime_ns if _is_archive(place) else None
    if changed is None:
        raise DataError(f"{path} has neither tables.tgz nor {QUESTIONS}; pass the folder of WikiTableQuestions")
    return _read(place.resolve(), changed)


def _is_archive(place: Path) -> bool:
    return place.is_file() or (place / QUESTIONS).is_file()


@lru_cache(maxsize=4)
def _read(place: Path, changed: int) -> Archive:
    # `changed` is part of what the cache knows a place by
    open_file = _files_of(place).get if place.is_file() else lambda name: _file_below(place, name)
    problems = Problems(f"wikitables:{place}")
    content = open_file(QUESTIONS)
    if content is None:
        raise DataError(f"{place} holds no {QUESTIONS}; pass the tables.tgz of WikiTableQuestions")
    tables: dict[str, Table | None] = {}
    questions = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        asked = _asked(line, f"{place}/{QUESTIONS}:{number}", problems) if line.strip() and number > 1 else None
        if number == 1 and line.decode(errors="replace").strip("\ufeff\r").split("\t") != _COLUMNS:
            raise DataError(f"{place}/{QUESTIONS}:1 has other columns than {', '.join(_COLUMNS)}")
        if asked is not None:
            if asked.context not in tables:
                tables[asked.context] = _table(asked, open_file, f"{place}/{asked.context}", problems)
            if tables[asked.context] is None:
                problems.add(asked.place, "unreadable table", f"its table {asked.context} can't be used")
            else:
                questions.append(asked)
    return Archive({name: table for name, table in tables.items() if table}, tuple(questions), problems)


def _files_of(place: Path) -> dict[str, bytes]:
    """The questions and tables in a tar archive, by name. Nothing is written to the disk; other members are passed over."""
    files, total = {}, 0
    try:
        with tarfile.open(place, "r:*") as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if not member.isreg() or not (name == QUESTIONS or _CONTEXT.fullmatch(name)):
                    continue
                total += member.size
                if member.size > _MOST_BYTES or total > _MOST_BYTES_IN_ALL:
                    raise DataError(
                        f"{place} holds {name} with {member.size} bytes, {total} in all: this is no table archive"
                    )
                files[name] = archive.extractfile(member).read()
            while archive.fileobj.read(1 << 20):  # tar ends before the checksum of what holds it, which is read so
                pass
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{place} can't be read as a tar archive ({error}); copy it again") from error
    return files


def _file_below(folder: Path, name: str) -> bytes | None:
    file = folder / name
    return file.read_bytes() if file.is_file() and file.stat().st_size <= _MOST_BYTES else None


def _asked(line: bytes, place: str, problems: Problems) -> Asked | None:
    try:
        values = line.decode().rstrip("\r").split("\t")
    except UnicodeDecodeError as error:
        problems.add(place, "not TSV", f"the line is not UTF-8 ({error.reason})")
        return None
    if len(values) != len(_COLUMNS):
        problems.add(place, "not TSV", f"the line has {len(values)} values; {', '.join(_COLUMNS)} are wanted")
        return None
    name, question, context, answer = map(spaced, values)
    if not _CONTEXT.fullmatch(context):
        problems.add(place, "path outside", f"context {context!r} is no table's path; csv/FOLDER/TABLE.csv is wanted")
    elif not question:
        problems.add(place, "empty question", "utterance has no text")
    elif not answer:
        problems.add(place, "no answer", "targetValue is empty")
    else:
        return Asked(name, question, context, answer, place)
    return None


def _table(asked: Asked, open_file: Callable, place: str, problems: Problems) -> Table | None:
    content = open_file(asked.context)
    if content is None:
        problems.add(place, "missing table", f"there is no such table; {asked.place} asks about it")
        return None
    try:
        reader = csv.reader(StringIO(content.decode(), newline=""), escapechar="\\", doublequote=False, strict=True)
        rows = [tuple(spaced(value) for value in row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        problems.add(place, "not CSV", str(error))
        return None
    if len(rows) < 2 or len({len(row) for row in rows}) > 1:
        problems.add(place, "not CSV", "a header and rows of its length are wanted")
        return None
    return Table(rows[0], tuple(rows[1:]))
