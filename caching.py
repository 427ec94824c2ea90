"""What a cache hands on: how many tokens it holds, and where the next one stands."""

from typing import NamedTuple

import torch
from transformers.cache_utils import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast

from .placement import image_runs

# The argument that takes a cache and the output that returns it: transformers 5.24 renamed `past_key_values` to `cache`.
CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"

_PICTURES = "arrcoc_pictures"


class PromptEnd(NamedTuple):
    """Where the prompt of a cache ended.

    Attributes:
        images_end: tokens up to its last image or video, 0 for none; what comes after it may be cropped and replaced.
        rope_deltas: (batch, 1) how far the position of a token after it lies from its place among the tokens.
        known: whether `images_end` was read from the prompt's tokens; else it is all of them.
        settled: whether `rope_deltas` are those of the prompt. After a pruned image with nothing behind it yet they are not,
            where positions were given: its full grid, from which text goes on, can't be told from the cells that were kept.
    """

    images_end: int
    rope_deltas: torch.Tensor
    known: bool
    settled: bool

    def tells(self, cached: int) -> bool:
        """Whether what follows `cached` tokens of the cache, which may have been cropped, goes on from this prompt."""
        return self.settled and cached >= self.images_end


def given_cache(past_key_values, kwargs: dict):
    """The cache of a call that names it `past_key_values` or, on any release, `cache`; taken out of `kwargs`.

    Raises:
        ValueError: it came under both names.
        TypeError: it is a tuple or the like, as caches were of old.
    """
    if isinstance(past_key_values, list | tuple | dict | str):
        raise TypeError(
            f"past_key_values is a {type(past_key_values).__name__} and no cache; pass a Cache, such as DynamicCache()"
        )
    # before 5.24 what continuous batching hands on is called so too, and is no `Cache`
    if CACHE != "cache" and not isinstance(kwargs.get("cache"), Cache):
        return past_key_values
    cache = kwargs.pop("cache", None)
    if cache is not None and past_key_values is not None:
        raise ValueError("a cache came as cache and as past_key_values, the older name of the same; pass one of them")
    return past_key_values if cache is None else cache


def cached_tokens(cache) -> int:
    """How many tokens a cache holds; 0 for `None`."""
    return 0 if cache is None else int(cache.get_seq_length())


def cached_rows(cache) -> int | None:
    """How many prompts (or beams) a cache holds; `None` where it does not tell, as a quantised one that has no residual."""
    held = (getattr(layer, "keys", None) for layer in getattr(cache, "layers", ()))
    return next((len(keys) for keys in held if keys is not None and keys.dim() == 4), None)


def is_placed(cache, position_ids) -> bool:
    """Whether this call needs no count of cached tokens: for one placed token after the prompt of a static cache, which is
    never cropped, and for text on the paged cache of continuous batching, which places it itself and does not count so. The
    number is a tensor, which a GPU would be waited for at every token and which breaks `torch.compile`'s graph.

    A cache that was `reset()` and is given a prompt of one token is mistaken for it, but not in `generate()`: see
    `drop_stale_end`.
    """
    if cache is not None and not isinstance(cache, Cache):
        return True
    if position_ids is None or position_ids.shape[-1] != 1 or not getattr(cache, "is_compileable", False):
        return False
    end = prompt_end(cache)
    return end is not None and end.settled


def drop_stale_end(cache) -> None:
    """Takes off an emptied cache (a static one that was `reset()`) what it held of the prompt before."""
    if prompt_end(cache) is not None and not cached_tokens(cache):
        del cache.arrcoc_prompt_end


