"""From the vision tower's features to those that fill the image placeholders: decide, keep."""

from collections.abc import Callable
from typing import Any

import torch

from .allocation import apply_to_deepstack, apply_to_tokens
from .asking import Asked, ask
from .compiling import uncompiled
from .encoded import EncodedImages
from .encoding import CoarseView, coarse_grid
from .layer import ARRCOCLayer, ARRCOCOutput
from .looking import Glance


class DecidingMixin:
    """What `ARRCOCQwen3VLModel` decides behind the vision tower, and the look at the raw image that comes before it, too."""

    # what the model half has
    arrcoc: ARRCOCLayer
    config: Any
    get_input_embeddings: Callable[[], torch.nn.Module]

    @uncompiled
    def _asked(self, *inputs, **spend) -> Asked:
        self.arrcoc.follow(self.config)
        return ask(self.config, self.get_input_embeddings().weight.device, *inputs, **spend)

    def _query(self, asked: Asked, number: int) -> torch.Tensor:
        embed = self.get_input_embeddings()
        if asked.questions is None:
            return torch.zeros(0, embed.weight.shape[-1])  # the weight itself may be offloaded
        batch = asked.questions[number][None]  # as hooks of embeddings, such as NEFTune's, expect it
        return embed(batch)[0].detach()

    @uncompiled
    def _look(self, asked: Asked, number: int, device, early: bool = False) -> Glance:
        if asked.texture_images is None:
            spared = "" if asked.is_full(number) else ", or pass as many placeholders as the image has cells"
            raise ValueError(
                "texture_images is missing: choosing tokens needs the raw images; make the inputs with ARRCOCProcessor and "
                f"pass on all that it returns{spared}"
            )
        device = self._scoring_device(device)
        glance = self.arrcoc.look(asked.texture_images[number].to(device), asked.grids[number])
        return self.arrcoc.rate(glance, self._query(asked, number).to(device)) if early else glance

    @uncompiled
    def _restore(self, vision, glances: list[Glance | None]) -> None:
        """Brings the features in `vision` of images that were encoded in part back to those of the whole images."""
        in_part = {n: glance for n, glance in enumerate(glances) if glance is not None and glance.cells is not None}
        if not in_part:
            return
        pooled, deepstack = list(vision.pooler_output), [list(level) for level in vision.deepstack_features]
        for number, glance in in_part.items():
            levels = [each[number] for each in (pooled, *deepstack)]
            restored = self.arrcoc.restore(glance, [level.to(glance.texture.device) for level in levels])
            for each, level in zip((pooled, *deepstack), restored, strict=True):
                each[number] = level.to(each[number].device)
        vision.pooler_output, vision.deepstack_features = tuple(pooled), [tuple(level) for level in deepstack]

    def _scoring_device(self, device) -> torch.device:
        """The allocator's, which a `device_map` may put apart from the vision tower's `device`; that where it is offloaded."""
        own = next(self.arrcoc.parameters()).device
        return device if own.type == "meta" else own

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

    def _views(self, encoded: EncodedImages, asked: Asked) -> list[CoarseView | None]:
        """The coarse view of each image that spends tokens on it."""
        views: list[CoarseView | None] = []
        for number, view in enumerate(encoded.views):
            budget, share = asked.budget(number), self.config.coarse_view_share
            foveated = asked.allocation_mode == "foveated" and not asked.is_full(number)
            least = self.config.coarse_view_min_tokens
            if not foveated or coarse_grid(asked.grids[number], budget, share, least) is None:
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
