"""What `generate()` asks of the model before its first step: positions, and which images are left to encode."""

import functools
import inspect
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from transformers import Qwen3VLForConditionalGeneration
from transformers.generation import utils as generation_utils

from .arguments import refuse_lists, refuse_packed
from .caching import (
    CACHE,
    cached_rows,
    cached_tokens,
    check_same_images,
    check_same_pictures,
    deltas_of,
    drop_stale_end,
    given_cache,
    held_rope_deltas,
    hold_pictures,
    pictures_of,
    prompt_end,
)
from .configuration_arrcoc import check_spending, model_dials, refuse_misspelt_arguments
from .encoded import check_encoded
from .placement import (
    cells_of,
    check_filled,
    count_placeholders,
    image_runs,
    images_to_encode,
    videos_to_encode,
)
from .placing import FOREIGN_CACHE, UNPLACED


class GeneratingMixin:
    """The part of `ARRCOCQwen3VLForConditionalGeneration` that `generate()` calls."""

    # what the model has
    config: Any
    model: Any

    @functools.wraps(Qwen3VLForConditionalGeneration.generate)
    def generate(self, *args, **kwargs):
        for inputs in (*args[:1], kwargs.get("inputs"), kwargs.get("input_ids")):
            check_ids(inputs)
        refuse_misspelt_arguments(self._not_of_forward(kwargs))
        refuse_lists(kwargs)
        refuse_dials(kwargs.get("generation_config") or (args[1] if len(args) > 1 else None) or self.generation_config)
        cache = given_cache(kwargs.pop("past_key_values", None), kwargs)
        if cache is not None:
            kwargs[CACHE] = cache  # by the name that this release gives it
        pictures = None if cache is None else pictures_of(kwargs)
        check_same_pictures(cache, pictures)
        result = super().generate(*args, **kwargs)
        cache = getattr(result, CACHE, cache)
        if cache is not None and kwargs.get("image_grid_thw") is not None:
            hold_pictures(cache, pictures or pictures_of(kwargs))
        return result

    generate.__doc__ = f"""{Qwen3VLForConditionalGeneration.generate.__doc__ or ""}
        ARR-COC: all that the processor returns goes in here; the prompt's image placeholders are its tokens.

        Args:
            encode_ratio, allocation_mode: as `ARRCOCQwen3VLConfig` has them; `None` for the config's.
            encoded_images: from `encode_images()`, in place of the vision tower; refused for other pictures or another model.

        Raises:
            ValueError: what was passed does not fit the prompt or the cache; the message says what to do.
            TypeError: a name is misspelt, a dial is on the generation config, or an input is no tensor.
        """

    def _not_of_forward(self, names) -> list[str]:
        known = inspect.signature(type(self).forward).parameters  # type: ignore[attr-defined]
        return [name for name in names if name not in known]

    def generate_batch(self, inputs, *args, **kwargs):
        """Continuous batching of prompts of text, as with stock Qwen3-VL, also through `cache_implementation="paged"`.

        Raises:
            ValueError: a prompt has placeholders: this way of generating reads no images.
        """
        seen = torch.tensor([self.config.image_token_id, self.config.video_token_id])
        for number, prompt in enumerate(inputs):
            if torch.isin(torch.as_tensor(prompt).cpu(), seen).any():
                raise ValueError(
                    f"prompt {number} has an image or video, which transformers' continuous batching (generate_batch, "
                    'cache_implementation="paged") does not read; call generate() with another cache'
                )
        return super().generate_batch(inputs, *args, **kwargs)

    @functools.wraps(Qwen3VLForConditionalGeneration._assisted_decoding)
    def _assisted_decoding(self, input_ids, *args, **kwargs):
        held, mask = cached_tokens(kwargs.get(CACHE)), kwargs.get("attention_mask")
        whole = is_whole(input_ids, mask, kwargs.get("generation_config"))
        if held and (whole or mask is not None or kwargs.get("assistant_model") is not None):
            # transformers would read the whole prompt again, after what is cached
            raise ValueError(
                f"the cache holds {held} tokens, and assisted decoding (assistant_model, prompt_lookup_num_tokens) of a whole "
                "prompt begins with an empty one; leave out one of them, or with prompt_lookup_num_tokens pass the new part alone, "
                "without padding"
            )
        return super()._assisted_decoding(input_ids, *args, **kwargs)

    def _prepare_position_ids_for_generation(self, inputs_tensor, model_kwargs):
        # After a cache, stock would use the rope_deltas of whatever prompt ran last. With the whole prompt at hand
        # everything is placed from the prompt, else from what the cache holds.
        cache, mask = model_kwargs.get(CACHE), model_kwargs.get("attention_mask")
        types = model_kwargs.get("mm_token_type_ids")
        grids = (model_kwargs.get("image_grid_thw"), model_kwargs.get("video_grid_thw"))
        drop_stale_end(cache)
        whole = is_whole(inputs_tensor, mask, None)  # the mask is there yet
        check_prompt(inputs_tensor, model_kwargs, self.config)
        told = held_rope_deltas(cache, check=False) is not None
        placeable = whole and types is not None and types.shape == inputs_tensor.shape
        as_text = placeable and told and not prompt_end(cache).tells(cached_tokens(cache)) and not types.any()
        if placeable and (not told or as_text or any(grid is not None for grid in grids)):
            model_kwargs = {key: value for key, value in model_kwargs.items() if key != CACHE}
            placed = super()._prepare_position_ids_for_generation(inputs_tensor, model_kwargs)
            return placed if as_text or not told else moved_to(placed, cache, mask)
        elif (held := held_rope_deltas(cache)) is not None:
            text = super(Qwen3VLForConditionalGeneration, self)._prepare_position_ids_for_generation(
                inputs_tensor, model_kwargs
            )
            text = text.expand(len(inputs_tensor), -1)
            position_ids = torch.stack([text, *(text + deltas_of(held, len(text)),) * 3])
            if not whole:
                shape, rope_inputs = inputs_tensor.shape[:2], (inputs_tensor, types, *grids)
                placed, _ = self.model.place_after_cache(held, cached_tokens(cache), shape, mask, rope_inputs)
                position_ids[1:, :, -inputs_tensor.shape[1] :] = placed
            return position_ids
        elif cached_tokens(cache) and model_kwargs.get("position_ids") is None:
            raise ValueError(FOREIGN_CACHE.format(cached_tokens(cache)))
        return super()._prepare_position_ids_for_generation(inputs_tensor, model_kwargs)

    def _maybe_prepare_encoder_kwargs_for_generation(
        self, inputs_tensor, model_kwargs, model_input_name, generation_config
    ):
        # generate() encodes without the prompt: here its images are still counted, and those that are cached left out.
        check_chunks(generation_config.prefill_chunk_size, model_kwargs)
        check_spending(model_kwargs.get("encode_ratio"), model_kwargs.get("allocation_mode"))
        whole = is_whole(inputs_tensor, model_kwargs.get("attention_mask"), generation_config)
        if not generation_config.is_assistant:  # assistants draft without images
            check_shown(inputs_tensor, model_kwargs, self.config, whole)
        cached = cached_tokens(model_kwargs.get(CACHE)) if whole else 0
        model_kwargs = images_to_encode(model_kwargs, self.config.vision_config.spatial_merge_size, cached)
        model_kwargs = videos_to_encode(model_kwargs, cached)
        if model_kwargs.get("encoded_images") is not None:
            model_kwargs.setdefault("pixel_values", None)  # stock calls the encoder only where this is there
        return super()._maybe_prepare_encoder_kwargs_for_generation(
            inputs_tensor, model_kwargs, model_input_name, generation_config
        )

    def _prefill(self, input_ids, generation_config, model_kwargs, *args, **kwargs):
        # Stock cuts these types into chunks as if they were those of what is cached, too.
        types, mask = model_kwargs.get("mm_token_type_ids"), model_kwargs.get("attention_mask")
        length = getattr(generation_config, "_mask_length", 0) if mask is None else mask.shape[-1]
        if generation_config.prefill_chunk_size and types is not None and types.shape[-1] < length:
            model_kwargs["mm_token_type_ids"] = F.pad(types, (length - types.shape[-1], 0))
        return super()._prefill(input_ids, generation_config, model_kwargs, *args, **kwargs)

    def _expand_inputs_for_generation(self, expand_size=1, is_encoder_decoder=False, input_ids=None, **model_kwargs):
        # Stock shares features out by all placeholders of the prompt, and an image that the cache holds has no features any more;
        # and it writes into what it was given, which a caller may hand in again.
        features, cache = model_kwargs.get("mm_encoder_outputs"), model_kwargs.get(CACHE)
        if features:
            features = {kind: None if seen is None else type(seen)(**seen) for kind, seen in features.items()}
            model_kwargs["mm_encoder_outputs"] = features
        cached = cached_tokens(cache)
        if cached and input_ids is not None:
            check_rows(cache, len(input_ids), expand_size)
        as_stock = expand_size == 1 or not features or not cached or input_ids is None
        if as_stock or all_shown(input_ids, features, self.config.image_token_id):
            return super()._expand_inputs_for_generation(expand_size, is_encoder_decoder, input_ids, **model_kwargs)
        new = input_ids.clone()
        new[:, :cached].masked_fill_(new[:, :cached] == self.config.image_token_id, self.config.vision_end_token_id)
        features = self._expand_multimodal_outputs(new, features, expand_size)
        model_kwargs["mm_encoder_outputs"] = None
        input_ids, model_kwargs = super()._expand_inputs_for_generation(
            expand_size, is_encoder_decoder, input_ids, **model_kwargs
        )
        return input_ids, model_kwargs | {"mm_encoder_outputs": features}


