"""What the vision tower's last attention says about each cell: how much it is attended to, and its key."""

import contextlib
from dataclasses import dataclass, field

import torch
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb_vision

QUERIES_AT_ONCE = 1024


@dataclass
class LastBlock:
    """Queries, keys and values of the last ViT block, caught while it ran; see `watch_last_block`."""

    heads: int
    merge: int
    seen: dict = field(default_factory=dict)

    def _per_patch(self):
        qkv = self.seen["qkv"]
        query, key, _ = qkv.float().reshape(len(qkv), 3, self.heads, -1).unbind(1)  # each (patches, heads, head_dim)
        lengths = self.seen["cu_seqlens"].diff().tolist()
        return query, key, lengths

    def attention(self) -> list[torch.Tensor]:
        """Per picture (cells,), the attention that a cell's patches receive: mean over heads, queries and patches."""
        query, key, lengths = self._per_patch()
        query, key = apply_rotary_pos_emb_vision(query, key, *self.seen["position_embeddings"])
        received = []
        for queries, keys in zip(query.split(lengths), key.split(lengths), strict=True):
            queries, keys = queries.transpose(0, 1), keys.transpose(0, 1)
            total = sum(
                (part @ keys.mT * keys.shape[-1] ** -0.5).softmax(-1).sum((0, 1))
                for part in queries.split(QUERIES_AT_ONCE, dim=1)
            )
            received.append((total / (self.heads * len(total))).view(-1, self.merge**2).mean(-1))
        return received

    def keys(self) -> list[torch.Tensor]:
        """Per picture (cells, merge_size ** 2 * head_dim), the keys before RoPE, mean over heads, patch beside patch."""
        _, key, lengths = self._per_patch()
        return [part.mean(1).reshape(len(part) // self.merge**2, -1) for part in key.split(lengths)]


@contextlib.contextmanager
def watch_last_block(model):
    """A `LastBlock` that holds what the vision tower of `model` computes within the context."""
    attention = model.model.visual.blocks[-1].attn
    block = LastBlock(attention.num_heads, model.config.vision_config.spatial_merge_size)

    def before(module, args, kwargs):
        block.seen.update(cu_seqlens=kwargs["cu_seqlens"], position_embeddings=kwargs["position_embeddings"])

    def after(module, args, output):
        block.seen["qkv"] = output

    hooks = [attention.register_forward_pre_hook(before, with_kwargs=True), attention.qkv.register_forward_hook(after)]
    try:
        yield block
    finally:
        for hook in hooks:
            hook.remove()
