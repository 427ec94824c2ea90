"""Whatever gives each cell of an image a score, behind one form: the allocator, with or without the question, and the
learned baselines."""

from dataclasses import dataclass, replace

import torch
from torch import nn

from arrcoc.allocation import Allocation
from arrcoc.attending import attend, soft_gates, straight_through_gates
from arrcoc.encoded import picked
from arrcoc.layer import ARRCOCOutput
from arrcoc.placement import merged_grids
from evaluation.baselines.glimpse_prune import GlimpsePredictor
from evaluation.baselines.vision_selector import ImportanceScorer
from training.language_pass import prefixed
from training.signals import gumbel_noise

LAYER_SCORERS = ("arrcoc", "query_blind")  # those that are the allocator's layer
SCORERS = (*LAYER_SCORERS, "vision_selector", "glimpse_prune")


@dataclass
class Scored:
    """The scores of one image.

    Attributes:
        value: (cells,) what the choice ranks, with its gradient.
        temperature: scalar, in units of the scores.
        grid: (t, h, w) merged grid.
        budget: tokens to keep.
        dials: of `attend`.
        tensions: (3,), where the scorer has any.
        output: the layer's own decision, where it is the scorer.
        early: (cells,) stage 1's scores, where it has any.
        read, tokens: (cells, size) each, what stage 1 reads of the image and its visual tokens; once for each image, and
            `None` where it is asked something else.
    """

    value: torch.Tensor
    temperature: torch.Tensor
    grid: tuple[int, int, int]
    budget: int
    dials: dict
    tensions: torch.Tensor | None = None
    output: ARRCOCOutput | None = None
    early: torch.Tensor | None = None
    read: torch.Tensor | None = None
    tokens: torch.Tensor | None = None

    @property
    def is_full(self) -> bool:
        """Whether every cell is kept."""
        return self.budget == len(self.value)

    def decide(self, gates: str) -> ARRCOCOutput | None:
        """The decision with gates of a kind, `None` where every cell is kept.

        Args:
            gates: "straight_through" (value 1), "gates" (their sigmoid's value) or "gumbel" (noise on the scores, value 1).
        """
        if self.is_full:
            return None
        if gates == "straight_through" and self.output is not None:
            return self.output
        value = self.value
        if gates == "gumbel":
            value = value + self.temperature.detach() * gumbel_noise(value)
        allocation = self.allocate(value)
        gated = soft_gates if gates == "gates" else straight_through_gates
        return ARRCOCOutput(allocation, gated(value, allocation, self.temperature))

    def allocate(self, value: torch.Tensor, **dials) -> Allocation:
        """Where the budget goes by the scores `value`, with `dials` in place of its own."""
        plan = attend(value, self.grid, self.budget, **(self.dials | dials))
        return Allocation(grid=self.grid, relevance=value.detach().view(self.grid), scores={}, tensions={}, **plan)


def repeats(batch) -> list[bool]:
    """Per image, whether it is the one before it, asked something else."""
    grids, textures = batch["image_grid_thw"], batch["texture_images"]
    pairs = range(1, len(grids))
    return [False, *(torch.equal(grids[i], grids[i - 1]) and torch.equal(textures[i], textures[i - 1]) for i in pairs)]


def encode_once(model, batch):
    """As the model's `encode`, but an image that follows itself in the batch is encoded once."""
    again = torch.tensor(repeats(batch))
    grids = batch["image_grid_thw"]
    patches = batch["pixel_values"].split(grids.prod(-1).tolist())
    first = (~again).nonzero().flatten().tolist()
    output = model.model.encode(torch.cat([patches[i] for i in first]), grids[first])
    return picked(output, ((~again).cumsum(0) - 1).tolist())


def layer_scores(model, batch, vision_output, blind: bool, early: bool = True) -> list[Scored]:
    """Scores of the model's own layer, those of stage 1 where `early` asks for them.

    With `blind` every image is asked the same one token, whatever the question. An empty question would silence the
    participatory score, and with it most of what the layer could learn.
    """
    layer, grid = model.model.arrcoc, batch["image_grid_thw"]
    query, mask = batch["query_input_ids"], batch["query_attention_mask"]
    if blind:
        query, mask = blind_query(model, len(query), query.device)
    counts = batch["image_token_counts"].tolist()
    textures = batch["texture_images"]
    again = repeats(batch)
    glances = model.model.rated_glances(grid, textures, query, mask, again) if early else None
    outputs = model.model.decide(vision_output, grid, counts, textures, query, mask, glances=glances)
    scored = []
    for number, (output, count) in enumerate(zip(outputs, counts, strict=True)):
        dials = {
            "coverage_floor": layer.allocator.coverage_floor,
            "coarse_share": output.balance.coarse_share,
            "min_deepstack_levels": layer.allocator.min_deepstack_levels,
            "num_levels": layer.allocator.num_levels,
            "everywhere": output.allocation.everywhere,
        }
        balance, value, grid_of = output.balance, output.value, output.allocation.grid
        stage = {"early": output.glance.early}
        if early and not again[number]:
            stage |= {"read": output.glance.read, "tokens": vision_output.pooler_output[number]}
        scored.append(Scored(value, balance.temperature, grid_of, count, dials, balance.tensions, output, **stage))
    return scored


def blind_query(model, images: int, device=None) -> tuple[torch.Tensor, torch.Tensor]:
    """`query_input_ids` and `query_attention_mask` (images, 1) of a question that says nothing: the end-of-vision token."""
    ids = torch.full((images, 1), model.config.vision_end_token_id, device=device)
    return ids, torch.ones_like(ids)


def baseline_scores(model, scorer: nn.Module, batch, vision_output) -> list[Scored]:
    """Scores of a learned baseline: the plain top-k of them is kept, with every DeepStack level."""
    grids = merged_grids(batch["image_grid_thw"], model.config.vision_config.spatial_merge_size)
    if isinstance(scorer, GlimpsePredictor):
        prompt = prefixed(batch, "prompt_")
        values = scorer.scores(model, prompt, batch["image_grid_thw"], vision_output)
    else:
        values = [scorer(tokens) for tokens in vision_output.pooler_output]
    dials = {
        "coverage_floor": 0.0,
        "coarse_share": 0.0,
        "min_deepstack_levels": None,
        "num_levels": len(vision_output.deepstack_features),
    }
    temperature = values[0].new_ones(())
    counts = batch["image_token_counts"].tolist()
    return [Scored(v, temperature, g, k, dials) for v, g, k in zip(values, grids, counts, strict=True)]


def make_scorer(name: str, model) -> nn.Module:
    """The module that is trained: the model's own layer, or a new baseline for this base.

    Raises:
        ValueError: an unknown name.
    """
    if name in LAYER_SCORERS:
        return model.model.arrcoc
    if name == "vision_selector":
        return ImportanceScorer.for_model(model)
    if name == "glimpse_prune":
        return GlimpsePredictor.for_model(model)
    raise ValueError(f"scorer {name!r} is unknown; choose from {', '.join(SCORERS)}")


def scores_of(
    name: str, scorer: nn.Module, model, batch, vision_output, temperature: float | None = None, early: bool = True
):
    """`Scored` of each image of a batch; `temperature` replaces the scorer's own."""
    if name in LAYER_SCORERS:
        scored = layer_scores(model, batch, vision_output, name == "query_blind", early)
    else:
        scored = baseline_scores(model, scorer, batch, vision_output)
    if temperature is None:
        return scored
    return [replace(s, temperature=s.value.new_tensor(temperature)) for s in scored]
