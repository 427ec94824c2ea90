"""The small stock Qwen3-VL that learns the drawn world: its geometry, its processor, and the folder it is saved to.

One merged token is one cell of 16 x 16 pixels: patches of 8 pixels, merged 2 x 2, as a stock Qwen3-VL at half its scale.
"""

import json
from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen3VLConfig, Qwen3VLForConditionalGeneration

from training.tokenizer import END_OF_TEXT, END_OF_TURN, build_tokenizer

PATCH = 8  # pixels
MERGE = 2  # patches per cell and side
CELL = PATCH * MERGE  # pixels per merged token and side
TEMPORAL_PATCH = 2  # frames; a still image is shown twice, as stock does
MIN_CELLS, MAX_CELLS = 4, 40 * 40  # an image below or above is resized by the image processor
MAX_VIDEO_CELLS = 64 * 1024  # of all frames together
VOCABULARY = 1024  # the tokenizer's, with room to grow
HEADS = "heads.safetensors"  # beside an exported model: the auxiliary heads, for training it further


def build_config(tied: bool = False) -> Qwen3VLConfig:
    """The configuration: about 6 million parameters, 3 DeepStack levels, grouped-query attention, interleaved M-RoPE; whether the
    head is `tied` to the embeddings."""
    tokenizer = build_tokenizer()

    def token_id(token: str) -> int:
        return tokenizer.convert_tokens_to_ids(token)

    # A narrow model wants larger first weights than stock's 0.02, and a grid of tens of patches a shorter longest wave than
    # 10000: with both, the letters are learned in half the steps. The head is not tied: the language stage leaves the embeddings
    # as they are, in which tokens that the world never has are all alike.
    vision = dict(
        depth=6, hidden_size=128, intermediate_size=384, num_heads=4, patch_size=PATCH, spatial_merge_size=MERGE,
        temporal_patch_size=TEMPORAL_PATCH, out_hidden_size=256, num_position_embeddings=24 * 24,
        deepstack_visual_indexes=[1, 3, 4], initializer_range=0.06,
        rope_parameters={"rope_type": "axial", "rope_theta": 100.0},
    )  # fmt: skip
    text = dict(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=640, num_hidden_layers=5, num_attention_heads=8,
        num_key_value_heads=4, head_dim=32, max_position_embeddings=8192, tie_word_embeddings=tied,
        initializer_range=0.04,
        rope_parameters={
            "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [6, 5, 5], "mrope_interleaved": True,
        },
        pad_token_id=token_id(END_OF_TEXT), eos_token_id=token_id(END_OF_TURN), bos_token_id=None,
    )  # fmt: skip
    return Qwen3VLConfig(
        vision_config=vision, text_config=text, tie_word_embeddings=tied,
        image_token_id=token_id("<|image_pad|>"), video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"), vision_end_token_id=token_id("<|vision_end|>"),
    )  # fmt: skip


def build_model(seed: int, tied: bool = False) -> Qwen3VLForConditionalGeneration:
    """A stock model with random weights of that seed, in float32 on the CPU, with the generation settings it is saved with."""
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(build_config(tied))
    text = model.config.text_config
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=[text.eos_token_id, text.pad_token_id], pad_token_id=text.pad_token_id
    )
    return model


def _vision_settings(most_cells: int) -> dict:
    half = [0.5, 0.5, 0.5]
    size = {"shortest_edge": MIN_CELLS * CELL**2, "longest_edge": most_cells * CELL**2}
    return dict(
        size=size, patch_size=PATCH, merge_size=MERGE, temporal_patch_size=TEMPORAL_PATCH, image_mean=half, image_std=half
    )  # fmt: skip


def _processor_config() -> dict:
    # written as stock's save_pretrained writes it, because building the video processor would need torchvision
    return {
        "processor_class": "Qwen3VLProcessor",
        "image_processor": {"image_processor_type": "Qwen2VLImageProcessor", **_vision_settings(MAX_CELLS)},
        "video_processor": {"video_processor_type": "Qwen3VLVideoProcessor", **_vision_settings(MAX_VIDEO_CELLS)},
    }


def export(model: Qwen3VLForConditionalGeneration, folder: Path) -> None:
    """Writes the stock Qwen3-VL folder (bfloat16 weights, processor, tokenizer, template), replacing files of that name."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().to("cpu", torch.bfloat16) for name, tensor in model.state_dict().items()}
    plain = build_model(seed=0, tied=model.config.tie_word_embeddings).to(torch.bfloat16)
    plain.load_state_dict(state)
    plain.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    (folder / "processor_config.json").write_text(json.dumps(_processor_config(), indent=2) + "\n")
