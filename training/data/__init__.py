"""Questions about pictures for training and evaluation: the drawn world, folders, real tables and Hub datasets."""

from training.data.check import DataError
from training.data.examples import Example, Examples, by_picture, evidence_share, evidence_weight
from training.data.load import load_examples, split_read, world_spec
from training.data.world import WorldSource, world_examples

__all__ = [
    "DataError",
    "Example",
    "Examples",
    "WorldSource",
    "by_picture",
    "evidence_share",
    "evidence_weight",
    "load_examples",
    "split_read",
    "world_examples",
    "world_spec",
]
