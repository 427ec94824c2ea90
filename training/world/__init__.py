"""The drawn world: seeded pages with questions, answers and the boxes of their evidence."""

from training.world.canvas import CELL, Thing
from training.world.layout import SPLITS, Layout, layout_split, layouts, value_split
from training.world.page import Page, make_page, named_boxes
from training.world.question import Question
from training.world.styles import CONTENTS, KINDS, Style

__all__ = [
    "CELL",
    "CONTENTS",
    "KINDS",
    "SPLITS",
    "Layout",
    "Page",
    "Question",
    "Style",
    "Thing",
    "layout_split",
    "layouts",
    "make_page",
    "named_boxes",
    "value_split",
]
