"""Where tokens stand: the part of `ARRCOCQwen3VLModel` that gives positions."""

import torch

from .caching import CACHE, cached_tokens, deltas_of, held_rope_deltas
from .placement import expand_prompt

UNPLACED = (
    "images need input_ids, mm_token_type_ids and image_grid_thw as the processor returns them, or position_ids (3 or 4, batch, "
    "length) from get_rope_index, to be placed; beside inputs_embeds generate() takes the former, forward() position_ids alone"
)
FOREIGN_CACHE = (
    CACHE
    + " holds {} tokens and not where the next one stands: another model or a tuned prefix filled it, or its tensors were put into "
    "a new cache; pass the cache itself or a deepcopy of it, position_ids, or to generate() the whole prompt with mm_token_type_ids"
)


class PlacingMixin:
    """Qwen3-VL's M-RoPE positions for pruned images, and for what follows a cache."""

    def get_rope_index(
        self, input_ids, mm_token_type_ids, image_grid_thw=None, video_grid_thw=None, attention_mask=None, **kwargs
    ):
        """Qwen3-VL's M-RoPE positions for prompts whose images may have fewer placeholders than cells.

        Text stands where it would with all placeholders, since what follows an image starts at start + max(h, w) of its full
        grid. The columns of a pruned image all get the image's own start; `forward` adds each kept token's (row, column).

        Returns:
            position_ids (3, batch, length) and mrope_position_deltas (batch, 1), both for the given prompt.
        """
        if isinstance(attention_mask, torch.Tensor) and attention_mask.ndim != 2:
            attention_mask = None  # who attends to whom; nothing of padding
        device, merge = input_ids.device, self.config.vision_config.spatial_merge_size
        prompt = (input_ids, mm_token_type_ids, image_grid_thw, video_grid_thw, attention_mask)
        # stock reads a few numbers of each image, for each of which a GPU would be waited for
        input_ids, mm_token_type_ids, *grids, attention_mask = (None if each is None else each.cpu() for each in prompt)
        if attention_mask is not None and mm_token_type_ids is not None:  # stock fails on a row of padding alone
            padded = ~attention_mask.bool().any(-1, keepdim=True)
            mm_token_type_ids = mm_token_type_ids.masked_fill(padded, 0)
            attention_mask = attention_mask.masked_fill(padded, 1)
        expanded = expand_prompt(input_ids, mm_token_type_ids, grids[0], attention_mask, merge)
        if expanded is None:
            placed = super().get_rope_index(input_ids, mm_token_type_ids, *grids, attention_mask, **kwargs)
            return tuple(each.to(device) for each in placed)
        position_ids, deltas = super().get_rope_index(
            expanded.input_ids, expanded.mm_token_type_ids, *grids, expanded.attention_mask, **kwargs
        )
        position_ids = position_ids.gather(-1, expanded.source[None].expand(3, -1, -1))
        return position_ids.to(device), (deltas + expanded.shortened[:, None]).to(device)

    def compute_3d_position_ids(
        self,
        input_ids,
        inputs_embeds,
        image_grid_thw=None,
        video_grid_thw=None,
        attention_mask=None,
        past_key_values=None,
        mm_token_type_ids=None,
        cache=None,
    ):
        """Qwen3-VL's (3, batch, length) positions, `None` where each token has the position of its column; but what follows a
        cache is placed by the cache's own prompt, not by whichever prompt ran last.

        As with stock, the model's `rope_deltas` is then (batch, 1) of this prompt, or `None` in the same case.
        """
        cache = past_key_values if cache is None else cache
        rope_inputs = (input_ids, mm_token_type_ids, image_grid_thw, video_grid_thw)
        return self.place_prompt(inputs_embeds, attention_mask, cache, rope_inputs)[0]

    def place_prompt(self, tokens, attention_mask, cache, rope_inputs):
        """(3, batch, length) positions of a prompt's tokens and (batch, 1) rope deltas of what follows them, read from nothing
        that another prompt may have left on the model; `None`s where each token has the position of its column.

        The deltas are left where loops of others look for them, as stock Qwen3-VL does; nothing here reads them.

        Args:
            tokens: (batch, length, any), of which only the shape counts.
            rope_inputs: input_ids, mm_token_type_ids, image_grid_thw and video_grid_thw, or `None`s.

        Raises:
            ValueError: an image comes without what places it, or the cache does not tell where its prompt ended.
        """
        position_ids, rope_deltas = self._prompt_positions(tokens, attention_mask, cache, rope_inputs)
        if not torch.compiler.is_compiling():
            self.rope_deltas = rope_deltas
        return position_ids, rope_deltas

    def _prompt_positions(self, tokens, attention_mask, cache, rope_inputs):
        input_ids, types, *grids = rope_inputs
        has_vision = any(grid is not None for grid in grids)
        if has_vision and (input_ids is None or types is None):
            raise ValueError(UNPLACED)
        held, cached = held_rope_deltas(cache), cached_tokens(cache)
        if held is not None:
            return self.place_after_cache(held, cached, tokens.shape[:2], attention_mask, rope_inputs)
        if cached:
            raise ValueError(FOREIGN_CACHE.format(cached))
        if not has_vision:
            return None, None
        return self.get_rope_index(input_ids, types, *grids, attention_mask=attention_mask)

    def place_after_cache(self, rope_deltas, past_length, shape, attention_mask, rope_inputs):
        """(3, batch, length) positions of new tokens after a cache of `past_length` tokens, and (batch, 1) rope deltas of what
        follows them.

        Args:
            rope_deltas: from `held_rope_deltas`.
            shape: (batch, length) of the new tokens.
            attention_mask: (batch, past_length + length) or `None`.
            rope_inputs: input_ids, mm_token_type_ids, image_grid_thw and video_grid_thw of the new tokens, or `None`s.

        Raises:
            ValueError: the types tell of images or videos, and there is no grid.
        """
        batch, length = shape
        start = before = deltas_of(rope_deltas, batch)
        mask = None
        if isinstance(attention_mask, torch.Tensor) and attention_mask.ndim == 2 and attention_mask.shape[1] > length:
            start = start + attention_mask[:, :-length].sum(-1, keepdim=True)
            mask = attention_mask[:, -length:]
        else:
            start = start + past_length
        input_ids, mm_token_type_ids, *grids = rope_inputs
        if mm_token_type_ids is not None and input_ids is not None and mm_token_type_ids[:, -length:].any():
            if all(grid is None for grid in grids):
                raise ValueError(
                    "mm_token_type_ids has an image or a video behind the cache, but no images came; pass pixel_values and "
                    "image_grid_thw, or of a video pixel_values_videos and video_grid_thw"
                )
            placed, new = self.get_rope_index(input_ids, mm_token_type_ids[:, -length:], *grids, attention_mask=mask)
            return placed + start, before + new
        order = torch.arange(length, device=start.device) if mask is None else (mask.cumsum(-1) - 1).clamp_min(0)
        return (start + order)[None].expand(3, -1, -1), before

    def _place(self, offsets, position_ids, input_ids, tokens):
        """`position_ids` with each kept token's (t, row, column) added to its image's start."""
        if position_ids is None or position_ids.ndim != 3:
            raise ValueError(UNPLACED)
        mask = self.get_placeholder_mask(input_ids, inputs_embeds=tokens)[0][..., 0]
        offsets = torch.cat(list(offsets)).T.to(position_ids.device, position_ids.dtype)
        if offsets.shape[-1] != int(mask.sum()):
            raise ValueError(
                f"{int(mask.sum())} image placeholders in the prompt, but {offsets.shape[-1]} image tokens were kept; let one "
                "processor call make both input_ids and image_token_counts"
            )
        mask = mask.to(position_ids.device).expand(3, -1, -1)
        position_ids = position_ids.clone()
        position_ids[-3:] += torch.zeros_like(position_ids[-3:]).masked_scatter(mask, offsets)
        return position_ids
