"""The published Qwen3-VL geometries with random weights: what a prefill costs does not depend on what the weights say."""

from pathlib import Path

import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.initialization import no_init_weights

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLConfig, ARRCOCQwen3VLForConditionalGeneration
from arrcoc.layer import ARRCOCLayer
from evaluation.dials import DIALS
from evaluation.stock import StockProcessor, stock_processor_of

CHECKPOINT = (
    Path(__file__).parents[1] / "checkpoints" / "arrcoc-small"
)  # tokenizer, chat template, the geometry `small`
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

# The numbers of the published config.json of Qwen/Qwen3-VL-{2B,4B,8B}-Instruct, read in copies of them:
#   2B  github.com/pytorch/torchtitan, torchtitan/experiments/qwen3_vl/__init__.py at 0375bb6, entry "2B"
#   4B  huggingface.co/amburger66/robometer-4b-lora-robotsmith-task03, config.json (base Qwen3-VL-4B-Instruct; that copy's
#       vocabulary is trimmed, 151936 is that of huggingface.co/chamber111/PVM-4B, config.json)
#   8B  the same torchtitan file, entry "8B"; ollama.com/library/qwen3-vl:8b-instruct-q8_0, metadata;
#       huggingface.co/Steinate/Cortex, config.json (embeddings not tied)
# tests/test_benchmarks.py checks that each has as many parameters as the published checkpoint.
_TEXT = dict(
    vocab_size=151936, head_dim=128, num_key_value_heads=8, max_position_embeddings=262144, rms_norm_eps=1e-6,
    hidden_act="silu", initializer_range=0.02,
    rope_parameters={
        "rope_type": "default", "rope_theta": 5000000, "mrope_section": [24, 20, 20], "mrope_interleaved": True,
    },
)  # fmt: skip
_VISION = dict(
    num_heads=16, patch_size=16, spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=48 * 48,
    hidden_act="gelu_pytorch_tanh", initializer_range=0.02,
)  # fmt: skip
_VISION_300M = dict(depth=24, hidden_size=1024, intermediate_size=4096, deepstack_visual_indexes=[5, 11, 17])
_VISION_400M = dict(depth=27, hidden_size=1152, intermediate_size=4304, deepstack_visual_indexes=[8, 16, 24])
PUBLISHED = {
    "2b": dict(
        text=dict(hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16),
        vision=_VISION_300M, tied=True,
    ),
    "4b": dict(
        text=dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32),
        vision=_VISION_300M, tied=True,
    ),
    "8b": dict(
        text=dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32),
        vision=_VISION_400M, tied=False,
    ),
}  # fmt: skip
GEOMETRIES = (*PUBLISHED, "small")

# Qwen3-VL's image processor takes 64 to 16,384 tokens (shortest and longest edge in the metadata of the 8B above).
FEWEST_CELLS, MOST_CELLS = 64, 16384
# Random numbers that are drawn; weights repeat them. A prime, so that no two rows of a matrix are equal.
NOISE = 1048583


def config_of(geometry: str) -> ARRCOCQwen3VLConfig:
    """The config of one of `GEOMETRIES`, with the token ids of the bundled tokenizer.

    Raises:
        ValueError: there is no geometry of this name.
    """
    if geometry == "small":
        return ARRCOCQwen3VLConfig.from_pretrained(CHECKPOINT)
    if geometry not in PUBLISHED:
        raise ValueError(f"{geometry!r} is not a geometry; choose from {', '.join(GEOMETRIES)}")
    shape, small = PUBLISHED[geometry], ARRCOCQwen3VLConfig.from_pretrained(CHECKPOINT)
    text = (
        _TEXT | shape["text"] | {"pad_token_id": small.text_config.pad_token_id, "tie_word_embeddings": shape["tied"]}
    )
    return ARRCOCQwen3VLConfig(
        text_config=text,
        vision_config=_VISION | shape["vision"] | {"out_hidden_size": shape["text"]["hidden_size"]},
        tie_word_embeddings=shape["tied"],
        image_token_id=small.image_token_id,
        video_token_id=small.video_token_id,
        vision_start_token_id=small.vision_start_token_id,
        vision_end_token_id=small.vision_end_token_id,
    )


def build_model(config: ARRCOCQwen3VLConfig, dtype: torch.dtype, device: str, seed: int = 0):
    """An `ARRCOCQwen3VLForConditionalGeneration` in eval mode with random weights, made where they will stay.

    Matrices hold normal noise of the config's `initializer_range`, drawn once and repeated; norms are the identity and
    biases zero. The allocator is the untrained one, in float32.
    """
    with no_init_weights(), torch.device(device):
        model = ARRCOCQwen3VLForConditionalGeneration._from_config(config, dtype=dtype)
    model.tie_weights()
    _fill(model, seed)
    torch.manual_seed(seed)
    layer = ARRCOCLayer(config)
    for module in reversed(list(layer.modules())):
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    model.model.arrcoc = layer.to(device, torch.float32)
    return model.eval().requires_grad_(False)


@torch.no_grad()
def _fill(model, seed: int):
    noise = {}
    for number, (name, parameter) in enumerate(model.named_parameters()):
        if parameter.ndim == 1:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            continue
        part = model.config.vision_config if ".visual." in name else model.config.text_config
        key = part.initializer_range
        if key not in noise:
            random = torch.Generator(parameter.device).manual_seed(seed)
            drawn = torch.randn(NOISE, generator=random, device=parameter.device)
            noise[key] = (drawn * key).to(parameter.dtype)
        flat, block = parameter.view(-1), noise[key].roll(number * 7919)
        whole = len(flat) // NOISE * NOISE
        flat[:whole].view(-1, NOISE).copy_(block.expand(whole // NOISE, NOISE))
        flat[whole:] = block[: len(flat) - whole]


def stock_of(model) -> Qwen3VLForConditionalGeneration:
    """Stock Qwen3-VL on the very parameters of `model`, without a copy."""
    left_out = {*DIALS, "model_type", "auto_map", "architectures"}
    config = Qwen3VLConfig(**{name: value for name, value in model.config.to_dict().items() if name not in left_out})
    with torch.device("meta"):
        stock = Qwen3VLForConditionalGeneration(config)
    stock.model.visual, stock.model.language_model = model.model.visual, model.model.language_model
    stock.lm_head = model.lm_head
    return stock.eval()


def build_processors(config: ARRCOCQwen3VLConfig) -> tuple[ARRCOCProcessor, StockProcessor]:
    """Our processor and stock's, for the patches of `config`, with the bundled tokenizer.

    Both take pictures of up to 16,384 tokens; those of the published geometries are brought up to 64, as published.
    """
    processor = ARRCOCProcessor.from_pretrained(CHECKPOINT)
    images, vision = processor.image_processor, config.vision_config
    cell = vision.patch_size * vision.spatial_merge_size
    if cell != images.patch_size * images.merge_size:
        images.size = {"shortest_edge": FEWEST_CELLS * cell**2, "longest_edge": MOST_CELLS * cell**2}
    else:
        images.size = dict(images.size) | {"longest_edge": MOST_CELLS * cell**2}
    images.patch_size, images.merge_size = vision.patch_size, vision.spatial_merge_size
    images.temporal_patch_size = vision.temporal_patch_size
    return processor, stock_processor_of(processor)
