"""Exact match of a stock Qwen3-VL folder on held-out pages: ``python -m training.evaluate_base --model FOLDER --pages 500``.

Greedy generation on what the folder's own image processor makes of each page, by family, grid and scale.
"""

import argparse
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from tqdm import tqdm
from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from training.world import KINDS, Question, make_page
from training.world.fonts import PLAIN_FONTS

ALL_GRIDS = ((8, 8), (8, 12), (10, 10), (9, 14), (12, 12))
# name: style, grids (rows, columns) drawn, and shown where that differs
_SAME = [(cells, cells) for cells in ALL_GRIDS]
_SMALLER = [((12, 12), (10, 10)), ((12, 12), (8, 8)), ((12, 12), (6, 6)), ((8, 8), (6, 6)), ((8, 8), (4, 4))]
CONDITIONS = {kind: (style, _SAME) for kind, style in KINDS.items()} | {
    "one_field, smaller image": (KINDS["one_field"], _SMALLER),
    "one_field, fonts of training": (replace(KINDS["one_field"], fonts=PLAIN_FONTS), _SAME),
}


class Answerer:
    """A model folder that answers questions about pages.

    Raises:
        OSError, ValueError: the folder is no model's, or can't be read.
    """

    def __init__(self, folder: Path):
        for name in ("config.json", "processor_config.json"):
            if not (folder / name).is_file():
                raise FileNotFoundError(f"{folder} has no {name}; pass a model's folder, such as runs/base/export")
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).to(self.device).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        settings = json.loads((folder / "processor_config.json").read_text())["image_processor"]
        self.image_processor = Qwen2VLImageProcessorPil(**settings)

    @torch.no_grad()
    def answer(self, images: list, questions: list[str]) -> list[str]:
        """Greedy answers to one question about each image."""
        seen = self.image_processor(images, return_tensors="pt")
        tokens = seen["image_grid_thw"].prod(-1) // self.image_processor.merge_size**2
        texts = []
        for question, count in zip(questions, tokens.tolist(), strict=True):
            content = [{"type": "image"}, {"type": "text", "text": question}]
            text = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
            )
            texts.append(text.replace("<|image_pad|>", "<|image_pad|>" * count))
        inputs = self.tokenizer(texts, padding=True, return_tensors="pt")
        kinds = (inputs["input_ids"] == self.model.config.image_token_id).int()
        inputs = {**inputs, **seen, "mm_token_type_ids": kinds}
        inputs = {name: tensor.to(self.device) for name, tensor in inputs.items()}
        output = self.model.generate(**inputs, max_new_tokens=16)
        return self.tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def evaluate(reader: Answerer, condition: str, pages: int, seed: int, batch_size: int = 50) -> list[dict]:
    """One record per question (condition, family, grid, answer, wanted, exact) of `pages` held-out pages, the grids in turn;
    one question of each page."""
    style, grids = CONDITIONS[condition]
    records = []
    for index, (cells, shown) in enumerate(grids):
        numbers = range(seed + index, seed + pages, len(grids))
        drawn = [make_page(10_000_000 + number, "held_out", cells, style, shown) for number in numbers]
        asked: list[Question] = [page.questions[0] for page in drawn]
        name = f"{cells[0]}x{cells[1]}" + ("" if shown == cells else f" at {shown[0]}x{shown[1]}")
        for first in range(0, len(drawn), batch_size):
            part = slice(first, first + batch_size)
            answers = reader.answer([page.image for page in drawn[part]], [q.text for q in asked[part]])
            records += [
                {"condition": condition, "family": question.family, "grid": name, "answer": answer,
                 "wanted": question.answer, "exact": answer.strip() == question.answer}
                for question, answer in zip(asked[part], answers, strict=True)
            ]  # fmt: skip
    return records


def table(records: list[dict]) -> str:
    """Exact match (percent) and questions, per condition, grid and family."""
    groups = defaultdict(list)
    for record in records:
        groups[record["condition"], "all", "all"].append(record["exact"])
        groups[record["condition"], record["grid"], "all"].append(record["exact"])
        if record["condition"] != record["family"]:
            groups[record["condition"], "all", record["family"]].append(record["exact"])
    lines = ["| condition | grid | family | exact match % | questions |", "|---|---|---|---|---|"]
    for (condition, grid, family), exact in groups.items():
        lines.append(f"| {condition} | {grid} | {family} | {100 * sum(exact) / len(exact):.1f} | {len(exact)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--model", type=Path, required=True, help="a stock Qwen3-VL folder, as train_base exports it")
    parser.add_argument("--pages", type=int, default=500, help="per condition")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--conditions", nargs="+", choices=list(CONDITIONS), default=list(CONDITIONS))
    parser.add_argument("--records", type=Path, help="also write every answer there, as JSONL")
    options = parser.parse_args(arguments)
    if options.pages < 1:
        parser.error(f"--pages {options.pages}: pass a whole number from 1 on")
    try:
        if options.records:  # before anything is answered
            options.records.parent.mkdir(parents=True, exist_ok=True)
            options.records.touch()
            if options.records.stat().st_size:
                parser.error(f"--records {options.records} holds something already; pass another file, or delete it")
        reader, records = Answerer(options.model), []
    except (OSError, ValueError, SafetensorError, StrictDataclassError) as error:
        parser.error(str(error))
    for condition in tqdm(options.conditions):
        records += evaluate(reader, condition, options.pages, options.seed)
    print(table(records))
    if options.records:
        options.records.write_text("".join(json.dumps(record) + "\n" for record in records))


if __name__ == "__main__":
    main()