def check_prompt(inputs_tensor: torch.Tensor, model_kwargs: dict, config):
    """Refuses prompts that `generate()` would otherwise place wrongly or fail on later: pruned images in a prompt of
    embeddings alone, without mm_token_type_ids or at its very end, a cache that holds as much as the prompt or was made from
    other prompts, encoded images of another prompt.

    Raises:
        ValueError: saying what to pass.
    """
    merge_size = config.vision_config.spatial_merge_size
    ids, mask, cache = (model_kwargs.get(name) for name in ("input_ids", "attention_mask", CACHE))
    types, grids = model_kwargs.get("mm_token_type_ids"), model_kwargs.get("image_grid_thw")
    check_encoded(model_kwargs.get("encoded_images"), grids)
    embedded = inputs_tensor.ndim == 3 and (ids is None or not ids.numel())
    held = cached_tokens(cache)
    if grids is not None and (embedded or types is None) and model_kwargs.get("position_ids") is None:
        counts = model_kwargs.get("image_token_counts")
        if counts is None and types is not None:
            counts = count_placeholders(types == 1, None, grids, merge_size, None)
        elif counts is None and not embedded and not held:
            counts = count_placeholders(inputs_tensor == config.image_token_id, mask, grids, merge_size, None)
        if counts is not None and not torch.equal(torch.as_tensor(counts).to(grids), cells_of(grids, merge_size)):
            raise ValueError(UNPLACED)
    length = inputs_tensor.shape[1]
    if held and mask is not None and (held >= mask.shape[1] or mask.shape[1] not in (length, held + length)):
        raise ValueError(
            f"the cache holds {held} tokens, but the prompt has {length} and its attention_mask {mask.shape[1]}; pass the whole "
            "prompt that it was made from with what follows, or the new tokens with an attention_mask over cached and new ones"
        )
    if grids is not None and types is not None and (types[:, -1] == 1).any():
        starts, lengths = image_runs(types == 1)
        last = (starts + lengths) % types.shape[-1] == 0
        if len(lengths) == len(grids) and (last & (lengths < cells_of(grids, merge_size).to(lengths))).any():
            raise ValueError(
                "the prompt ends with an image of which some tokens were chosen, and generate() could not place what follows; let "
                "<|vision_end|> or text follow it, as the chat template does"
            )
    if (deltas := held_rope_deltas(cache, check=False)) is not None:  # a whole prompt may follow any cache
        deltas_of(deltas, len(inputs_tensor))


