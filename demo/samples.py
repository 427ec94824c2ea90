"""Pictures and questions to begin with: the bundled page, the drawn world's held-out pages, and real tables where they lie."""

import logging
from functools import partial
from pathlib import Path

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
NUMBER_OF_TABLES = 4

logger = logging.getLogger(__name__)


def samples(tables: str | Path | None = None) -> list[Example]:
    """The examples that this installation can show; pictures are drawn when they are opened.

    Args:
        tables: the folder of WikiTableQuestions, for real tables too.

    Raises:
        DataError: `tables` was given and holds none.
    """
    found = [_bundled(question) for question in default_questions()]
    try:
        found += _drawn()
        if tables is not None:
            found += _tables(tables)
    except ImportError as error:
        logger.warning("no drawn examples: %s; install them with pip install -e '.[train]'", error)
    return found


def title(example: Example) -> str:
    """What an example is called in a list: its kind and its question."""
    return f"{example.family.replace('_', ' ')}: {example.question}"


def _bundled(question: str) -> Example:
    return Example(partial(open_picture, HERE / "page.png"), question, (), "page", name=f"page/{question}")


def _drawn() -> list[Example]:
    from training.data.world import world_examples

    return world_examples("held_out", FIRST_PAGE, KINDS, (GRID,), len(KINDS))


def _tables(folder) -> list[Example]:
    from training.data.tables import load_tables

    return load_tables(str(folder), limit=NUMBER_OF_TABLES)
