"""Questions about pictures as chats, answered under one `Condition`; knows nothing of lmms-eval."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from transformers import Qwen3VLForConditionalGeneration

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from arrcoc.picture import open_picture
from evaluation import baselines
from evaluation.baselines.interface import Prepared, Shown, count_image_tokens, grid_of
from evaluation.lmms.condition import Condition
from evaluation.stock import stock_processor_of

MAX_NEW_TOKENS = 128  # where a task names no number; as lmms-eval's own wrapper of Qwen3-VL
SAMPLING = ("temperature", "top_p", "top_k")
PARAGRAPH = "\n\n"  # what lmms-eval stops at where a task names nothing; answers may have paragraphs


@dataclass(frozen=True)
class Reply:
    """An answer and what it was read from.

    Attributes:
        text: without special tokens and outer white space.
        prompt_tokens, new_tokens: tokens of the prompt, visual tokens included, and of the answer.
        visual_tokens: tokens of its pictures that the language model read.
        cells: tokens that its pictures have in all.
    """

    text: str
    prompt_tokens: int
    new_tokens: int
    visual_tokens: float
    cells: int


def load(
    pretrained: str,
    condition: Condition,
    allocator: str | None = None,
    revision: str | None = None,
    min_pixels: int | None = None,
    max_pixels: int | None = None,
    **model_kwargs,
):
    """(model, processor) of a folder or Hub id, in eval mode; for stock, transformers' own classes.

    Args:
        allocator: file of a trained allocator, put onto the model.
        min_pixels, max_pixels: the processor's bounds of a picture's area; `None` for its own.
        model_kwargs: to the model's `from_pretrained`.

    Raises:
        ValueError: stock with an allocator, bounds that exclude each other, or a method that can't run on the model.
    """
    if condition.method == "stock" and allocator is not None:
        raise ValueError(f"method=stock has no allocator; leave out allocator={allocator}, or pass method=arrcoc")
    processor = ARRCOCProcessor.from_pretrained(pretrained, revision=revision or "main")
    size = dict(processor.image_processor.size)
    wanted = {"shortest_edge": min_pixels, "longest_edge": max_pixels}
    size |= {edge: int(pixels) for edge, pixels in wanted.items() if pixels is not None}
    if not 0 < size["shortest_edge"] <= size["longest_edge"]:
        raise ValueError(
            f"min_pixels={size['shortest_edge']} and max_pixels={size['longest_edge']} leave no size; pass bounds with "
            "0 < min_pixels <= max_pixels"
        )
    processor.image_processor.size = size
    stock = condition.method == "stock"
    model_class = Qwen3VLForConditionalGeneration if stock else ARRCOCQwen3VLForConditionalGeneration
    model = model_class.from_pretrained(pretrained, revision=revision or "main", **model_kwargs).eval()
    if allocator is not None:
        # Imported late: only a run with an allocator's file needs training's dependencies.
        from training.allocator import load_allocator

        load_allocator(model, allocator)
    if not stock and (reason := baselines.supports(condition.method, model)):
        raise ValueError(f"method={condition.method}: {reason}")
    return model, stock_processor_of(processor) if stock else processor


def ask(model, processor, condition: Condition, chats: Sequence[list[dict]], settings: dict) -> list[Reply]:
    """The answers to chats in transformers' form, asked as one batch.

    Args:
        settings: of `generate()`; see `generation_settings`.

    Raises:
        ValueError: the method can't read a chat of this form.
    """
    chats = [_opened(chat) for chat in chats]
    pictures = [[part["image"] for message in chat for part in _images(message)] for chat in chats]
    cells = [[_cells(processor, picture) for picture in group] for group in pictures]
    with torch.no_grad():
        prepared = _prepare(model, processor, condition, chats, [count for group in cells for count in group])
    spending = condition.all_spending  # the condition decides, not what the folder was saved with
    with torch.no_grad(), prepared.during:
        generated = model.generate(**prepared.inputs, **spending, **settings)
    prompts = prepared.inputs["attention_mask"].sum(-1).tolist()
    said = generated[:, prepared.inputs["input_ids"].shape[1] :]
    texts = processor.batch_decode(said, skip_special_tokens=True)
    lengths = (said != processor.tokenizer.pad_token_id).sum(-1).tolist()
    return [
        Reply(text.strip(), prompt, length, tokens, sum(counts))
        for text, prompt, length, tokens, counts in zip(texts, prompts, lengths, prepared.tokens, cells, strict=True)
    ]


def generation_settings(asked: dict) -> dict:
    """`generate()`'s arguments from a task's `generation_kwargs`: greedy unless its temperature is above 0."""
    sampled = float(asked.get("temperature") or 0) > 0
    settings = {
        "max_new_tokens": int(asked.get("max_new_tokens") or MAX_NEW_TOKENS),
        "num_beams": int(asked.get("num_beams") or 1),
        "do_sample": sampled,
    }
    if sampled:
        settings |= {name: asked[name] for name in SAMPLING if asked.get(name) is not None}
    return settings


def cut(text: str, until: str | list[str] | None) -> str:
    """`text` up to the first of a task's stop texts, a paragraph's end not among them."""
    for stop in [until] if isinstance(until, str) else until or []:
        if stop and stop != PARAGRAPH:
            text = text.split(stop)[0]
    return text.strip()


def _prepare(model, processor, condition: Condition, chats, cells: list[int]) -> Prepared:
    budgets = condition.budgets(cells)
    if condition.method not in ("arrcoc", "stock"):
        return baselines.find(condition.method)(
            model, processor, [_question(chat, condition) for chat in chats], budgets
        )
    own = {"token_budget": budgets} if budgets and condition.method == "arrcoc" else {}
    inputs = processor.apply_chat_template(
        chats,
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "padding_side": "left", **own},
    )
    tokens = [float(count) for count in count_image_tokens(model, inputs)]
    return Prepared(inputs.to(model.device), [None] * len(tokens), tokens)


def _question(chat: list[dict], condition: Condition) -> Shown:
    parts = chat[0]["content"]
    if len(chat) != 1 or [part["type"] for part in parts] != ["image", "text"]:
        found = "; ".join(f"{message['role']}: {[part['type'] for part in message['content']]}" for message in chat)
        raise ValueError(
            f"method={condition.method} asks one text of one picture, and this chat is {found}; pass method=arrcoc or "
            "method=stock, or leave out the task"
        )
    return Shown(parts[0]["image"], parts[1]["text"])


def _images(message: dict) -> list[dict]:
    return [part for part in message["content"] if part["type"] == "image"]


def _opened(chat: list[dict]) -> list[dict]:
    """The chat with its pictures opened, so that they can be measured."""
    opened = []
    for message in chat:
        parts = [
            part | {"image": open_picture(part["image"])} if part["type"] == "image" else part
            for part in message["content"]
        ]
        opened.append(message | {"content": parts})
    return opened


def _cells(processor, picture: Image.Image) -> int:
    rows, columns = grid_of(processor, Shown(picture, ""))
    return rows * columns