def rope_deltas_of(position_ids, attention_mask, tokens, cached: int, before: PromptEnd | None = None) -> torch.Tensor:
    """(batch, 1) how far the position after a prompt lies from its place among the tokens. A row whose last part is padding
    alone, as in a chunk of a batch's prompts, keeps that of `before`.

    Args:
        position_ids: (3 or 4, batch, length) of the prompt's last part, of 4 the first are places among the tokens; or
            (batch, length), or `None` where each token has the position of its column, as in text alone.
        attention_mask: (batch, cached + length) or `None`.
        tokens: (batch, length) or their embeddings.
        cached: how many tokens stand before them.
        before: where the prompt ended that these stand in, or `None`.
    """
    batch, length = tokens.shape[0], cached + tokens.shape[1]
    masked = isinstance(attention_mask, torch.Tensor) and attention_mask.ndim == 2
    places = attention_mask.sum(-1) if masked else torch.full((batch,), length, device=tokens.device)
    if position_ids is None:
        return (length - places)[:, None]
    if position_ids.ndim == 2:
        position_ids = position_ids[None]
    last = None
    if len(position_ids) == 4:
        last = position_ids[0].amax(-1)
        places = last + 1
    deltas = (position_ids[-3:].amax(dim=(0, 2)) + 1 - places.to(position_ids.device))[:, None]
    if masked:
        read = attention_mask[:, -tokens.shape[1] :].any(-1)
    elif last is not None:
        read = last > 0  # the places of padding are 0
    else:
        return deltas
    kept = torch.zeros_like(deltas) if before is None else deltas_of(before.rope_deltas, batch).to(deltas)
    return torch.where(read[:, None].to(deltas.device), deltas, kept)


def prompt_end(cache) -> PromptEnd | None:
    """What `hold_prompt_end` wrote on `cache`, or `None`."""
    held = getattr(cache, "arrcoc_prompt_end", None)
    return None if held is None else PromptEnd(*held)


def hold_prompt_end(cache, end: PromptEnd) -> None:
    """Writes `end` on `cache`: the only thing that a conversation hands on, so what continues it must stand there and not on
    the model."""
    cache.arrcoc_prompt_end = tuple(end)  # which a process without this file can unpickle


def held_rope_deltas(cache, check: bool = True) -> torch.Tensor | None:
    """(batch, 1) the next token's position minus its place among the tokens, or `None` where the cache is empty or another's.

    Raises:
        ValueError: the cache was cropped to before the end of its images, its prompt's end is not settled, or some of its rows
            were selected, and `check` is set.
    """
    end = prompt_end(cache)
    if end is None or not (now := cached_tokens(cache)):
        return None
    deltas, rows = end.rope_deltas, cached_rows(cache)
    if rows is not None and rows < len(deltas):  # rows were selected, and it does not say which
        if (deltas == deltas[:1]).all():
            deltas = deltas[:rows]
        elif check:
            raise ValueError(
                f"the cache was made from {len(deltas)} prompts and {rows} of them are left, of which it can't be told where each "
                "goes on; pass their whole prompts with mm_token_type_ids to generate(), or start from an empty cache"
            )
        else:
            return None
    if check and now < end.images_end:
        raise ValueError(
            f"the cache was cropped to {now} tokens, but its images end after {end.images_end}; pass the whole prompt with its "
            "images and mm_token_type_ids, or start from an empty cache"
        )
    if check and not end.settled:
        raise ValueError(
            "the cache ends with a pruned image whose position_ids were given; pass those of what follows, too, or to generate() "
            "the whole prompt with mm_token_type_ids"
        )
    return deltas


def images_end(before, input_ids, config, cached: int, length: int, has_vision: bool) -> tuple[int, bool]:
    """`images_end` and `known` of the `PromptEnd` of a cache of `length` tokens.

    Args:
        before: the `PromptEnd` of its first `cached` tokens, or `None`.
        input_ids: (batch, length - cached) of the prompt's new part, or `None` where it came as embeddings.
        has_vision: whether the new part has images or videos.
    """
    if has_vision and input_ids is None:
        return length, False
    if has_vision:
        return last_image((input_ids == config.image_token_id) | (input_ids == config.video_token_id), cached), True
    if before is None:
        return 0, input_ids is not None
    return min(before.images_end, cached), before.known and before.images_end <= cached


def last_image(seen: torch.Tensor, cached: int = 0) -> int:
    """Tokens up to the last placeholder of `seen` (batch, length) bool, after `cached` tokens; 0 for none."""
    columns = seen.any(0).cpu().nonzero()
    return cached + int(columns[-1]) + 1 if len(columns) else 0