def moved_to(position_ids: torch.Tensor, cache, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """`position_ids` (4, batch, length) of whole prompts with each row's three lower ones moved to where `cache` goes on: text that
    `forward()` read with padding before it stands at its columns, as with stock Qwen3-VL."""
    end, held = prompt_end(cache), cached_tokens(cache)
    if end is None or not end.tells(held):
        return position_ids
    batch = position_ids.shape[1]
    mask = position_ids.new_ones(position_ids.shape[1:]) if attention_mask is None else attention_mask.to(position_ids)
    goes_on = deltas_of(end.rope_deltas, batch).to(position_ids) + mask[:, :held].sum(-1, keepdim=True)
    first = held + mask[:, held:].argmax(-1, keepdim=True)
    moved = goes_on - position_ids[-1].gather(1, first)
    return torch.cat([position_ids[:1], position_ids[1:] + moved])


def check_rows(cache, batch: int, expand_size: int):
    """Refuses a cache that has other rows than `batch` prompts of `expand_size` beams or sequences each.

    Raises:
        ValueError: saying how many there are.
    """
    rows = cached_rows(cache)
    if rows is not None and rows != batch * expand_size:
        raise ValueError(
            f"the cache has {rows} rows, and {batch} prompts of {expand_size} beams or sequences each go on from it; pass "
            "num_beams and num_return_sequences of the call that filled it, cache.batch_repeat_interleave(), or an empty cache"
        )


def check_ids(inputs):
    """Refuses what generate() was given for a prompt and is none.

    Raises:
        TypeError: a processor's whole output came.
        ValueError: it is one row without a batch.
    """
    refuse_packed(inputs)
    if isinstance(inputs, torch.Tensor) and inputs.ndim < 2:
        raise ValueError(
            f"input_ids is {tuple(inputs.shape)}, wanted (batch, length); for one prompt pass input_ids[None]"
        )


def refuse_dials(generation_config):
    """Raises TypeError where a `generation_config` has what it does not hold: it would count for nothing."""
    for name in sorted(vars(generation_config).keys() & {"token_budget", *model_dials()}):
        raise TypeError(
            f"generation_config.{name} counts for nothing; pass token_budget to the processor, and encode_ratio or "
            "allocation_mode to generate(), or set them, and other dials, on model.config"
        )


def is_whole(prompt: torch.Tensor, attention_mask: torch.Tensor | None, generation_config) -> bool:
    """Whether a prompt (batch, length, ..) that generate() was given is the whole one, not the new part after a cache: its
    mask is as long. generate() drops a mask without padding, and remembers its length."""
    length = getattr(generation_config, "_mask_length", None) if attention_mask is None else attention_mask.shape[-1]
    return length is None or length == prompt.shape[1]


def all_shown(prompt: torch.Tensor, features: dict, image_token_id: int) -> bool:
    """Whether every image placeholder of a prompt has its feature, and none is an image's that a cache holds."""
    rows = sum(map(len, features["image"].pooler_output)) if features.get("image") is not None else 0
    return int((prompt == image_token_id).sum()) == rows


def check_shown(inputs_tensor: torch.Tensor, model_kwargs: dict, config, whole: bool):
    """Refuses a prompt with placeholders of images or videos that came without any, but those that the cache has read, and a whole
    prompt whose images are not where the cache read them.

    Raises:
        ValueError: saying what is missing, or what to pass.
    """
    cache, types = model_kwargs.get(CACHE), model_kwargs.get("mm_token_type_ids")
    if inputs_tensor.ndim != 2:
        return
    if types is not None and types.shape[-1] > inputs_tensor.shape[1]:  # those of what is cached, too
        types = types[:, -inputs_tensor.shape[1] :]
    if whole and (cached := cached_tokens(cache)):
        if types is not None and types.shape == inputs_tensor.shape:
            check_same_images(cache, types)
            types = types[:, cached:]
        inputs_tensor = inputs_tensor[:, cached:]
    images = [model_kwargs.get(name) for name in ("pixel_values", "encoded_images")]
    encoded = model_kwargs.get("mm_encoder_outputs") or {}
    if all(image is None for image in [*images, encoded.get("image")]):
        videos = [model_kwargs.get("pixel_values_videos"), encoded.get("video")]
        check_filled(inputs_tensor, types, config, with_videos=any(video is not None for video in videos))


def check_chunks(prefill_chunk_size: int | None, model_kwargs: dict):
    """Refuses to prefill images in chunks on releases that drop them there in silence (all before 5.23).

    Raises:
        ValueError: saying what to leave out or to install.
    """
    seen = any(model_kwargs.get(name) is not None for name in ("pixel_values", "pixel_values_videos", "encoded_images"))
    if prefill_chunk_size is None or hasattr(generation_utils, "_slice_mm_encoder_output"):
        return
    if seen or model_kwargs.get("mm_encoder_outputs"):
        raise ValueError(
            f"transformers {transformers.__version__} drops images from a prompt that is prefilled in chunks; leave out "
            "prefill_chunk_size, or run: pip install 'transformers>=5.23,<6'"
        )
