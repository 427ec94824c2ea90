"""ARR-COC: Qwen3-VL that decides, from the image and the question, where to spend its visual tokens."""

from .attending import Allocation
from .configuration_arrcoc import ARRCOCQwen3VLConfig
from .modeling_arrcoc_qwen import ARRCOCQwen3VLForConditionalGeneration, ARRCOCQwen3VLModel
from .processing_arrcoc import ARRCOCProcessor

__all__ = [
    "ARRCOCProcessor",
    "ARRCOCQwen3VLConfig",
    "ARRCOCQwen3VLForConditionalGeneration",
    "ARRCOCQwen3VLModel",
    "Allocation",
]
