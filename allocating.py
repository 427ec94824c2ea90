"""What a model does for an image without its language model: encode it once, and say where its tokens would go."""

from collections.abc import Callable
from typing import Any

import torch

from .allocation import Allocation
from .arguments import refuse_lists
from .configuration_arrcoc import refuse_misspelt_arguments
from .encoded import EncodedImages


class AllocatingMixin:
    """The part of `ARRCOCQwen3VLForConditionalGeneration` that runs no language model."""

    # what the other parts have
    model: Any
    _not_of_forward: Callable[..., list[str]]

    @torch.no_grad()
    def encode_images(
        self,
        pixel_values: torch.Tensor | None = None,
        image_grid_thw: torch.Tensor | None = None,
        texture_images: torch.Tensor | None = None,
        image_token_counts: torch.Tensor | None = None,
        encode_ratio: float | str | None = None,
        allocation_mode: str | None = None,
        **others,
    ) -> EncodedImages:
        """The images of a prompt, encoded once: pass the result as `encoded_images` with every question about them.

        Takes the processor's output as it is. Later calls of `generate()` pay for allocation and language model alone; their
        prompts may show some of the images, in any order, and one in several rows.

        Args:
            image_token_counts: the most that will be asked for where `encode_ratio` is "auto"; without it, what carries
                information is encoded and no more.
            encode_ratio: 1.0 or "auto"; a smaller share would be what one question needs.
            allocation_mode: as the later calls will have it, which need not repeat it. For "foveated", `image_token_counts`
                must be the smallest that will be asked for and has room for a coarse view; if none has, later calls get the
                coarsest. With both, one value may not serve a small and a large budget: encode once for each.

        Raises:
            ValueError: an argument is not allowed; the message says what is.
            TypeError: an argument is not one of the model's.
        """
        self._refuse_unknown(others)
        refuse_lists({"pixel_values": pixel_values, "image_grid_thw": image_grid_thw})
        pixel_values, image_grid_thw = self._to_vision_tower(pixel_values, image_grid_thw)
        return self.model.encode_images(
            pixel_values,
            image_grid_thw,
            texture_images,
            image_token_counts,
            encode_ratio,
            allocation_mode,
        )

    @torch.no_grad()
    def allocate(
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
        **others,
    ) -> list[Allocation]:
        """Where each image's tokens would go, one `Allocation` per image, without running the language model.

        Takes the processor's output as it is; inputs that only the language model reads are ignored. Without
        images the list is empty.

        Raises:
            ValueError: the raw images are missing, or the inputs describe different images.
            TypeError: an argument is not one of the model's.
        """
        self._refuse_unknown(others)
        named = {"query_input_ids": query_input_ids, "query_attention_mask": query_attention_mask}
        refuse_lists({"pixel_values": pixel_values, "image_grid_thw": image_grid_thw, **named})
        if pixel_values is None and encoded_images is None:
            if image_grid_thw is None:
                return []
            raise ValueError(
                "pixel_values is missing beside image_grid_thw; pass the processor's output as it is, or encoded_images"
            )
        if image_token_counts is None or image_grid_thw is None:
            missing = "image_token_counts" if image_token_counts is None else "image_grid_thw"
            raise ValueError(f"{missing} is missing: allocate() takes the output of ARRCOCProcessor as it is")
        if encoded_images is None:
            pixel_values, image_grid_thw = self._to_vision_tower(pixel_values, image_grid_thw)
        return self.model.allocations(
            pixel_values,
            encoded_images,
            image_grid_thw=image_grid_thw,
            image_token_counts=image_token_counts,
            texture_images=texture_images,
            query_input_ids=query_input_ids,
            query_attention_mask=query_attention_mask,
            encode_ratio=encode_ratio,
            allocation_mode=allocation_mode,
        )

    def _refuse_unknown(self, names) -> None:
        # what the language model alone reads is ignored, as the processor returns it too
        unknown = self._not_of_forward(names)
        refuse_misspelt_arguments(unknown)
        if unknown:
            raise TypeError(f"{unknown[0]} is not an argument of the model; pass the processor's output as it is")

    def _to_vision_tower(self, pixel_values, image_grid_thw):
        # as they are where one is missing, or where the tower is offloaded: its hooks fetch the weights and move the inputs
        device = self.model.visual.patch_embed.proj.weight.device
        if pixel_values is None or image_grid_thw is None or device.type == "meta":
            return pixel_values, image_grid_thw
        return pixel_values.to(device), image_grid_thw.to(device)
