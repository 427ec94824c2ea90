"""The drawn world: seeded pages with questions, answers and the boxes of their evidence."""

from training.world.layout import SPLITS, Layout, layout_split, layouts, value_split
from training.world.page import CELL, Page, Question, Style, make_page

__all__ = [
    "CELL",
    "SPLITS",
    "Layout",
    "Page",
    "Question",
    "Style",
    "layout_split",
    "layouts",
    "make_page",
    "value_split",
]
