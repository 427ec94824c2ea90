"""Which placeholders belong to which image: counting them, checking them, and placing pruned prompts."""

import math
from dataclasses import dataclass

import torch

from .compiling import uncompiled
from .configuration_arrcoc import OWN_INPUTS

# Inputs with one entry for each image.
IMAGE_INPUTS = ("image_grid_thw", *OWN_INPUTS)

_WITH_IMAGES = ("pixel_values", "encoded_images", *IMAGE_INPUTS)
_WITH_VIDEOS = ("pixel_values_videos", "video_grid_thw")


@dataclass(frozen=True, eq=False)
class ExpandedPrompt:
    """A prompt as it would be with a placeholder for every cell.

    Attributes:
        input_ids, mm_token_type_ids, attention_mask: (batch, full length), right-padded.
        source: (batch, length), where in the full prompt each token of the given prompt takes its position from; all
            placeholders of a pruned image point at its first.
        shortened: (batch,), full length of each sample minus its given length.
    """

    input_ids: torch.Tensor
    mm_token_type_ids: torch.Tensor
    attention_mask: torch.Tensor
    source: torch.Tensor
    shortened: torch.Tensor


def cells_of(image_grid_thw: torch.Tensor, merge_size: int) -> torch.Tensor:
    """(images,) merged cells of each image.

    Raises:
        ValueError: `image_grid_thw` is not (images, 3).
    """
    _check_shape(image_grid_thw)
    return image_grid_thw.prod(-1) // merge_size**2


def as_patches(pixel_values: torch.Tensor | None) -> torch.Tensor | None:
    """`pixel_values` as (patches, patch size), without a dimension of their own for the batch, which default collators add."""
    return pixel_values if pixel_values is None or pixel_values.ndim == 2 else pixel_values.flatten(0, -2)


