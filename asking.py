"""What one call wants of its images, and what it can't want."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from .configuration_arrcoc import check_allocation_mode, check_encode_ratio, pooling_conflict
from .placement import merged_grids


@dataclass(frozen=True, eq=False)
class Asked:
    """What one call wants of its images.

    Attributes:
        grids: (t, h, w) merged grid of each image.
        counts: tokens to keep of each image, or `None` for all of all images.
        texture_images: (images, 3, S, S) uint8.
        questions: ids of the question to each image, where the embeddings are; `None` for none.
        parts: how many of these are of each of the questions that it puts into one; one number for most.
        encode_ratio, allocation_mode: as `ARRCOCQwen3VLConfig` has them.
        everywhere: whether the question to each image is about the whole of it, where that is known before anything is encoded.
    """

    grids: list[tuple[int, int, int]]
    counts: list[int] | None
    texture_images: torch.Tensor | None
    questions: Sequence[torch.Tensor] | None
    parts: list[list[int]]
    encode_ratio: float | str
    allocation_mode: str
    everywhere: Sequence[bool] = ()

    @cached_property
    def sizes(self) -> list[int]:
        """Cells of each image."""
        return [t * h * w for t, h, w in self.grids]

    def is_full(self, number: int) -> bool:
        """Whether an image keeps every cell."""
        return self.counts is None or self.counts[number] == self.sizes[number]

    def asks_several(self, number: int) -> bool:
        """Whether the question to an image is several in one, each of which is scored by itself."""
        return len(self.parts[number]) > 1

    def is_foveated(self, number: int) -> bool:
        """Whether an image has a coarse view, where its budget has room for one: not for a question about the whole of it, which
        cells that are spread evenly answer better."""
        about_all = bool(self.everywhere) and self.everywhere[number]
        return self.allocation_mode == "foveated" and not self.is_full(number) and not about_all

    @property
    def all_full(self) -> bool:
        """Whether every image keeps every cell."""
        return all(map(self.is_full, range(len(self.grids))))

    @property
    def budgets(self) -> list[int]:
        """Tokens that each image may have."""
        return self.sizes if self.counts is None else self.counts


def ask(
    config, device, image_grid_thw, image_token_counts, texture_images, query_input_ids, query_attention_mask,
    encode_ratio=None, allocation_mode=None,
) -> Asked:  # fmt: skip
    """What a call asks of its images, checked.

    Args:
        config: `ARRCOCQwen3VLConfig`, which tells what the call leaves open.
        device: of the embeddings.
        image_grid_thw, image_token_counts, texture_images, query_input_ids, query_attention_mask, encode_ratio,
            allocation_mode: as `ARRCOCQwen3VLForConditionalGeneration.forward` takes them.

    Raises:
        ValueError: naming the input, what came and what was wanted.
    """
    if image_grid_thw is None:
        raise ValueError("image_grid_thw is missing beside the images; pass it as the processor returns it")
    grids = merged_grids(image_grid_thw, config.vision_config.spatial_merge_size)
    counts = None if image_token_counts is None else torch.as_tensor(image_token_counts).flatten().tolist()
    if counts is not None:
        check_counts(counts, grids)
    texture_images = as_bytes(texture_images)
    check_images(len(grids), texture_images, query_input_ids, query_attention_mask)
    ratio = check_encode_ratio(config.encode_ratio if encode_ratio is None else encode_ratio)
    mode = check_allocation_mode(config.allocation_mode if allocation_mode is None else allocation_mode)
    questions, parts = split_questions(query_input_ids, query_attention_mask, device)
    asked = Asked(grids, counts, texture_images, questions, parts or [[0]] * len(grids), ratio, mode)
    for number, (frames, height, width) in enumerate(grids):
        if frames != 1 and not asked.is_full(number):
            raise ValueError(
                f"image_grid_thw has {frames} x {height} x {width} cells for image {number}, wanted one frame; what has several "
                "is a video, all of whose tokens are kept"
            )
    if not asked.all_full and (conflict := pooling_conflict(config.coarse_share, ratio, mode)):
        raise ValueError(conflict)
    return asked


def split_questions(
    ids: torch.Tensor | None, mask: torch.Tensor | None, device
) -> tuple[Sequence[torch.Tensor] | None, list[list[int]]]:
    """The tokens of each question (images, Tq) without padding, on `device`, `None` for none, and how many of them are of each of
    its parts, which `mask` numbers from 1.

    To the host and back in one go: each question has a length of its own, which a GPU would be waited for.
    """
    if ids is None or mask is None:
        return None, []
    ids, mask = ids.cpu(), mask.cpu()
    real = mask.bool()
    words = ids[real] if device.type == "meta" else ids[real].to(device)  # "meta" where the embeddings are offloaded
    parts = [
        row[own].unique_consecutive(return_counts=True)[1].tolist() or [0] for row, own in zip(mask, real, strict=True)
    ]
    return words.split(real.sum(-1).tolist()), parts


def check_counts(counts, grids):
    """Refuses token counts that the images can't have.

    Args:
        counts: tokens to keep of each image.
        grids: (t, h, w) merged grid of each image.

    Raises:
        ValueError: naming what came and what was wanted.
    """
    if len(counts) != len(grids):
        raise ValueError(f"image_token_counts has {len(counts)} entries for {len(grids)} images; pass one per image")
    for number, (count, grid) in enumerate(zip(counts, grids, strict=True)):
        if isinstance(count, bool) or not isinstance(count, int):
            raise ValueError(f"image_token_counts has {count!r} for image {number}; pass one whole number per image")
        cells = grid[0] * grid[1] * grid[2]
        if not 1 <= count <= cells:
            raise ValueError(f"image {number} can keep 1 to {cells} tokens, image_token_counts asks for {count}")


def check_images(images: int, texture_images, query_input_ids, query_attention_mask):
    """Refuses inputs that do not describe the same images, where they are there.

    Args:
        images: entries of image_grid_thw.
        texture_images, query_input_ids, query_attention_mask: as `ARRCOCProcessor` makes them.

    Raises:
        ValueError: naming the input, what came and what was wanted.
    """
    for name, value, form in (
        ("texture_images", texture_images, "(images, 3, height, width)"),
        ("query_input_ids", query_input_ids, "(images, length)"),
        ("query_attention_mask", query_attention_mask, "(images, length)"),
    ):
        if value is not None and value.ndim != form.count(",") + 1:
            raise ValueError(
                f"{name} is {tuple(value.shape)}, wanted {form}; where a collator stacked the rows of several prompts, "
                "concatenate them"
            )
        if value is not None and len(value) != images:
            raise ValueError(
                f"{name} holds {len(value)} images, but image_grid_thw lists {images}; pass all that one call of the processor "
                "returned. A pipeline with batch_size > 1 keeps one image per chat: for chats with several use batch_size=1"
            )
    if query_input_ids is None and query_attention_mask is not None:
        raise ValueError(
            "query_input_ids is missing beside query_attention_mask; pass both as the processor returns them"
        )
    if query_input_ids is None:
        return
    if query_input_ids.is_floating_point():
        raise ValueError(
            f"query_input_ids is {query_input_ids.dtype}, wanted integers; pass it as the processor returns it"
        )
    if query_attention_mask is None or query_attention_mask.shape != query_input_ids.shape:
        came = "missing" if query_attention_mask is None else f"of shape {tuple(query_attention_mask.shape)}"
        raise ValueError(
            f"query_attention_mask is {came}, but query_input_ids is padded, of shape {tuple(query_input_ids.shape)}; pass both "
            "as the processor returns them"
        )


def check_pixels(pixel_values, patches: int):
    """Refuses pixels that are not those of the images.

    Args:
        patches: of all images together, by image_grid_thw.

    Raises:
        ValueError: saying what came and what was wanted.
    """
    if pixel_values is None or len(pixel_values) != patches:
        came = "is missing" if pixel_values is None else f"holds {len(pixel_values)} patches"
        raise ValueError(
            f"pixel_values {came}, but image_grid_thw lists {patches}; pass both as one processor call returns them"
        )


def as_bytes(texture_images: torch.Tensor | None) -> torch.Tensor | None:
    """`texture_images` of wider whole numbers, which `datasets` makes of bytes, as uint8; any others as they are.

    Raises:
        ValueError: it is no tensor, or a number is not of 0 to 255.
    """
    if texture_images is None:
        return None
    if not isinstance(texture_images, torch.Tensor):
        raise ValueError(
            f"texture_images is a {type(texture_images).__name__}; pass the tensor that the processor returns"
        )
    kind = texture_images.dtype
    if kind in (torch.uint8, torch.bool) or kind.is_floating_point or kind.is_complex:
        return texture_images
    if texture_images.numel() and not 0 <= int(texture_images.min()) <= int(texture_images.max()) <= 255:
        raise ValueError(
            f"texture_images holds {int(texture_images.min())} to {int(texture_images.max())}; wanted the raw image, 0 to 255, as "
            "the processor returns it"
        )
    return texture_images.to(torch.uint8)
