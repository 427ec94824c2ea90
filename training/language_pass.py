"""What the language model says of an answer: from all image tokens, from kept ones, or from softly chosen ones."""

from contextlib import contextmanager
from dataclasses import dataclass

import torch

from arrcoc.encoded import picked
from training.batches import IGNORED


@dataclass
class Answer:
    """`logits` (answer tokens, vocabulary) of a batch's answers in order; `labels` (answer tokens,); `attention`, per image
    (cells,) summing to 1, how the answer's tokens attend to it, where it was asked for."""

    logits: torch.Tensor
    labels: torch.Tensor
    attention: list[torch.Tensor] | None = None


def prefixed(batch: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The tensors of `batch` under a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in batch.items() if name.startswith(prefix)}


def with_features(vision_output, decisions=None, model=None):
    """A copy of the encoder's output that may be changed, pruned to the kept rows where there are decisions."""
    copied = type(vision_output)(**vision_output)
    if decisions is not None:
        model.keep(copied, decisions)
    return copied


def rows_alone(prompt, image_grid_thw, vision_output, rows: list[int]) -> tuple[dict, torch.Tensor, object]:
    """What a pass over the samples `rows` alone takes of a batch with one image in each: prompt, grids, encoder's output."""
    return {name: tensor[rows] for name, tensor in prompt.items()}, image_grid_thw[rows], picked(vision_output, rows)


def answer_pass(model, prompt, image_grid_thw, vision_output, attention_mask=None, position_ids=None) -> Answer:
    """One pass of the language model.

    Args:
        model: `ARRCOCQwen3VLForConditionalGeneration`.
        prompt: `input_ids`, `attention_mask`, `mm_token_type_ids` and `labels`, each (batch, length).
        vision_output: what fills the placeholders.
        attention_mask, position_ids: where they are not those of the prompt.
    """
    labels = prompt["labels"][:, 1:]
    output = model.model(
        input_ids=prompt["input_ids"],
        attention_mask=prompt["attention_mask"] if attention_mask is None else attention_mask,
        mm_token_type_ids=prompt["mm_token_type_ids"],
        position_ids=position_ids,
        image_grid_thw=image_grid_thw,
        mm_encoder_outputs={"image": vision_output},
        use_cache=False,
    )
    says = labels != IGNORED
    return Answer(model.lm_head(output.last_hidden_state[:, :-1][says]), labels[says])


@torch.no_grad()
def full_pass(model, prompt, image_grid_thw, vision_output, attention: bool) -> Answer:
    """The answer from all tokens; with `attention`, by the eager attention, which is the one that can be read."""
    features = with_features(vision_output)
    if not attention:
        return answer_pass(model, prompt, image_grid_thw, features)
    says = torch.nn.functional.pad(prompt["labels"][:, 1:] != IGNORED, (0, 1))
    image = prompt["mm_token_type_ids"] == 1
    sums: list[torch.Tensor | None] = [None] * len(image)

    def read(module, args, output):
        weights = output[1]  # (batch, heads, length, length)
        for row in range(len(image)):
            seen = weights[row][:, says[row]][:, :, image[row]].float().sum((0, 1))
            sums[row] = seen if sums[row] is None else sums[row] + seen

    layers = model.model.language_model.layers
    hooks = [layer.self_attn.register_forward_hook(read) for layer in layers]
    try:
        with eager_attention(model.model.language_model):
            answer = answer_pass(model, prompt, image_grid_thw, features)
    finally:
        for hook in hooks:
            hook.remove()
    answer.attention = [seen / seen.sum().clamp_min(1e-12) for seen in sums]
    return answer


@contextmanager
def eager_attention(language_model):
    """The language model attends by plain matrix products inside, and returns the weights."""
    config = language_model.config
    before = config._attn_implementation
    config._attn_implementation = "eager"
    try:
        yield
    finally:
        config._attn_implementation = before


def soft_pass(model, prompt, image_grid_thw, vision_output, shares: list[torch.Tensor]) -> Answer:
    """The answer from all tokens, each image token attended to `share` times as much: log(share) is added to the scores.

    A share that goes to 0 is a dropped token, whose other traces no token can see; one below 1e-9 counts as that.

    Args:
        shares: (cells,) in (0, 1) of each image, with their gradients.
    """
    mask, types = prompt["attention_mask"], prompt["mm_token_type_ids"]
    position_ids, _ = model.model.get_rope_index(prompt["input_ids"], types, image_grid_thw, None, mask)
    length = mask.shape[1]
    dtype = vision_output.pooler_output[0].dtype
    allowed = torch.ones(length, length, dtype=torch.bool, device=mask.device).tril() & mask.bool()[:, None]
    # padding attends to itself, so that no row is empty
    allowed = allowed | torch.eye(length, dtype=torch.bool, device=mask.device)
    bias = torch.zeros(mask.shape, device=mask.device)
    bias = bias.masked_scatter(types == 1, torch.cat(shares).clamp_min(1e-9).log())
    bias = bias[:, None].expand(-1, length, -1).masked_fill(~allowed, torch.finfo(dtype).min)
    with eager_attention(model.model.language_model):  # not every fused kernel has a gradient for its mask
        return answer_pass(
            model, prompt, image_grid_thw, with_features(vision_output), bias[:, None].to(dtype), position_ids
        )
