"""Phase 2: the language model learns too, by LoRA or in its top layers."""

import copy
import importlib
from contextlib import contextmanager

import torch
from torch import nn

ADAPTS = ("lora", "top")


def adapt(learner: nn.Module, how: str, layers: int, rank: int = 16) -> None:
    """Makes the last `layers` layers of the language model of an `AllocatorLearner` trainable.

    Args:
        how: "lora" (PEFT, on all projections of these layers) or "top" (the layers themselves, in float32).
        rank: of LoRA; alpha is twice this.

    Raises:
        ValueError: unknown `how`, or more layers than there are.
        ImportError: PEFT is missing.
    """
    stack = learner.model.model.language_model.layers
    if how not in ADAPTS:
        raise ValueError(f"adapt={how!r} is unknown; choose from {', '.join(ADAPTS)}")
    if not 1 <= layers <= len(stack):
        raise ValueError(
            f"{layers} layers of the {len(stack)} of the language model can't be trained; pass 1 to {len(stack)}"
        )
    chosen = range(len(stack) - layers, len(stack))
    if how == "top":
        # For the teacher's pass, which is the base's. Not submodules: they are neither trained nor saved.
        config = learner.model.model.language_model.config  # shared: the teacher's pass sets its kind of attention
        untuned = {number: copy.deepcopy(stack[number], {id(config): config}) for number in chosen}
        object.__setattr__(learner, "untuned", untuned)
        for number in chosen:
            stack[number].float().requires_grad_(True)
    else:
        _add_lora(learner, chosen, rank)
    learner.tuned = [stack[number] for number in chosen]
    learner.train(learner.training)


def _add_lora(learner, chosen, rank: int):
    try:
        peft = importlib.import_module("peft")
    except ImportError as error:
        raise ImportError("LoRA needs PEFT, which is not installed; run: pip install 'peft>=0.18'") from error
    numbers = "|".join(map(str, chosen))
    target = rf".*language_model\.layers\.({numbers})\.(self_attn|mlp)\.\w+_proj"
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=target)
    trained = [parameter for parameter in learner.scorer.parameters() if parameter.requires_grad]
    wrapped = peft.get_peft_model(learner.model, config)
    for parameter in trained:  # get_peft_model froze all that is not LoRA
        parameter.requires_grad_(True)
    # Not a submodule: the model with the LoRA layers in it is one already.
    object.__setattr__(learner, "adapted", wrapped)


@contextmanager
def base_layers(learner: nn.Module):
    """The language model with the base's own layers in place of those that are trained."""
    stack, trained = learner.model.model.language_model.layers, {}
    for number, own in learner.untuned.items():
        trained[number] = stack[number]
        stack[number] = own.to(next(stack[number].parameters()).device)
    try:
        yield
    finally:
        for number, layer in trained.items():
            stack[number] = layer


def merged(learner: nn.Module) -> nn.Module:
    """The model with what was trained in it, in the base's dtype; the learner can't be trained further."""
    if learner.adapted is not None:
        return learner.adapted.merge_and_unload()
    stack = learner.model.model.language_model.layers
    for number, own in learner.untuned.items():
        stack[number].to(next(own.parameters()).dtype)
    return learner.model


def tuned_tensors(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Of the trained tensors, those of the language model."""
    return {name: tensor for name, tensor in tensors.items() if ".language_model." in name}
