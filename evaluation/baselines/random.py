"""Random cells, at their true positions: what any rule must beat."""

import hashlib

import torch

from evaluation.baselines.interface import Prepared
from evaluation.baselines.selection import encode, fill, plan_cells


def seed_of(example) -> int:
    """A seed that depends on picture and question alone, so that a result does not depend on its batch or its run."""
    image = example.image
    content = image.tobytes() + repr(image.size).encode() + example.question.encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:7], "big")


def random(model, processor, examples, budgets) -> Prepared:
    """Inputs with K random cells of each picture; a larger budget keeps those of a smaller one."""
    encoded = encode(model, processor, examples, budgets)
    plans = []
    for example, (height, width), count in zip(examples, encoded.grids, encoded.counts, strict=True):
        generator = torch.Generator().manual_seed(seed_of(example))
        cells = torch.randperm(height * width, generator=generator)[:count]
        plans.append(plan_cells(cells.to(model.device), height * width))
    return fill(encoded, plans)
