"""A small archive in the form of WikiTableQuestions."""

import csv
import io
import tarfile
from pathlib import Path

HEADER = "id\tutterance\tcontext\ttargetValue\n"


def as_csv(rows) -> bytes:
    """A table as the archive holds it."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, escapechar="\\", doublequote=False).writerows(rows)
    return text.getvalue().encode()


def _rows(number: int) -> list[list[str]]:
    names = ("Ada", "Ben", "Cleo", "Dora", "Emil", "Fritz", "Greta", "Hugo")
    body = [[name, f"{number}{place}7", f'{place + 1}. of "May"'] for place, name in enumerate(names)]
    return [["Name", "Points", "Day"], *body]


def archive_files(tables: int = 30) -> dict[str, bytes]:
    """The files of an archive of tables with eight rows each, two questions about each, by name."""
    files = {f"csv/1-csv/{number}.csv": as_csv(_rows(number)) for number in range(tables)}
    lines = [
        f"nt-{number}-{place}\thow many points has {name}?\tcsv/1-csv/{number}.csv\t{number}{place}7\n"
        for number in range(tables)
        for place, name in ((2, "Cleo"), (5, "Fritz"))
    ]
    return {"training.tsv": (HEADER + "".join(lines)).encode(), **files}


def comparing_files(tables: int = 12) -> dict[str, bytes]:
    """The files of an archive of such tables that asks of each who has the most points, which is the last."""
    files = archive_files(tables)
    lines = [f"nt-{number}\twho has the most points?\tcsv/1-csv/{number}.csv\tHugo\n" for number in range(tables)]
    return files | {"training.tsv": (HEADER + "".join(lines)).encode()}


def tar_of(folder: Path, files: dict[str, bytes], *members) -> Path:
    """`folder`, which now holds the files, and further members of a tar file, as tables.tgz."""
    with tarfile.open(folder / "tables.tgz", "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in members:
            archive.addfile(member)
    return folder
