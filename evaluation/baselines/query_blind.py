"""The model's own layer, trained and run without the question: what the question is worth is `arrcoc`'s lead over it."""

import copy
from pathlib import Path
from weakref import WeakKeyDictionary

import torch

from arrcoc.configuration_arrcoc import SHAPES
from evaluation.baselines import staged
from evaluation.baselines.arrcoc import arrcoc
from evaluation.baselines.interface import Prepared
from training.allocator import allocator_dials, read_allocator
from training.scorers import blind_query

refuses = staged.refuses
_LAYERS: WeakKeyDictionary = WeakKeyDictionary()


def load_weights(model, file: str | Path) -> None:
    """Reads the layer for `model` from a file of `training.train_allocator --scorer query_blind`.

    Dials are those of `model`, as for the layer that this one is compared with; the file's count for its shape alone.

    Raises:
        ValueError: the file is missing, damaged, of another base, was trained with the question, or can't have these dials.
    """
    held = allocator_dials(model.config)
    dials = {name: value for name, value in held.items() if name not in SHAPES}
    layer, _, _ = read_allocator(model, file, dials, scorer="query_blind")
    _LAYERS[model] = layer.eval()


@torch.no_grad()
def query_blind(model, processor, examples, budgets) -> Prepared:
    """Inputs with the tokens that the blind layer chooses; `load_weights` comes first.

    Raises:
        ValueError: no weights were loaded.
    """
    if model not in _LAYERS:
        raise ValueError(
            "query_blind is learned and has no weights yet; train it with python -m training.train_allocator --scorer "
            "query_blind, then call load_weights(model, file)"
        )
    return arrcoc(_blind(model), processor, examples, budgets)


def _blind(model):
    """A view of `model` with the blind layer, which asks every picture the same one token."""
    view, base = copy.copy(model), copy.copy(model.model)
    view._modules, base._modules = dict(model._modules), dict(model.model._modules)
    view.model, base.arrcoc = base, _LAYERS[model].to(model.device)

    def query(asked, number):
        ids, _ = blind_query(model, 1, model.device)
        return model.get_input_embeddings()(ids[0]).detach()

    base._query = query
    base._parts = lambda asked, number: [query(asked, number)]
    return view
