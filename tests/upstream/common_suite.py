"""transformers' common model tests for stock Qwen3-VL and for ours; run by dev/upstream_tests.py inside an unpacked sdist.

It stands there as tests/models/arrcoc/test_common_suite.py, beside transformers' own tests/test_modeling_common.py.
"""

import unittest

import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLModel
from transformers.models.auto import modeling_auto
from transformers.testing_utils import require_torch

from arrcoc import ARRCOCQwen3VLConfig, ARRCOCQwen3VLForConditionalGeneration, ARRCOCQwen3VLModel

from ...test_modeling_common import ModelTesterMixin, floats_tensor, ids_tensor

# The suite decides by these lists which classes have labels and a loss.
modeling_auto.MODEL_MAPPING_NAMES["arrcoc_qwen3_vl"] = "ARRCOCQwen3VLModel"
modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES["arrcoc_qwen3_vl"] = "ARRCOCQwen3VLForConditionalGeneration"

IMAGE, VIDEO, VISION_START, VISION_END, PAD = 90, 91, 92, 93, 94


class ModelTester:
    """A tiny config and a batch of two prompts with one image each, of which `kept` cells have placeholders."""

    batch_size, num_hidden_layers, hidden_size, num_attention_heads, num_choices = 2, 2, 32, 4, 4
    is_training = True
    grid, patch = (1, 4, 4), 16

    def __init__(self, parent, config_class, own_inputs=False):
        self.parent, self.config_class, self.own_inputs = parent, config_class, own_inputs
        self.kept = 3 if own_inputs else 4
        self.seq_length = self.encoder_seq_length = 7 + self.kept
        config = self.get_config()
        self.text_config, self.vision_config = config.text_config.to_dict(), config.vision_config.to_dict()

    def get_config(self):
        return self.config_class(
            text_config={
                "vocab_size": 99,
                "hidden_size": 32,
                "intermediate_size": 37,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 8,
                "max_position_embeddings": 512,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000, "mrope_section": [2, 1, 1]},
                "bos_token_id": 0,
                "eos_token_id": 1,
                "pad_token_id": PAD,
            },
            vision_config={
                "depth": 2,
                "hidden_size": 32,
                "intermediate_size": 32,
                "num_heads": 4,
                "out_hidden_size": 32,
                "patch_size": self.patch,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
                "num_position_embeddings": 32,
                "deepstack_visual_indexes": [0, 1],
            },
            image_token_id=IMAGE,
            video_token_id=VIDEO,
            vision_start_token_id=VISION_START,
            vision_end_token_id=VISION_END,
            tie_word_embeddings=True,
        )

    def prepare_config_and_inputs_for_common(self):
        config = self.get_config()
        batch, cells = self.batch_size, self.grid[1] * self.grid[2]
        input_ids = ids_tensor([batch, self.seq_length], IMAGE)
        input_ids[:, 1] = VISION_START
        input_ids[:, 2 : 2 + self.kept] = IMAGE
        input_ids[:, 2 + self.kept] = VISION_END
        inputs = {
            "input_ids": input_ids,
            "attention_mask": torch.ones_like(input_ids),
            "mm_token_type_ids": (input_ids == IMAGE).long(),
            "pixel_values": floats_tensor([batch * cells, 3 * 2 * self.patch**2]),
            "image_grid_thw": torch.tensor([self.grid] * batch),
        }
        if self.own_inputs:
            inputs |= {
                "texture_images": torch.randint(0, 256, (batch, 3, 64, 64), dtype=torch.uint8),
                "query_input_ids": ids_tensor([batch, 5], IMAGE),
                "query_attention_mask": torch.ones(batch, 5, dtype=torch.long),
                "image_token_counts": torch.tensor([self.kept] * batch),
            }
        return config, inputs


class CommonSuite(ModelTesterMixin):
    _is_composite = True
    test_torch_exportable = False  # its suite is not in the sdist
    test_can_init_all_missing_weights_before_2023 = True  # our files bear no year
    config_class, own_inputs = Qwen3VLConfig, False

    def setUp(self):
        self.model_tester = ModelTester(self, self.config_class, self.own_inputs)


@require_torch
class StockTest(CommonSuite, unittest.TestCase):
    all_model_classes = (Qwen3VLModel, Qwen3VLForConditionalGeneration)


@require_torch
class OursTest(CommonSuite, unittest.TestCase):
    config_class = ARRCOCQwen3VLConfig
    test_all_params_have_gradient = False  # where every cell is kept, the allocator decides nothing
    all_model_classes = (ARRCOCQwen3VLModel, ARRCOCQwen3VLForConditionalGeneration)


@require_torch
class PrunedTest(OursTest):
    own_inputs = True
    test_all_params_have_gradient = True
