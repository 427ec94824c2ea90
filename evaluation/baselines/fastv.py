"""Dropping visual tokens inside the language model, after FastV (Chen et al. 2024, arXiv 2403.06764).

`fastv` answers, in batches, with the dropped tokens masked out; `prefill` removes them, as FastV does, and is what is timed.
"""

import torch
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb

from arrcoc.caching import CACHE
from evaluation.baselines.interface import Prepared, is_arrcoc
from evaluation.baselines.selection import encode

# The paper's K = 2: its first two layers read all visual tokens, and the attention of the second ranks them. Of the bundled
# base's five layers that is a larger share than of the paper's 32, which is in its favour.
LAYERS_BEFORE = 2
READS_ALL = True


def supports(model) -> str | None:
    """Why `model` can't run FastV, or `None`."""
    if not is_arrcoc(model):
        return "fastv is written for ARRCOCQwen3VLForConditionalGeneration; load the Qwen3-VL checkpoint with it"
    text = model.config.text_config
    if text.num_hidden_layers <= LAYERS_BEFORE:
        return f"the language model has {text.num_hidden_layers} layers, and FastV drops tokens after {LAYERS_BEFORE}"
    attention = model.model.language_model.config._attn_implementation
    if attention not in ("sdpa", "eager"):
        return f"fastv masks keys, which attention {attention!r} can't; load the model with attn_implementation='sdpa'"
    return None


class _EnoughError(Exception):
    """Raised when the last module that is watched has been reached."""


def last_token_attention(model, inputs) -> torch.Tensor:
    """(batch, length) attention of each prompt's last token in layer `LAYERS_BEFORE`, mean over heads.

    The layers after it do not run. Prompts are left-padded.
    """
    attention = model.model.language_model.layers[LAYERS_BEFORE - 1].self_attn
    with torch.no_grad():
        (given,) = _called_with(model, inputs, [attention], use_cache=False)
        return _attention_of_last(attention, given, inputs["attention_mask"].bool())


def _called_with(model, inputs, modules, **settings) -> list[dict]:
    """The keyword arguments of each of `modules`, `hidden_states` among them; the forward ends where the last one begins."""
    caught = {}

    def catch(module, args, kwargs):
        caught[module] = kwargs if not args else kwargs | {"hidden_states": args[0]}
        if module is modules[-1]:
            raise _EnoughError

    hooks = [module.register_forward_pre_hook(catch, with_kwargs=True) for module in modules]
    try:
        model.model(**inputs, **settings)
    except _EnoughError:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return [caught[module] for module in modules]


def _attention_of_last(attention, given, real) -> torch.Tensor:
    hidden, (cos, sin) = given["hidden_states"], given["position_embeddings"]
    heads = (*hidden.shape[:2], -1, attention.head_dim)
    key = attention.k_norm(attention.k_proj(hidden).view(heads)).transpose(1, 2)
    query = attention.q_norm(attention.q_proj(hidden[:, -1:]).view(len(hidden), 1, -1, attention.head_dim))
    query = query.transpose(1, 2)
    query, _ = apply_rotary_pos_emb(query, query, cos[:, -1:], sin[:, -1:])
    key, _ = apply_rotary_pos_emb(key, key, cos, sin)
    key = key.repeat_interleave(attention.num_key_value_groups, dim=1)
    scores = (query @ key.mT).squeeze(2).float() * attention.scaling  # (batch, heads, length)
    return scores.masked_fill(~real[:, None], -torch.inf).softmax(-1).mean(1)


