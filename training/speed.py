"""The same model, faster to train on a CPU: batched attention and compiled layers.

Stock attends image by image in a Python loop, and its many small element-wise steps cost as much as its matrix products.
Here a batch of images of one grid attends at once, and each layer is compiled. The results are the stock ones up to rounding.
"""

import torch
from transformers import AttentionInterface, Qwen3VLForConditionalGeneration

POINTER_LAYERS = (2, 3)  # language-model layers whose first heads are taught where to look


def _image_attention(module, query, key, value, attention_mask=None, scaling=None, patches_per_image=None, **_):
    # (1, heads, images * patches, width) in, (1, images * patches, heads, width) out
    query, key, value = (x[0].unflatten(1, (-1, patches_per_image)).transpose(0, 1) for x in (query, key, value))
    weights = torch.matmul(query * scaling, key.transpose(2, 3)).softmax(-1)
    mixed = torch.matmul(weights.to(value.dtype), value)
    return mixed.transpose(1, 2).flatten(0, 1).unsqueeze(0), None


def _causal_attention(module, query, key, value, attention_mask=None, scaling=None, **_):
    # (batch, heads, length, width) in, (batch, length, heads, width) out; no mask but the causal one
    groups, length = module.num_key_value_groups, query.shape[2]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    place = torch.arange(length, device=query.device)
    weights = scores.masked_fill(place[None, :] > place[:, None], float("-inf")).softmax(-1)
    if module.keeps_attention:
        module.kept_attention = weights
    return torch.matmul(weights.to(value.dtype), value).transpose(1, 2), None


AttentionInterface.register("batched_images", _image_attention)
AttentionInterface.register("plain_causal", _causal_attention)


def _keep_input(module, args, kwargs):
    module.kept_input = kwargs["hidden_states"]


def speed_up(model: Qwen3VLForConditionalGeneration, compiled: bool, vision: bool = True) -> None:
    """Makes the model attend in batches (see `one_grid`), the layers of `POINTER_LAYERS` keep their attention
    (batch, heads, length, length) as `self_attn.kept_attention`, the first of them its input (batch, length, hidden) as
    `self_attn.kept_input`, and compiles the layers, those of the vision tower too if `vision`; for training and scoring only."""
    torch._dynamo.config.recompile_limit = 64  # grids, text lengths, with and without gradients
    model.model.visual.config._attn_implementation = "batched_images"
    model.model.language_model.config._attn_implementation = "plain_causal"
    for number, layer in enumerate(model.model.language_model.layers):
        layer.self_attn.keeps_attention = number in POINTER_LAYERS
    first = model.model.language_model.layers[POINTER_LAYERS[0]]
    first.self_attn.register_forward_pre_hook(_keep_input, with_kwargs=True)
    if compiled:
        for layer in (*(model.model.visual.blocks if vision else ()), *model.model.language_model.layers):
            if layer is not first:  # a compiled layer would not call the hook each time
                layer.compile(dynamic=True)


def one_grid(model: Qwen3VLForConditionalGeneration, patches_per_image: int, images: int) -> dict:
    """What `get_image_features` of a sped-up model needs besides, for images that all have that many patches."""
    if model.model.visual.config._attn_implementation != "batched_images":
        return {}
    return {"cu_seqlens": torch.tensor([0, images * patches_per_image]), "patches_per_image": patches_per_image}
