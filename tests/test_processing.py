"""The processor: what it emits, which question each image is asked, and that its other outputs are stock Qwen3-VL's."""

import base64
import copy
import functools
import json
import re
import sys
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Qwen3VLProcessor
from transformers.testing_utils import CaptureLogger
from transformers.utils import logging

from arrcoc import ARRCOCProcessor
from arrcoc.picture import open_picture, square, to_pil
from arrcoc.questions import given_questions, questions_of

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
OWN = {"texture_images", "query_input_ids", "query_attention_mask", "image_token_counts"}


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def questions(processor, inputs) -> list[str]:
    """The question of each image, decoded from `query_input_ids`, a line for each where it is several."""
    rows = zip(inputs["query_input_ids"], inputs["query_attention_mask"], strict=True)
    decode = processor.tokenizer.decode
    return ["\n".join(decode(ids[mask == number]) for number in range(1, max(2, mask.max() + 1))) for ids, mask in rows]


def placeholders(processor, inputs) -> list[int]:
    """Image placeholders of each prompt."""
    return (inputs["input_ids"] == processor.image_token_id).sum(-1).tolist()


def random_picture(width: int, height: int, seed: int = 0) -> Image.Image:
    generator = np.random.default_rng(seed)
    return Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))


def same(left, right) -> bool:
    return set(left) == set(right) and all(torch.equal(left[name], right[name]) for name in left)


# --- outputs


def test_shapes_and_dtypes(processor, make_inputs, page):
    """128 x 96 pixels in cells of 16: 8 x 6 = 48 cells, 16 x 12 patches of 3 * 2 * 8 * 8 values."""
    inputs = make_inputs(page(128, 96), token_budget=10)
    length = inputs["input_ids"].shape[1]
    expected = {
        "input_ids": ((1, length), torch.int64),
        "attention_mask": ((1, length), torch.int64),
        "mm_token_type_ids": ((1, length), torch.int64),
        "pixel_values": ((192, 384), torch.float32),
        "image_grid_thw": ((1, 3), torch.int64),
        "texture_images": ((1, 3, 512, 512), torch.uint8),
        "query_input_ids": ((1, 32), torch.int64),
        "query_attention_mask": ((1, 32), torch.int64),
        "image_token_counts": ((1,), torch.int64),
    }
    assert {name: (tuple(value.shape), value.dtype) for name, value in inputs.items()} == expected
    assert inputs["image_grid_thw"].tolist() == [[1, 12, 16]]
    assert placeholders(processor, inputs) == inputs["image_token_counts"].tolist() == [10]
    assert torch.equal(inputs["mm_token_type_ids"] == 1, inputs["input_ids"] == processor.image_token_id)
    assert set(inputs) <= set(processor.model_input_names)


def test_budget_changes_placeholders_alone(make_inputs, page):
    few, many = make_inputs(page(), token_budget=3), make_inputs(page(), token_budget=9)
    for name in ("pixel_values", "image_grid_thw", "texture_images", "query_input_ids", "query_attention_mask"):
        assert torch.equal(few[name], many[name]), name
    assert many["input_ids"].shape[1] - few["input_ids"].shape[1] == 6


def test_text_alone_has_no_image_inputs(processor):
    for images in (None, [], [[]]):
        inputs = processor(images=images, text=turn("user", "what is it?"), return_tensors="pt")
        assert set(inputs) == {"input_ids", "attention_mask", "mm_token_type_ids"}


def test_image_alone_is_asked_nothing(processor, page):
    inputs = processor(images=page(), token_budget=4, return_tensors="pt")
    assert set(inputs) == OWN | {"pixel_values", "image_grid_thw"}
    assert inputs["image_token_counts"].tolist() == [4]
    assert inputs["query_attention_mask"].sum() == 0


@pytest.mark.parametrize("return_tensors", [None, "np"])
def test_other_tensor_types(processor, page, return_tensors):
    inputs = processor(images=page(), text=IMAGE + "what?", token_budget=4, return_tensors=return_tensors)
    wanted = processor(images=page(), text=IMAGE + "what?", token_budget=4, return_tensors="pt")
    assert set(inputs) == set(wanted)
    for name in wanted:
        assert np.array_equal(np.asarray(inputs[name]), wanted[name].numpy()), name


def test_batch_of_several_sizes(processor, make_inputs, page):
    """Each image of a batch, and of a prompt with several, is what it is alone."""
    pictures = [page(128, 96, 0), page(64, 160, 1), page(48, 48, 2)]
    batch = make_inputs([pictures[:2], pictures[2]], ["what is left?", "where?"], token_budget=[5, 6, 7])
    assert placeholders(processor, batch) == [11, 7]
    assert batch["image_token_counts"].tolist() == [5, 6, 7]
    offset = 0
    for number, (picture, question) in enumerate(zip(pictures, ["what is left?"] * 2 + ["where?"], strict=True)):
        alone = make_inputs(picture, question, token_budget=5 + number)
        patches = len(alone["pixel_values"])
        assert torch.equal(batch["pixel_values"][offset : offset + patches], alone["pixel_values"])
        for name in OWN | {"image_grid_thw"}:
            assert torch.equal(batch[name][number], alone[name][0]), name
        offset += patches


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_side(processor, make_inputs, page, side):
    batch = make_inputs([page(), page()], ["what?", "what is the total of it?"], token_budget=4, padding_side=side)
    alone = make_inputs(page(), "what?", token_budget=4)
    length = alone["input_ids"].shape[1]
    mask = batch["attention_mask"][0].bool()
    assert not mask.all()
    assert mask[-length:].all() if side == "left" else mask[:length].all()
    for name in ("input_ids", "mm_token_type_ids"):
        assert torch.equal(batch[name][0][mask], alone[name][0]), name
    assert questions(processor, batch) == ["what?", "what is the total of it?"]


@pytest.mark.parametrize("padding", [False, True, "max_length"])
def test_padding_of_the_text_leaves_the_question_alone(processor, page, padding):
    length = {"max_length": 64} if padding == "max_length" else {}
    inputs = processor(
        images=page(), text=IMAGE + "what is it?", token_budget=4, padding=padding, return_tensors="pt", **length
    )
    assert questions(processor, inputs) == ["what is it?"]
    assert inputs["query_attention_mask"].sum() == len(processor.tokenizer("what is it?")["input_ids"])


def test_long_question_widens_by_a_multiple(processor, page):
    question = "what is the total of the left column? " * 6
    inputs = processor(images=page(), text=IMAGE + question, token_budget=4, return_tensors="pt")
    assert inputs["query_input_ids"].shape[1] % 32 == 0
    assert questions(processor, inputs) == [question.strip()]


# --- which question


