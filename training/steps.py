"""One training step's loss, and the exact match of a batch, on the stock Qwen3-VL classes."""

from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn import functional
from transformers import Qwen3VLForConditionalGeneration

from arrcoc.encoding import CoarseView, coarse_view, encode_cells
from training.base_model import MERGE
from training.batches import GLYPHS, IGNORED, SLOTS, Batch, image_start, labelled_places, opens_answer, patches
from training.leaving_out import COARSE_VIEW_SHARE
from training.speed import POINTER_LAYERS, one_grid
from training.world.words import KEYS

WEIGHTS = {"loss": 1.0, "glyphs": 0.5, "keys": 0.5, "asked": 0.5, "pointers": 0.5}
_EMPTY_WEIGHT = 0.05  # of a slot without a character: nearly all are
_KEY_WEIGHT = 5.0  # of a name that is there
_FIRST_WEIGHT = 3.0  # of an answer's first token in the pointer loss
_POINTER_HEADS = 4  # of each pointer layer


class GlyphHead(nn.Module):
    """Says from a merged visual token which characters stand in its cell, and by which names a question can ask for what
    stands there; trained beside the model, never exported with it."""

    def __init__(self, hidden_size: int):
        super().__init__()
        self.classes = len(GLYPHS) + 1
        self.project = nn.Linear(hidden_size, SLOTS * self.classes)
        self.keys = nn.Linear(hidden_size, len(KEYS))
        self.asked = nn.Linear(hidden_size, len(KEYS))
        for names in (self.keys, self.asked):
            nn.init.constant_(names.bias, -4.0)  # nearly all are absent

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (tokens, SLOTS, classes) of tokens (tokens, hidden)."""
        return self.project(tokens).unflatten(-1, (SLOTS, self.classes))

    def key_loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Binary cross-entropy of the names in cells against targets (tokens, len(KEYS)): summed over names, mean of tokens."""
        return _name_loss(self.keys(tokens), targets)

    def asked_loss(self, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The same of the names that a question asks by, from the language model's states (turns, hidden) at its end."""
        return _name_loss(self.asked(states), targets)

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Weighted cross-entropy against targets (tokens, SLOTS)."""
        logits = self(tokens).float().flatten(0, 1)
        weight = torch.ones(self.classes, device=logits.device)
        weight[0] = _EMPTY_WEIGHT
        return functional.cross_entropy(logits, targets.flatten(), weight=weight)


def _name_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    weight = torch.full((), _KEY_WEIGHT, device=logits.device)
    each = functional.binary_cross_entropy_with_logits(
        logits.float(), targets.to(logits.device).float(), pos_weight=weight, reduction="none"
    )
    return each.sum(-1).mean()


_FOUND: WeakKeyDictionary = WeakKeyDictionary()  # positions of each model, which goes when nothing else needs it


def _positions(model: Qwen3VLForConditionalGeneration, cells: tuple[int, int], start: int, length: int) -> torch.Tensor:
    # stock positions (3, 1, length) depend on nothing but where the image starts, its grid and the length
    found = _FOUND.setdefault(model, {})
    if (cells, start, length) in found:
        return found[cells, start, length]
    kinds = torch.zeros(1, length, dtype=torch.int)
    kinds[:, start : start + cells[0] * cells[1]] = 1
    grid = torch.tensor([[1, cells[0] * MERGE, cells[1] * MERGE]])
    ids = torch.zeros(1, length, dtype=torch.long)
    found[cells, start, length] = model.model.get_rope_index(ids, kinds, image_grid_thw=grid)[0]
    return found[cells, start, length]


def _batch_positions(
    model: Qwen3VLForConditionalGeneration, batch: Batch, start: int, view: CoarseView | None = None
) -> torch.Tensor:
    # (3, batch, length): those of the whole page, without the cells that are left out
    size, length = batch.input_ids.shape
    if batch.kept is None:
        return _positions(model, batch.cells, start, length).expand(3, size, length)
    cells, shown = batch.cells[0] * batch.cells[1], batch.kept
    if view is not None:
        places = view.positions.cpu()
        coarse = places[:, 1] * batch.cells[1] + places[:, 2]
        shown = torch.cat([coarse.expand(size, -1), shown], 1)
    whole = _positions(model, batch.cells, start, length + cells - batch.shown)[:, 0]
    before, after = whole[:, :start], whole[:, start + cells :]
    shown = whole[:, start : start + cells][:, shown]
    return torch.cat([before[:, None].expand(3, size, -1), shown, after[:, None].expand(3, size, -1)], -1)


def _encoded(model: Qwen3VLForConditionalGeneration, pixels, cells: tuple[int, int], size: int, kept=None):
    # `size` images of one grid; `kept` (size, count), `None` for all cells
    grid = torch.tensor([[1, cells[0] * MERGE, cells[1] * MERGE]] * size, device=model.device)
    count = cells[0] * cells[1] if kept is None else kept.shape[1]
    cells_of_each = [None] * size if kept is None else list(kept.to(model.device))
    return encode_cells(model.model.visual, pixels, grid, cells_of_each, **one_grid(model, count * MERGE**2, size))


def _views(model: Qwen3VLForConditionalGeneration, batch: Batch, pixels: torch.Tensor) -> list[CoarseView]:
    each = pixels.chunk(len(batch.images))
    return [coarse_view(page, (1, *batch.cells), batch.shown, COARSE_VIEW_SHARE, model.model.visual) for page in each]


def _image_features(model: Qwen3VLForConditionalGeneration, batch: Batch, pixels, views: list[CoarseView]):
    size = len(batch.images)
    if not batch.encoded_whole:
        return _encoded(model, pixels, batch.cells, size, batch.kept)
    features, kept = _encoded(model, pixels, batch.cells, size), batch.kept.to(model.device)
    levels = [features.pooler_output, *features.deepstack_features]
    levels = [[tokens[shown] for tokens, shown in zip(level, kept, strict=True)] for level in levels]
    if views:
        _, tall, wide = views[0].grid
        small = torch.cat([view.pixel_values for view in views])
        coarse = _encoded(model, small, (tall // MERGE, wide // MERGE), size)
        pairs = zip([coarse.pooler_output, *coarse.deepstack_features], levels, strict=True)
        levels = [[torch.cat(both) for both in zip(*pair, strict=True)] for pair in pairs]
    features.pooler_output, features.deepstack_features = levels[0], levels[1:]
    return features


def answer_logits(
    model: Qwen3VLForConditionalGeneration, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits (n, vocabulary) at the n labelled places, their labels (n,), and the merged visual tokens.

    Padding needs no mask: it stands at the right, behind everything that is labelled.
    """
    device = model.device
    start = image_start(batch.input_ids)
    pixels = patches(batch.images.to(device))
    views = _views(model, batch, pixels) if batch.coarse else []
    positions = _batch_positions(model, batch, start, *views[:1]).to(device)
    features = _image_features(model, batch, pixels, views)
    tokens = torch.cat(features.pooler_output)
    hidden = model.model(
        input_ids=batch.input_ids.to(device), mm_encoder_outputs={"image": features},
        position_ids=positions, use_cache=False,
    ).last_hidden_state  # fmt: skip
    labels = batch.labels[:, 1:].to(device)
    labelled = labels != IGNORED
    return model.lm_head(hidden[:, :-1][labelled]), labels[labelled], tokens


def _autocast(model, dtype: torch.dtype):
    return torch.autocast(model.device.type, dtype, enabled=dtype != torch.float32)


def visual_tokens(model: Qwen3VLForConditionalGeneration, batch: Batch) -> torch.Tensor:
    """The merged visual tokens (batch * cells, hidden) of a batch's pages."""
    pixels = patches(batch.images.to(model.device))
    return torch.cat(_image_features(model, batch, pixels, []).pooler_output)


def letter_loss(model, glyph_head: GlyphHead, batch: Batch, dtype: torch.dtype) -> torch.Tensor:
    """The glyph loss alone, without the language model."""
    with _autocast(model, dtype):
        return glyph_head.loss(visual_tokens(model, batch), batch.glyphs.to(model.device))


def letters_read(model, glyph_head: GlyphHead, batch: Batch, dtype: torch.dtype) -> float:
    """Share of a batch's characters that the glyph head names in the right slot."""
    with _autocast(model, dtype):
        named = glyph_head(visual_tokens(model, batch)).argmax(-1)
    glyphs = batch.glyphs.to(model.device)
    return (named == glyphs)[glyphs > 0].float().mean().item()


def pointer_loss(model, batch: Batch) -> torch.Tensor:
    """How little of the pointer heads' attention falls on the cells that each answer token is read from: the mean of
    -log of that share, over the attention that the last forward kept. The first token of an answer, which alone has to
    find the place, counts several times."""
    rows, places = labelled_places(batch.labels).to(model.device)
    pointers = batch.pointers.to(model.device)
    start = image_start(batch.input_ids)
    pointed, total = pointers.any(-1), 0.0
    weight = torch.where(opens_answer(rows, places), _FIRST_WEIGHT, 1.0)[pointed, None]
    if not pointed.any():
        return torch.zeros((), device=model.device)
    for number in POINTER_LAYERS:
        attention = model.model.language_model.layers[number].self_attn.kept_attention
        attention = attention[rows[pointed], :_POINTER_HEADS, places[pointed], start : start + pointers.shape[1]]
        share = (attention.float() * pointers[pointed, None]).sum(-1)
        total = total - (weight * share.clamp(min=1e-6).log()).mean() / weight.mean()
    return total / len(POINTER_LAYERS)


def question_states(model, batch: Batch) -> torch.Tensor:
    """(turns, hidden) what the first pointer layer reads at the end of each question, from the last forward."""
    rows, places = labelled_places(batch.labels).to(model.device)
    ends = opens_answer(rows, places)
    return model.model.language_model.layers[POINTER_LAYERS[0]].self_attn.kept_input[rows[ends], places[ends]]


def losses(model, glyph_head: GlyphHead, batch: Batch, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The language-model loss and the auxiliary losses of a batch, under autocast to `dtype`: "pointers", "asked" on pages of
    the world, and "glyphs" and "keys", which take these, where the vision tower learns."""
    found, tower_learns = {}, next(model.model.visual.parameters()).requires_grad
    with _autocast(model, dtype):
        logits, labels, tokens = answer_logits(model, batch)
        if tower_learns:
            found["glyphs"] = glyph_head.loss(tokens, batch.glyphs.to(model.device))
            # a cell can't know its names where the labels that say so are left out
            found["keys"] = glyph_head.key_loss(tokens, batch.keys) if batch.kept is None else tokens.new_zeros(())
        if batch.asked is not None:
            found["asked"] = glyph_head.asked_loss(question_states(model, batch), batch.asked)
    language = functional.cross_entropy(logits.float(), labels)
    return {"loss": language, **found, "pointers": pointer_loss(model, batch)}


def exact_matches(model, batch: Batch, dtype: torch.dtype) -> torch.Tensor:
    """(batch,) bool: whether every token of a page's labelled answers has the highest logit, which is when greedy decoding
    gives exactly those answers."""
    with _autocast(model, dtype):
        logits, labels, _ = answer_logits(model, batch)
    wrong = (logits.argmax(-1) != labels).long()
    rows = (batch.labels[:, 1:] != IGNORED).nonzero()[:, 0].to(wrong.device)
    return torch.zeros(len(batch.labels), dtype=torch.long, device=wrong.device).index_add(0, rows, wrong) == 0
