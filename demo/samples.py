"""Pictures and questions to begin with: the bundled page, the drawn world's held-out pages, and real tables where they lie."""

import logging
from functools import partial
from pathlib import Path

from PIL import Image

from arrcoc.picture import open_picture
from demo.answer import HERE, default_questions
from training.data.examples import Example

GRID = (12, 12)  # rows, columns of tokens of the drawn pages
FIRST_PAGE = 4_000_000  # seed
KINDS = (
    "several_fields",
    "form",
    "table",
    "chart",
    "scene",
    "gist",
    "crowded",
    "near_identical",
    "small_print",
    "noise",
)
TABLES = Path(__file__).resolve().parents[2] / "shared" / "data" / "wikitablequestions"
NUMBER_OF_TABLES = 4

logger = logging.getLogger(__name__)


def samples(tables: str | Path | None = None) -> list[Example]:
    """The examples that this installation can show; pictures are drawn when they are opened.

    Args:
        tables: the folder of WikiTableQuestions; `None` for `TABLES`, where it exists.

    Raises:
        DataError: `tables` was given and holds none.
    """
    found = [_bundled(question) for question in default_questions()]
    try:
        found += _drawn()
        if tables is not None or TABLES.exists():
            found += _tables(tables or TABLES)
    except ImportError as error:
        logger.warning("no drawn examples: %s; install them with pip install -e '.[train]'", error)
    return found


def title(example: Example) -> str:
    """What an example is called in a list: its kind and its question."""
    return f"{example.family.replace('_', ' ')}: {example.question}"


def _bundled(question: str) -> Example:
    page = HERE / "page.png"
    return Example(partial(_open, page), question, (), "page", name=f"page/{question}")


def _open(page: Path) -> Image.Image:
    return open_picture(page)


def _drawn() -> list[Example]:
    from training.data.world import world_examples

    return world_examples("held_out", FIRST_PAGE, KINDS, (GRID,), len(KINDS))


def _tables(folder) -> list[Example]:
    from training.data.tables import load_tables

    return load_tables(str(folder), limit=NUMBER_OF_TABLES)