@pytest.mark.parametrize(
    ("text", "images", "last_user", "image_turn"),
    [
        (turn("user", IMAGE + "what is it?") + "<|im_start|>assistant\n", 1, ["what is it?"], ["what is it?"]),
        (turn("system", "be brief") + turn("user", f"what? {IMAGE}"), 1, ["what?"], ["what?"]),
        (
            turn("user", IMAGE + "who first?") + turn("assistant", "one") + turn("user", "who second?"),
            1,
            ["who second?"],
            ["who first?"],
        ),
        (
            turn("user", IMAGE + "who first?") + turn("assistant", "one") + turn("user", f"{IMAGE} who second?"),
            2,
            ["who second?"] * 2,
            ["who first?", "who second?"],
        ),
        (turn("user", f"{IMAGE}left and {IMAGE}right?"), 2, ["left and right?"] * 2, ["left and right?"] * 2),
        (turn("system", f"look at {IMAGE}") + turn("user", "what?"), 1, ["what?"], ["look at"]),
        (turn("user", IMAGE), 1, [""], [""]),
        # Where users show pictures alone, the system's turn asks, less who answers.
        *(
            (turn("system", says) + turn("user", IMAGE), 1, [asks], [asks])
            for says, asks in (
                ("What does it say for locker?", "What does it say for locker?"),
                ("You are a careful clerk. Read the total.", "Read the total."),
                ("You are a helpful assistant. Be brief.", ""),
                ("word " * 40, ""),
            )
        ),
        (turn("system", "What is the total?") + turn("user", f"{IMAGE}I paid it."), 1, ["I paid it."], ["I paid it."]),
        (turn("assistant", IMAGE), 1, [""], [""]),
        (
            turn("user", "who first?\nand who second?" + IMAGE),
            1,
            ["who first?\nwho second?"],
            ["who first?\nwho second?"],
        ),
        # Text that no turn holds, an open last turn, and text without any turns.
        (IMAGE + turn("user", "what?"), 1, ["what?"], ["what?"]),
        (f"<|im_start|>user\n{IMAGE}what?", 1, ["what?"], ["what?"]),
        (f"{IMAGE}what is it?", 1, ["what is it?"], ["what is it?"]),
        (f"{IMAGE}{IMAGE}", 2, ["", ""], ["", ""]),
        # What a tool gave back asks nothing.
        (
            turn("user", IMAGE + "what?") + turn("user", "\n<tool_response>\n42\n</tool_response>"),
            1,
            ["what?"],
            ["what?"],
        ),
        (
            turn("user", "what?") + turn("user", f"<tool_response>\n{IMAGE}crop\n</tool_response>"),
            1,
            ["what?"],
            ["what?"],
        ),
        # Nor does a picture alone.
        (turn("user", "what?") + turn("user", IMAGE), 1, ["what?"], ["what?"]),
        (turn("user", IMAGE) + turn("assistant", "and?") + turn("user", "what?"), 1, ["what?"], ["what?"]),
        (
            turn("user", "who first?") + turn("user", IMAGE) + turn("user", "who second?") + turn("user", IMAGE),
            2,
            ["who second?"] * 2,
            ["who first?", "who second?"],
        ),
        # A user under another name, where none has that one.
        (turn("human", IMAGE + "how much?") + turn("gpt", "5"), 1, ["how much?"], ["how much?"]),
        (turn("usr", IMAGE + "how much?") + turn("assistant", "5?"), 1, ["how much?"], ["how much?"]),
        (
            turn("developer", "What is the total?") + turn("user", IMAGE),
            1,
            ["What is the total?"],
            ["What is the total?"],
        ),
        (turn("user", IMAGE + "how much?") + turn("context", "It is late."), 1, ["how much?"], ["how much?"]),
        # How the template numbers pictures, with add_vision_id.
        (turn("user", f"Picture 1: {IMAGE}Picture 2: {IMAGE}which?"), 2, ["which?"] * 2, ["which?"] * 2),
    ],
)
def test_question_of_each_image(processor, make_processor, page, text, images, last_user, image_turn):
    inputs = processor(images=[page()] * images, text=text, token_budget=4, return_tensors="pt")
    assert questions(processor, inputs) == last_user
    own = make_processor(question_turn="image")
    assert questions(own, own(images=[page()] * images, text=text, token_budget=4, return_tensors="pt")) == image_turn


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("What is the total?\nAnswer the question using a single word or phrase.", "What is the total?"),
        ("What is the total? Please answer in one word.", "What is the total?"),
        ("Question: What is the total?\nAnswer:", "What is the total?"),
        ("Hint: Give the option's letter at the end.\nQuestion: What is the total?\nAnswer:", "What is the total?"),
        ("Read the total.\nPlease answer with a number only.", "Read the total."),
        ("What is the total?Answer with a single word.", "What is the total?"),  # two texts of a chat
        ("What is the total?\nKeep it short.", "What is the total?"),
        ("What is the total? (Answer with a single word.)", "What is the total?"),
        ("What is the total?\n[Answer briefly]", "What is the total?"),
        ("What is the total? *Answer in English.*", "What is the total?"),
        ("What is the total? No explanation.", "What is the total?"),
        ("What is the total? Thank you.", "What is the total?"),
        ("What is the total? (in English)", "What is the total? in English"),
        ("What is the total?\nOutput JSON only.", "What is the total?"),
        ("What is the total?\nLet's think step by step.", "What is the total?"),
        ("What is the total? Only the answer, please.", "What is the total?"),
        ("What is the total?\nBe concise.", "What is the total?"),
        ("What is the total? Short answer:", "What is the total?"),
        ("Question: What is the total?\nYour answer:", "What is the total?"),
        ("What is the total? Use one word.", "What is the total?"),
        ("What is the total? Max 5 words.", "What is the total?"),
        ("What is the total? (one word)", "What is the total?"),
        ("What is the total? Do not explain.", "What is the total?"),
        ("What is the total? Don\u2019t add anything else. Use at most three words.", "What is the total?"),
        ("What is the total? Answer with the number only.", "What is the total?"),
        ("What is the total? Give only the value, without any units.", "What is the total?"),
        ("What is the name? Return only the name of the buyer.", None),
        ("What is the total? Answer in 5 words or less.", "What is the total?"),
        ("What is the total?\nPlease select the correct answer from the options above.", "What is the total?"),
        ("What is the total? Write your answer in <answer></answer> tags.", "What is the total?"),
        (
            "What is the total? Output the thinking process in <think> </think> and final answer in <answer> </answer> tags.",
            "What is the total?",
        ),
        (
            "What is the total? Please reason step by step, and put your final answer within \\boxed{}.",
            "What is the total?",
        ),
        ("What is the total? Please answer in the format 'Answer: X'.", "What is the total?"),
        (
            "What is the total?\nPlease answer directly with only the letter of the correct option and nothing else.",
            "What is the total?",
        ),
        ("Which row is it?\nWrite the number above the total.", None),
        ("Is it open? Answer with the reason.", None),
        ("Is it there? Put the date, too.", None),
        ("What colour is it? Choose the best option.", "What colour is it?"),
        ("Can you read this? Write the words.", None),
        ("Is this a menu? Choose the options.", None),
        ("Q: What is the total?\nA:", "What is the total?"),
        ("**Question:** What is the total?\nAnswer:", "What is the total?"),
        (
            "What is the total?\nWhen the provided information is insufficient, respond with 'Unanswerable'.\n"
            "Answer the question using a single word or phrase.",
            "What is the total?",
        ),
        ("What is the total? If it is not on the page, say 'not found'.", "What is the total?"),
        ("What is the total? If the tax is not on the page, say none.", None),
        ("Is there a total? If so, say what it is.", None),
        ("Is there a total? If there is, give the number on the page in the corner.", None),
        ("Is it there? If it is, give the words on the page.", "Is it there? If it is, give the words."),
        ("Is it there?\nBe sure to read the total.", None),
        ("Read the total. Give a short answer, without any explanation.", None),  # nothing ends the question
        ("Here is a page.\nReply with the locker number only.", None),
        ("Is the page readable?\nReply with the value for locker only", None),
        ("Look at this receipt.\nAnswer briefly: total amount due", None),
        ("What is the total? Use the net one.", None),
        ("What is the total? Do not include the tax.", None),
        ("What is the total?\nmax", None),
        ("What is the total? Max Weber", None),
        ("This is an invoice.\nPlease answer in one word: invoice number", None),
        ("Read the sign.\nAnswer in JSON with the keys name, phone and total", None),
        ("Here is my ticket.\nRespond with the number only.", None),
        ("Is it ok?\nRespond with the letter in the top right corner", None),
        ("Read the page.\nAnswer the question on it.", None),
        ("Can you see the form? Reply with the value of the total only.", None),
        ("Do you see it?\nRespond with what it says for the total, briefly.", None),
        ("Is there a total?\nAnswer with it and with the tax.", None),
        ("Is there a total? Reply briefly: which?", None),
        ("What is it? Answer me: what is the total?", None),
        ("What is the\nanswer to 5?", None),
        ("How many bars?\nThink step by step.\nAnswer with a single word.", "How many bars?"),
        ("Is it open\uff1fAnswer with a single word.", "Is it open\uff1f"),
        ("Can you read this? Output the words only.", None),
        ("Here is a page.\nReturn the words in JSON format.", None),
        ("Is this a menu? Provide the options.", None),
        ("What is the process? Give step one.", None),
        ("Read the items.\nQuestion: What is the name?", None),
        ("Name:\nQuestion:\nTotal:", None),
        ("Is the total here? Answers stand below, read the first.", None),
    ],
)
def test_how_to_answer_is_no_part_of_the_question(processor, page, said, asked):
    """The prompt keeps it; the allocator, which looks for what is asked, does not read it."""
    assert read_of(processor, page, said) == (said.replace("\n", " ") if asked is None else asked)


def read_of(processor, page, said: str) -> str:
    """What the allocator reads of a turn whose prompt keeps all that was said."""
    inputs = processor(text=f"<|im_start|>user\n{IMAGE}{said}<|im_end|>\n", images=page(), return_tensors="pt")
    assert said in processor.decode(inputs["input_ids"][0])
    return questions(processor, inputs)[0]


PASSED = "The visitors came late that day and most of them left again before the doors were opened."
CONTEXT = " ".join([PASSED] * 3)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (f"{CONTEXT}\nWhat is the total?", "What is the total?"),
        (f"What is the total?\n{CONTEXT}", f"What is the total? {PASSED}"),  # a last sentence may ask
        (
            f"{CONTEXT} Look at the last row. What is its total? Thanks a lot!",
            "Look at the last row. What is its total? Thanks a lot!",
        ),
        (f"Context: {CONTEXT}\nQuestion: What is the total?\nAnswer:", "What is the total?"),
        (
            f"Can you help me? {CONTEXT} Please list the number, the date, the total and the name of the customer as they stand.",
            "Can you help me? Please list the number, the date, the total and the name of the customer as they stand.",
        ),
        (f"{CONTEXT}\nRead the total.", "Read the total."),
        (CONTEXT, None),  # nothing is asked
        (f"{CONTEXT} Tell me the total. Thank you for your help.", "Tell me the total. Thank you for your help."),
        (f"{CONTEXT} What is the total? I need it today. Answer in one word.", "What is the total?"),
        (
            f"{CONTEXT} {PASSED[:-1]} for Dr. Okafor at 9 a.m. to meet Mr. Ito, where?",
            f"{PASSED[:-1]} for Dr. Okafor at 9 a.m. to meet Mr. Ito, where?",
        ),
        (
            f"{CONTEXT} Can you copy them?\nInvoice no:\n- due_date\nTotal:",
            "Can you copy them? Invoice no: - due_date Total:",
        ),
        ("He came on Monday. She came on Tuesday. It rained on Friday. Who came first?", None),  # few words
        (
            "\u5929\u6c14\u3002" * 40 + "\u5408\u8ba1\u662f\u591a\u5c11\uff1f",  # without spaces
            "\u5929\u6c14\u3002 \u5408\u8ba1\u662f\u591a\u5c11\uff1f",
        ),
    ],
)
def test_of_many_words_those_that_ask_are_read(processor, page, said, asked):
    assert read_of(processor, page, said) == (" ".join(said.split()) if asked is None else asked)


