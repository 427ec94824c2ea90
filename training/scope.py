"""What teaches whether a question is about the whole image: what is lost where its budget is spread evenly, and where it isn't."""

import torch
import torch.nn.functional as F

from arrcoc.layer import ARRCOCOutput
from training.batches import IGNORED
from training.language_pass import answer_pass, prefixed, rows_alone, with_features
from training.scorers import Scored, encode_once, layer_scores
from training.signals import scope_loss


def scope_learned(model, batch) -> torch.Tensor:
    """`scope_loss` of a batch of `AllocatorCollator`, with a gradient in the layer's `scope` alone.

    Lost is the share of the evidence that is not kept, or, of a question without a box, the language-model loss of its answer.
    """
    with torch.no_grad():
        vision = encode_once(model, batch)
        scored = layer_scores(model, batch, vision, blind=False, early=False)
        evidence = batch["evidence"].split([len(image.value) for image in scored])
        even, chosen = (
            _lost(model, batch, vision, [_spent(image, everywhere) for image in scored], evidence)
            for everywhere in (True, False)
        )
        query = model.get_input_embeddings()(batch["query_input_ids"])
    with torch.autocast(query.device.type, enabled=False):  # as the layer asks it
        logits = model.model.arrcoc.scope(query, batch["query_attention_mask"].bool())
    return scope_loss(logits, even, chosen)


def _spent(image: Scored, everywhere: bool) -> ARRCOCOutput:
    forced = torch.tensor(everywhere, device=image.value.device)
    return ARRCOCOutput(image.allocate(image.value, everywhere=forced), None)


def _lost(model, batch, vision, outputs: list[ARRCOCOutput], evidence) -> torch.Tensor:
    lost = torch.stack(
        [
            cells[output.allocation.cell_token < 0].sum() / cells.sum().clamp_min(1e-9)
            for output, cells in zip(outputs, evidence, strict=True)
        ]
    )
    rows = [row for row, cells in enumerate(evidence) if not cells.any()]
    if not rows:
        return lost
    asked, grid, seen = rows_alone(prefixed(batch, "kept_"), batch["image_grid_thw"], vision, rows)
    kept = with_features(seen, [outputs[row] for row in rows], model.model)
    answer = answer_pass(model, asked, grid, kept)
    counts = (asked["labels"][:, 1:] != IGNORED).sum(-1).tolist()
    losses = F.cross_entropy(answer.logits.float(), answer.labels, reduction="none").split(counts)
    lost[rows] = torch.stack([each.mean() for each in losses])
    return lost
