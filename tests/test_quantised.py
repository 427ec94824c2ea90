"""Bases that are quantised on loading: which of them work, in every mode, and that the allocator stays whole."""

import pytest
import torch
from transformers import BitsAndBytesConfig

from arrcoc import ARRCOCQwen3VLForConditionalGeneration

MODES = [{}, {"encode_ratio": 0.4}, {"encode_ratio": "auto"}, {"allocation_mode": "foveated"}]


def bits(**options):
    pytest.importorskip("bitsandbytes", reason="needs bitsandbytes: pip install -e '.[quant]'")
    return BitsAndBytesConfig(**options)


def int8_of_torchao():
    pytest.importorskip("torchao", reason="needs torchao: pip install -e '.[quant]'")
    from torchao.quantization import Int8WeightOnlyConfig
    from transformers import TorchAoConfig

    return TorchAoConfig(Int8WeightOnlyConfig())


KINDS = {
    "bitsandbytes int8": lambda: bits(load_in_8bit=True),
    "bitsandbytes nf4": lambda: bits(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
    ),
    "torchao int8": int8_of_torchao,
}


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_a_quantised_base_answers_in_every_mode(kind, checkpoint, model, make_inputs, page, report):
    config = KINDS[kind]()
    quantised = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(
        checkpoint, quantization_config=config, dtype=torch.float32
    ).eval()
    before = model.model.language_model.layers[0].mlp.gate_proj.weight
    after = quantised.model.language_model.layers[0].mlp.gate_proj.weight
    assert type(after) is not type(before) or after.dtype != before.dtype
    for mode in MODES:
        foveated = "allocation_mode" in mode
        budget = 40 if foveated else 10  # 40 have room for a coarse view
        inputs = make_inputs(page(), token_budget=budget)
        expected, logits = model(**inputs, **mode).logits, quantised(**inputs, **mode).logits.float()
        text = (
            inputs["input_ids"] != model.config.image_token_id
        )  # where cells differ, what follows an image's tokens differs too
        gap = (logits - expected)[text].norm() / expected[text].norm()
        assert 0 < report(f"{kind} - float32, text, of the norm", gap) < 0.1
        (own,), (plan,) = model.allocate(**inputs, **mode), quantised.allocate(**inputs, **mode)
        assert len(plan) == budget
        own, kept = ({*map(tuple, p.positions.tolist())} for p in (own, plan))
        assert len(own & kept) >= 0.8 * len(own)
        assert bool(plan.level.any()) is foveated
        assert quantised.generate(**inputs, **mode, max_new_tokens=2).shape[0] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_allocator_is_left_as_it_is(kind, checkpoint, model):
    quantised = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(checkpoint, quantization_config=KINDS[kind]())
    for name, parameter in model.model.arrcoc.named_parameters():
        assert torch.equal(quantised.model.arrcoc.get_parameter(name), parameter), name
