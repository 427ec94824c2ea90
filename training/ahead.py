"""Pages that the frozen base encodes once, before training, and that every pass goes over again.

Scores need the base's features and nothing else of it, so that a step costs the scorer alone, and all questions of a page
are scored together. Pages encoded in part are among them: with `encode_ratio` below 1 cells see fewer of each other, and look
different to stage 2.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from random import Random

import torch
from tqdm.auto import tqdm

from arrcoc.balancing import SCORES
from arrcoc.encoding import encode_cells
from arrcoc.layer import ScoreMaps
from arrcoc.looking import Glance, choose_to_encode, with_contrast
from arrcoc.participating import united
from arrcoc.placement import merged_grids
from training.language_pass import full_pass, prefixed, rows_alone
from training.scorers import Scored, blind_query, encode_once
from training.signals import needed_target, restoring_loss

PARTS = (0.25, 0.5)  # of its cells: how much of a page that is encoded in part
AUTO = 0.25  # of the pages in part: how many are encoded as "auto" chooses, in training
_TOLD = 4  # GB from which on it is told what pages take


@dataclass(frozen=True, eq=False)
class EncodedPage:
    """One picture as a scorer sees it, and what is asked of it.

    Attributes:
        grid: (t, h, w) merged grid.
        glance: stage 1 of it, but for what hangs on the question.
        levels: as `ARRCOCLayer.knows` takes them, in half precision.
        query_input_ids, query_attention_mask: (questions, Tq); the mask numbers the questions that one puts into one.
        evidence, context: (questions, M) covered share of each cell.
        attention: (questions, M) how the answer's tokens attend to them in the full model, 0 where no signal asks; `None`
            where none asks at all.
        cells: (M,) raster index of the cells that were encoded, ascending; `None` for all.
        whole: `levels` of the same cells where the tower has seen the whole page, and `levels` are not restored yet; `None`
            where nothing learns to restore.
    """

    grid: tuple[int, int, int]
    glance: Glance
    levels: list[torch.Tensor]
    query_input_ids: torch.Tensor
    query_attention_mask: torch.Tensor
    evidence: torch.Tensor
    context: torch.Tensor
    attention: torch.Tensor | None = None
    cells: torch.Tensor | None = None
    whole: list[torch.Tensor] | None = None

    def to(self, device) -> "EncodedPage":
        """The page with all of its tensors on `device`."""
        return _moved(self, device)


def _moved(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, list):
        return [_moved(entry, device) for entry in value]
    if is_dataclass(value):
        return replace(value, **{field.name: _moved(getattr(value, field.name), device) for field in fields(value)})
    return value


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
        cells = [math.prod(page.grid) for page in pages for _ in range(len(page.evidence))]
        drawn = self.collator.budgets(cells, number).split(asked)
        most = [max(1, page.evidence.shape[1] - 1) for page in pages]
        return {"pages": list(pages), "budgets": [k.clamp(max=m) for k, m in zip(drawn, most, strict=True)]}


@torch.no_grad()
def encode_ahead(
    model,
    collator,
    source,
    pages: int | range,
    quiet: bool = False,
    unmarked_alone: bool = False,
    parts: int = 0,
    auto: float = AUTO,
    for_restorer: bool = False,
    blind: bool = False,
) -> list[EncodedPage]:
    """The first `pages` pages of a source, or those of a range, each with all that the source asks of it, and then up to `parts`
    times in part: the cells that the model's stage 1 chooses for one of its questions, with whatever else can be asked of these,
    or, of a share `auto` of these pages, what `encode_ratio="auto"` chooses.

    With the `language` of `collator`, the full model answers each question once, for its attention; with `unmarked_alone`
    those without an evidence box. With `for_restorer` there are pages in part alone, each with what the `whole` page has; else
    they are restored as the model restores them. With `blind` stage 1 chooses without the question. The model encodes where it
    is; pages stay on the CPU, about 0.5 MB for each of 144 cells on the bundled base: the caller says how many fit into memory.
    """
    device = model.get_input_embeddings().weight.device
    numbers = pages if isinstance(pages, range) else range(pages)
    encoded = []
    for number in tqdm(numbers, desc="pages encoded", disable=quiet):
        batch = _on(device, collator(source.page(number), number))
        whole = _encoded(model, batch, unmarked_alone)
        random = Random(f"parts {collator.seed} {number}")
        pages_in_part = _in_part(model, batch, whole, random, parts, auto, for_restorer, blind)
        encoded += [page.to("cpu") for page in (*([] if for_restorer else [whole]), *pages_in_part)]
        if number == numbers[0]:
            _tell_memory(encoded, len(numbers))
    return encoded


def own_pages(pages: int, rank: int, processes: int) -> range:
    """Which of `pages` pages process `rank` of several encodes and trains on. `SystemExit` where there are fewer than processes."""
    if pages < processes:
        raise SystemExit(f"error: --ahead has {pages} pages for {processes} processes; encode one for each at least")
    return range(pages * rank // processes, pages * (rank + 1) // processes)


def _tell_memory(first: list[EncodedPage], pages: int) -> None:
    whole = sum(map(_bytes, first)) * pages / 2**30
    if whole > _TOLD:
        print(f"--ahead: {pages} pages take about {whole:.0f} GB of this process's memory", file=sys.stderr)


def _bytes(value) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, list):
        return sum(map(_bytes, value))
    return sum(_bytes(getattr(value, field.name)) for field in fields(value)) if is_dataclass(value) else 0


def _on(device, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.to(device) for name, tensor in batch.items()}


def _encoded(model, batch, unmarked_alone: bool) -> EncodedPage:
    # every row of the batch shows the same picture
    (grid,) = merged_grids(batch["image_grid_thw"][:1], model.config.vision_config.spatial_merge_size)
    vision = encode_once(model, batch)
    cells = len(vision.pooler_output[0])
    evidence = batch["evidence"].view(-1, cells)
    attention = None
    if "full_input_ids" in batch:
        attention = torch.zeros_like(evidence)
        rows = [row for row, cells in enumerate(evidence) if not (unmarked_alone and cells.any())]
        if rows:
            attention[rows] = _attention(model, batch, vision, rows)
    glance = model.model.arrcoc.look(batch["texture_images"][0], grid)
    return EncodedPage(
        grid,
        replace(glance, canvas=_half(glance.canvas)),
        [_half(vision.pooler_output[0]), *(_half(level[0]) for level in vision.deepstack_features)],
        batch["query_input_ids"],
        batch["query_attention_mask"],
        evidence,
        batch["context"].view(-1, cells),
        attention,
    )


def _in_part(
    model, batch, page: EncodedPage, random: Random, parts: int, auto: float, for_restorer: bool, blind: bool
) -> list[EncodedPage]:
    layer, ids, mask = model.model.arrcoc, page.query_input_ids, page.query_attention_mask
    chosen = random.sample(range(len(ids)), min(parts, len(ids)))
    if not chosen:
        return []
    grid_thw = batch["image_grid_thw"][:1]
    pixels = batch["pixel_values"][: int(grid_thw.prod())]
    glance = with_contrast(page.glance, pixels, page.grid[1:])
    asked = blind_query(model, len(chosen), ids.device) if blind else (ids[chosen], mask[chosen])
    glances = _rated(layer, glance, model.get_input_embeddings()(asked[0]), asked[1])
    found = []
    for row, rated in zip(chosen, glances, strict=True):
        ratio = "auto" if auto and random.random() < auto else random.uniform(*PARTS)
        cells = choose_to_encode(rated, page.grid, ratio, 1, model.config.coverage_floor)
        rows = [] if cells is None else _answerable(page, cells, row)
        if rows:
            vision = encode_cells(model.model.visual, pixels, grid_thw, [cells])
            levels = [vision.pooler_output[0], *(level[0] for level in vision.deepstack_features)]
            if not for_restorer:
                levels = layer.restore(replace(rated, encoded=cells), levels)
            part = _part(page, cells, rows, levels)
            if for_restorer:
                read = replace(part.glance, read=_half(rated.read), encoded=cells)
                part = replace(part, glance=read, whole=[level[cells] for level in page.levels])
            found.append(part)
    return found


def _answerable(page: EncodedPage, cells: torch.Tensor, row: int) -> list[int]:
    """The questions that need none but these cells, and that of `row`, if any of its evidence is among them."""
    needs = torch.stack([needed_target(*both) for both in zip(page.evidence, page.context, strict=True)])
    inside = needs[:, cells].sum(-1)
    rows = [other for other, need in enumerate(needs.sum(-1)) if 0 < need == inside[other]]
    seen = page.evidence[row, cells].any() or not page.evidence[row].any()
    return sorted({*rows, row}) if seen else rows


def _part(page: EncodedPage, cells: torch.Tensor, rows: list[int], levels: list[torch.Tensor]) -> EncodedPage:
    attention = None
    if page.attention is not None:
        attention = page.attention[rows][:, cells]
        attention = attention / attention.sum(-1, keepdim=True).clamp_min(1e-9)
    return EncodedPage(
        page.grid,
        replace(page.glance, canvas=None),
        [_half(level) for level in levels],
        page.query_input_ids[rows],
        page.query_attention_mask[rows],
        page.evidence[rows][:, cells],
        page.context[rows][:, cells],
        attention,
        cells,
    )


def _attention(model, batch, vision, rows: list[int]) -> torch.Tensor:
    asked = rows_alone(prefixed(batch, "full_"), batch["image_grid_thw"], vision, rows)
    return torch.stack(full_pass(model, *asked, True).attention)


def _half(features: torch.Tensor) -> torch.Tensor:
    return features.to(torch.float16, copy=True)  # a copy: a view would keep the whole batch in memory


def restored_loss(layer, page: EncodedPage) -> torch.Tensor:
    """How far a page in part, once `layer` has restored it, is from the whole one; see `restoring_loss`.

    Raises:
        ValueError: the page does not say what it would be as a whole.
    """
    if page.whole is None:
        raise ValueError(
            "the page has no whole one to be brought back to; pass pages of encode_ahead(for_restorer=True)"
        )
    levels = [level.float() for level in page.levels]
    return restoring_loss(layer.restore(page.glance, levels), page.whole)


def page_scores(model, page: EncodedPage, budgets: torch.Tensor, blind: bool, early: bool = True) -> list[Scored]:
    """Scores of the model's layer for every question of a page, of its encoded cells, before similar ones suppress each other;
    those of stage 1 where `early` asks for them and all cells are encoded."""
    layer = model.model.arrcoc
    ids, mask = page.query_input_ids, page.query_attention_mask
    if blind:
        ids, mask = blind_query(model, len(ids), ids.device)
    query = model.get_input_embeddings()(ids).detach()
    with torch.autocast(query.device.type, enabled=False):
        looked = replace(page.glance, perspective=layer.perspective(page.glance.texture), encoded=page.cells)
        known = _known(layer, looked, page.levels, query, mask)
        rated = _rated(layer, looked, query, mask) if early and page.cells is None else None
        scored = []
        for number, (budget, maps) in enumerate(zip(budgets.tolist(), known, strict=True)):
            scores = {name: score[None] for name, score in zip(SCORES, maps, strict=True)}
            balance = layer.balancer(scores, query[number][mask[number].bool()], budget)
            value = balance.relevance.flatten()
            value = value if page.cells is None else value[page.cells]
            stage = {} if rated is None else {"early": rated[number].early}
            if rated is not None and number == 0:
                stage |= {"read": rated[number].read, "tokens": page.levels[0]}
            scored.append(Scored(value, balance.temperature, page.grid, budget, {}, balance.tensions, **stage))
    return scored


def _each(query: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    # a row for each question that those of (questions, Tq) put into one, with its own tokens alone, and how many these are
    counts = [max(1, number) for number in mask.long().amax(-1).tolist()]
    rows = [row for row, count in enumerate(counts) for _ in range(count)]
    numbers = torch.tensor([number + 1 for count in counts for number in range(count)], device=mask.device)
    return query[rows], mask[rows] == numbers[:, None], counts


def _known(layer, glance: Glance, levels: list[torch.Tensor], query, mask) -> list[ScoreMaps]:
    # what `layer.knows` says of one page for each of several questions
    query, mask, counts = _each(query, mask)
    if layer.takes_several("knows"):
        information, perspective, needed = layer.knows(glance, levels, query, mask)
    else:
        maps = [layer.knows(glance, levels, ids[own]) for ids, own in zip(query, mask, strict=True)]
        (information, perspective, _), needed = maps[0], torch.stack([each for *_, each in maps])
    return [(information, perspective, united(each.unbind())) for each in needed.split(counts)]


def _rated(layer, glance: Glance, query, mask) -> list[Glance]:
    # what `layer.rate` says, likewise
    query, mask, counts = _each(query, mask)
    if layer.takes_several("rate"):
        rated = layer.rate(glance, query, mask)
        early, everywhere = rated.early, rated.everywhere
    else:
        each = [layer.rate(glance, ids[own]) for ids, own in zip(query, mask, strict=True)]
        rated, early, everywhere = (
            each[0],
            *(torch.stack([getattr(one, name) for one in each]) for name in ("early", "everywhere")),
        )
    pairs = zip(early.split(counts), everywhere.split(counts), strict=True)
    return [replace(rated, early=united(part.unbind()), everywhere=about_all.all()) for part, about_all in pairs]