def test_of_a_long_question_both_ends_are_read(processor, page):
    """The allocator meets each cell with each of its tokens."""
    said = " ".join(f"word{number}" for number in range(400))
    ids = processor.tokenizer(said)["input_ids"]
    (read,) = processor(text=f"<|im_start|>user\n{IMAGE}{said}<|im_end|>\n", images=page(), return_tensors="pt")[
        "query_input_ids"
    ]
    assert read.tolist() == ids[:64] + ids[-192:]


@pytest.mark.parametrize("space", ["\n", "\r\n", "\n\n", "  ", "\t", "\u00a0"])
def test_white_space_is_one_space(processor, space):
    """Words behind other white space are other tokens, which no cell was ever looked for by."""
    said = f"<|im_start|>user\n{IMAGE}{space}Look.{space}What is{space}the total?{space}<|im_end|>\n"
    assert questions_of(said, processor.image_token, "last_user") == ["Look. What is the total?"]


@pytest.mark.parametrize("pair", ['""', "''", "``", "**", "()", "[]", "\u2018\u2019", "\u201c\u201d", "\u00ab\u00bb"])
def test_marks_around_words_are_no_part_of_the_question(processor, page, pair):
    marked = f"What's the {pair[0]}grand total{pair[1]}?"
    assert read_of(processor, page, marked) == "What's the grand total?"


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Is the **total** the `sum` of 'tax'?", "Is the total the sum of tax?"),
        (
            "\u8bf7\u95ee\u201c\u5408\u8ba1\u201d\u662f\u591a\u5c11",
            "\u8bf7\u95ee\u5408\u8ba1\u662f\u591a\u5c11",
        ),  # between letters
        ("What's in 'I don't know'?", "What's in I don't know?"),
        ("Whose are the dogs' and the cats' bowls?", None),
        ('Is the 5" x 7" frame here?', None),
        ("Is f(x) in Population[4]?", None),
        ("Is a < 5 and b > 3, or 2 * 3 * 4?", None),
        ("What is :( or (?", None),
        ("Le \u00ab\u00a0Total\u00a0\u00bb est de combien ?", "Le Total est de combien ?"),
        ("Is it (x+1)(x-2), (3+4)*(5+6) or [0, 1) and (0, 1]?", None),
        ("Is x <5, y> 3, and is {name} there?", None),
        ("How many *** hotels have the rating *****?", None),
    ],
)
def test_only_marks_in_pairs_around_words_are_left_out(processor, said, asked):
    text = f"<|im_start|>user\n{IMAGE}{said}<|im_end|>\n"
    assert questions_of(text, processor.image_token, "last_user") == [said if asked is None else asked]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Which colour is it?\nA. red\nB. blue\nAnswer with the option's letter.", "Which colour is it?"),
        ("Which colour is it?\nOptions:\n(A) red\n(B) blue", "Which colour is it?"),
        ("Which colour is it? (A) red (B) dark blue (C) a.", "Which colour is it?"),
        ("Which colour is it?\na) red\nb) blue\nc) green\nAnswer:", "Which colour is it?"),
        ("Name the colour.\nChoices:\nA: red\nB: blue", "Name the colour."),
        ("Which colour is it?\nA.red\nB.blue", "Which colour is it?"),
        ("Which colour is it? A. red B. dark blue C. green\nAnswer with the option's letter.", "Which colour is it?"),
        ("Which colour is it? Options: A. red B. dark blue", "Which colour is it?"),
        ("What do these two earn? A. Smith, B. Jones", None),
        ("Who is A. B. Smith?", None),
        ("Is it by A. Smith or by B. Jones?", None),
        ("Is it by A. Smith? Or signed by A. Smith and B. Jones", None),
        ("Which colour is it?\nA. red", None),  # one is no choice
        ("Which colour is it?\nB. red\nC. blue", None),
        ("Read them:\nA. What is the tax?\nB. What is the total?", None),
        ("Extract the following fields:\na) invoice number\nb) date", None),  # asked for, not chosen from
        ("Could you extract the following fields?\na) invoice number\nb) date", None),
        ("What do these fields say?\nA. date\nB. city", None),
        ("Can you find these details? (A) date (B) city", "Can you find these details? A date B city"),
        (
            "Extract the fields? Answer with JSON only.\nOptions:\nA. date\nB. city",
            "Extract the fields? A. date B. city",
        ),
        ("Which field is empty?\nA. date\nB. city", "Which field is empty?"),
        ("Find these people.\nA. Smith\nB. Jones", None),
        ("Is f (a) smooth and (b) even", "Is f a smooth and b even"),
        ("Which colour is it?\nA. red\nB. blue\nAlso tell me the number behind it.", None),
        ("Which colour is it? Answer with the option's letter.\nA. red\nB. blue", "Which colour is it?"),
        ("Name it. Think.\nOptions:\nA. red\nB. blue\nAnswer briefly.", "Name it. Think."),
        ("A. red\nB. blue", None),  # nothing else is asked
    ],
)
def test_options_of_multiple_choice_are_no_part_of_the_question(processor, page, said, asked):
    """They name what the page does not show as often as what it shows."""
    assert read_of(processor, page, said) == (said.replace("\n", " ") if asked is None else asked)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Which of the following is on the page?\nA. the total\nB. a date\nC. 12:30", "the total or a date or 12:30"),
        ("What is shown? (A) a red cat (B) dogs\nAnswer with the option's letter.", "a red cat or dogs"),
        ("Question: Which one?\nOptions: A. red B. blue", "red or blue"),
        ("Which of these is the total?\nA. 5\nB. 7", "Which of these is the total?"),
        ("Which of the following is on the page?", None),
    ],
)
def test_options_are_the_question_where_nothing_else_is_named(processor, page, said, asked):
    assert read_of(processor, page, said) == (said if asked is None else asked)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("What is the total shown on this page?", "What is the total?"),
        ("grand net total, as given in the document", "What's the grand net total?"),
        ("What is the date of this invoice?", "What is the date?"),
        ("What is the total on my receipt?", "What is the total?"),
        ("What is the total? It is shown in the image.", "What is the total?"),
        ("What is the price of the screen?", None),
        ("How many bars are there in the picture? Answer briefly.", "How many bars are there?"),
        ("What is the total as shown in the image above?", "What is the total?"),
        ("Who signed, according to the provided document", "Who signed"),
        ("What is the due date in the attached picture?", "What is the due date?"),
        ("Who is in the given name column?", None),
        ("What is written according to the image above?", None),
        ("What is the date of this document?", "What is the date?"),
        ("Who is the author of the attached document?", "Who is the author?"),
        ("What is the purpose of this document?", None),
        ("Describe the main part of the image.", None),
        ("Which date is on the page of the picture?", None),
        ("In this image, what is the total?", None),
        ("What is written on the page?", None),  # names nothing else
        ("What shapes are on this page?", None),
        ("What kinds of things are shown in this picture?", None),
        ("What is the total of all that is listed on this page?", "What is the total of all?"),
        ("What's in this image?", None),
        ("Tell me what is in the image.", None),
        ("Who is in the picture?", None),
        ("What is the title of this document?", None),
        ("Who is on the picture frame?", None),
        ("What is in the Screen column?", None),
    ],
)
def test_that_it_is_in_the_picture_is_no_part_of_the_question(processor, page, said, asked):
    assert read_of(processor, page, said) == (said if asked is None else asked)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("total", "What's the total?"),
        ("the Due date?", "What's the due date? Due date"),
        ("**net total**:", "What's the net total?"),
        ("price please, shown on the page", "What's the price please?"),
        ("TOTAL", "What's the total? TOTAL"),
        ("NET TOTAL:", "What's the net total? NET TOTAL"),
        ("First name", "What's the first name? First name"),
        ("price list", "What's the price list?"),
        ("Describe.", None),
        ("Transcribe", None),
        ("Summarize this", None),
        ("Extract text", None),
        ("Thank you", None),
        ("Please transcribe.", None),
        ("Thoroughly describe.", None),
        ("Free OCR.", None),
        ("Please list", None),
        ("Parse table", None),
        ("More details.", None),
        ("Print all text", None),
        ("Write everything", None),
        ("Get total", None),
        ("Please", None),
        ("Good morning", None),
        ("goods returned", "What's the goods returned?"),
        ("weekly list", "What's the weekly list?"),
        ("name colors", None),
        ("total of tea", None),
        ("grand net total", "What's the grand net total?"),
        ("invoice no.", "What's the invoice no?"),
        ("no", None),
        ("grand net total sum", None),
        ("name: total", None),
        ("row 5", None),
        ("Anna's age", None),
        ("\u5408\u8ba1", None),
        ("Gr\u00f6\u00dfe?", None),
        ("the", None),
        ("???", None),
    ],
)
def test_a_name_alone_is_read_in_a_sentence(processor, page, said, asked):
    """As the prompt's last turn and as a call's `question`."""
    assert read_of(processor, page, said) == (said if asked is None else asked)
    assert given_questions(said.split(",")[0], 1) == [said if asked is None else asked]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("WHAT IS THE TOTAL OF AB12?", "What is the total of ab12? WHAT IS THE TOTAL OF AB12?"),
        ("H\u00d6HE\nDES TURMS?", "H\u00f6he des turms? H\u00d6HE DES TURMS?"),
        ("What is the TOTAL of it?", None),
        ("GRAND NET TOTAL", "What's the grand net total? GRAND NET TOTAL"),
        ("12 + 12 = ?", None),
    ],
)
def test_a_question_in_capitals_is_read_in_small_letters_too(processor, page, said, asked):
    assert read_of(processor, page, said) == (said if asked is None else asked)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("What is my total?", "What is the total?"),
        ("What's this total?", "What's the total?"),
        ("What is the price of this room?", "What is the price of the room?"),
        ("What is this?", None),
        ("What kind of page is this please?", None),
        ("What is the date of this page", "What is the date"),
        ("Here is my ticket, which seat is it?", None),
        ("Look at the row. What is its year?", None),  # of what stands before
    ],
)
def test_whose_it_is_no_cell_says(processor, page, said, asked):
    assert read_of(processor, page, said) == (said if asked is None else asked)


