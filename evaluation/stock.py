"""Stock Qwen3-VL's processor, as what it does is measured beside ours."""

from transformers import Qwen3VLProcessor

from arrcoc import ARRCOCProcessor


class StockProcessor(Qwen3VLProcessor):
    """Qwen3-VL's own processor, also where torchvision, which only its video processor needs, is missing."""

    @classmethod
    def get_attributes(cls):
        """Names of the sub-processors, as `ARRCOCProcessor` has them."""
        return ARRCOCProcessor.get_attributes()


def stock_processor_of(processor: ARRCOCProcessor) -> StockProcessor:
    """Stock's processor of the same parts and chat template."""
    parts = {name: getattr(processor, name) for name in processor.get_attributes()}
    return StockProcessor(**parts, chat_template=processor.chat_template)
