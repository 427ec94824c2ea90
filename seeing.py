"""From pixels to what fills the image placeholders: look, encode, decide, keep."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import torch

from .attending import Allocation, apply_to_deepstack, apply_to_tokens
from .configuration_arrcoc import check_allocation_mode, check_encode_ratio, pooling_conflict
from .encoding import CoarseView, EncodedImages, check_encoded, coarse_grid, coarse_view, encode_cells
from .layer import ARRCOCLayer, ARRCOCOutput
from .looking import Glance, choose_to_encode, count_inked, with_contrast
from .placement import as_bytes, check_counts, check_images, check_pixels, merged_grids, uncompiled


@dataclass(frozen=True, eq=False)
class Asked:
    """What one call wants of its images.

    Attributes:
        grids: (t, h, w) merged grid of each image.
        counts: tokens to keep of each image, or `None` for all of all images.
        texture_images: (images, 3, S, S) uint8.
        questions: ids of the question to each image, where the embeddings are; `None` for none.
        encode_ratio, allocation_mode: as `ARRCOCQwen3VLConfig` has them.
    """

    grids: list[tuple[int, int, int]]
    counts: list[int] | None
    texture_images: torch.Tensor | None
    questions: Sequence[torch.Tensor] | None
    encode_ratio: float | str
    allocation_mode: str

    @property
    def sizes(self) -> list[int]:
        """Cells of each image."""
        return [t * h * w for t, h, w in self.grids]

    def is_full(self, number: int) -> bool:
        """Whether an image keeps every cell."""
        return self.counts is None or self.counts[number] == self.sizes[number]

    @property
    def all_full(self) -> bool:
        """Whether every image keeps every cell."""
        return all(map(self.is_full, range(len(self.grids))))

    def budget(self, number: int) -> int:
        """Tokens that an image may have."""
        return self.sizes[number] if self.counts is None else self.counts[number]


def with_return_dict(method):
    """A model's method that takes `return_dict`, as transformers' `can_return_tuple` makes it.

    Not by that decorator itself: `torch.compile` counts together how often it compiled any function that stands in it, stock
    Qwen3-VL's three among them, and with two more it gave up at the third prompt of another shape (`recompile_limit`).
    """

    @wraps(method)
    def tuple_or_not(self, *args, return_dict: bool | None = None, **kwargs):
        output = method(self, *args, **kwargs)
        wanted = self.config.return_dict if return_dict is None else return_dict
        return output if wanted or isinstance(output, tuple) else output.to_tuple()

    return tuple_or_not


class SeeingMixin:
    """The image half of `ARRCOCQwen3VLModel`."""

    # what the model half has
    arrcoc: ARRCOCLayer
    config: Any
    visual: Any
    get_input_embeddings: Callable[[], torch.nn.Module]

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
        """
        check_encoded(encoded_images, image_grid_thw)
        asked = self._asked(
            image_grid_thw,
            image_token_counts,
            texture_images,
            query_input_ids,
            query_attention_mask,
            encode_ratio,
            allocation_mode,
        )
        full = asked.all_full
        if encoded_images is None:
            check_pixels(pixel_values, self.visual.spatial_merge_unit * sum(asked.sizes))
        if encoded_images is None and full:
            return self.encode(pixel_values, image_grid_thw, **kwargs)
        if encoded_images is None:
            encoded_images = self._see(pixel_values, image_grid_thw, asked, **kwargs)
        else:
            encoded_images.check(self, image_grid_thw, asked.texture_images, encode_ratio, allocation_mode)
            asked = replace(asked, allocation_mode=encoded_images.allocation_mode)
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
        if pixel_values is None or image_grid_thw is None:
            raise ValueError("there is no image to encode: pass the processor's output of a prompt with images")
        asked = self._asked(
            image_grid_thw, image_token_counts, texture_images, None, None, encode_ratio, allocation_mode
        )
        if asked.encode_ratio not in (1.0, "auto"):
            raise ValueError(
                f"encode_ratio={asked.encode_ratio} encodes what one question needs, which another can't use; pass "
                "encode_ratio=1.0 or 'auto' to encode_images()"
            )
        check_pixels(pixel_values, self.visual.spatial_merge_unit * sum(asked.sizes))
        if asked.allocation_mode == "foveated" and asked.counts is None:
            raise ValueError(
                "image_token_counts is missing: the coarse view depends on the budget; pass the processor's"
            )
        return self._see(pixel_values, image_grid_thw, asked, any_question=True)

    def decide(
        self, vision_output, image_grid_thw, counts, texture_images, query_input_ids, query_attention_mask,
        skip_full: bool = False, glances: list[Glance] | None = None,
    ) -> list[ARRCOCOutput | None]:  # fmt: skip
        """The layer's decision for each image of `encode`'s output. Images are taken one by one, so no result depends on the batch.

        With `skip_full`, an image that keeps every cell gets `None`, at no cost. `glances` spares looking at the images again.
        """
        asked = self._asked(
            image_grid_thw, torch.tensor(counts), texture_images, query_input_ids, query_attention_mask, 1.0, "select"
        )
        none = [None] * len(asked.grids)
        return self._decide(vision_output, asked, glances or none, none, skip_full)

    def rated_glances(
        self, image_grid_thw, texture_images, query_input_ids, query_attention_mask, same
    ) -> list[Glance]:
        """Stage 1 of each image with `early`; `same` (images,) bool says which are the image before them, looked at once."""
        asked = self._asked(image_grid_thw, None, texture_images, query_input_ids, query_attention_mask)
        glances: list[Glance] = []
        for number, again in enumerate(same):
            seen = glances[-1] if again else self._look(asked, number, texture_images.device)
            glances.append(self.arrcoc.rate(seen, self._query(asked, number).to(seen.texture.device)))
        return glances

    def allocations(self, pixel_values, encoded_images=None, **asked) -> list[Allocation]:
        """See `ARRCOCQwen3VLForConditionalGeneration.allocate`."""
        check_encoded(encoded_images, asked["image_grid_thw"])
        image_grid_thw, call = asked["image_grid_thw"], self._asked(**asked)
        if encoded_images is None:
            check_pixels(pixel_values, self.visual.spatial_merge_unit * sum(call.sizes))
            encoded_images = self._see(pixel_values, image_grid_thw, call)
        else:
            spend = (asked.get("encode_ratio"), asked.get("allocation_mode"))
            encoded_images.check(self, image_grid_thw, call.texture_images, *spend)
            call = replace(call, allocation_mode=encoded_images.allocation_mode)
        views = self._views(encoded_images, call)
        decisions = self._decide(encoded_images.vision, call, encoded_images.glances, views, skip_full=False)
        return [
            decision.allocation if view is None else view.beside(decision.allocation.to(view.positions.device))
            for decision, view in zip(decisions, views, strict=True)
        ]

    @uncompiled
    def _asked(
        self, image_grid_thw, image_token_counts, texture_images, query_input_ids, query_attention_mask,
        encode_ratio=None, allocation_mode=None,
    ) -> Asked:  # fmt: skip
        self.arrcoc.follow(self.config)
        if image_grid_thw is None:
            raise ValueError("image_grid_thw is missing beside the images; pass it as the processor returns it")
        grids = merged_grids(image_grid_thw, self.config.vision_config.spatial_merge_size)
        counts = None if image_token_counts is None else torch.as_tensor(image_token_counts).tolist()
        if counts is not None:
            check_counts(counts, grids)
        texture_images = as_bytes(texture_images)
        check_images(len(grids), texture_images, query_input_ids, query_attention_mask)
        ratio = check_encode_ratio(self.config.encode_ratio if encode_ratio is None else encode_ratio)
        mode = check_allocation_mode(self.config.allocation_mode if allocation_mode is None else allocation_mode)
        questions = self._questions(query_input_ids, query_attention_mask)
        asked = Asked(grids, counts, texture_images, questions, ratio, mode)
        if not asked.all_full and (conflict := pooling_conflict(self.config.coarse_share, ratio, mode)):
            raise ValueError(conflict)
        return asked

    def _questions(self, ids: torch.Tensor | None, mask: torch.Tensor | None) -> Sequence[torch.Tensor] | None:
        # to the host and back in one go: each question has a length of its own, which a GPU would be waited for
        if ids is None or mask is None:
            return None
        ids, mask = ids.cpu(), mask.cpu().bool()
        device = self.get_input_embeddings().weight.device  # "meta" where the weight is offloaded
        words = ids[mask] if device.type == "meta" else ids[mask].to(device)
        return words.split(mask.sum(-1).tolist())

    def _query(self, asked: Asked, number: int) -> torch.Tensor:
        embed = self.get_input_embeddings()
        if asked.questions is None:
            return torch.zeros(0, embed.weight.shape[-1])  # the weight itself may be offloaded
        batch = asked.questions[number][None]  # as hooks of embeddings, such as NEFTune's, expect it
        return embed(batch)[0].detach()

    @uncompiled
    def _look(self, asked: Asked, number: int, device, early: bool = False) -> Glance:
        if asked.texture_images is None:
            raise ValueError(
                "texture_images is missing: choosing tokens needs the raw images; make the inputs with ARRCOCProcessor and "
                "pass on all that it returns, or pass as many placeholders as the image has cells"
            )
        device = self._scoring_device(device)
        glance = self.arrcoc.look(asked.texture_images[number].to(device), asked.grids[number])
        return self.arrcoc.rate(glance, self._query(asked, number).to(device)) if early else glance

    def _scoring_device(self, device) -> torch.device:
        """The allocator's, which a `device_map` may put apart from the vision tower's `device`; that where it is offloaded."""
        own = next(self.arrcoc.parameters()).device
        return device if own.type == "meta" else own

    def _see(self, pixel_values, image_grid_thw, asked: Asked, any_question: bool = False, **kwargs) -> EncodedImages:
        """Stage 1 and the vision tower. With `any_question`, what is encoded hangs on no question, and is enough for every
        budget up to that of `asked`."""
        unit, share = self.visual.spatial_merge_unit, self.config.coarse_view_share
        patches = pixel_values.split([unit * cells for cells in asked.sizes])
        glances: list[Glance | None] = [None] * len(asked.grids)
        views: list[CoarseView | None] = [None] * len(asked.grids)
        for number, grid in enumerate(asked.grids):
            full = asked.is_full(number)
            if full and not any_question:
                continue
            by_question = asked.encode_ratio not in (1.0, "auto")
            glance = self._look(asked, number, pixel_values.device, early=by_question)
            if asked.allocation_mode == "foveated" and not full:
                budget = asked.budget(number)
                views[number] = coarse_view(patches[number], grid, budget, share, self.visual, always=any_question)
            if asked.encode_ratio == "auto":
                glance = with_contrast(glance, patches[number], grid[1:])
            glances[number] = replace(glance, canvas=None)
        glances = self._choose_to_encode(asked, glances, views)
        cells = [None if glance is None else glance.cells for glance in glances]
        vision, views = self._encode_views(pixel_values, image_grid_thw, cells, views, **kwargs)
        return EncodedImages(
            vision, glances, views, image_grid_thw, asked.texture_images, asked.encode_ratio, asked.allocation_mode,
            weakref.ref(self),
        )  # fmt: skip

    def _choose_to_encode(self, asked: Asked, glances, views) -> list[Glance | None]:
        """The glances with the `cells` that the vision tower encodes."""
        ratio, floor, chosen = asked.encode_ratio, self.config.coverage_floor, list(glances)
        if ratio == 1.0:  # all of them
            return chosen
        partial = [n for n, seen in enumerate(glances) if seen is not None and not (asked.is_full(n) and asked.counts)]
        inked = count_inked([glances[n] for n in partial]) if ratio == "auto" else [None] * len(partial)
        for number, count in zip(partial, inked, strict=True):
            coarse = 0 if views[number] is None else len(views[number])
            least = 1 if asked.is_full(number) else max(1, asked.budget(number) - coarse)
            cells = choose_to_encode(glances[number], asked.grids[number], ratio, least, floor, count)
            chosen[number] = replace(glances[number], cells=cells)
        return chosen

    def _encode_views(self, pixel_values, image_grid_thw, cells, views, **kwargs):
        """The vision tower's output for `cells` of each image, and `views` with their features, all in one call of it."""
        seen = [view for view in views if view is not None]
        if not seen and all(kept is None for kept in cells):
            return self.encode(pixel_values, image_grid_thw, **kwargs), views
        grids = image_grid_thw.new_tensor([view.grid for view in seen]).view(-1, 3)
        vision = encode_cells(
            self.visual,
            torch.cat([pixel_values, *(view.pixel_values for view in seen)]),
            torch.cat([image_grid_thw, grids]),
            cells + [None] * len(seen),
            **kwargs,
        )
        images, features = len(cells), []
        for number, view in enumerate(seen, start=images):
            levels = [level[number] for level in vision.deepstack_features]
            features.append(replace(view, pixel_values=None, tokens=vision.pooler_output[number], deepstack=levels))
        vision.pooler_output = vision.pooler_output[:images]
        vision.deepstack_features = [level[:images] for level in vision.deepstack_features]
        rows = sum(map(len, vision.pooler_output)) * self.visual.spatial_merge_unit
        vision.last_hidden_state = vision.last_hidden_state[:rows]
        encoded = iter(features)
        return vision, [None if view is None else next(encoded) for view in views]

    def _views(self, encoded: EncodedImages, asked: Asked) -> list[CoarseView | None]:
        """The coarse view of each image that spends tokens on it."""
        views: list[CoarseView | None] = []
        for number, view in enumerate(encoded.views):
            budget, share = asked.budget(number), self.config.coarse_view_share
            foveated = asked.allocation_mode == "foveated" and not asked.is_full(number)
            if not foveated or coarse_grid(asked.grids[number], budget, share) is None:
                views.append(None)
            elif view is None or len(view) > budget * share:
                came = "none" if view is None else f"one of {len(view)} tokens"
                raise ValueError(
                    f"encoded_images holds no coarse view that fits a budget of {budget} tokens ({came}); call encode_images() "
                    "with this budget"
                )
            else:
                views.append(view)
        return views

    @uncompiled
    def _decide(self, vision, asked: Asked, glances, views, skip_full: bool = True):
        sizes = [len(tokens) for tokens in vision.pooler_output]
        merger_inputs = vision.last_hidden_state.reshape(sum(sizes), -1).split(sizes)
        outputs: list[ARRCOCOutput | None] = []
        for number, grid in enumerate(asked.grids):
            full = asked.is_full(number)
            budget = asked.budget(number)
            budget -= 0 if views[number] is None else len(views[number])
            if budget > sizes[number]:
                raise ValueError(
                    f"image {number} has {sizes[number]} encoded cells, too few for {budget} tokens; pass image_token_counts of "
                    "at least as many to encode_images(), or encode_ratio=1.0"
                )
            if full and skip_full:
                outputs.append(None)
                continue
            device = self._scoring_device(merger_inputs[number].device)
            glance = self._look(asked, number, device) if glances[number] is None else glances[number]
            levels = [vision.pooler_output[number], *(level[number] for level in vision.deepstack_features)]
            levels, query = [level.to(device) for level in levels], self._query(asked, number).to(device)
            outputs.append(self.arrcoc(glance, grid, budget, merger_inputs[number].to(device), levels, query))
        return outputs

    @uncompiled
    def keep(self, vision_output, decisions: list[ARRCOCOutput | None], views: list[CoarseView | None] | None = None):
        """Replaces the features of every image in `vision_output` by the kept ones, and adds their offsets.

        The tokens of an image's coarse view, if it has one, come before its cells.
        """
        kept, levels, offsets = [], [], []
        for number, decision in enumerate(decisions):
            tokens = vision_output.pooler_output[number]
            deepstack = [level[number] for level in vision_output.deepstack_features]
            if decision is None:  # get_rope_index has placed every cell already
                kept.append(tokens)
                levels.append(deepstack)
                offsets.append(torch.zeros(len(tokens), 3, dtype=torch.long, device=tokens.device))
                continue
            plan = decision.allocation.to(tokens.device)
            encoded = None if decision.glance is None else decision.glance.cells
            encoded = None if encoded is None else encoded.to(tokens.device)
            tokens, deepstack = apply_to_tokens(plan, tokens, encoded), apply_to_deepstack(plan, deepstack, encoded)
            if self.arrcoc.adapter is not None:
                adapted = self.arrcoc.adapter(tokens.to(decision.allocation.level.device), decision.allocation.level)
                tokens = adapted.to(tokens.device)
            if decision.gates is not None:
                tokens = tokens * decision.gates[:, None].to(tokens)
            view = None if views is None else views[number]
            if view is not None:
                tokens = torch.cat([view.tokens, tokens])
                deepstack = [torch.cat(pair) for pair in zip(view.deepstack, deepstack, strict=True)]
            kept.append(tokens)
            levels.append(deepstack)
            offsets.append(plan.positions if view is None else torch.cat([view.positions, plan.positions]))
        vision_output.pooler_output = tuple(kept)
        vision_output.deepstack_features = [list(level) for level in zip(*levels, strict=True)] + [offsets]