@pytest.mark.parametrize(
    "said",
    ["Are you sure?", "Please try again.", "Answer in one word.", "Thanks! Can you say that in German?", "ok", "Only the number.",
     "As a list.", "In JSON please.", "Why do you think so?", "Please look more carefully.", "Explain your answer.", "Hmm.",
     "Just the number please", "Are you 100% sure?", "Where did you find it?", "Here is the picture again: see above"],
)  # fmt: skip
def test_what_goes_on_about_a_question_is_read_as_it(said, processor, page):
    chat = [
        {"role": "user", "content": [{"type": "image", "image": page()}, {"type": "text", "text": "Which date is it?"}]}
    ]
    chat += [{"role": "assistant", "content": "5 May"}, {"role": "user", "content": said}]
    inputs = processor.apply_chat_template(chat, tokenize=True, return_dict=True, return_tensors="pt")
    assert questions(processor, inputs) == ["Which date is it?"]
    for other in (
        "And the total?", "How much is it?", "Is it in English?", "Is there a table?", "Can you find a list?", "Is that French?",
        "Is there anything in Spanish?", "Find 100",
    ):  # fmt: skip
        chat[-1]["content"] = other
        inputs = processor.apply_chat_template(chat, tokenize=True, return_dict=True, return_tensors="pt")
        assert questions(processor, inputs) == [other]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("What is this about?", "What is this about?"),
        ("When is this due?", "When is this due?"),
        ("What is this due date?", "What is the due date?"),
        ("Which part of this was paid?", "Which part of this was paid?"),
        ("How much of this did he pay?", "How much of this did he pay?"),
        ("Click Save", "Click Save"),
        ("Any errors?", "Any errors?"),
        ("\u56fe\u4e2d\u6709\u51e0\u4e2a ABC?", "\u56fe\u4e2d\u6709\u51e0\u4e2a ABC?"),
        ("WHAT IS THE TOTAL OF AB12?", "What is the total of ab12? WHAT IS THE TOTAL OF AB12?"),
        ("Can you tell me which of these is true?\nA. It is red\nB. It is blue", "It is red or It is blue"),
        ("What does the picture contain?\nA. a cat\nB. a dog", "a cat or a dog"),
        ("Which is the last name?\nA. Smith\nB. Jones", "Which is the last name?"),
        ("What is this all about?", "What is this all about?"),
        ("Which is bigger?\nA. Norway\nB. Chad", "Which is bigger? A. Norway\nB. Chad"),
        ("Which of these is the total?\nA. 5\nB. 7", "Which of these is the total?"),
        (
            "Can you give me the following?\na) the IBAN\nb) the BIC",
            "Can you give me the following? a) the IBAN\nb) the BIC",
        ),
        ("Which field is empty?\nA. name\nB. date", "Which field is empty?"),
        (
            "What does the man hold?\nThere are several options:\nA. a cup\nB. a pen\nAnswer with the letter.",
            "What does the man hold?",
        ),
        ("What does the man hold? Here are the options:\nA. a cup\nB. a pen", "What does the man hold?"),
        ("What is the total?\nThe best answer is: ", "What is the total?"),
        (
            "what is the amount of total_price? Answer this question using the text in the image directly.",
            "what is the amount of total_price?",
        ),
        (
            "Extract the following fields from this invoice:\n- Invoice number\n- Supplier VAT ID\n- Net amount\n\n"
            "Return the result as valid JSON without any markdown fences. If a field is missing, use null. Do not invent values "
            "and do not add a text of your own.",
            "Extract the following fields from this invoice: - Invoice number - Supplier VAT ID - Net amount Do not invent values "
            "and do not add a text of your own.",
        ),
        (
            "Compare the revenue of 2018 and 2019 in the table. I have to tell my colleagues by tomorrow which of the two was the "
            "better one for us, and they do not have this page themselves. Can you do that?",
            "Compare the revenue of 2018 and 2019 in the table. Can you do that?",
        ),
    ],
)
def test_what_names_what_is_asked_stays(processor, page, said, asked):
    assert read_of(processor, page, said) == " ".join(asked.split())


def test_a_long_turn_of_the_system_that_tells_what_to_extract_is_read(processor, page):
    told = (
        "Extract the vendor, the date, and the total from the picture that the user sends. "
        + "Do not guess at all. " * 9
    )
    chat = [{"role": "system", "content": told}, {"role": "user", "content": [{"type": "image", "image": page()}]}]
    inputs = processor.apply_chat_template(chat, tokenize=True, return_dict=True, return_tensors="pt")
    assert questions(processor, inputs)[0].startswith("Extract the vendor, the date, and the total")
    chat[0]["content"] = (
        "You are a helpful assistant. Give detailed and accurate answers with sources. " + "Be polite always. " * 12
    )
    inputs = processor.apply_chat_template(chat, tokenize=True, return_dict=True, return_tensors="pt")
    assert questions(processor, inputs) == [""]


@pytest.mark.parametrize(
    "repeated",
    [
        ". " + "so " * 40 + "\n- " + " " * 10**5 + "a b c d e f g h i j k l",
        "\nanswer" + " " * 10**5 + "x",
        "\nAnswer " + "a,b," * 25_000,
        "? options: " + " " * 10**5 + "x?",
        "?\n1. a\n" + "2. b\n" * 20_000 + "x",
    ],
)
def test_questions_of_many_characters_are_read_in_time(repeated):
    began = time.process_time()
    questions_of(f"<|image_pad|>What is the total?{repeated}", "<|image_pad|>", "last_user")
    assert time.process_time() - began < 5, "it took minutes where the time grew with the square of the length"


def test_a_turn_that_shows_a_picture_asks_nothing():
    def read(*turns: tuple[str, str]) -> str:
        chat = "".join(turn(role, said) for role, said in turns)
        (question,) = questions_of(chat.replace("IMAGE", IMAGE), "<|image_pad|>", "last_user")
        return question

    asked = "What is the colour?"
    for shows in (
        "Here is the image.",
        "Please process this.",
        "Answer in one word.",
        "Here you go: see the attached picture",
    ):
        assert read(("system", asked), ("user", f"IMAGE{shows}")) == asked
    assert read(("user", asked), ("assistant", "Please send it."), ("user", "IMAGEHere it is.")) == asked
    assert not read(("user", "IMAGEHere is the image."))  # as of a picture alone
    assert read(("system", asked), ("user", "IMAGEIs it here?")) == "Is it here?"
    assert read(("user", "Image 1: IMAGE\nWhat is the colour?")) == asked


@pytest.mark.parametrize("start", ["Answer: ", "Answer. ", "You are a. "])
def test_what_leads_to_a_question_is_read_in_time(start):
    began = time.process_time()
    questions_of(f"<|image_pad|>{start * 25_000}What is the total?", "<|image_pad|>", "last_user")
    assert time.process_time() - began < 5, "it took minutes where the time grew with the square of the length"


OPTIONS = "What is the colour?\nA. red\nB. blue\nC. green\nD. pink"


@pytest.mark.parametrize(
    "said",
    [
        *(f"{OPTIONS}\n{last}" for last in (
            "Answer with the letter.", "Letter only.", "Answer with A, B, C or D.", "Answer with a single capital letter.",
            "Respond with only the letter (A, B, C, or D) of the correct option.", "The best answer is:", "Your choice:",
            "Which one is correct?", "Pick the right one.",
        )),
        "**What is the colour?**\nA. red\nB. blue",
        "What is the colour?\n- [A] red\n- [B] blue",
        "What is the colour?\n**A.** red\n**B.** blue",
        '"What is the colour?" Answer in one word.',
        "**What is the colour?** Answer in one word.",
        "What is the colour? Short answer.",
        "What is the colour? Note: answer in one word.",
        "What is the colour? Provide only the answer, without any additional text.",
        "What is the colour? Your answer should be a single word.",
        "What is the colour? Answer based on the image.",
        "What is the colour? In one word.",
        "What is the colour? Don't guess.",
        *(f"What is the colour?{options}" for options in (
            " Options: red, blue, green", " Choose from: red, blue.", " Select one of the following: red | blue",
            " A: red, B: blue",
            " a) red b) blue c) green", "\n1. red\n2. blue\n3. green", "\ni) red\nii) blue", "\nChoices:\n- red\n- blue",
            "\nOption A: red\nOption B: blue", "\n(1) red\n(2) blue\nAnswer with the number of the correct option.",
            " (red / blue)", " (red, blue or light green)", " [red, blue]", ' ["red", "blue"]', '\n{"A": "red", "B": "blue"}',
            " red / blue / green", "\n- red\n- blue", "\n\u2022 red\n\u2022 blue", "\n| A | red |\n| B | blue |",
            " Choose one of red, blue.", "\nThe answer is one of: red, blue.", "\nCandidates: red; blue",
            "\n<options>red, blue</options>",
        )),
        *(f"{first}What is the colour?" for first in (
            "Options: A. red B. blue\nQuestion: ", "Options:\nA. red\nB. blue\n\n", "Choices: red, blue\n",
            "Choose from red, blue: ", "1. ", "Question 3 of 10: ", "Question #12 (easy): ", "# Question\n",
            "Context: a photo of a document.\nQuestion: ",
        )),
        "### Instruction:\nWhat is the colour?\n\n### Response:",
        *(f"What is the colour? {how}" for how in (
            "Limit your answer to 5 words.", "Your answer must be a single number.", "Return the bounding box as [x1, y1, x2, y2].",
            'Respond with a JSON object with the key "answer".', "Say 'none' if it isn't shown.", "Answer based only on the image.",
            "Answer the question based on the image above.", "Print only the answer.", "Do not hallucinate.", "Thanks in advance!",
            "First output the thinking process in <think> </think> tags.", "Also give your confidence from 0 to 1.",
            "Give the bounding box of the answer as [x1, y1, x2, y2].", "Do not use markdown.", "Nothing else.", "Copy it exactly.",
            'Return a JSON object like {"value": ..., "unit": ...}.', "Don't make up an answer.", "Reply in Simplified Chinese.",
            "Answer with the exact text span from the document.", "Explain your reasoning before answering.",
        )),
        *(f"{lead} What is the colour?" for lead in (
            "Answer in one word.", "Answer with a single word:", "Think step by step.", "Yes or no:",
            "You are a helpful assistant that reads documents. Answer briefly.",
        )),
    ],
)  # fmt: skip
def test_options_and_forms_of_answer_of_more_prompts(said, processor, page):
    assert read_of(processor, page, said) == "What is the colour?"


