"""From the vision tower's features to those that fill the image placeholders: decide, keep."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from .allocation import apply_to_deepstack, apply_to_tokens
from .asking import Asked, ask
from .compiling import uncompiled
from .encoded import EncodedImages
from .encoding import CoarseView, coarse_grid
from .layer import ARRCOCLayer, ARRCOCOutput, ScoreMaps
from .looking import Glance, beside_each_other, one_by_one
from .participating import united

_CELLS_TOGETHER = 4096  # which bounds the memory: as many as one image of 2048 x 2048 has


def _together(kinds: Mapping[int, tuple], device: torch.device, several: bool) -> Iterator[list[int]]:
    """The numbers of images that are looked at, or scored, together: on a GPU, where an operation costs its launch, those of one of
    `kinds` (the grid, and what else has to be alike), as many as have `_CELLS_TOGETHER`; each alone on a CPU, where nothing is
    gained, and unless `several`."""
    alike: dict[tuple, list[int]] = {}
    for number, kind in kinds.items():
        alike.setdefault(kind, []).append(number)
    for (grid, *_), some in alike.items():
        most = max(1, _CELLS_TOGETHER // math.prod(grid)) if several and device.type != "cpu" else 1
        yield from (some[first : first + most] for first in range(0, len(some), most))


def _alone(asked: Asked, number: int) -> int | None:
    # which keeps an image that is asked several questions in one from others
    return number if asked.asks_several(number) else None


def _padded(queries: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    # the questions of several images, (n, Tq, text hidden size), and (n, Tq) bool, False at padding
    places = torch.arange(max(map(len, queries)), device=queries[0].device)
    return pad_sequence(list(queries), batch_first=True), torch.stack([places < len(query) for query in queries])


def _levels_of(vision, number: int, device) -> list[torch.Tensor]:
    # the features of an image: the visual tokens, then what each DeepStack level adds
    levels = [vision.pooler_output[number], *(level[number] for level in vision.deepstack_features)]
    return [level.to(device) for level in levels]


class DecidingMixin:
    """What `ARRCOCQwen3VLModel` decides after the vision tower, and the look at the raw image that comes before it, too."""

    # what the model has
    arrcoc: ARRCOCLayer
    config: Any
    get_input_embeddings: Callable[[], torch.nn.Module]

    @uncompiled
    def _ask(self, *inputs, **spend) -> Asked:
        self.arrcoc.follow(self.config)
        asked = ask(self.config, self.get_input_embeddings().weight.device, *inputs, **spend)
        if asked.allocation_mode != "foveated" or asked.questions is None or asked.all_full:
            return asked
        parts = [self._parts(asked, number) for number in range(len(asked.grids))]
        device = self._scoring_device(parts[0][0].device)
        # read by the host, once: what is encoded, and how many tokens it makes, depends on it
        about_all = self.arrcoc.about_all(*_padded([part.to(device) for own in parts for part in own])).tolist()
        each = iter(about_all)
        return replace(asked, everywhere=[all([next(each) for _ in own]) for own in parts])

    def _query(self, asked: Asked, number: int) -> torch.Tensor:
        embed = self.get_input_embeddings()
        if asked.questions is None or not len(asked.questions[number]):
            # the weight itself may be offloaded; hooks, such as NEFTune's, expect a token
            return torch.zeros(0, embed.weight.shape[-1])
        batch = asked.questions[number][None]  # as hooks of embeddings, such as NEFTune's, expect it
        return embed(batch)[0].detach()

    def _parts(self, asked: Asked, number: int) -> Sequence[torch.Tensor]:
        """The embeddings of each question that an image is asked: several where they are put into one."""
        return self._query(asked, number).split(asked.parts[number])

    @uncompiled
    def _look(self, asked: Asked, numbers: Sequence[int], device, early: bool = False) -> list[Glance]:
        """A glance at each of these images, with `early` if that is asked for, together where `_together` says so."""
        if not numbers:
            return []
        if asked.texture_images is None:
            partly = not all(asked.is_full(number) for number in numbers)
            spared = ", or pass as many placeholders as the image has cells" if partly else ""
            raise ValueError(
                "texture_images is missing: choosing tokens needs the raw images; make the inputs with ARRCOCProcessor and "
                f"pass on all that it returns{spared}"
            )
        device = self._scoring_device(device)
        glances: dict[int, Glance] = {}
        layer, kinds = self.arrcoc, {number: (asked.grids[number], _alone(asked, number)) for number in numbers}
        several = layer.takes_several("look") and (not early or layer.takes_several("rate"))
        for some in _together(kinds, device, several):
            images, alone = [asked.texture_images[number] for number in some], len(some) == 1
            seen = layer.look((images[0] if alone else torch.stack(images)).to(device), asked.grids[some[0]])
            if early and alone:
                seen = self._rated(asked, some[0], seen)
            elif early:
                seen = layer.rate(seen, *_padded([self._query(asked, number).to(device) for number in some]))
            glances |= zip(some, [seen] if alone else one_by_one(seen), strict=True)
        return [glances[number] for number in numbers]

    def _rated(self, asked: Asked, number: int, glance: Glance) -> Glance:
        """A glance with `early`, of all questions that an image is asked in one."""
        rated = []
        for part in self._parts(asked, number):
            rated.append(glance := self.arrcoc.rate(glance, part.to(glance.texture.device)))
        if len(rated) == 1:
            return glance
        everywhere = torch.stack([each.everywhere for each in rated]).all()
        return replace(glance, early=united([each.early for each in rated]), everywhere=everywhere)

    @uncompiled
    def _restore(self, vision, glances: list[Glance | None]) -> None:
        """Brings the features in `vision` of images that were encoded in part back to those of the whole images."""
        in_part = {n: glance for n, glance in enumerate(glances) if glance is not None and glance.encoded is not None}
        if not in_part:
            return
        pooled, deepstack = list(vision.pooler_output), [list(level) for level in vision.deepstack_features]
        for number, glance in in_part.items():
            levels = [each[number] for each in (pooled, *deepstack)]
            restored = self.arrcoc.restore(glance, [level.to(glance.texture.device) for level in levels])
            for each, level in zip((pooled, *deepstack), restored, strict=True):
                each[number] = level.to(each[number].device)
        vision.pooler_output, vision.deepstack_features = tuple(pooled), [tuple(level) for level in deepstack]

    def _marked(self, coarse) -> Iterator[tuple[torch.Tensor, ...]]:
        """Of each coarse view in the vision tower's output the visual tokens and what each DeepStack level adds, as the language
        model is given them; all views are marked together."""
        counts = [len(tokens) for tokens in coarse.pooler_output]
        levels = [torch.cat(list(level)) for level in (coarse.pooler_output, *coarse.deepstack_features)]
        device = self._scoring_device(levels[0].device)
        marked = self.arrcoc.coarse_mark([level.to(device) for level in levels])
        return zip(*(each.to(own.device).split(counts) for each, own in zip(marked, levels, strict=True)), strict=True)

    def _scoring_device(self, device) -> torch.device:
        """The allocator's, which a `device_map` may put apart from the vision tower's `device`; that where it is offloaded."""
        own = next(self.arrcoc.parameters()).device
        return device if own.type == "meta" else own

    def decide(
        self, vision_output, image_grid_thw, counts, texture_images, query_input_ids, query_attention_mask,
        skip_full: bool = False, glances: list[Glance] | None = None,
    ) -> list[ARRCOCOutput | None]:  # fmt: skip
        """The layer's decision for each image of `encode`'s output, which depends on no other image.

        With `skip_full`, an image that keeps every cell gets `None`, at no cost. `glances` spares looking at the images again.

        Args:
            counts: tokens of each image, a list of int; the other inputs as `get_image_features` takes them.

        Raises:
            ValueError: see `get_image_features`.
        """
        asked = self._ask(
            image_grid_thw, torch.tensor(counts), texture_images, query_input_ids, query_attention_mask, 1.0, "select"
        )
        none = [None] * len(asked.grids)
        return self._decide(vision_output, asked, glances or none, none, skip_full)

    def rated_glances(
        self, image_grid_thw, texture_images, query_input_ids, query_attention_mask, same
    ) -> list[Glance]:
        """Stage 1 of each image with `early`; `same` (images,) bool says which are the image before them, looked at once."""
        asked = self._ask(image_grid_thw, None, texture_images, query_input_ids, query_attention_mask)
        looks = iter(self._look(asked, [n for n, again in enumerate(same) if not again], texture_images.device))
        glances: list[Glance] = []
        for number, again in enumerate(same):
            seen = glances[-1] if again else next(looks)
            glances.append(self._rated(asked, number, seen))
        return glances

    def _views(self, encoded: EncodedImages, asked: Asked) -> list[CoarseView | None]:
        """The coarse view of each image that spends tokens on it."""
        views: list[CoarseView | None] = []
        for number, view in enumerate(encoded.views):
            budget, share = asked.budgets[number], self.config.coarse_view_share
            least = self.config.coarse_view_min_tokens
            if not asked.is_foveated(number) or coarse_grid(asked.grids[number], budget, share, least) is None:
                views.append(None)
            elif view is None or not view.fits(budget, share):
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
        spared = [asked.is_full(number) and skip_full for number in range(len(asked.grids))]
        unseen = [n for n, glance in enumerate(glances) if glance is None and not spared[n]]
        looks = dict(zip(unseen, self._look(asked, unseen, vision.last_hidden_state.device), strict=True))
        seen = [looks.get(number, glance) for number, glance in enumerate(glances)]
        device = self._scoring_device(vision.last_hidden_state.device)
        scored = {n: (glance, self._query(asked, n).to(device)) for n, glance in enumerate(seen) if not spared[n]}
        known = self.score_maps(vision, asked, scored, device)
        for number, grid in enumerate(asked.grids):
            budget = asked.budgets[number]
            budget -= 0 if views[number] is None else len(views[number])
            if budget > sizes[number]:
                raise ValueError(
                    f"image {number} has {sizes[number]} encoded cells, too few for {budget} tokens; pass image_token_counts of "
                    "at least as many to encode_images(), or encode_ratio=1.0"
                )
            if spared[number]:
                outputs.append(None)
                continue
            (glance, query), merged = scored[number], merger_inputs[number].to(device)
            if glance.everywhere is None and asked.asks_several(number):
                about_all = [self.arrcoc.about_all(part.to(device)) for part in self._parts(asked, number)]
                glance = replace(glance, everywhere=torch.stack(about_all).all())
            outputs.append(self.arrcoc(glance, grid, budget, merged, known[number], query))
        return outputs

    def score_maps(
        self, vision, asked: Asked, scored: dict[int, tuple[Glance, torch.Tensor]], device: torch.device
    ) -> dict[int, ScoreMaps]:
        """The score maps, (h, w) float32 each, of the images of `scored`, a glance and a question each, together where `_together`
        says so, in the order in which they were made, which need not be that of their numbers."""
        known: dict[int, ScoreMaps] = {}
        sizes = [len(tokens) for tokens in vision.pooler_output]
        kinds = {
            n: (asked.grids[n], glance.encoded is None, sizes[n], _alone(asked, n)) for n, (glance, _) in scored.items()
        }
        for some in _together(kinds, device, self.arrcoc.takes_several("knows")):
            levels = [_levels_of(vision, number, device) for number in some]
            glances, queries = zip(*(scored[number] for number in some), strict=True)
            if len(some) == 1:
                parts = self._parts(asked, some[0]) if asked.asks_several(some[0]) else queries
                each = [self.arrcoc.knows(glances[0], levels[0], part.to(device)) for part in parts]
                known[some[0]] = (*each[0][:2], united([needed for *_, needed in each]))
                continue
            stacked = [torch.stack(of) for of in zip(*levels, strict=True)]
            maps = self.arrcoc.knows(beside_each_other(glances), stacked, *_padded(queries))
            known |= zip(some, zip(*maps, strict=True), strict=True)
        return known

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
            encoded = None if decision.glance is None else decision.glance.encoded
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
