"""What a cache hands on: how many tokens it holds, and where the next one stands."""

import torch


def cached_tokens(cache) -> int:
    """How many tokens a cache holds; 0 for `None`."""
    return 0 if cache is None else int(cache.get_seq_length())


def rope_deltas_of(position_ids, attention_mask, tokens, cached: int) -> torch.Tensor:
    """(batch, 1) how far the position after a prompt lies from its place among the tokens.

    Args:
        position_ids: (3 or 4, batch, length) of the prompt's last part, of 4 the first are places among the tokens; or
            (batch, length), or `None` where each token has the position of its column, as in text alone.
        attention_mask: (batch, cached + length) or `None`.
        tokens: (batch, length) or their embeddings.
        cached: how many tokens stand before them.
    """
    batch, length = tokens.shape[0], cached + tokens.shape[1]
    masked = isinstance(attention_mask, torch.Tensor) and attention_mask.ndim == 2
    places = attention_mask.sum(-1) if masked else torch.full((batch,), length, device=tokens.device)
    if position_ids is None:
        return (length - places)[:, None]
    if position_ids.ndim == 2:
        position_ids = position_ids[None]
    if len(position_ids) == 4:
        places = position_ids[0].amax(-1) + 1
    return (position_ids[-3:].amax(dim=(0, 2)) + 1 - places.to(position_ids.device))[:, None]


def hold_rope_deltas(cache, rope_deltas: torch.Tensor, end: int) -> None:
    """Writes on `cache` how far the position of a token behind its images lies from its place among the tokens.

    The cache is the only thing that a conversation hands on, so what continues it must stand there and not on the model.

    Args:
        cache: the cache after a prompt.
        rope_deltas: (batch, 1).
        end: tokens up to the last image; what comes after it may be cropped and replaced.
    """
    cache.arrcoc_rope_deltas = (end, rope_deltas)


def held_rope_deltas(cache, check: bool = True) -> torch.Tensor | None:
    """(batch, 1) the next token's position minus its place among the tokens, or `None` where the cache is empty or another's.

    Raises:
        ValueError: the cache was cropped to before the end of its images, and `check` is set.
    """
    end, deltas = getattr(cache, "arrcoc_rope_deltas", (0, None))
    now = 0 if deltas is None else cached_tokens(cache)
    if now == 0:
        return None
    if check and now < end:
        raise ValueError(
            f"the cache was cropped to {now} tokens, but its images end after {end}; pass the whole prompt with its images and "
            "mm_token_type_ids, or start from an empty cache"
        )
    return deltas


def images_end(input_ids, config, cached: int, length: int) -> int:
    """How many tokens of a cache stand up to the last image or video: 0 for none, all `length` where the prompt's new part
    (`input_ids`, behind `cached` tokens) is not known."""
    if input_ids is None:
        return length
    seen = (input_ids == config.image_token_id) | (input_ids == config.video_token_id)
    columns = seen.any(0).nonzero()
    return cached + int(columns[-1]) + 1 if len(columns) else 0


def deltas_of(held: torch.Tensor, batch: int) -> torch.Tensor:
    """(batch, 1) of what `held_rope_deltas` gave: each repeated where a prompt became several, one of each group where a cache
    of beams goes on from its prompts.

    Raises:
        ValueError: the cache was made from other prompts.
    """
    if batch % len(held) == 0:
        return held.repeat_interleave(batch // len(held), dim=0)
    groups = held.view(batch, -1) if len(held) % batch == 0 else None
    if groups is None or (groups != groups[:, :1]).any():
        raise ValueError(
            f"the cache was made from {len(held)} prompts and {batch} go on from it; pass as many, or the whole prompts with an "
            "empty cache"
        )
    return groups[:, :1]