@pytest.mark.parametrize(
    "said",
    ["Could you find these two things for me?", "What do these two lines say?", "Would you mind checking two entries?",
     "What are the values of the following on my invoice?", "Can you fill this table?", "Can you find the following?"],
)  # fmt: skip
def test_what_is_listed_to_be_found_is_no_option(said, processor, page):
    assert (
        read_of(processor, page, f"{said}\na) invoice number\nb) due date") == f"{said} a) invoice number b) due date"
    )
    assert read_of(processor, page, "Which of these two is it?\na) red\nb) blue") == "Which of these two is it?"


@pytest.mark.parametrize(
    "said",
    ["What is the total (net / gross)", "What is the total? (without tax, in EUR)",
     "What is the total? (not the subtotal or the tax)", "Which is larger? (red / blue)", "2. Bundesliga: who won?",
     "What is listed?\n1. total\n2. date", "Was it paid in cash? It is due.", "Q3: what was earned?", "# Total\nof the bill"],
)  # fmt: skip
def test_what_says_more_of_a_question_is_no_option(said, processor, page):
    assert sorted(re.findall(r"\w+", read_of(processor, page, said))) == sorted(re.findall(r"\w+", said))


def test_the_numbers_of_several_questions_are_not_read(processor, page):
    for said in ("1. Who paid?\n2. What is due?", "1) Who paid? 2) What is due?"):
        assert read_of(processor, page, said) == "Who paid?\nWhat is due?"


@pytest.mark.parametrize(
    "last",
    ["Isn't it 30.15?", "I think it is Oslo.", "Is it 42?", "Great, thank you!", "continue", "Spell it out.", "please be quick",
     "Where is that on the page?"],
)  # fmt: skip
def test_a_turn_that_goes_on_about_an_answer_asks_what_was_asked(last, processor, page):
    before = f"<|im_start|>user\n{IMAGE}What is due?<|im_end|>\n<|im_start|>assistant\n30<|im_end|>\n"
    inputs = processor(text=f"{before}<|im_start|>user\n{last}<|im_end|>\n", images=page(), return_tensors="pt")
    assert questions(processor, inputs) == ["What is due?"]


@pytest.mark.parametrize(
    "last",
    [
        "Isn't it paid? Who signed it?",
        "Is it paid?",
        "Is it good?",
        "I think it is a bill. What is the total?",
        "Is it 42 or 30 EUR?",
        "I see that the total includes tax, what is the rate?",
        "It says net, how much is gross?",
        "I see it; find the date",
    ],
)
def test_a_turn_that_asks_anew_is_read(last, processor, page):
    before = f"<|im_start|>user\n{IMAGE}What is due?<|im_end|>\n<|im_start|>assistant\n30<|im_end|>\n"
    inputs = processor(text=f"{before}<|im_start|>user\n{last}<|im_end|>\n", images=page(), return_tensors="pt")
    assert questions(processor, inputs) == [last]


@pytest.mark.parametrize("shown", ["This one.", "ok, uploaded it now", "Sorry, I forgot to attach it. Here it is."])
def test_a_turn_that_brings_the_picture_late_asks_what_was_asked(shown, processor, page):
    text = f"<|im_start|>user\nWhat is due?<|im_end|>\n<|im_start|>user\n{IMAGE}{shown}<|im_end|>\n"
    assert questions(processor, processor(text=text, images=page(), return_tensors="pt")) == ["What is due?"]


@pytest.mark.parametrize("nested", [True, False], ids=["nested", "flat"])
def test_pictures_may_come_beside_a_chat(nested, processor, page):
    if not hasattr(Qwen3VLProcessor, "_prepare_processor_kwargs"):
        pytest.skip("this release of transformers reads no pictures beside a chat")
    said = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is due?"}]}]
    more = {"images": [page()], "token_budget": 9}
    more = {"processor_kwargs": more} if nested else more
    inputs = processor.apply_chat_template(said, tokenize=True, return_dict=True, return_tensors="pt", **more)
    assert questions(processor, inputs) == ["What is due?"]
    assert placeholders(processor, inputs) == [9]


@pytest.mark.parametrize("nested", [True, False], ids=["nested", "flat"])
def test_a_call_says_which_question_chooses(nested, processor, page, chat):
    told = {"token_budget": 9, "question": "the **total**\nof it"}
    told = {"processor_kwargs": told} if nested else told
    options = {"tokenize": True, "return_dict": True, "return_tensors": "pt"}
    found = processor.apply_chat_template(chat(page(), "Guess."), **options, **told)
    plain = processor.apply_chat_template(chat(page(), "Guess."), processor_kwargs={"token_budget": 9}, **options)
    asked = processor.apply_chat_template(chat(page(), "the total of it"), **options)
    assert torch.equal(found["query_input_ids"], asked["query_input_ids"])
    assert torch.equal(found["input_ids"], plain["input_ids"])  # the language model is asked what the prompt asks


def test_each_image_may_have_a_question_of_its_own(processor, page):
    text = f"<|im_start|>user\n{IMAGE}{IMAGE}What differs?<|im_end|>\n"
    found = processor(images=[page(), page()], text=text, question=["which date", ""], return_tensors="pt")
    asked = [
        ids[mask.bool()] for ids, mask in zip(found["query_input_ids"], found["query_attention_mask"], strict=True)
    ]
    assert [processor.decode(ids) for ids in asked] == ["which date", ""]
    assert processor(text="No image.", question="the date")["input_ids"]  # as with a budget


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (5, "question has 5; pass a text"),
        ([None], "question has None; pass a text"),
        (["a", "b"], "question has 2 texts for 1 images"),
        ([], "question has 0 texts for 1 images"),
        ("\ud800", "question holds half of a character"),
    ],
)
def test_what_is_no_question_is_refused(processor, page, question, said):
    with pytest.raises(ValueError, match=said):
        processor(images=page(), text=IMAGE, question=question, return_tensors="pt")


def test_a_question_named_twice_is_refused(processor, page, chat):
    with pytest.raises(ValueError, match="question came as 'a' and in processor_kwargs as 'b'"):
        processor.apply_chat_template(
            chat(page(), "Guess."), tokenize=True, question="a", processor_kwargs={"question": "b"}
        )


@pytest.mark.parametrize("given", [{"token_budget": 9}, {"question": "the total"}])
def test_what_a_template_that_makes_text_alone_does_not_read_is_refused(processor, page, chat, given):
    name = next(iter(given))
    for told in (given, {"processor_kwargs": given}):
        with pytest.raises(TypeError, match=f"{name} counts for nothing with tokenize=False"):
            processor.apply_chat_template(chat(page()), **told)
    text = processor.apply_chat_template(chat(page()), None, add_generation_prompt=True, add_vision_id=True)
    assert ("Picture 1" in text, text.count("<|image_pad|>")) == (True, 1)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (lambda page: page, "is a Image, no part of a chat"),
        (lambda page: 5, "is a int, no part of a chat"),
        (lambda page: {"type": "img", "image": page}, "is of type 'img' and has a picture"),
        (lambda page: {"type": "input_image", "image_url": "page.png"}, "is of type 'input_image' and has a picture"),
        (
            lambda page: {"type": "image", "img": page},
            "is of type 'image' and has no picture under image, url, path or base64",
        ),
        (
            lambda page: {"type": "image", "image": None},
            "is of type 'image' and has no picture under image, url, path or base64",
        ),
        (lambda page: {"type": "text", "text": None}, "is of type 'text' and has no text"),
        (lambda page: {"image": page}, "has no type"),
        (lambda page: {"type": "text", "content": "how much?"}, "is of type 'text' and has no text"),
    ],
)
def test_a_part_of_a_chat_that_would_not_be_found_is_refused(processor, page, part, told):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ["how much?", part(page())]}]
    for chats in (chat, [chat]):
        with pytest.raises(ValueError, match=re.escape(f"content[1] of message 1 {told}; write ")):
            processor.apply_chat_template(chats, tokenize=True, return_dict=True)


def test_a_template_that_makes_text_alone_needs_no_picture(processor):
    parts = [{"type": "image"}, {"type": "text", "text": "how much?", "image": None}]
    assert "<|image_pad|>" in processor.apply_chat_template([{"role": "user", "content": parts}])


