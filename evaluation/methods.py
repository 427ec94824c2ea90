"""Ways to answer from K visual tokens: the allocator, a smaller image, random cells."""

import math

import torch
from transformers import BatchFeature

from arrcoc.attending import Allocation, attend
from arrcoc.layer import ARRCOCOutput


def prompt(processor, examples, **processor_kwargs) -> BatchFeature:
    """One left-padded batch, a chat with picture and question for each example."""
    chats = [
        [
            {
                "role": "user",
                "content": [{"type": "image", "image": example.image}, {"type": "text", "text": example.question}],
            }
        ]
        for example in examples
    ]
    return processor.apply_chat_template(
        chats,
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "padding_side": "left", **processor_kwargs},
    )


def cells_of(processor, example) -> int:
    """Visual tokens of the whole picture."""
    patches = processor.image_processor.get_number_of_image_patches(example.image.height, example.image.width, {})
    return patches // processor.image_processor.merge_size**2


def budgets_of(processor, examples, share: float) -> list[int]:
    """K of each picture: `share` of its tokens, at least one."""
    return [max(1, round(share * cells_of(processor, example))) for example in examples]


def arrcoc(model, processor, examples, share):
    """Inputs whose tokens the model's allocator chooses."""
    return prompt(processor, examples, token_budget=budgets_of(processor, examples, share))


def resize(model, processor, examples, share):
    """Inputs of the same pictures made small enough for K tokens: what a user would do instead."""
    cell = processor.image_processor.patch_size * processor.image_processor.merge_size
    small = []
    for example, budget in zip(examples, budgets_of(processor, examples, share), strict=True):
        width, height = example.image.size
        # The largest grid of at most K cells at the picture's aspect, one side rounded up where K allows it.
        scale = math.sqrt(budget / (width * height))
        rows, columns = max(1, math.floor(height * scale)), max(1, math.floor(width * scale))
        if (rows + 1) * columns <= budget:
            rows += 1
        if rows * (columns + 1) <= budget:
            columns += 1
        image = example.image.resize((columns * cell, rows * cell), resample=3)
        small.append(type(example)(image, example.question, example.answers, example.family))
    size = dict(processor.image_processor.size) | {"shortest_edge": cell * cell}
    return prompt(processor, small, token_budget="full", images_kwargs={"size": size})


def random(model, processor, examples, share):
    """Inputs with K random cells of each picture, at their true positions."""
    inputs = arrcoc(model, processor, examples, share)
    base = model.model
    encoded = base.encode(inputs.pop("pixel_values"), inputs["image_grid_thw"])
    merge = processor.image_processor.merge_size
    levels = len(encoded.deepstack_features)
    decisions = []
    for (t, h, w), count in zip(inputs["image_grid_thw"].tolist(), inputs["image_token_counts"].tolist(), strict=True):
        grid = (t, h // merge, w // merge)
        scores = torch.rand(math.prod(grid)).to(encoded.last_hidden_state.device)
        plan = attend(
            scores, grid, count, coverage_floor=0.0, coarse_share=0.0, min_deepstack_levels=None, num_levels=levels
        )
        allocation = Allocation(grid=grid, relevance=scores.view(grid), scores={}, tensions={}, **plan)
        decisions.append(None if allocation.is_full else ARRCOCOutput(allocation, allocation.relevance, None))
    base.keep(encoded, decisions)
    for name in ("texture_images", "query_input_ids", "query_attention_mask", "image_token_counts"):
        inputs.pop(name)
    inputs["mm_encoder_outputs"] = {"image": encoded}
    return inputs


METHODS = {"arrcoc": arrcoc, "resize": resize, "random": random}
