"""Pages that the frozen base encodes once, before training, and that every pass goes over again.

Scores need the base's features and nothing else of it, so that a step costs the scorer alone, and all questions of a page
are scored together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from tqdm.auto import tqdm

from arrcoc.looking import Glance
from training.language_pass import full_pass, prefixed, rows_alone
from training.scorers import Scored, blind_query, encode_once, merged_grids


@dataclass(frozen=True, eq=False)
class EncodedPage:
    """One picture as a scorer sees it, and what is asked of it.

    Attributes:
        grid: (t, h, w) merged grid.
        glance: stage 1 of it, but for what hangs on the question.
        levels: as `ARRCOCLayer.forward` takes them, in half precision.
        query_input_ids, query_attention_mask: (questions, Tq).
        evidence, context: (questions, cells) covered share of each cell.
        attention: (questions, cells) how the answer's tokens attend to them in the full model, 0 where no signal asks; `None`
            where none asks at all.
    """

    grid: tuple[int, int, int]
    glance: Glance
    levels: list[torch.Tensor]
    query_input_ids: torch.Tensor
    query_attention_mask: torch.Tensor
    evidence: torch.Tensor
    context: torch.Tensor
    attention: torch.Tensor | None = None


class PageCollator:
    """Makes pages into the arguments of `AllocatorLearner.forward`, with a budget for each of their questions.

    Args:
        collator: `AllocatorCollator`, whose budgets are drawn.
    """

    def __init__(self, collator):
        self.collator = collator

    def __call__(self, pages: Sequence[EncodedPage], number: int) -> dict[str, list]:
        """`pages`, and `budgets` (questions,) of each."""
        asked = [len(page.evidence) for page in pages]
        cells = [page.evidence.shape[1] for page in pages for _ in range(len(page.evidence))]
        return {"pages": list(pages), "budgets": list(self.collator.budgets(cells, number).split(asked))}


@torch.no_grad()
def encode_ahead(
    model, collator, source, pages: int, quiet: bool = False, unmarked_alone: bool = False
) -> list[EncodedPage]:
    """The first `pages` pages of a source, each with all that the source asks of it.

    With the `language` of `collator`, the full model answers each question once, for its attention; with `unmarked_alone`
    those without an evidence box. About 0.5 MB for each page of 144 cells on the bundled base: the caller says how many
    fit into memory.
    """
    numbers = tqdm(range(pages), desc="pages encoded", disable=quiet)
    return [_encoded(model, collator(source.page(number), number), unmarked_alone) for number in numbers]


def _encoded(model, batch, unmarked_alone: bool) -> EncodedPage:
    # every row of the batch shows the same picture
    grids, vision = merged_grids(model, batch["image_grid_thw"]), encode_once(model, batch)
    cells = len(vision.pooler_output[0])
    evidence = batch["evidence"].view(-1, cells)
    attention = None
    if "full_input_ids" in batch:
        attention = torch.zeros_like(evidence)
        rows = [row for row, cells in enumerate(evidence) if not (unmarked_alone and cells.any())]
        if rows:
            attention[rows] = _attention(model, batch, vision, rows)
    glance = model.model.arrcoc.look(batch["texture_images"][0], grids[0])
    return EncodedPage(
        grids[0],
        replace(glance, canvas=_half(glance.canvas)),
        [_half(vision.pooler_output[0]), *(_half(level[0]) for level in vision.deepstack_features)],
        batch["query_input_ids"],
        batch["query_attention_mask"].bool(),
        evidence,
        batch["context"].view(-1, cells),
        attention,
    )


def _attention(model, batch, vision, rows: list[int]) -> torch.Tensor:
    asked = rows_alone(prefixed(batch, "full_"), batch["image_grid_thw"], vision, rows)
    return torch.stack(full_pass(model, *asked, True).attention)


def _half(features: torch.Tensor) -> torch.Tensor:
    return features.to(torch.float16, copy=True)  # a copy: a view would keep the whole batch in memory


def page_scores(model, page: EncodedPage, budgets: torch.Tensor, blind: bool, early: bool = True) -> list[Scored]:
    """Scores of the model's layer for every question of a page, before similar cells suppress each other; those of stage 1
    where `early` asks for them."""
    layer = model.model.arrcoc
    ids, mask = page.query_input_ids, page.query_attention_mask
    if blind:
        ids, mask = blind_query(model, len(ids))
        mask = mask.bool()
    query = model.get_input_embeddings()(ids).detach()
    with torch.autocast(query.device.type, enabled=False):
        texture = page.glance.texture
        needed = layer.participation(texture, page.levels, query, mask)
        looked = replace(page.glance, perspective=layer.perspective(texture))  # it is trained too
        rated = layer.rate(looked, query, mask) if early else None
        scored = []
        for number, budget in enumerate(budgets.tolist()):
            maps = {
                "information": looked.information,
                "perspective": looked.perspective,
                "participation": needed[number],
            }
            scores = {name: score[None] for name, score in maps.items()}
            balance = layer.balancer(scores, query[number][mask[number]], budget)
            value = balance.relevance.flatten()
            stage = {} if rated is None else {"early": rated.early[number]}
            if rated is not None and number == 0:
                stage |= {"read": rated.read, "tokens": page.levels[0]}
            scored.append(Scored(value, balance.temperature, page.grid, budget, {}, balance.tensions, **stage))
    return scored