def test_blank_lines_cost_no_time(processor):
    """They had cost the third power of their number."""
    start = time.process_time()
    for blank in (
        "\n",
        " \n\t",
        "?",
        "\n<|im_start|>",
        "\nA. b",
        " (A) b",
        " [",
        ' "',
        "question:\n",
        "options: ",
        "\u201c",
        "\u00ab ",
    ):
        said = f"<|im_start|>user\n{IMAGE}what?{blank * 1500}thanks<|im_end|>\n"
        questions_of(said, processor.image_token, "last_user")
    instructions = "\nAnswer briefly." * 1500
    said = f"<|im_start|>user\n{IMAGE}what?{instructions}<|im_end|>\n"
    assert questions_of(said, processor.image_token, "last_user") == ["what?"]
    assert time.process_time() - start < 1


def test_the_time_of_many_instructions_grows_with_their_number(processor):
    start = time.process_time()
    said = "<|im_start|>user\n" + IMAGE + "What is it?" + "\nbe" * 100_000 + "<|im_end|>\n"
    assert questions_of(said, processor.image_token, "last_user") == ["What is it?"]
    assert time.process_time() - start < 3  # half a second; twelve where each is cut from a copy of all before it


@pytest.mark.parametrize("given", [{"token_budget": 64}, {"max_pixels": 100_000}, {"min_pixels": 4096}])
def test_what_is_given_while_loading_is_no_wrong_model_type(given, checkpoint):
    """The tokenizer reads the model's config with all that it is given, and warned of another model where that failed."""
    with CaptureLogger(logging.get_logger("transformers.configuration_utils")) as said:
        loaded = ARRCOCProcessor.from_pretrained(checkpoint, **given)
    assert said.out == ""
    sizes = {
        "max_pixels": loaded.image_processor.size["longest_edge"],
        "min_pixels": loaded.image_processor.size["shortest_edge"],
    }
    assert (sizes | {"token_budget": loaded.token_budget}).items() >= given.items()


def test_texts_before_and_behind_a_picture_are_two(processor):
    said = turn("user", f"Page 1{IMAGE}Page 2{IMAGE}what?")
    assert questions_of(said, processor.image_token, "last_user") == ["Page 1 Page 2 what?"] * 2


def test_questions_of_a_batch_go_to_its_own_images(processor, page):
    text = [turn("user", IMAGE + "who first?"), turn("user", "no image"), turn("user", IMAGE * 2 + "who third?")]
    inputs = processor(images=[page()] * 3, text=text, token_budget=4, padding=True, return_tensors="pt")
    assert questions(processor, inputs) == ["who first?", "who third?", "who third?"]


def test_a_batch_may_hold_prompts_without_images(processor, page):
    text = [turn("user", "no image"), turn("user", IMAGE + "what?")]
    inputs = processor(images=[[], [page()]], text=text, token_budget=4, padding=True, return_tensors="pt")
    assert placeholders(processor, inputs) == [0, 4]
    assert questions(processor, inputs) == ["what?"]


def test_question_in_any_script(processor, page):
    """Every byte of the question arrives: the tokens decode to it."""
    for question in ("où est l'été?", "合計はいくらですか", "сколько?", "🙂 what?", "a_b c d e"):
        inputs = processor(images=page(), text=turn("user", IMAGE + question), token_budget=4, return_tensors="pt")
        assert questions(processor, inputs) == [question]


def test_control_tokens_that_a_user_typed(processor, page, chat):
    """A typed placeholder is no image once it is sanitized, and never part of the question."""
    messages = chat(page(), "what <|image_pad|> is it?")
    settings = {"tokenize": True, "return_dict": True, "return_tensors": "pt", "processor_kwargs": {"token_budget": 4}}
    with pytest.raises(ValueError, match=re.escape("2 <|image_pad|> tokens and 1 images")):
        processor.apply_chat_template(messages, **settings)
    if not hasattr(processor.tokenizer, "_mark_chat_inputs"):
        pytest.skip("this release of transformers can't sanitize")
    inputs = processor.apply_chat_template(messages, sanitize_control_tokens=True, **settings)
    assert placeholders(processor, inputs) == [4]
    assert questions(processor, inputs) == ["what is it?"]


# --- what a picture becomes


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "P", "L", "1", "CMYK", "YCbCr"])
def test_full_budget_pixels_are_stocks(processor, make_inputs, mode):
    picture = random_picture(97, 60).convert(mode)
    inputs = make_inputs(picture, token_budget="full")
    stock = processor.image_processor(picture, return_tensors="pt")
    assert torch.equal(inputs["pixel_values"], stock["pixel_values"])
    assert torch.equal(inputs["image_grid_thw"], stock["image_grid_thw"])
    assert inputs["image_token_counts"].item() == stock["image_grid_thw"].prod() // 4


def test_texture_image_by_hand(make_processor):
    """2 x 2 pixels to 32 x 32, bilinear: the first 8 rows and columns are pure, row 15 is 0.46875 of the way down."""
    corners = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 255]]], np.uint8)
    inputs = make_processor(texture_size=32)(images=Image.fromarray(corners), return_tensors="pt")
    (texture,) = inputs["texture_images"]
    assert texture.shape == (3, 32, 32)
    for row, rows in enumerate((slice(0, 8), slice(24, 32))):
        for column, columns in enumerate((slice(0, 8), slice(24, 32))):
            assert (texture[:, rows, columns] == torch.tensor(corners[row, column])[:, None, None]).all()
    assert texture[:, 15, 0].tolist() == [round(255 * (1 - 0.46875)), 0, round(255 * 0.46875)]


def test_a_texture_image_of_the_picture_s_own_size_is_the_picture():
    picture = random_picture(64, 64)
    assert torch.equal(square(picture, 64), torch.from_numpy(np.array(picture)).permute(2, 0, 1))


@pytest.mark.parametrize("size", [(40, 24), (64, 300), (200, 97), (255, 255), (256, 256), (700, 513)])
def test_a_square_is_what_pil_makes_of_the_picture(size):
    """To a step of 255, below the size from which PIL reduces it before, and the same above."""
    picture = random_picture(*size)
    made = square(picture, 64).permute(1, 2, 0).int()
    pils = picture.resize((64, 64), Image.Resampling.BILINEAR, reducing_gap=2.0)
    most = (made - torch.from_numpy(np.array(pils)).int()).abs().max()
    assert most <= (max(size) < 256)


def test_arrays_and_tensors_are_pictures(processor):
    picture = random_picture(96, 64)
    rows = np.array(picture)
    tensor = torch.from_numpy(rows).permute(2, 0, 1)
    wanted = processor(images=picture, return_tensors="pt")
    forms = {
        "rows": rows,
        "channels first": rows.transpose(2, 0, 1),
        "tensor": tensor,
        "tensor of rows": torch.from_numpy(rows),
        "float to 255": rows.astype(np.float32),
        "float to 1": rows.astype(np.float64) / 255,
        "half to 1": tensor.half() / 255,
        "float tensor to 1": tensor / 255,
        "batch of one": rows[None],
        "batch of one tensor": tensor[None],
        "list": [rows],
        "nested list": [[tensor]],
        "float beyond 1 by rounding": rows.astype(np.float32) / 255 * (1 + 1e-6),
        "tuple": (picture,),
    }
    for name, form in forms.items():
        assert same(processor(images=form, return_tensors="pt"), wanted), name
    grey = rows[..., 0]
    wanted = processor(images=Image.fromarray(grey), return_tensors="pt")
    for form in (grey, grey[..., None], grey[None], torch.from_numpy(grey.copy())):
        assert same(processor(images=form, return_tensors="pt"), wanted)


def test_list_forms_of_a_batch(processor, page):
    """Flat, one list per prompt, and a single image for a single prompt give the same inputs."""
    pictures = [page(128, 96), page(64, 64)]
    text = [turn("user", IMAGE + "what?")] * 2

    def call(images, text):
        return processor(images=images, text=text, token_budget=4, padding=True, return_tensors="pt")

    flat = call(pictures, text)
    assert same(flat, call([[picture] for picture in pictures], text))
    assert same(flat, call(tuple(pictures), tuple(text)))
    assert same(call(pictures[0], text[0]), call([pictures[0]], text[:1]))


def test_files_urls_and_paths(processor, page, tmp_path):
    page().save(tmp_path / "page.png")
    wanted = processor(images=page(), return_tensors="pt")
    assert same(processor(images=tmp_path / "page.png", return_tensors="pt"), wanted)
    assert same(processor(images=str(tmp_path / "page.png"), return_tensors="pt"), wanted)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *unused):
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    """The address of a server of the files in `tmp_path`."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    handler = functools.partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_picture_at_a_url_is_the_one_of_the_file(processor, page, chat, tmp_path, served):
    """transformers' own `load_image` would make a transparent page black, and one of 16 bits white."""
    ink = page().convert("L").point(lambda value: 255 - value)
    clear = Image.new("RGBA", ink.size, (0, 0, 0, 0))
    clear.putalpha(ink)
    clear.save(tmp_path / "clear.png")
    Image.fromarray(np.array(page().convert("L")).astype(np.uint16) * 200).save(tmp_path / "deep.png")
    for name in ("clear.png", "deep.png"):
        wanted = processor(images=tmp_path / name, return_tensors="pt")
        assert same(processor(images=f"{served}/{name}", return_tensors="pt"), wanted)
    assert wanted["texture_images"].float().std() > 1
    options = {"tokenize": True, "return_dict": True, "return_tensors": "pt"}
    options["processor_kwargs"] = {"token_budget": 3, "question": ["tax"]}
    prompts = [processor.apply_chat_template(chat([f"{where}/deep.png"]), **options) for where in (served, tmp_path)]
    assert same(*prompts)


