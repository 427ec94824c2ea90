"""The ways to a first token that are compared, all on the same weights."""

from collections.abc import Sequence
from dataclasses import dataclass

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from benchmarks.geometry import build_model, build_processors, config_of, stock_of
from evaluation.baselines.interface import Shown, grid_of, prompt
from evaluation.baselines.resize import resize
from evaluation.stock import StockProcessor

STOCK = "stock"
METHODS = (STOCK, "resize", "after-vit", "two-stage", "foveated")


@dataclass(frozen=True)
class Bench:
    """One geometry: our model, stock on the same parameters, and the processor of each."""

    model: ARRCOCQwen3VLForConditionalGeneration
    stock: object
    processor: ARRCOCProcessor
    stock_processor: StockProcessor

    def cells(self, example: Shown) -> int:
        """Visual tokens of the whole picture."""
        rows, columns = grid_of(self.processor, example)
        return rows * columns


@dataclass(frozen=True)
class Case:
    """One method on one batch of pictures.

    Attributes:
        method: one of `METHODS`.
        examples: the batch.
        budget: tokens of each picture, what `stock` ignores.
        encode_ratio: of `two-stage`: a share in (0, 1], or "auto".
    """

    method: str
    examples: Sequence[Shown]
    budget: int
    encode_ratio: float | str

    def model(self, bench: Bench):
        """The model that runs it."""
        return bench.stock if self.method in (STOCK, "resize") else bench.model

    def prepare(self, bench: Bench) -> dict:
        """From pictures and questions to what the model's forward takes, on its device."""
        if self.method == "resize":
            return resize(bench.stock, bench.stock_processor, self.examples, [self.budget] * len(self.examples)).inputs
        if self.method == STOCK:
            return prompt(bench.stock_processor, self.examples).to(bench.model.device)
        inputs = prompt(bench.processor, self.examples, token_budget=self.budget).to(bench.model.device)
        if self.method == "two-stage":
            inputs["encode_ratio"] = self.encode_ratio
        elif self.method == "foveated":
            inputs["allocation_mode"] = "foveated"
        return inputs


def build_bench(geometry: str, dtype, device: str, seed: int = 0) -> Bench:
    """Models and processors of one geometry."""
    config = config_of(geometry)
    model = build_model(config, dtype, device, seed)
    return Bench(model, stock_of(model), *build_processors(config))