class DropKeys:
    """While entered, layers after `LAYERS_BEFORE` attend to no dropped token, in the prompt and while decoding.

    Args:
        model: an `ARRCOCQwen3VLForConditionalGeneration`.
        dropped: (batch, length of the prompt) bool.
    """

    def __init__(self, model, dropped: torch.Tensor):
        self.layers = list(enumerate(model.model.language_model.layers))[LAYERS_BEFORE:]
        self.dropped = dropped
        self.hooks = []

    def __enter__(self):
        for number, layer in self.layers:

            def hide(module, args, kwargs, number=number):
                return args, kwargs | {"attention_mask": self._mask(number, args, kwargs)}

            self.hooks.append(layer.register_forward_pre_hook(hide, with_kwargs=True))
        return self

    def __exit__(self, *error):
        while self.hooks:
            self.hooks.pop().remove()

    def _mask(self, number: int, args, kwargs) -> torch.Tensor:
        hidden = args[0] if args else kwargs["hidden_states"]
        mask, cache = kwargs.get("attention_mask"), kwargs.get(CACHE)
        if mask is None:  # causal, or a single new token that may see all
            length = hidden.shape[1]
            past = 0 if cache is None else int(cache.get_seq_length(number))
            mask = torch.ones(length, past + length, dtype=torch.bool, device=hidden.device).tril(past)[None, None]
            mask = torch.zeros(mask.shape, dtype=hidden.dtype, device=mask.device).masked_fill(
                ~mask, torch.finfo(hidden.dtype).min
            )
        # Beams and several return sequences repeat each sample.
        dropped = self.dropped.to(mask.device).repeat_interleave(len(hidden) // len(self.dropped), dim=0)
        dropped = torch.nn.functional.pad(dropped, (0, mask.shape[-1] - dropped.shape[-1]))[:, None, None]
        if mask.dtype == torch.bool:
            return mask & ~dropped
        return mask.masked_fill(dropped, torch.finfo(mask.dtype).min)


def fastv(model, processor, examples, budgets) -> Prepared:
    """Inputs with all tokens, of which the layers after the second read the K that the last token attends to most.

    The paper's text ranks by the mean attention from all other tokens, its published code by the last token's; this is the code's
    rule. The budget is FastV's own: K is what is left after layer 2, so the mean over layers (`Prepared.tokens`) is above K.
    Dropped tokens are masked out as keys: the same logits as without them, not FastV's speed, for which see `prefill`. To know
    `kept` beforehand, the ranking runs the first two layers once more.
    """
    encoded = encode(model, processor, examples, "full")
    inputs = encoded.inputs
    inputs["mm_encoder_outputs"] = {"image": encoded.vision}
    attention = last_token_attention(model, inputs)
    image = inputs["input_ids"] == model.config.image_token_id
    dropped = torch.zeros_like(image)
    layers = model.config.text_config.num_hidden_layers
    kept, tokens = [], []
    for number, (grid, budget) in enumerate(zip(encoded.grids, budgets, strict=True)):
        columns = image[number].nonzero().flatten()
        budget = min(budget, len(columns))
        order = attention[number, columns].argsort(descending=True, stable=True)
        dropped[number, columns[order[budget:]]] = True
        kept.append(~dropped[number, columns].view(grid).cpu())
        tokens.append((LAYERS_BEFORE * len(columns) + (layers - LAYERS_BEFORE) * budget) / layers)
    if not dropped.any():  # nothing to mask: the fused causal kernel stays in use
        return Prepared(inputs, kept, tokens)
    return Prepared(inputs, kept, tokens, DropKeys(model, dropped))


@torch.no_grad()
def prefill(model, processor, examples, budgets) -> torch.Tensor:
    """(1, vocabulary) logits after one example's prompt: the first two layers read every token, the others K and the text.

    The same logits as `fastv` gives by masking, at FastV's own cost. Layers and cache hold what they would in a published run:
    all tokens up to the second layer, the kept ones after it.

    Raises:
        ValueError: there are several examples; removed tokens would leave rows of unequal length.
    """
    if len(examples) != 1:
        raise ValueError(f"fastv's prefill got {len(examples)} examples; pass one at a time")
    encoded = encode(model, processor, examples, "full")
    inputs, text, levels = encoded.inputs, model.model.language_model, encoded.vision.deepstack_features
    inputs["mm_encoder_outputs"] = {"image": encoded.vision}
    attention = text.layers[LAYERS_BEFORE - 1].self_attn
    ranking, given = _called_with(model, inputs, [attention, text.layers[LAYERS_BEFORE]], use_cache=True)
    image = inputs["input_ids"][0] == model.config.image_token_id
    received = _attention_of_last(attention, ranking, inputs["attention_mask"].bool())[0, image]
    kept = received.argsort(descending=True, stable=True)[: budgets[0]].sort().values
    rows = torch.cat([(~image).nonzero().flatten(), image.nonzero().flatten()[kept]]).sort().values
    hidden, given = _rows_of(given, rows)
    for number in range(LAYERS_BEFORE, len(text.layers)):
        hidden = text.layers[number](hidden, **given)
        if number < len(levels):
            hidden[:, image[rows]] += levels[number][0][kept]
    return model.lm_head(text.norm(hidden[:, -1]))


def _rows_of(given: dict, rows: torch.Tensor) -> tuple[torch.Tensor, dict]:
    """The hidden states at `rows`, and a layer's other arguments to go with them."""
    others = {name: value for name, value in given.items() if name != "hidden_states"}
    others["position_embeddings"] = tuple(part[:, rows] for part in given["position_embeddings"])
    if given.get("position_ids") is not None:
        others["position_ids"] = given["position_ids"][:, rows]
    if given.get("attention_mask") is not None:
        others["attention_mask"] = given["attention_mask"][..., rows, :][..., rows]
    return given["hidden_states"][:, rows], others