def merged_grids(image_grid_thw: torch.Tensor, merge_size: int) -> list[tuple[int, int, int]]:
    """(t, h, w) of each image in merged cells.

    Raises:
        ValueError: `image_grid_thw` is not (images, 3), or has part of a cell.
    """
    _check_shape(image_grid_thw)
    grids = image_grid_thw.tolist()
    for number, (t, h, w) in enumerate(grids):
        if min(t, h, w) < 1 or h % merge_size or w % merge_size:
            raise ValueError(
                f"image_grid_thw has {[t, h, w]} for image {number}; wanted t, h and w in patches, h and w multiples of "
                f"{merge_size}: pass it as the processor returns it"
            )
    return [(t, h // merge_size, w // merge_size) for t, h, w in grids]


def _check_shape(image_grid_thw: torch.Tensor):
    if image_grid_thw.ndim != 2 or image_grid_thw.shape[-1] != 3:
        raise ValueError(
            f"image_grid_thw is {tuple(image_grid_thw.shape)}, wanted (images, 3): t, h and w of each image in patches; where a "
            "collator stacked the rows of several prompts, concatenate them"
        )
    if image_grid_thw.is_floating_point():
        raise ValueError(
            f"image_grid_thw is {image_grid_thw.dtype}, wanted integers; pass it as the processor returns it"
        )


def image_runs(is_image: torch.Tensor, attention_mask: torch.Tensor | None = None):
    """Start and length of every run of image placeholders, in prompt order: (starts, lengths), flat over the batch.

    `is_image` is (batch, length) bool, True at image placeholders. A padded position ends a run.
    """
    if attention_mask is not None:
        is_image = is_image & attention_mask.bool()
    edge = torch.nn.functional.pad(is_image.long(), (1, 1)).diff(dim=-1)  # (batch, length + 1): 1 begins, -1 ends
    width = edge.shape[-1]
    begins, ends = (edge.flatten() == 1).nonzero().flatten(), (edge.flatten() == -1).nonzero().flatten()
    rows = begins // width
    return begins - rows, ends - begins  # starts count in the flat (batch * length) prompt


@uncompiled
def expand_prompt(
    input_ids, mm_token_type_ids, image_grid_thw, attention_mask, merge_size: int
) -> ExpandedPrompt | None:
    """The prompt with all placeholders, or `None` where it already has them all (or has no image).

    Raises:
        ValueError: the prompt has another number of images than `image_grid_thw`, or more placeholders than cells, or
            `mm_token_type_ids` are not as many.
    """
    if image_grid_thw is None or input_ids is None:
        return None
    if mm_token_type_ids.shape != input_ids.shape:
        raise ValueError(
            f"mm_token_type_ids is {tuple(mm_token_type_ids.shape)} and input_ids {tuple(input_ids.shape)}; where tokens are "
            "put after a prompt, extend it with 0, and attention_mask with 1"
        )
    grids = merged_grids(image_grid_thw, merge_size)  # refuses what stock would fail on
    cells = torch.tensor([math.prod(grid) for grid in grids], dtype=torch.long, device=input_ids.device)
    starts, lengths = _runs_of(cells, mm_token_type_ids == 1, attention_mask)
    if torch.equal(lengths, cells):
        return None
    batch, length = input_ids.shape
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    repeats = torch.ones(batch * length, dtype=torch.long, device=input_ids.device)
    repeats[starts] += cells - lengths
    repeats = repeats.view(batch, length)
    full_lengths = repeats.sum(-1)
    ends = repeats.cumsum(-1)
    column = torch.arange(int(full_lengths.max()), device=input_ids.device).expand(batch, -1).contiguous()
    origin = torch.searchsorted(ends, column, right=True)  # which given token each full column stands for
    inside = origin < length
    origin = origin.clamp_max(length - 1)
    first = (ends - repeats).flatten()
    # Every placeholder of a pruned image takes its position from the image's first column.
    pruned = (lengths < cells).repeat_interleave(lengths)
    image = (mm_token_type_ids == 1) & mask.bool()
    places, owners = image.flatten().nonzero().flatten(), starts.repeat_interleave(lengths)
    source = first.clone()
    source[places[pruned]] = first[owners[pruned]]
    return ExpandedPrompt(
        input_ids=input_ids.gather(1, origin),
        mm_token_type_ids=mm_token_type_ids.gather(1, origin) * inside,
        attention_mask=mask.gather(1, origin) * inside,
        source=source.view(batch, length),
        shortened=full_lengths - length,
    )


def _runs_of(cells: torch.Tensor, is_image: torch.Tensor, attention_mask: torch.Tensor | None):
    """As `image_runs`, which fit images of so many cells. Images that a mask hides of a prompt with a placeholder for each cell
    are left to stock Qwen3-VL, where it runs such a prompt.

    Raises:
        ValueError: they do not fit.
    """
    starts, lengths = image_runs(is_image, attention_mask)
    if len(lengths) != len(cells) and attention_mask is not None:
        every, of_each = image_runs(is_image)
        # stock takes those that are seen for the first ones
        if torch.equal(of_each, cells) and torch.equal(lengths, cells[: len(lengths)]):
            return every, of_each
        if len(of_each) == len(cells):
            raise ValueError(
                f"attention_mask hides placeholders of an image: the prompt has {len(cells)} images, {len(lengths)} where it is "
                "not 0; leave it as the processor made it, or write the prompt without that image"
            )
    _check_runs(lengths, cells)
    return starts, lengths


def _check_runs(lengths: torch.Tensor, cells: torch.Tensor):
    if len(lengths) != len(cells):
        raise ValueError(
            f"the prompt has {len(lengths)} images (runs of image placeholders), but image_grid_thw has {len(cells)}; pass "
            "the inputs as one processor call returns them, with something between the placeholders of two images, as chat "
            "templates have it"
        )
    over = (lengths > cells).nonzero().flatten().tolist()
    if over:
        raise ValueError(
            f"image {over[0]} has {int(lengths[over[0]])} placeholders but only {int(cells[over[0]])} cells; write at most "
            "one placeholder per cell"
        )


@uncompiled
def count_placeholders(is_image, attention_mask, image_grid_thw, merge_size, image_token_counts):
    """(images,) placeholders of each image: those of the prompt, on the CPU, or `image_token_counts` as they came where it is not
    known.

    Args:
        is_image: (batch, length) bool, True at image placeholders; `None` where the prompt came as embeddings.
        image_token_counts: what the processor says, compared with the prompt where both are there.

    Raises:
        ValueError: the prompt does not fit `image_grid_thw` or `image_token_counts`.
    """
    if is_image is None or image_grid_thw is None:
        return image_token_counts
    mask = attention_mask if attention_mask is not None and attention_mask.shape == is_image.shape else None
    cells = cells_of(image_grid_thw.cpu(), merge_size)
    _, lengths = _runs_of(cells, is_image.cpu(), None if mask is None else mask.cpu())
    # a collator may have stacked the rows of prompts with one image each
    came = _as_counts(image_token_counts)
    if came is not None and came != lengths.tolist():
        raise ValueError(
            # trainers look for stock's words, and say then that they truncated the prompt
            "Image features and image tokens do not match: image_token_counts is "
            f"{came}, but the prompt has {lengths.tolist()} placeholders; let one processor call make both, and truncate no "
            "prompt within an image (max_length)"
        )
    return lengths


def _as_counts(image_token_counts) -> list[int] | None:
    if image_token_counts is None:
        return None
    try:
        counts = torch.as_tensor(image_token_counts)
    except (TypeError, ValueError, RuntimeError):
        counts = None
    if counts is None or counts.is_floating_point() or counts.dtype == torch.bool:
        raise ValueError(
            f"image_token_counts={image_token_counts!r} is no tensor of whole numbers; pass it as the processor returns it, one "
            "number per image"
        )
    return counts.flatten().tolist()


def images_to_encode(model_kwargs: dict, merge_size: int, cached: int) -> dict:
    """`generate()`'s model inputs with `image_token_counts` from the prompt, and without images that the cache holds.

    Args:
        model_kwargs: what the encoder is about to be called with, and mm_token_type_ids (batch, length of the prompt).
        cached: tokens of that prompt that a cache holds; 0 where it is the new part alone.

    Raises:
        ValueError: the prompt does not fit `image_grid_thw` or `image_token_counts`, or the cache ends inside an image.
    """
    types, grids = model_kwargs.get("mm_token_type_ids"), model_kwargs.get("image_grid_thw")
    sources = (model_kwargs.get("pixel_values"), model_kwargs.get("encoded_images"))
    if types is None or grids is None or all(source is None for source in sources):
        return model_kwargs
    counts = count_placeholders(types == 1, None, grids, merge_size, model_kwargs.get("image_token_counts"))
    model_kwargs = model_kwargs | {"image_token_counts": counts}
    if not cached:
        return model_kwargs
    starts = image_runs(types.cpu() == 1)[0] % types.shape[-1]
    if ((starts < cached) & (starts + counts > cached)).any():
        raise ValueError(f"the cache ends after {cached} tokens, inside an image; crop it to where the image begins")
    new = starts >= cached
    if (pixel_values := as_patches(model_kwargs.get("pixel_values"))) is not None:
        patches = new.repeat_interleave(grids.prod(-1).to(new.device))
        model_kwargs["pixel_values"] = pixel_values[patches]
    for name in IMAGE_INPUTS:
        if model_kwargs.get(name) is not None:
            model_kwargs[name] = model_kwargs[name][new.to(model_kwargs[name].device)]
    if not new.any():
        model_kwargs = {key: value for key, value in model_kwargs.items() if key not in _WITH_IMAGES}
    return model_kwargs


def videos_to_encode(model_kwargs: dict, cached: int) -> dict:
    """`generate()`'s model inputs without the videos that the cache holds; arguments as of `images_to_encode`.

    Raises:
        ValueError: the cache holds some of the videos, or part of one.
    """
    types = model_kwargs.get("mm_token_type_ids")
    if types is None or model_kwargs.get("pixel_values_videos") is None:
        return model_kwargs
    if not (types[:, :cached] == 2).any():
        return model_kwargs
    if (types[:, cached:] == 2).any():
        raise ValueError(
            f"the cache ends after {cached} tokens, inside a video or between two; start from an empty cache, or crop it to before "
            "the first video"
        )
    return {key: value for key, value in model_kwargs.items() if key not in _WITH_VIDEOS}


def check_filled(input_ids, mm_token_type_ids, config, with_videos: bool):
    """Refuses a prompt with image placeholders that came without any image, and with a video's where there is none `with_videos`;
    not in a graph that is compiled or exported, where it can't be asked.

    Raises:
        ValueError: saying what is missing.
    """
    if input_ids is None or torch.compiler.is_compiling():
        return
    if mm_token_type_ids is not None and mm_token_type_ids.shape != input_ids.shape:
        return

    def of(token: int, kind: int) -> torch.Tensor:
        found = input_ids == token
        return found if mm_token_type_ids is None else found & (mm_token_type_ids == kind)

    images, videos = of(config.image_token_id, 1), of(config.video_token_id, 2)
    if not (images if with_videos else images | videos).any():  # one wait of a GPU
        return
    if stray := int(images.sum()):
        raise ValueError(
            f"the prompt has {stray} image placeholders but no images; pass pixel_values and image_grid_thw, or where these are "
            "text that the model wrote, mm_token_type_ids of zeros. negative_prompt_ids are read without images: leave theirs out"
        )
    raise ValueError(
        f"the prompt has {int(videos.sum())} video placeholders but no videos; pass pixel_values_videos and video_grid_thw"
    )


def replace_stray_placeholders(input_ids, mm_token_type_ids, config):
    """`input_ids` with placeholders that are no image's turned into the end-of-vision token.

    Prompt lookup proposes tokens copied from the prompt, image placeholders among them; they lie after the prompt that
    `mm_token_type_ids` describes, and no feature belongs to them.
    """
    if input_ids is None or mm_token_type_ids is None:
        return input_ids
    length = input_ids.shape[-1]
    types = mm_token_type_ids[:, -length:]  # before 5.23, generate() leaves the cached part on
    types = torch.nn.functional.pad(types, (0, length - types.shape[-1]))
    placeholder = (input_ids == config.image_token_id) | (input_ids == config.video_token_id)
    return input_ids.masked_fill(placeholder & (types == 0), config.vision_end_token_id)
