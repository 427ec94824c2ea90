"""By what a file of trained weights knows the base that it is of."""

import hashlib
import json

import torch
from torch import nn

BASE, TOWER, FLOAT16, VOCABULARY = "base", "tower", "_float16", "vocabulary"
LATER = (BASE + FLOAT16, TOWER, TOWER + FLOAT16, VOCABULARY)  # what a file of older code may lack
_TEXT_SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
_VISION_SHAPE = (
    "depth", "hidden_size", "patch_size", "spatial_merge_size", "out_hidden_size", "deepstack_visual_indexes",
)  # fmt: skip
_ROWS = 64  # of each tensor that tells a base
_TOWER_ROWS = 8  # of each matrix of the vision tower
_LANGUAGE_READERS = ("glimpse_prune",)  # scorers of the language model's states


def base_fingerprint(
    model: nn.Module, scorer: str = "arrcoc", dtype: torch.dtype = torch.bfloat16, vocabulary: int | None = None
) -> str:
    """16 hexadecimal digits of what a scorer reads of the base: its geometry, parts of the vision tower and of the embeddings,
    and of the language model for a scorer of its states alone. A base whose language model was tuned keeps its allocator.

    Read in bfloat16, so that a float32 and a bfloat16 copy of one base agree; of a base that is stored in bfloat16, a float16 copy,
    which has lost its smallest numbers, agrees where all are read as `dtype=torch.float16`. The allocator does not count, nor do
    tokens from number `vocabulary` on.
    """
    text, vision = model.config.text_config, model.config.vision_config
    shape = [*(getattr(text, name) for name in _TEXT_SHAPE), vocabulary or text.vocab_size]
    shape += [getattr(vision, name) for name in _VISION_SHAPE]
    tensors = [
        model.model.visual.patch_embed.proj.weight,
        model.model.visual.merger.linear_fc2.weight,
        model.get_input_embeddings().weight[: vocabulary or text.vocab_size],
    ]
    if scorer in _LANGUAGE_READERS:
        language = model.model.language_model
        tensors += [
            _plain(language.layers[0].self_attn.q_proj).weight,
            _plain(language.layers[-1].mlp.down_proj).weight,
            language.norm.weight,
        ]
    return _digest([tensor[:_ROWS] for tensor in tensors], dtype, shape)


def tower_fingerprint(model: nn.Module, dtype: torch.dtype, vocabulary: int | None = None) -> str | None:
    """As `base_fingerprint`, of every block of the vision tower, of its DeepStack mergers, and of embeddings from all over the
    vocabulary. None where a part of these is quantised or offloaded. What an adapter that is not merged adds does not count."""
    matrices = [p for name, p in model.model.visual.named_parameters() if p.ndim == 2 and ".lora_" not in name]
    words = model.get_input_embeddings().weight[: vocabulary or model.config.text_config.vocab_size]
    if not all(type(m.data) is torch.Tensor and m.is_floating_point() and not m.is_meta for m in (*matrices, words)):
        return None
    return _digest([*(matrix[:_TOWER_ROWS] for matrix in matrices), words[:: max(1, len(words) // _ROWS)]], dtype)


def base_metadata(model: nn.Module, scorer: str = "arrcoc") -> dict[str, str]:
    """What a file says of the base that it is of: its fingerprints, those of a float16 copy of it, and its number of tokens."""
    said = {VOCABULARY: str(model.config.text_config.vocab_size)}
    for suffix, dtype in (("", torch.bfloat16), (FLOAT16, torch.float16)):
        said[BASE + suffix] = base_fingerprint(model, scorer, dtype)
        if tower := tower_fingerprint(model, dtype):
            said[TOWER + suffix] = tower
    return said


def is_of(metadata: dict[str, str], model: nn.Module, scorer: str = "arrcoc") -> bool:
    """Whether what a file says is true of `model`. Tokens may have been added to it, and a file of older code says less."""
    vocabulary = int(metadata.get(VOCABULARY, model.config.text_config.vocab_size))
    if vocabulary > model.config.text_config.vocab_size:
        return False
    for suffix, dtype in (("", torch.bfloat16), (FLOAT16, torch.float16)):
        if metadata.get(BASE + suffix) == base_fingerprint(model, scorer, dtype, vocabulary):
            told = metadata.get(TOWER + suffix)
            tower = tower_fingerprint(model, dtype, vocabulary) if told else None
            if tower in (None, told):
                return True
    return False


def _digest(tensors: list[torch.Tensor], dtype: torch.dtype, shape: list | None = None) -> str:
    digest = hashlib.sha256(json.dumps(shape, default=list).encode() if shape else b"")
    for tensor in tensors:
        digest.update(tensor.detach().to("cpu", dtype).contiguous().view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:16]


def _plain(module: nn.Module) -> nn.Module:
    return getattr(module, "base_layer", module)  # under LoRA