def test_a_url_without_a_picture_is_told(processor, tmp_path, served):
    (tmp_path / "page.html").write_text("<html>")
    for path, says in (("none.png", "can't be fetched .*404"), ("page.html", "is not a picture that PIL reads")):
        with pytest.raises(ValueError, match=f"the picture at {served}/{path} {says}"):
            processor(images=[f"{served}/{path}"], return_tensors="pt")
    with pytest.raises(
        ValueError, match=r"the picture at http://127\.0\.0\.1:1/x\.png can't be fetched .*check the address"
    ):
        open_picture("http://127.0.0.1:1/x.png")


def test_base64_text_is_a_picture(processor, page, tmp_path):
    page().save(tmp_path / "page.png")
    text = base64.b64encode((tmp_path / "page.png").read_bytes()).decode()
    wanted = processor(images=page(), return_tensors="pt")
    assert same(processor(images=text, return_tensors="pt"), wanted)
    for address in ("data:image/png;base64," + text, "DATA:image/png;BASE64," + quote(text, safe="")):
        assert same(processor(images=address, return_tensors="pt"), wanted)
    assert same(processor(images=f"FILE://{tmp_path / 'page.png'}", return_tensors="pt"), wanted)
    Image.new("L", (8, 8)).save(tmp_path / "small.png")
    lines = base64.encodebytes((tmp_path / "small.png").read_bytes()).decode()
    assert lines.count("\n") == 2
    assert processor(images=lines, return_tensors="pt")["image_grid_thw"].shape == (1, 3)


@pytest.mark.parametrize("budget", [None, [64], "huge", 0])
def test_a_default_budget_that_is_none_says_what_is_one(budget, processor):
    processor = copy.deepcopy(processor)
    processor.token_budget = budget
    with pytest.raises(
        ValueError, match=r"token_budget=.* is not a budget for any image; pass a whole .* 'auto' or 'full'$"
    ):
        processor(text="where?", return_tensors="pt")


def test_shape_that_does_not_tell_its_channels(processor):
    rows = np.array(random_picture(40, 3))  # (3, 40, 3)
    with pytest.raises(ValueError, match=r"\(3, 40, 3\), whose channels may be first or last; pass input_data_format"):
        processor(images=rows, return_tensors="pt")
    last = processor(images=rows, input_data_format="channels_last", return_tensors="pt")
    assert same(last, processor(images=random_picture(40, 3), return_tensors="pt"))
    nested = {"input_data_format": "channels_first"}
    first = processor(images=rows, images_kwargs=nested, return_tensors="pt")
    assert same(
        first, processor(images=rows.transpose(1, 2, 0).copy(), input_data_format="channels_last", return_tensors="pt")
    )
    assert nested == {"input_data_format": "channels_first"}
    final = processor(images=rows, input_data_format="channels_last", do_rescale=False, return_tensors="pt")
    assert torch.equal(final["texture_images"], last["texture_images"])


def test_batches_of_arrays_stand_beside_each_other(processor):
    rows = np.stack([np.array(random_picture(64, 32, seed)) for seed in range(3)])
    wanted = processor(images=list(rows), return_tensors="pt")
    for form in ([rows[:2], rows[2:]], [rows[:2], rows[2]], [rows[:2], Image.fromarray(rows[2])], rows):
        assert same(processor(images=form, return_tensors="pt"), wanted)


def test_no_video_is_no_video(processor, page):
    wanted = processor(images=page(), text=IMAGE + "what?", token_budget=4, return_tensors="pt")
    assert same(processor(images=page(), text=IMAGE + "what?", videos=[], token_budget=4, return_tensors="pt"), wanted)


@pytest.mark.parametrize("flat", [{"padding": True}, {"padding_side": "left"}, {"padding": True, "do_rescale": True}])
def test_a_budget_counts_beside_arguments_that_come_flat(flat, processor, page, chat):
    """Releases before 5.22 forget `processor_kwargs` there."""
    inputs = processor.apply_chat_template(
        [chat(page(), "what?")],
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"token_budget": 4},
        **flat,
    )
    assert placeholders(processor, inputs) == [4]


def test_the_callers_arguments_stay_as_they_were_and_name_one_budget(processor, page, chat):
    """transformers writes what it adds for itself into `processor_kwargs`."""
    given = {"token_budget": 4}
    asked = {"tokenize": True, "return_dict": True, "return_tensors": "pt", "processor_kwargs": given}
    processor.apply_chat_template(chat(page(), "what?"), **asked)
    assert given == {"token_budget": 4}
    with pytest.raises(ValueError, match="token_budget came as 9 and in processor_kwargs as 4"):
        processor.apply_chat_template(chat(page(), "what?"), **asked, token_budget=9)


def test_values_that_are_final_are_left_alone(processor, monkeypatch):
    """With do_rescale=False stock reads the array's own values: 1 is white."""
    rows = np.array(random_picture(64, 64)).astype(np.float32) / 255
    inputs = processor(images=rows, do_rescale=False, return_tensors="pt")
    stock = processor.image_processor(rows, do_rescale=False, return_tensors="pt")
    assert torch.equal(inputs["pixel_values"], stock["pixel_values"])
    assert torch.equal(inputs["texture_images"], processor(images=rows, return_tensors="pt")["texture_images"])
    own = processor(images=rows, rescale_factor=1.0, return_tensors="pt")
    assert torch.equal(own["pixel_values"], stock["pixel_values"])
    monkeypatch.setattr(processor.image_processor, "rescale_factor", 1.0)
    assert torch.equal(processor(images=rows, return_tensors="pt")["pixel_values"], stock["pixel_values"])
    grey = np.array(random_picture(64, 64))[..., 0]  # whole numbers are a picture whatever the factor
    assert processor(images=grey, rescale_factor=1 / 127.5, return_tensors="pt")["pixel_values"].max() > 2
    both = processor(images=[rows[None], rows], rescale_factor=1.0, return_tensors="pt")
    assert torch.equal(both["pixel_values"], torch.cat([stock["pixel_values"]] * 2))
    with pytest.raises(ValueError, match="`rescale_factor` must be specified"):
        processor(images=rows, rescale_factor=None, return_tensors="pt")


def test_floats_are_rounded_to_8_bits():
    """0.5 of 255 is 127.5, rounded to the even 128; above 1 the values are 8-bit values already."""
    assert np.array(to_pil(np.full((2, 2, 3), 0.5)))[0, 0].tolist() == [128] * 3
    assert np.array(to_pil(np.full((2, 2, 3), 200.0)))[0, 0].tolist() == [200] * 3


# --- the processor as an object


def test_threads_do_not_see_each_other(processor, page):
    """Two threads, two budgets, one processor, switching as often as Python allows."""
    pictures = [page(64, 64), page(64, 48)]
    text = [turn("user", IMAGE + question) for question in ("what?", "what is the total of the left column?")]
    wanted = {
        budget: processor(images=pictures, text=text, token_budget=budget, padding=True, return_tensors="pt")
        for budget in (3, 8)
    }
    errors, interval = [], sys.getswitchinterval()

    def work(budget):
        try:
            for _ in range(40):
                inputs = processor(images=pictures, text=text, token_budget=budget, padding=True, return_tensors="pt")
                assert same(inputs, wanted[budget])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(budget,)) for budget in (3, 8)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors


def test_a_call_sets_the_shared_tokenizer_once(processor, page, monkeypatch):
    """Questions are read with the text's own padding: another one would change the tokenizer under other threads."""
    kind, seen = type(processor.tokenizer), []
    original = kind.set_truncation_and_padding

    def record(self, *args, **kwargs):
        seen.append((args, tuple(sorted(kwargs.items()))))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(kind, "set_truncation_and_padding", record)
    settings = {"padding": True, "truncation": True, "max_length": 400, "padding_side": "left"}
    processor(images=page(), text=IMAGE + "what?", token_budget=4, **settings)
    processor(images=page(), text=IMAGE + "what?", token_budget=4, text_kwargs=settings)
    assert len(seen) == 4  # question and text, twice
    assert len(set(seen)) == 1


def test_a_call_leaves_nothing_on_the_processor(processor, page):
    before = dict(vars(processor))
    processor(images=page(), text=IMAGE + "what?", token_budget=4)
    assert vars(processor) == before


def test_round_trip_with_changed_dials(make_processor, make_inputs, page, tmp_path):
    processor = make_processor(token_budget="auto", texture_size=64, question_turn="image")
    processor.save_pretrained(tmp_path)
    again = ARRCOCProcessor.from_pretrained(tmp_path)
    assert (again.token_budget, again.texture_size, again.question_turn) == ("auto", 64, "image")
    assert again.chat_template == processor.chat_template
    assert same(make_inputs(page(), processor=again), make_inputs(page(), processor=processor))
    saved = json.loads((tmp_path / "processor_config.json").read_text())
    assert saved["auto_map"]["AutoProcessor"] == "processing_arrcoc.ARRCOCProcessor"
    assert saved["video_processor"]["patch_size"] == processor.image_processor.patch_size
    again = ARRCOCProcessor.from_pretrained(tmp_path, texture_size=np.int64(128))
    assert (again.texture_size, type(again.texture_size)) == (128, int)


