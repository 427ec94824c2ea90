"""Weights of the learned baselines: each belongs to one loaded model, and goes when that goes."""

from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from torch import nn

from training.allocator import load_baseline


class Weights:
    """The trained module of one baseline, per model.

    Args:
        name: of the baseline.
        make: from a model to a new module of its geometry.
    """

    def __init__(self, name: str, make):
        self.name, self.make = name, make
        self._modules: WeakKeyDictionary = WeakKeyDictionary()

    def load(self, model: nn.Module, file: str | Path) -> None:
        """Reads the module for `model` from a file of `training.train_allocator --scorer`.

        Raises:
            ValueError: the file is missing, damaged, of another base or another form.
        """
        module = self.make(model)
        load_baseline(module, model, file, self.name)
        self._modules[model] = module.eval()

    def of(self, model: nn.Module) -> nn.Module:
        """The module of `model`.

        Raises:
            ValueError: none was loaded.
        """
        if model not in self._modules:
            raise ValueError(
                f"{self.name} is learned and has no weights yet; train it with python -m training.train_allocator --scorer "
                f"{self.name}, then call load_weights(model, file)"
            )
        return self._modules[model].to(model.device)


def best_cells(scores: torch.Tensor, count: int) -> torch.Tensor:
    """(count,) indices of the highest of `scores` (cells,), raster order among equals."""
    return torch.sort(scores, descending=True, stable=True).indices[:count]
