"""The model's own ways to spend before the vision tower: stage 1 on a share of the cells, on all that is not empty paper, and
the foveated mode."""

from functools import partial

import torch

from arrcoc.configuration_arrcoc import OWN_INPUTS, pooling_conflict
from arrcoc.encoding import coarse_grid
from arrcoc.placement import merged_grids
from evaluation.baselines.interface import Prepared, prompt

OWN_PIXELS = True
ENCODE_RATIOS = {"two_stage": 0.35, "two_stage_30": 0.3, "two_stage_40": 0.4, "auto_stage": "auto"}


def refuses(name: str, config) -> str | None:
    """Why a model of this configuration can't spend its budget as the method says, or `None`."""
    ratio = ENCODE_RATIOS.get(name, config.encode_ratio)
    mode = "foveated" if name == "foveated" else config.allocation_mode
    return pooling_conflict(config.coarse_share, ratio, mode)


@torch.no_grad()
def staged(model, processor, examples, budgets, **mode) -> Prepared:
    """Inputs as the model itself would fill K placeholders; `encode_ratio` and `allocation_mode` are the configuration's."""
    config = model.config
    mode = {"encode_ratio": config.encode_ratio, "allocation_mode": config.allocation_mode} | mode
    inputs = prompt(processor, examples, token_budget=budgets).to(model.device)
    seen = {name: inputs.pop(name) for name in ("pixel_values", *OWN_INPUTS)}
    vision = model.model.get_image_features(image_grid_thw=inputs["image_grid_thw"], **seen, **mode)
    counts = seen["image_token_counts"].tolist()
    grids = merged_grids(inputs["image_grid_thw"], config.vision_config.spatial_merge_size)
    kept = []
    for number, (_, height, width) in enumerate(grids):
        cells = torch.ones(height, width, dtype=torch.bool)
        if counts[number] < height * width:
            coarse = 0
            if mode["allocation_mode"] == "foveated":
                dials = config.coarse_view_share, config.coarse_view_min_tokens
                view = coarse_grid((1, height, width), counts[number], *dials)
                coarse = 0 if view is None else view[1] * view[2]
            fine = vision.deepstack_features[-1][number][coarse:].cpu()
            cells = torch.zeros_like(cells)
            cells[fine[:, 1], fine[:, 2]] = True
        kept.append(cells)
    inputs["mm_encoder_outputs"] = {"image": vision}
    return Prepared(inputs, kept, [float(count) for count in counts])


# The allocator's choice from the cells that stage 1 had encoded; from those that are not empty paper; and, foveated, in what a
# coarse view of the whole picture leaves of the budget.
two_stage = partial(staged, encode_ratio=ENCODE_RATIOS["two_stage"])
two_stage_30 = partial(staged, encode_ratio=ENCODE_RATIOS["two_stage_30"])
two_stage_40 = partial(staged, encode_ratio=ENCODE_RATIOS["two_stage_40"])
auto_stage = partial(staged, encode_ratio=ENCODE_RATIOS["auto_stage"])
foveated = partial(staged, allocation_mode="foveated")