@pytest.mark.parametrize("place", ["processor_config.json", "video_preprocessor_config.json"])
def test_settings_of_videos_outlive_an_installation_without_torchvision(place, make_processor, tmp_path):
    make_processor().save_pretrained(tmp_path / "first")
    settings = {
        "video_processor_type": "Qwen3VLVideoProcessor",
        "size": {"longest_edge": 7 << 20, "shortest_edge": 4096},
        "fps": 4,
    }
    written = json.loads((tmp_path / "first" / "processor_config.json").read_text())
    own = written.pop("video_processor")
    if place == "processor_config.json":
        written["video_processor"] = own | settings
    else:
        (tmp_path / "first" / place).write_text(json.dumps(own | settings))
    (tmp_path / "first" / "processor_config.json").write_text(json.dumps(written))
    processor = ARRCOCProcessor.from_pretrained(tmp_path / "first")
    copy.deepcopy(processor).save_pretrained(tmp_path / "second")
    saved = json.loads((tmp_path / "second" / "processor_config.json").read_text())
    kept = saved["video_processor"]
    assert {name: kept[name] for name in settings} == settings
    assert kept["patch_size"] == own["patch_size"]
    assert "_video_settings" not in saved


BAD_DIALS = [
    ("token_budget", 0),
    ("token_budget", None),
    ("token_budget", [64]),
    ("token_budget", "huge"),
    ("texture_size", 31),
    ("texture_size", 4097),
    ("texture_size", 512.0),
    ("texture_size", True),
    ("texture_size", "512"),
    ("question_turn", "first"),
    ("question_turn", None),
]


@pytest.mark.parametrize(("dial", "bad"), BAD_DIALS)
def test_bad_dials_are_refused(make_processor, page, dial, bad):
    """In the constructor, and, where they were assigned later, in the next call; repaired, it works."""
    with pytest.raises(ValueError, match=dial) as error:
        make_processor(**{dial: bad})
    assert repr(bad) in str(error.value)
    processor = make_processor()
    good = getattr(processor, dial)
    setattr(processor, dial, bad)
    with pytest.raises(ValueError, match=dial):
        processor(images=page(), text=IMAGE)
    setattr(processor, dial, good)
    assert "pixel_values" in processor(images=page(), text=IMAGE)


@pytest.mark.parametrize("name", ["token_budgets", "token_budgt", "tokenbudget", "budget", "visual_token_budget"])
def test_misspelt_argument_is_refused(processor, make_processor, chat, page, name):
    with pytest.raises(TypeError, match=f"{name} is not an argument of ARRCOCProcessor; did you mean token_budget"):
        processor(images=page(), text=IMAGE, **{name: 4})
    with pytest.raises(TypeError, match=name):
        processor.apply_chat_template(chat(page()), tokenize=True, return_dict=True, processor_kwargs={name: 4})
    with pytest.raises(TypeError, match=name):
        processor.apply_chat_template(chat(page()), tokenize=False, **{name: 4})
    with pytest.raises(TypeError, match=name):
        make_processor(**{name: 4})
    with pytest.raises(TypeError, match=name):
        ARRCOCProcessor(processor.image_processor, processor.tokenizer, **{name: 4})
    assert len(processor(images=page(), text=IMAGE, token_budget=4)["image_token_counts"]) == 1


def test_an_argument_of_the_models_calls_is_refused_wherever_the_processor_is_given_it(
    processor, make_processor, page, tmp_path
):
    own, told = make_processor(), "encode_ratio is an argument of the model's calls"
    own.save_pretrained(tmp_path)
    for given in (
        lambda: ARRCOCProcessor(processor.image_processor, processor.tokenizer, encode_ratio=0.3),
        lambda: ARRCOCProcessor.from_pretrained(tmp_path, encode_ratio=0.3),
        lambda: setattr(own, "encode_ratio", 0.3),
    ):
        with pytest.raises(TypeError, match=told):
            given()
    for given in (
        lambda: ARRCOCProcessor.from_pretrained(tmp_path, coverage_floor=0.3),
        lambda: own(images=page(), text=IMAGE, coverage_floor=0.3),
    ):
        with pytest.raises(TypeError, match="coverage_floor is a dial of the model, not of the processor; pass it to"):
            given()
    with pytest.raises(TypeError, match=r"questions is not an argument of ARRCOCProcessor; did you mean question\?"):
        own(images=page(), text=IMAGE, questions=["date?"])
    with pytest.raises(TypeError, match=r"token_bugdet is not an argument .* did you mean token_budget"):
        own.token_bugdet = 5
    own.token_budget, own.note = 5, "of the user's"
    assert (own.token_budget, own.note) == (5, "of the user's")


def test_misspelt_dial_in_the_folder_is_refused(make_processor, tmp_path):
    make_processor().save_pretrained(tmp_path)
    file = tmp_path / "processor_config.json"
    good = file.read_text()
    file.write_text(good.replace('"texture_size"', '"texture_sise"'))
    with pytest.raises(TypeError, match=r"texture_sise .* did you mean texture_size"):
        ARRCOCProcessor.from_pretrained(tmp_path)
    file.write_text(good)
    assert ARRCOCProcessor.from_pretrained(tmp_path).texture_size == 512


@pytest.mark.parametrize(("dial", "value"), [("texture_size", 64), ("question_turn", "image")])
def test_dials_of_the_processor_are_no_arguments_of_a_call(processor, page, dial, value):
    with pytest.raises(TypeError, match=f"set it on the processor: processor.{dial}"):
        processor(images=page(), text=IMAGE, **{dial: value})


def test_numbers_for_serving_engines(processor, make_processor, page):
    """What is reserved before a picture is there is what the picture then takes; "auto" may take its largest tier."""
    sizes = [(96, 128), (400, 400), (17, 300)]
    for budget in (1, 10, 100, "tiny", "full", None, [3, "full", 5]):
        reserved = processor._get_num_multimodal_tokens(image_sizes=sizes, token_budget=budget)
        pictures = [page(width, height) for height, width in sizes]
        inputs = processor(images=pictures, token_budget=budget, return_tensors="pt")
        assert reserved["num_image_tokens"] == inputs["image_token_counts"].tolist()
        assert reserved["num_image_patches"] == inputs["image_grid_thw"].prod(-1).tolist()
    auto = make_processor(token_budget="auto")._get_num_multimodal_tokens(image_sizes=sizes)
    assert auto["num_image_tokens"] == [48, 400, 19]
    assert processor._get_num_multimodal_tokens(image_sizes=[]).num_image_tokens == []
    assert processor._get_num_multimodal_tokens().num_image_tokens is None


def test_assistant_tokens_mask(processor, chat, page):
    """With a template that marks generations, the mask covers the answer and nothing else, whatever the budget."""
    template = (
        "{%- for message in messages -%}<|im_start|>{{ message.role }}\n"
        "{%- if message.role == 'assistant' -%}{% generation %}{{ message.content[0].text }}<|im_end|>{% endgeneration %}"
        "{%- else -%}{%- for part in message.content -%}{%- if part.type == 'image' -%}" + IMAGE + "{%- else -%}"
        "{{ part.text }}{%- endif -%}{%- endfor -%}<|im_end|>{%- endif -%}\n{%- endfor -%}"
    )
    messages = [*chat(page(), "what is it?"), {"role": "assistant", "content": [{"type": "text", "text": "a page"}]}]
    for budget in (1, 9, "full"):
        inputs = processor.apply_chat_template(
            messages,
            chat_template=template,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            return_assistant_tokens_mask=True,
            processor_kwargs={"token_budget": budget},
        )
        mask = inputs["assistant_masks"].bool()
        assert mask.shape == inputs["input_ids"].shape
        assert processor.tokenizer.decode(inputs["input_ids"][mask]) == "a page<|im_end|>"


def test_labels_are_as_long_as_the_prompt(processor, make_inputs, page):
    """The usual labels, with placeholders and padding masked, need nothing but `input_ids`."""
    inputs = make_inputs([page(), page(64, 64)], token_budget=[5, 2])
    labels = inputs["input_ids"].masked_fill(inputs["mm_token_type_ids"] == 1, -100)
    labels = labels.masked_fill(inputs["attention_mask"] == 0, -100)
    assert labels.shape == inputs["input_ids"].shape
    assert processor.image_token_id not in labels


def test_a_budget_in_a_group_is_refused_and_one_of_numpy_can_be_saved(processor, make_processor, page, tmp_path):
    for group in ("text_kwargs", "images_kwargs", "common_kwargs"):
        with pytest.raises(TypeError, match=f"token_budget is not an argument of {group}; pass token_budget beside"):
            processor(images=page(), text=IMAGE, **{group: {"token_budget": 5}})
    with pytest.raises(ValueError, match="token_budget='bogus'"):
        processor(text="no image at all", token_budget="bogus")
    processor = make_processor()
    processor.token_budget = np.int64(9)
    processor.save_pretrained(tmp_path)
    assert ARRCOCProcessor.from_pretrained(tmp_path).token_budget == 9


def test_a_group_that_is_none_says_nothing(processor, page):
    expected = processor(images=page(), text=IMAGE, token_budget=5)
    for group in ("images_kwargs", "videos_kwargs", "common_kwargs"):
        came = processor(images=page(), text=IMAGE, token_budget=5, **{group: None})
        assert came["input_ids"] == expected["input_ids"]


@pytest.mark.parametrize("given", [{"encode_ratio": 0.5}, {"images_kwargs": {"allocation_mode": "foveated"}}])
def test_arguments_of_the_model_are_refused(given, processor, page):
    with pytest.raises(TypeError, match="generate_kwargs="):
        processor(images=[page()], text=[processor.image_token], token_budget=9, **given)
