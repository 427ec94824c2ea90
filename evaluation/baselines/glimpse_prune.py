"""Selection in the style of GlimpsePrune: after some layers of the language model, a learned token tells which cells matter.

Written from the description in arXiv 2508.01548: a learned glimpse token follows the prompt; how it attends to the image in
the first layers goes through a small predictor with 2D rotary positions, which learns from evidence boxes (Dice + 0.1 BCE).

What departs from the paper and its code (github.com/HVision-NKU/GlimpsePrune, its configuration for Qwen2.5-VL 7B):

- The predictor's form and size are ours. It reads the attention in all first layers as shares, and the language model's states
  of the visual tokens after them; theirs the logits of one layer, and what four blocks of the vision tower made of the cells.
- The glimpse enters at the input alone; theirs is added at every layer.
- Boxes teach it (Dice, BCE and, in the bundled weights, `mass`) through a soft top-k whose temperature falls
  (`training.allocator_learner`), and in the last steps of the bundled weights the language model's loss on the answer, too, with
  a weight of 1, as theirs (training/BUNDLED.md).
- The K highest cells are kept, where GlimpsePrune keeps as many as pass a threshold.
- GlimpsePrune drops tokens within one pass; here the language model answers in a second pass that reads the kept tokens alone,
  in every layer.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from evaluation.baselines.interface import Prepared, prompt
from evaluation.baselines.learned import Weights, best_cells
from evaluation.baselines.selection import encode, fill, plan_cells
from training.language_pass import eager_attention

READS_ALL = True
LAYER_SHARE = 19 / 28  # up to layer 18, counted from 0, of 28, as a share of the language model
UNTIMED = (
    "it answers in a second pass over the kept tokens, after the first layers read all of them with eager attention; "
    "GlimpsePrune drops tokens within one pass"
)


class GlimpsePredictor(nn.Module):
    """The glimpse token, and the predictor of visual importance that reads it.

    Args:
        size: width of the language model.
        layers: how many of its layers the glimpse sees.
        heads: attention heads of each.
        hidden_size: width of the predictor, a multiple of 4.
    """

    def __init__(self, size: int, layers: int, heads: int, hidden_size: int = 64):
        super().__init__()
        self.layers = layers
        self.glimpse = nn.Parameter(torch.randn(size) * 0.02)
        self.attention = nn.Linear(layers * heads, hidden_size)
        self.norm = nn.LayerNorm(size)
        self.state = nn.Linear(size, hidden_size)
        self.condition = nn.Linear(size, hidden_size)
        self.mix = nn.Linear(hidden_size, 3 * hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)
        self.score = nn.Linear(hidden_size, 1)

    @classmethod
    def for_model(cls, model) -> "GlimpsePredictor":
        """A new predictor for a base, on its device."""
        text = model.config.text_config
        layers = max(1, round(LAYER_SHARE * text.num_hidden_layers))
        return cls(text.hidden_size, layers, text.num_attention_heads).to(model.device)

    def scores(self, model, prompt, image_grid_thw, vision_output) -> list[torch.Tensor]:
        """(cells,) importance of each image, whose prompt has one placeholder per cell, with its gradient.

        Args:
            model: `ARRCOCQwen3VLForConditionalGeneration`.
            prompt: `input_ids`, `attention_mask`, `mm_token_type_ids` (batch, length), padded at the right, one image each.
            vision_output: of the encoder, every cell.
        """
        states, seen, ends = self._first_layers(model, prompt, image_grid_thw, vision_output)
        image = prompt["mm_token_type_ids"] == 1
        merge = model.config.vision_config.spatial_merge_size
        rows = range(len(image))
        with torch.autocast(states.device.type, enabled=False):
            return [
                self._predict(
                    states[row, :-1][image[row]].float(),
                    seen[row, :, :-1][:, image[row]].float(),
                    states[row, ends[row]].float(),
                    (int(image_grid_thw[row, 1]) // merge, int(image_grid_thw[row, 2]) // merge),
                )
                for row in rows
            ]

    def _first_layers(self, model, prompt, image_grid_thw, vision_output):
        """States (batch, length + 1, size) after the first layers, attention of the glimpse in each (batch, layers *
        heads, length + 1), and where the glimpse stands (batch,)."""
        base = model.model
        mask, ends = prompt["attention_mask"], prompt["attention_mask"].sum(-1)
        rows = torch.arange(len(mask), device=mask.device)
        ids = F.pad(prompt["input_ids"], (0, 1), value=model.config.vision_end_token_id)
        mask = F.pad(mask, (0, 1))
        mask[rows, ends] = 1
        types = F.pad(prompt["mm_token_type_ids"], (0, 1))
        position_ids, _ = base.get_rope_index(ids, types, image_grid_thw, None, mask)
        image = types == 1
        embeds = base.get_input_embeddings()(ids)
        features = torch.cat(list(vision_output.pooler_output)).to(embeds.dtype)
        embeds = embeds.detach().masked_scatter(image[..., None], features)
        embeds = embeds.index_put((rows, ends), self.glimpse.to(embeds.dtype))
        attended = []

        def read(module, args, output):
            attended.append(output[1][rows, :, ends])  # (batch, heads, length + 1)

        language_model = truncated(base.language_model, self.layers)
        hooks = [layer.self_attn.register_forward_hook(read) for layer in language_model.layers]
        levels = [torch.cat(list(level)) for level in vision_output.deepstack_features]
        try:
            with eager_attention(language_model):
                states = language_model(
                    inputs_embeds=embeds,
                    attention_mask=mask,
                    position_ids=position_ids,
                    visual_pos_masks=image,
                    deepstack_visual_embeds=levels,
                    use_cache=False,
                ).last_hidden_state
        finally:
            for hook in hooks:
                hook.remove()
        return states, torch.cat(attended, 1), ends

    def _predict(self, states, seen, glimpse, grid) -> torch.Tensor:
        # (cells, size), (layers * heads, cells), (size,)
        share = seen / seen.sum(-1, keepdim=True).clamp_min(1e-9)
        cells = self.attention(torch.log(share.T * share.shape[-1] + 1e-4)) + self.state(self.norm(states))
        cells = F.gelu(cells + self.condition(self.norm(glimpse)))
        query, key, value = self.mix(cells).chunk(3, -1)
        query, key = rotate_2d(query, grid), rotate_2d(key, grid)
        mixed = torch.softmax(query @ key.T / math.sqrt(query.shape[-1]), -1) @ value
        return self.score(F.gelu(cells + self.out(mixed)))[:, 0]


def rotate_2d(states: torch.Tensor, grid: tuple[int, int]) -> torch.Tensor:
    """`states` (h * w, C), C a multiple of 4, rotated by the row in its first half and by the column in its second."""
    height, width = grid
    index = torch.arange(height * width, device=states.device)
    quarter = states.shape[-1] // 4
    speed = 100.0 ** (-torch.arange(quarter, device=states.device) / quarter)
    turned = []
    for half, place in zip(states.chunk(2, -1), (index // width, index % width), strict=True):
        angle = place[:, None] * speed
        first, second = half.chunk(2, -1)
        turned += [first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()]
    return torch.cat(turned, -1)


def truncated(language_model: nn.Module, layers: int) -> nn.Module:
    """A view of the first layers of a language model that shares its parameters."""
    view = copy.copy(language_model)
    view._modules = dict(language_model._modules)
    view.layers = nn.ModuleList(language_model.layers[:layers])
    return view


_WEIGHTS = Weights("glimpse_prune", GlimpsePredictor.for_model)
load_weights = _WEIGHTS.load


@torch.no_grad()
def glimpse_prune(model, processor, examples, budgets) -> Prepared:
    """Inputs with the K cells of each picture that the glimpse finds most relevant; `load_weights` comes first.

    `Prepared.tokens` counts what the answer is read from; that the first layers read every token before is not in it. The
    time of this code is not that of GlimpsePrune, see `UNTIMED`.
    """
    predictor = _WEIGHTS.of(model)
    encoded = encode(model, processor, examples, budgets)
    whole = prompt(processor, examples, token_budget="full", padding_side="right").to(model.device)
    scores = predictor.scores(model, whole, encoded.inputs["image_grid_thw"], encoded.vision)
    pairs = zip(scores, encoded.counts, strict=True)
    return fill(encoded, [plan_cells(best_cells(score, count), len(score)) for score, count in pairs])
