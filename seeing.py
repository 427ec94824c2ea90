"""From pixels to what fills the image placeholders: look, encode, and what is decided of that."""

from dataclasses import replace
from typing import Any

import torch
from transformers.utils import logging

from .allocation import Allocation
from .asking import Asked, check_pixels
from .compiling import with_return_dict
from .configuration_arrcoc import check_spending, refuse_misspelt_arguments
from .deciding import DecidingMixin
from .encoded import EncodedImages, Owner, check_encoded, makers_of, statistics_of
from .encoding import CoarseView, coarse_view, encode_cells, parted
from .looking import Glance, choose_to_encode, count_inked, with_contrast
from .placement import as_patches

logger = logging.get_logger(__name__)
_FEW = 0.1  # share of the images' patches up to which coarse views go through the tower with them


class SeeingMixin(DecidingMixin):
    """What `ARRCOCQwen3VLModel` does with images."""

    # what stock's model has
    visual: Any

    def encode(self, pixel_values: torch.Tensor, image_grid_thw: torch.Tensor, **kwargs):
        """Stock Qwen3-VL's image features, every cell of every image: a `BaseModelOutputWithDeepstackFeatures`."""
        stock = super().get_image_features  # type: ignore[misc]
        return stock(pixel_values, image_grid_thw, return_dict=True, **kwargs)

    def get_video_features(self, pixel_values_videos, video_grid_thw=None, **kwargs):
        """Stock Qwen3-VL's video features: videos keep all their tokens."""
        video = {key.removeprefix("video_"): value for key, value in kwargs.items() if not key.startswith("image_")}
        stock = super().get_image_features
        return stock(pixel_values_videos, video_grid_thw, **video)

    @with_return_dict
    def get_image_features(
        self,
        pixel_values: torch.Tensor | None = None,
        image_grid_thw: torch.LongTensor | None = None,
        texture_images: torch.Tensor | None = None,
        query_input_ids: torch.Tensor | None = None,
        query_attention_mask: torch.Tensor | None = None,
        image_token_counts: torch.Tensor | None = None,
        encode_ratio: float | str | None = None,
        allocation_mode: str | None = None,
        encoded_images: EncodedImages | None = None,
        **kwargs,
    ):
        """What fills the image placeholders: the kept rows of the image features and of every DeepStack level.

        With `image_token_counts` below an image's cells, `deepstack_features` has one more entry than the vision tower
        has levels: per image the (K, 3) offsets (t, row, column) that `forward` adds to the image's position columns.
        Without, the result is stock Qwen3-VL's.

        Args:
            pixel_values, image_grid_thw: as Qwen3-VL's processor makes them.
            texture_images: (images, 3, S, S) uint8, the raw images.
            query_input_ids, query_attention_mask: (images, Tq), the question that each image is asked.
            image_token_counts: (images,) tokens to keep of each image; `None` keeps all.
            encode_ratio, allocation_mode: as `ARRCOCQwen3VLConfig` has them; `None` for the config's.
            encoded_images: from `encode_images()`, in place of the vision tower.

        Returns:
            The vision tower's output with `pooler_output`, (K, C) per image, and `deepstack_features`, a list of levels, each
            (K, C) per image, the last one the offsets.

        Raises:
            ValueError: an input is missing or of another image, a count does not fit its image, or a dial is not allowed.
            TypeError: an argument is a misspelt one of these, or another part's.
        """
        if not torch.compiler.is_compiling():  # which would trace how names are compared
            refuse_misspelt_arguments(kwargs)
        pixel_values = as_patches(pixel_values)
        asked, encoded_images = self._ask_encoded(
            encoded_images,
            pixel_values,
            image_grid_thw=image_grid_thw,
            image_token_counts=image_token_counts,
            texture_images=texture_images,
            query_input_ids=query_input_ids,
            query_attention_mask=query_attention_mask,
            encode_ratio=encode_ratio,
            allocation_mode=allocation_mode,
        )
        full = asked.all_full
        if encoded_images is None and full:
            check_pixels(pixel_values, self.visual.spatial_merge_unit * sum(asked.sizes))
            return self.encode(pixel_values, image_grid_thw, **kwargs)
        if encoded_images is None:
            encoded_images = self._see(pixel_values, image_grid_thw, asked, **kwargs)
        vision = type(encoded_images.vision)(**encoded_images.vision)  # the caller's copy stays as it is
        if full and all(len(rows) == size for rows, size in zip(vision.pooler_output, asked.sizes, strict=True)):
            return vision
        views = self._views(encoded_images, asked)
        decisions = self._decide(vision, asked, encoded_images.glances, views)
        self.keep(vision, decisions, views)
        return vision

    def encode_images(
        self,
        pixel_values,
        image_grid_thw,
        texture_images,
        image_token_counts=None,
        encode_ratio=None,
        allocation_mode=None,
    ) -> EncodedImages:
        """See `ARRCOCQwen3VLForConditionalGeneration.encode_images`."""
        if pixel_values is None and image_grid_thw is None:
            raise ValueError("there is no image to encode: pass the processor's output of a prompt with images")
        if pixel_values is None or image_grid_thw is None:
            names = ("pixel_values", "image_grid_thw")
            missing, there = names if pixel_values is None else names[::-1]
            raise ValueError(f"{missing} is missing beside {there}; pass the processor's output as it is")
        pixel_values = as_patches(pixel_values)
        asked = self._ask(image_grid_thw, image_token_counts, texture_images, None, None, encode_ratio, allocation_mode)
        if asked.encode_ratio not in (1.0, "auto"):
            raise ValueError(
                f"encode_ratio={asked.encode_ratio} encodes what one question needs, which another can't use; pass "
                "encode_ratio=1.0 or 'auto' to encode_images()"
            )
        if asked.allocation_mode == "foveated" and asked.counts is None:
            raise ValueError(
                "image_token_counts is missing: the coarse view depends on the budget; pass the processor's"
            )
        seen = self._see(pixel_values, image_grid_thw, asked, any_question=True)
        statistics = statistics_of(self._patches(pixel_values, asked))
        return replace(seen, pixel_statistics=statistics, makers=makers_of(self, seen))

    def allocations(self, pixel_values, encoded_images=None, **asked) -> list[Allocation]:
        """See `ARRCOCQwen3VLForConditionalGeneration.allocate`."""
        pixel_values = as_patches(pixel_values)
        call, encoded_images = self._ask_encoded(encoded_images, pixel_values, **asked)
        if encoded_images is None:
            encoded_images = self._see(pixel_values, asked["image_grid_thw"], call)
        views = self._views(encoded_images, call)
        decisions = self._decide(encoded_images.vision, call, encoded_images.glances, views, skip_full=False)
        return [
            decision.allocation if view is None else view.beside(decision.allocation.to(view.positions.device))
            for decision, view in zip(decisions, views, strict=True)
        ]

    def _ask_encoded(
        self, encoded_images, pixel_values, *, encode_ratio=None, allocation_mode=None, **inputs
    ) -> tuple[Asked, EncodedImages | None]:
        """What a call asks, as its images were encoded where `encoded_images` are there, and those of them that it shows."""
        check_spending(encode_ratio, allocation_mode)
        check_encoded(encoded_images, inputs["image_grid_thw"])
        if encoded_images is not None:
            encode_ratio, allocation_mode = encoded_images.spending(encode_ratio, allocation_mode)
        asked = self._ask(**inputs, encode_ratio=encode_ratio, allocation_mode=allocation_mode)
        if encoded_images is not None:
            pixels = None if pixel_values is None else self._patches(pixel_values, asked)
            grids, textures = inputs["image_grid_thw"], asked.texture_images
            encoded_images = encoded_images.shown(self, grids, textures, asked.budgets, pixels)
        # where nothing is asked, the processor's are there, and empty
        if asked.questions is None and not asked.all_full:
            logger.warning_once(
                "query_input_ids and query_attention_mask are missing: tokens are chosen from the images alone, whatever is asked; "
                "pass on all that the processor returns"
            )
        return asked, encoded_images

    def _see(self, pixel_values, image_grid_thw, asked: Asked, any_question: bool = False, **kwargs) -> EncodedImages:
        """Stage 1 and the vision tower. With `any_question`, what is encoded depends on no question, and is enough for every
        budget up to that of `asked`."""
        share, patches = self.config.coarse_view_share, self._patches(pixel_values, asked)
        glances: list[Glance | None] = [None] * len(asked.grids)
        views: list[CoarseView | None] = [None] * len(asked.grids)
        by_question = asked.encode_ratio not in (1.0, "auto")
        looked = [number for number in range(len(asked.grids)) if any_question or not asked.is_full(number)]
        looks = self._look(asked, looked, pixel_values.device, early=by_question)
        for number, glance in zip(looked, looks, strict=True):
            grid = asked.grids[number]
            if asked.is_foveated(number):
                budget = asked.budgets[number]
                least = self.config.coarse_view_min_tokens
                views[number] = coarse_view(patches[number], grid, budget, share, self.visual, least, any_question)
            if asked.encode_ratio == "auto":
                glance = with_contrast(glance, patches[number], grid[1:])
            glances[number] = glance
        # "auto" leaves as many cells as tokens: a question about the whole image has no view
        beside = views if by_question else [None] * len(views)
        glances = [self._read(glance) for glance in self._choose_to_encode(asked, glances, beside)]
        cells = [None if glance is None else glance.encoded for glance in glances]
        vision, views = self._encode_views(pixel_values, image_grid_thw, cells, views, **kwargs)
        self._restore(vision, glances)
        glances = [None if seen is None else replace(seen, read=None) for seen in glances]  # nothing reads it again
        return EncodedImages(
            vision, glances, views, image_grid_thw, asked.texture_images, asked.encode_ratio, asked.allocation_mode,
            Owner(self), asked.budgets,
        )  # fmt: skip

    def _patches(self, pixel_values, asked: Asked) -> tuple[torch.Tensor, ...]:
        """The patches of each image, (patches, patch size)."""
        sizes = [self.visual.spatial_merge_unit * cells for cells in asked.sizes]
        check_pixels(pixel_values, sum(sizes))
        return pixel_values.split(sizes)

    def _read(self, glance: Glance | None) -> Glance | None:
        """The glance without its canvas, which nothing reads again, and with what restores cells where some are left out."""
        if glance is None:
            return None
        return replace(glance if glance.encoded is None else self.arrcoc.read(glance), canvas=None)

    def _choose_to_encode(self, asked: Asked, glances, views) -> list[Glance | None]:
        """The glances with the cells that the vision tower encodes, as many at least as tokens are left beside `views`."""
        ratio, floor, chosen = asked.encode_ratio, self.config.coverage_floor, list(glances)
        if ratio == 1.0:  # all of them
            return chosen
        whole = [asked.counts is not None and asked.is_full(n) for n in range(len(glances))]  # every cell is asked for
        in_part = [n for n, glance in enumerate(glances) if glance is not None and not whole[n]]
        inked = count_inked([glances[n] for n in in_part]) if ratio == "auto" else [None] * len(in_part)
        for number, count in zip(in_part, inked, strict=True):
            least = asked.budgets[number] - (0 if views[number] is None else len(views[number]))
            least = 1 if asked.counts is None else max(1, least)
            cells = choose_to_encode(glances[number], asked.grids[number], ratio, least, floor, count)
            chosen[number] = replace(glances[number], encoded=cells)
        return chosen

    def _encode_views(self, pixel_values, image_grid_thw, cells, views, **kwargs):
        """The vision tower's output for `cells` of each image, and `views` with their features.

        The views have a call of their own, so that no more is held at once than stock holds of the whole images. On a GPU, where
        a call of few patches takes as long as one of many, they go with the images where they are few beside these.
        """
        seen = [view for view in views if view is not None]
        if not seen and all(kept is None for kept in cells):
            return self.encode(pixel_values, image_grid_thw, **kwargs), views
        if not seen:
            return encode_cells(self.visual, pixel_values, image_grid_thw, cells, **kwargs), views
        grids, whole = image_grid_thw.new_tensor([view.grid for view in seen]), [None] * len(seen)
        patches = torch.cat([view.pixel_values for view in seen]).to(self.visual.dtype)
        if pixel_values.device.type != "cpu" and len(patches) <= _FEW * len(pixel_values):
            patches = torch.cat([pixel_values.to(self.visual.dtype), patches])
            grids = torch.cat([image_grid_thw, grids])
            both = encode_cells(self.visual, patches, grids, [*cells, *whole], **kwargs)
            vision, coarse = parted(both, len(cells))
        else:
            coarse = encode_cells(self.visual, patches, grids, whole, **kwargs)
            vision = encode_cells(self.visual, pixel_values, image_grid_thw, cells, **kwargs)
        of_each = ((tokens, levels) for tokens, *levels in self._marked(coarse))
        return vision, [None if view is None else view.encoded(*next(of_each)) for view in views]