_MOVED = (
    "an image has other placeholders than when it was read, as with token_budget='auto', which counts anew for each question, or "
    "padding has moved it. Pass as token_budget what it had (image_token_counts of the first call), ask prompts of one length "
    "together, or start from an empty cache"
)


def check_same_images(cache, mm_token_type_ids: torch.Tensor) -> None:
    """Refuses a whole prompt whose images take other places than those that the cache was made from.

    Args:
        mm_token_type_ids: (batch, length) of the whole prompt.

    Raises:
        ValueError: saying so: an image that is asked about again has got another budget, for one.
    """
    end, held = prompt_end(cache), cached_tokens(cache)
    if end is None or not end.known or not 0 < held < mm_token_type_ids.shape[1] or held < end.images_end:
        return
    now = last_image(mm_token_type_ids[:, :held] != 0)
    if now != end.images_end:
        raise ValueError(
            f"the images of the cache end after {end.images_end} tokens, those of the prompt after {now}: {_MOVED}"
        )


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


def pictures_of(prompt: dict) -> list[list[tuple]] | None:
    """Of each prompt of a batch, where each of its pictures begins, its placeholders, its grid, and a hash of its texture image.

    Args:
        prompt: what `generate()` was given by name.

    Returns:
        `None` where it can't be told: without `mm_token_type_ids` of the whole prompt (batch, length) or `texture_images`.
    """
    types, grids, textures = (prompt.get(name) for name in ("mm_token_type_ids", "image_grid_thw", "texture_images"))
    mask = prompt.get("attention_mask")
    if types is None or grids is None or textures is None or (mask is not None and mask.shape != types.shape):
        return None
    starts, lengths = image_runs(types == 1)
    if not len(starts) == len(grids) == len(textures):
        return None
    # multiplicative hashing: Knuth, "The Art of Computer Programming" 3, section 6.4
    weights = torch.arange(1, textures[0].numel() + 1, device=textures.device) * 2654435761 % 2**31
    hashes = torch.stack([(texture.flatten().long() * weights).sum() for texture in textures])
    found: list[list[tuple]] = [[] for _ in types]
    each = zip(starts.tolist(), lengths.tolist(), grids.tolist(), hashes.tolist(), strict=True)
    for start, length, grid, number in each:
        found[start // types.shape[1]].append((start % types.shape[1], length, tuple(grid), number))
    return found


def check_same_pictures(cache, pictures: list[list[tuple]] | None) -> None:
    """Refuses prompts that show other pictures than those that `generate()` made `cache` from, or these elsewhere, once it has
    forgotten those that the cache holds no more.

    Args:
        pictures: of the prompts, as `pictures_of` found them; `None` is not checked.

    Raises:
        ValueError: saying which picture of which prompt.
    """
    held, cached = getattr(cache, _PICTURES, None), cached_tokens(cache)
    if not held:
        return
    held = [[each for each in row if each[0] < cached] for row in held]
    hold_pictures(cache, held)  # what was cropped away may be something else from now on
    if not pictures or len(pictures) % len(held) or not cached:
        return
    of_rows = [{place: which for place, *which in row} for row in held]
    for number, shown in enumerate(pictures):
        before = of_rows[number * len(held) // len(pictures)]
        now = {place: which for place, *which in shown if place < cached}
        for place in sorted(before.keys() | now.keys()):
            was, comes = before.get(place), now.get(place)
            if was and comes and was[1:] != comes[1:]:
                raise ValueError(
                    f"the cache was made from another picture than prompt {number} shows at token {place}; pass the pictures of "
                    "this conversation in their order, or start from an empty cache"
                )
            if was != comes and now not in of_rows:  # a caller may have put the rows in another order
                raise ValueError(
                    f"prompt {number} does not show the picture of token {place} as the cache read it: {_MOVED}"
                )


def hold_pictures(cache, pictures: list[list[tuple]] | None) -> None:
    """Writes on `cache` of which pictures it was made, for `check_same_pictures`; `None` where that is not known any more."""
    setattr(cache, _PICTURES, pictures)
