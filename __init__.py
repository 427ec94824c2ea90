"""ARR-COC: Qwen3-VL that decides, from the image and the question, where to spend its visual tokens.

Importing the package registers its classes with transformers' auto classes, so that a folder that this code wrote loads
without `trust_remote_code`.
"""

from transformers import AutoConfig, AutoModel, AutoModelForImageTextToText, AutoModelForMultimodalLM, AutoProcessor

from .allocation import Allocation
from .configuration_arrcoc import ARRCOCQwen3VLConfig
from .encoded import EncodedImages
from .modeling_arrcoc_qwen import ARRCOCQwen3VLForConditionalGeneration, ARRCOCQwen3VLModel
from .processing_arrcoc import ARRCOCProcessor

AutoConfig.register(ARRCOCQwen3VLConfig.model_type, ARRCOCQwen3VLConfig, exist_ok=True)
for _loader in (AutoModel, AutoModelForImageTextToText, AutoModelForMultimodalLM):
    _loader.register(ARRCOCQwen3VLConfig, ARRCOCQwen3VLForConditionalGeneration, exist_ok=True)
AutoProcessor.register(ARRCOCQwen3VLConfig, ARRCOCProcessor, exist_ok=True)

__all__ = [
    "ARRCOCProcessor",
    "ARRCOCQwen3VLConfig",
    "ARRCOCQwen3VLForConditionalGeneration",
    "ARRCOCQwen3VLModel",
    "Allocation",
    "EncodedImages",
]
