"""The drawn world, its tokenizer, and that training runs, saves and resumes."""

import gc
import json
import math
import re
import subprocess
import sys
import weakref
from collections import Counter
from functools import lru_cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.utils import is_torchvision_available

from training import steps, train_base
from training.allocator_data import make_source
from training.base_model import HEADS, VOCABULARY, build_model, export
from training.batches import (
    GLYPHS,
    IGNORED,
    conversation,
    glyph_targets,
    image_start,
    key_targets,
    labelled_places,
    make_batch,
    opens_answer,
    patches,
)
from training.curriculum import STAGES
from training.speed import POINTER_LAYERS, one_grid, speed_up
from training.steps import WEIGHTS, _positions, exact_matches
from training.tokenizer import SPECIAL_TOKENS, build_tokenizer
from training.world import KINDS, Question, Style, layout_split, layouts, make_page, named_boxes, value_split, words
from training.world.__main__ import write
from training.world.asking import ask_absent
from training.world.fonts import HELD_OUT_FONTS, TRAIN_FONTS, load_font

ROOT = Path(__file__).resolve().parents[1]
GRIDS = ((8, 8), (8, 12), (10, 10), (12, 12), (9, 14))
CONTENTS_WITH_LAYOUTS = ("fields", "form", "table", "chart", "scene")
# families whose answers are written on the page, character by character, and those whose answers are drawn values
WRITTEN = {
    "one_field", "several_fields", "sign", "form", "table", "table_reverse", "chart", "chart_extreme", "crowded",
    "corner", "near_identical", "small_print", "noise", "empty_complex",
}  # fmt: skip
VALUED = WRITTEN - {"sign", "table_reverse", "chart_extreme"}
FOUND = {"table_reverse", "chart_extreme"}  # by a value, which is evidence too
SEEN = {"shape_colour", "colour_shape", "counting"}
PLACELESS = {"gist", "absent"}

_PRINT_PAGES = """
import hashlib
from training.world import KINDS, make_page
page_hash = hashlib.sha256()
for kind, style in KINDS.items():
    page = make_page(3, "train", (10, 10), style)
    page_hash.update(page.image.tobytes() + repr((page.questions, page.glyphs, page.things)).encode())
print(page_hash.hexdigest())
"""


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@lru_cache(maxsize=64)
def _pages(kind, split="held_out", count=15):
    return [make_page(seed, split, GRIDS[seed % len(GRIDS)], KINDS[kind]) for seed in range(count)]


def _all_questions(family):
    return [
        (page, question)
        for kind in KINDS
        for split in ("train", "held_out")
        for page in _pages(kind, split)
        for question in page.questions
        if question.family == family
    ]


def _read(page, box):
    inside = [(x, c) for c, x, y in page.glyphs if box[0] <= x < box[2] and box[1] <= y < box[3]]
    return "".join(character for _, character in sorted(inside))


def _named(page, *names):
    """The boxes of the things that have all of these names."""
    return [thing.box for thing in page.things if set(names) <= set(thing.names)]


def _words_of(question, choices):
    """Those of the choices that the question says, as whole words, the longest first."""
    text, found = question.text.lower(), []
    for choice in sorted(choices, key=len, reverse=True):
        if re.search(rf"(?<!\w){choice.lower()}(?!\w)", text):
            found.append(choice)
            text = text.replace(choice.lower(), "#", 1)
    return found


def test_same_seed_gives_the_same_page_in_a_fresh_process():
    runs = [
        subprocess.run(
            [sys.executable, "-c", _PRINT_PAGES], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert make_page(1).image.tobytes() != make_page(2).image.tobytes()


@pytest.mark.parametrize("content", CONTENTS_WITH_LAYOUTS)
def test_splits_share_no_layout_and_every_part_of_a_held_out_layout_occurs_in_training(content):
    train, held_out = layouts("train", content), layouts("held_out", content)
    assert set(train).isdisjoint(held_out)
    assert train
    assert held_out
    for name in vars(train[0]):
        assert {getattr(layout, name) for layout in held_out} <= {getattr(layout, name) for layout in train}


@pytest.mark.parametrize("kind", KINDS)
def test_pages_hold_layouts_and_values_of_their_split_only(kind):
    for split in ("train", "held_out"):
        for page in _pages(kind, split):
            assert layout_split(page.layout) == split
            for question in page.questions:
                if question.family in VALUED:
                    assert value_split(question.answer) == split


@pytest.mark.parametrize("kind", KINDS)
def test_places_are_on_the_page_and_answers_are_read_where_they_stand(kind):
    for page in _pages(kind):
        assert page.questions
        pixels = np.asarray(page.image.convert("L"), dtype=float)
        for left, top, right, bottom in [box for q in page.questions for box in q.evidence] + [
            thing.box for thing in page.things
        ]:
            assert 0 <= left < right <= page.image.width
            assert 0 <= top < bottom <= page.image.height
        for question in page.questions:
            if question.family in WRITTEN:
                box, *by = question.evidence
                assert len(by) == (question.family in FOUND)
                assert _read(page, box) == question.answer
                assert len(question.reads) == len(question.answer)
                assert pixels[box[1] : box[3], box[0] : box[2]].std() > 5
                if by:
                    assert _read(page, by[0]).isdigit() or _read(page, by[0]) in question.text
                for (x, y), *others in question.reads:
                    assert len(others) == sum(len(_read(page, place)) for place in by)
                    assert box[0] <= x < box[2]
                    assert box[1] <= y < box[3]
            elif question.family in SEEN and question.evidence:
                points = tuple(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2) for box in question.evidence)
                assert question.reads == (points,) * len(question.answer)
            else:
                assert (question.evidence, question.reads) == ((), ())
                assert question.family in PLACELESS or question.answer == "0"


@pytest.mark.parametrize("kind", KINDS)
def test_things_have_known_names_and_questions_are_asked_once(kind):
    assert len(words.KEYS) == len(set(words.KEYS)) <= 130
    for page in _pages(kind):
        assert {name for thing in page.things for name in thing.names} <= set(words.KEYS)
        assert {character for character, _, _ in page.glyphs} <= set(GLYPHS)
        assert len({question.text for question in page.questions}) == len(page.questions)


def test_a_page_without_its_things_is_blank_paper():
    # worked out on the pixels: on a page without frames or clutter, all ink is inside the things' boxes
    for seed in range(300):
        page = make_page(seed, "train", (8, 12), Style(clutter=(0, 0)))
        if page.layout.frame == "none":
            pixels = np.asarray(page.image).copy()
            paper = pixels[0, 0].copy()
            for left, top, right, bottom in (thing.box for thing in page.things):
                ink = np.abs(pixels[top:bottom, left:right].astype(int) - paper).sum(-1) > 0
                # each side of the box touches ink
                assert all(side.any() for side in (ink[0], ink[-1], ink[:, 0], ink[:, -1])), seed
                pixels[top:bottom, left:right] = paper
            assert (pixels == paper).all(), seed


@pytest.mark.parametrize("family", sorted(VALUED - {"table", "chart", "empty_complex"}))
def test_a_field_is_the_only_one_of_its_label(family):
    asked = _all_questions(family)
    assert asked
    for page, question in asked:
        label = _words_of(question, words.LABELS)[0]
        boxes = _named(page, label)
        assert len(boxes) == 2  # the label and the value
        assert question.evidence[0] in boxes


def test_either_questions_ask_for_the_first_label_that_is_there():
    there = Counter()
    for page, question in _all_questions("empty_complex"):
        first, second = re.fullmatch(r"What is the (.*) or, if there is none, the (.*)\?", question.text).groups()
        names = {name.lower(): name for thing in page.things for name in thing.names}
        label = names.get(first) or names[second]
        assert question.evidence[0] in _named(page, label)
        there[first in names, second in names] += 1
    assert set(there) == {(True, True), (True, False), (False, True)}


def test_an_absent_label_is_not_on_the_page_nor_like_one_that_is():
    for page, question in _all_questions("absent"):
        assert question.answer == "none"
        present = {name for thing in page.things for name in thing.names}
        rows = _words_of(question, words.ROW_NAMES)
        asked = rows[0] if rows else _words_of(question, words.LABELS)[0]
        assert asked not in present
        assert rows or not any(words.alike(asked, name) for name in present & set(words.LABELS))


def test_table_cells_are_found_by_row_and_column_and_rows_by_a_value():
    assert all(_named(page, *_words_of(q, words.ROW_NAMES), *_words_of(q, words.COLUMNS)) == [*q.evidence]
               for page, q in _all_questions("table"))  # fmt: skip
    for page, question in _all_questions("table_reverse"):
        (column,) = _words_of(question, words.COLUMNS)
        value = question.text.rstrip("?").split()[-1]
        rows = [
            thing.names[0]
            for thing in page.things
            if len(thing.names) == 2 and thing.names[1] == column and _read(page, thing.box) == value
        ]
        assert rows == [question.answer]
        assert question.answer in words.ROWS[_words_of(question, words.ROWS)[0]]


def test_chart_values_stand_at_their_bars_and_bars_are_as_high_as_their_values():
    for page in _pages("chart") + _pages("chart", "train"):
        values = {_words_of(q, (*words.MONTHS, *words.ROW_NAMES))[0]: q for q in page.questions if q.family == "chart"}
        assert len(values) >= 3
        lengths = {}
        for label, question in values.items():
            boxes = _named(page, label)
            assert len(boxes) == 3
            (bar,) = [box for box in boxes if _read(page, box) not in (label, question.answer)]
            lengths[label] = bar[3] - bar[1] if page.layout.direction == "up" else bar[2] - bar[0]
        numbers = {label: int(question.answer) for label, question in values.items()}
        longest = max(lengths.values())
        for label, length in lengths.items():
            assert abs(length - max(3, longest * numbers[label] / max(numbers.values()))) <= 1.5
        for question in page.questions:
            if question.family == "chart_extreme":
                pick = max if "highest" in question.text else min
                assert question.answer == pick(numbers, key=numbers.get)


def test_shapes_have_the_colour_asked_for_and_are_alone_or_counted():
    counts = Counter()
    for family in SEEN:
        for page, question in _all_questions(family):
            if family == "counting":
                (kind,) = [k for k in words.SHAPES if words.PLURALS[k] in question.text]
                assert sorted(question.evidence) == sorted(_named(page, kind))
                assert question.answer == str(len(question.evidence))
                counts[question.answer] += 1
                continue
            asked = _words_of(question, words.SHAPES if family == "shape_colour" else words.COLOURS)[0]
            assert _named(page, asked) == [*question.evidence]
            (left, top, right, bottom), colour = question.evidence[0], question.answer
            colour = colour if family == "shape_colour" else asked
            assert page.image.getpixel(((left + right) // 2, (top + bottom) // 2)) == words.COLOURS[colour]
    assert set("0123") <= set(counts) <= set("012345")


def test_gist_names_what_was_drawn():
    kinds = Counter(question.answer for page in _pages("gist", count=60) for question in page.questions)
    assert set(kinds) == set(words.PAGE_KINDS)
    for kind in ("form", "table", "chart", "scene"):
        assert {q.answer for page in _pages(kind) for q in page.questions if q.family == "gist"} == {kind}


def test_adversarial_pages_are_what_they_are_named_for():
    for page in _pages("corner"):
        for question in page.questions:
            left, top, right, bottom = question.evidence[0]
            assert min(left, page.image.width - right) < 64 or page.layout.arrangement != "apart"
            assert min(top, page.image.height - bottom) < 48
    for page in _pages("small_print"):
        heights = [box[3] - box[1] for question in page.questions for box in question.evidence]
        assert max(heights) <= 14
        assert len(page.glyphs) > sum(len(_read(page, thing.box)) for thing in page.things)
    for page in _pages("near_identical"):
        labels = {name for thing in page.things for name in thing.names}
        for question in page.questions:
            label = _words_of(question, words.LABELS)[0]
            assert any({label, other} in map(set, words.NEAR_LABELS) for other in labels)
    crowded = [len(make_page(seed, "train", (20, 20), KINDS["crowded"]).things) / 2 for seed in range(5)]
    assert min(crowded) >= 7


@pytest.mark.parametrize("kind", KINDS)
def test_small_and_large_pages_work(kind):
    smallest = (8, 8) if kind in ("table", "chart") else (6, 10)
    for cells in (smallest, (20, 20)):
        for seed in range(3):
            assert make_page(seed, "held_out", cells, KINDS[kind]).questions


@pytest.mark.parametrize("kind", ["form", "table", "chart", "scene"])
def test_a_scaled_page_scales_its_places(kind):
    full = make_page(3, "train", (12, 12), KINDS[kind])
    small = make_page(3, "train", (12, 12), KINDS[kind], shown=(6, 6))
    assert small.image.size == (96, 96)
    assert [q.text for q in small.questions] == [q.text for q in full.questions]
    boxes = [[b for q in page.questions for b in q.evidence] + [t.box for t in page.things] for page in (full, small)]
    assert np.abs(np.array(boxes[0]) / 2 - np.array(boxes[1])).max() <= 1
    points = [[p for q in page.questions for read in q.reads for p in read] for page in (full, small)]
    assert np.allclose(np.array(points[0]) / 2, np.array(points[1]))
    assert small.glyphs[0][1] == pytest.approx(full.glyphs[0][1] / 2)


def test_families_leave_only_their_questions():
    page = make_page(0, "train", (10, 10), Style(content="table", families=("table_reverse",)))
    assert {question.family for question in page.questions} == {"table_reverse"}
    assert ask_absent(Random(0), list(words.LABELS)) == []


def test_bad_arguments_say_what_is_allowed():
    with pytest.raises(ValueError, match="train, held_out"):
        make_page(0, "test")
    with pytest.raises(ValueError, match="at least 4 rows and 8 columns"):
        make_page(0, "train", (3, 8))
    with pytest.raises(ValueError, match="at least 8 rows and 8 columns"):
        make_page(0, "train", (6, 10), KINDS["table"])
    with pytest.raises(ValueError, match="crowded"):
        Style(content="busy")
    with pytest.raises(ValueError, match="another style"):
        make_page(0, "train", (8, 8), Style(families=("table",)))
    with pytest.raises(KeyError, match="roboto"):
        load_font("comic", 12)


def test_a_missing_font_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr("training.world.fonts.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[train\]'"):
        load_font("roboto", 77)


def test_unseen_fonts_are_kept_out_of_training():
    assert set(TRAIN_FONTS).isdisjoint(HELD_OUT_FONTS)
    theirs = make_page(0, "held_out", style=Style(fonts=HELD_OUT_FONTS))
    assert make_page(0, "held_out").image.tobytes() == theirs.image.tobytes()
    assert make_page(0, "held_out", style=Style(fonts=("mono",))).image.tobytes() != theirs.image.tobytes()


def test_the_imagefolder_can_be_read_back(tmp_path):
    count = write(tmp_path / "pages", 3, "held_out", 5, KINDS["form"])
    lines = [json.loads(line) for line in (tmp_path / "pages" / "metadata.jsonl").read_text().splitlines()]
    assert len(lines) == count
    assert {line["file_name"] for line in lines} == {path.name for path in (tmp_path / "pages").glob("*.png")}
    assert set(lines[0]) == {"file_name", "question", "answers", "evidence", "context", "family"}
    with pytest.raises(FileExistsError, match="not empty"):
        write(tmp_path / "pages", 1, "held_out", 5, KINDS["form"])


@pytest.mark.parametrize(
    "text", ["What is the total?", "Ünïcödé 你好 🙂 \t\n x", "\x00\x7f <|im_end|> </s>", " a  b ", ""]
)
def test_any_text_survives_the_tokenizer(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_values_are_read_character_by_character_and_labels_as_words(tokenizer):
    for value in ("4821", "12.50", "09:45", "AB-123", "EXIT"):
        assert tokenizer.tokenize(value) == list(value)
    for label in words.LABELS:
        assert len(tokenizer.tokenize(label)) == len(label.split())
        assert len(tokenizer.tokenize(" " + label.lower())) == len(label.split())
    answers = (*words.COLOURS, *words.SHAPES, *words.ROW_NAMES, *words.MONTHS, *words.PAGE_KINDS, words.ABSENT)
    for word in (*answers, *SPECIAL_TOKENS):
        assert len(tokenizer.tokenize(word)) == 1


def test_the_vocabulary_fits_and_questions_are_whole_words(tokenizer):
    assert len(tokenizer) <= VOCABULARY - 24
    for kind in KINDS:
        for page in _pages(kind):
            for question in page.questions:
                # a value said in a question is read character by character
                said = re.sub(r"\S*\d\S*\?$", "", question.text)
                assert len(tokenizer.tokenize(said)) <= len(re.findall(r"\w+|[^\w\s]|\s$", said)), said


def test_the_chat_template_writes_chatml_with_images_and_videos(tokenizer):
    image, video = {"type": "image"}, {"type": "video"}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [image, image, {"type": "text", "text": "Same?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes"}]},
        {"role": "user", "content": [video, {"type": "text", "text": "And now?"}]},
    ]
    assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|><|vision_start|><|image_pad|><|vision_end|>"
        "Same?<|im_end|>\n"
        "<|im_start|>assistant\nYes<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>And now?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_training_sees_what_the_template_and_the_processor_make(tokenizer, processor):
    turns = [("What is the total?", "4821"), ("Read the page.", "Total: 4821\nGate: 7")]
    ids, labels, _ = conversation((2, 3), [Question(text, answer, (), "gist", ()) for text, answer in turns])
    content = [{"type": "image"}, {"type": "text", "text": turns[0][0]}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": turns[0][1]}]
    messages += [{"role": "user", "content": turns[1][0]}, {"role": "assistant", "content": turns[1][1]}]
    text = tokenizer.apply_chat_template(messages, tokenize=False).replace("<|image_pad|>", "<|image_pad|>" * 6)
    assert tokenizer(text)["input_ids"] == [*ids, *tokenizer("\n")["input_ids"]]
    answers = [label for label in labels if label != IGNORED]
    assert tokenizer.decode(answers) == "4821<|im_end|>Total: 4821\nGate: 7<|im_end|>"

    page = make_page(0, "train", (8, 12))
    stock = processor.image_processor([page.image], return_tensors="pt")
    ours = patches(torch.from_numpy(np.array(page.image))[None])
    rounding = 1e-6 if is_torchvision_available() else 0  # which scales and normalises in one step
    torch.testing.assert_close(stock["pixel_values"], ours, rtol=0, atol=rounding)
    assert stock["image_grid_thw"].tolist() == [[1, 16, 24]]


def test_training_uses_stock_positions_and_scores_like_generation():
    model = build_model(0).eval()
    batch = make_batch(STAGES[2], "held_out", 0, 2, (6, 10))
    kinds = (batch.input_ids == model.config.image_token_id).int()
    grid = torch.tensor([[1, 12, 20]] * 2)
    stock = model.model.get_rope_index(batch.input_ids, kinds, image_grid_thw=grid)[0]
    start = int(kinds[0].argmax())
    assert torch.equal(_positions(model, (6, 10), start, batch.input_ids.shape[1]).expand_as(stock), stock)

    # write what greedy decoding says into the labels: then, and only then, the batch is an exact match
    prompt = int((batch.labels[0] != IGNORED).int().argmax())
    inputs = dict(input_ids=batch.input_ids[:1, :prompt], pixel_values=patches(batch.images[:1]),
                  image_grid_thw=grid[:1], mm_token_type_ids=kinds[:1, :prompt])  # fmt: skip
    said = model.generate(**inputs, max_new_tokens=4, eos_token_id=None)[0, prompt:]
    batch.labels[:] = IGNORED
    batch.labels[0, prompt : prompt + 4] = batch.input_ids[0, prompt : prompt + 4] = said
    batch.labels[1, 5] = 3
    assert exact_matches(model, batch, torch.float32).tolist()[0]
    batch.labels[0, prompt + 2] += 1
    assert not exact_matches(model, batch, torch.float32).tolist()[0]


def test_the_faster_attention_equals_stock():
    stock, fast = build_model(0).eval(), build_model(0).eval()
    speed_up(fast, compiled=False)
    batch = make_batch(STAGES[2], "train", 0, 2, (6, 10))
    kinds = (batch.input_ids == stock.config.image_token_id).int()
    inputs = dict(input_ids=batch.input_ids, image_grid_thw=torch.tensor([[1, 12, 20]] * 2), mm_token_type_ids=kinds)
    pixels = patches(batch.images)
    with torch.no_grad():
        expected = stock(**inputs, pixel_values=pixels).logits
        seen = fast.model.get_image_features(
            pixels, inputs["image_grid_thw"], return_dict=True, **one_grid(fast, 240, 2)
        )
        assert (fast(**inputs, mm_encoder_outputs={"image": seen}).logits - expected).abs().max() < 1e-5


def test_a_model_is_not_kept_by_the_positions_that_were_found_with_it():
    model = build_model(0)
    found = steps._positions(model, (2, 3), 1, 9)
    assert steps._positions(model, (2, 3), 1, 9) is found
    kept = weakref.ref(model)
    del model
    gc.collect()
    assert kept() is None


def test_the_first_token_of_an_answer_counts_three_times_where_it_looks():
    model = build_model(0)
    batch = make_batch(STAGES[3], "train", 0, 1, (8, 8))
    rows, places = labelled_places(batch.labels)
    pointed, first = batch.pointers.any(-1), opens_answer(rows, places)
    assert (pointed & first).any()
    length, start = batch.input_ids.shape[1], image_start(batch.input_ids)
    attention = torch.full((1, 8, length, length), 1e-3)
    for row, place, cells, opens in zip(rows, places, batch.pointers, first, strict=True):
        attention[row, :, place, start : start + cells.numel()] = 0
        share = torch.tensor(0.5 if opens else 0.125)
        attention[row, :, place, start + cells.int().argmax()] = share
    for number in POINTER_LAYERS:
        model.model.language_model.layers[number].self_attn.kept_attention = attention
    weights = torch.where(first[pointed], 3.0, 1.0)
    wanted = (weights * torch.where(first[pointed], math.log(2), math.log(8))).sum() / weights.sum()
    assert float(steps.pointer_loss(model, batch)) == pytest.approx(float(wanted), rel=1e-5)


def test_glyph_targets_stand_where_the_characters_do():
    page = make_page(0, "train", (8, 8), Style(clutter=(0, 0)))
    targets = glyph_targets(page, (8, 8))
    assert targets.shape == (64, 8)
    assert (targets > 0).sum() == len(page.glyphs)


def _no_export(model, folder):
    """Leaves out the stock folder, which takes longer to write than a step and has its own tests."""
    folder.mkdir(parents=True, exist_ok=True)


def test_a_stage_is_scored_on_all_of_its_grids(tmp_path, monkeypatch):
    shown, plain = [], train_base.make_batch
    monkeypatch.setattr(
        train_base, "make_batch", lambda *asked: shown.append(asked[4:]) or plain(*asked[:3], 1, *asked[4:])
    )
    trainer, _ = train_base.prepare(["--smoke", "--float32", "--stage", "world", "--out", str(tmp_path)])
    grids = trainer.stages[trainer.stage].grids
    assert 0 <= trainer.evaluate(16 * len(grids)) <= 1
    assert shown == list(grids)


@pytest.mark.parametrize("stage", ["letters", "one field"])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, stage, monkeypatch):
    monkeypatch.setattr(train_base, "export", _no_export)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    killed.mkdir()
    save = train_base.Trainer.save

    def save_and_keep_the_second_step(trainer):
        save(trainer)
        if trainer.step == 2 and trainer.options.out == whole:
            (killed / "state.pt").write_bytes((whole / "state.pt").read_bytes())

    monkeypatch.setattr(train_base.Trainer, "save", save_and_keep_the_second_step)
    smoke = ["--smoke", "--float32", "--stage", stage, "--save-every", "2", "--steps"]
    history = train_base.main([*smoke, "3", "--out", str(whole)])
    logged = (whole / "metrics.jsonl").read_text()  # it was killed in the middle of a line of the third step
    (killed / "metrics.jsonl").write_text(logged[:-20])
    rest = train_base.main(["--steps", "1", "--out", str(killed), "--resume"])  # with the options that it began with
    steps = [json.loads(line)["step"] for line in (killed / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3]
    assert [metrics["step"] for metrics in history] == [1, 2, 3]
    assert "score" in history[1]
    names = {name for name in history[0] if name in WEIGHTS or name == "gradient_norm"}
    assert "glyphs" in names
    for name in names:
        assert [metrics[name] for metrics in rest] == [history[2][name]]
    first, second = (torch.load(out / "state.pt", weights_only=True) for out in (whole, killed))
    for name, tensor in first["model"].items():
        assert torch.equal(tensor, second["model"][name]), name


def test_the_language_stage_leaves_what_allocators_read_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(train_base, "export", _no_export)
    history = train_base.main(
        ["--smoke", "--float32", "--stage", "language", "--steps", "2", "--seed", "3", "--out", str(tmp_path)]
    )
    assert {"loss", "asked", "pointers"} <= history[0].keys()
    assert not {"glyphs", "keys"} & history[0].keys()
    after = torch.load(tmp_path / "state.pt", weights_only=True)["model"]
    moved = {name for name, tensor in build_model(3).state_dict().items() if not torch.equal(tensor, after[name])}
    assert "lm_head.weight" in moved
    inside = [name.removeprefix("model.language_model.").split(".")[0] for name in moved - {"lm_head.weight"}]
    assert set(inside) == {"layers", "norm"}


def test_a_run_that_reaches_the_language_stage_freezes_what_allocators_read(tmp_path, monkeypatch):
    monkeypatch.setattr(train_base, "export", _no_export)
    monkeypatch.setattr(train_base.Trainer, "evaluate", lambda trainer, pages: 1.0)
    reached, run = [], train_base.run
    monkeypatch.setattr(train_base, "run", lambda trainer: (run(trainer), reached.append(trainer))[0])
    history = train_base.main(["--smoke", "--float32", "--stage", "world", "--steps", "3", "--out", str(tmp_path)])
    assert reached[0].stages[reached[0].stage].name == "language"
    assert ["glyphs" in metrics for metrics in history] == [True, True, False]
    assert not any(p.requires_grad for p in reached[0].model.model.visual.parameters())


def test_a_stage_that_is_named_is_trained_after_a_cooldown(tmp_path, monkeypatch):
    monkeypatch.setattr(train_base, "export", _no_export)
    smoke = ["--smoke", "--float32", "--cooldown", "1", "--out", str(tmp_path)]
    assert (
        len(train_base.main([*smoke, "--stage", "letters", "--minutes", "0", "--steps", "5"])) == 3
    )  # it cools from the second on
    assert train_base.main(["--resume", "--steps", "1", "--out", str(tmp_path)]) == []
    (more,) = train_base.main(["--resume", "--steps", "1", "--stage", "letters", "--out", str(tmp_path)])
    assert more["step"] == 4


def test_there_is_nothing_to_resume_in_an_empty_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="start without --resume"):
        train_base.main(["--smoke", "--out", str(tmp_path / "none"), "--resume"])


def test_begin_takes_the_weights_and_heads_of_a_folder(tmp_path, monkeypatch):
    folder = tmp_path / "first" / "export"
    smoke = ["--smoke", "--stage", "letters", "--steps", "1"]
    train_base.main([*smoke, "--out", str(tmp_path / "first")])  # in bfloat16, as nothing else here
    smoke.append("--float32")
    monkeypatch.setattr(train_base, "export", _no_export)  # once is enough
    begun, run = [], train_base.run

    def look_and_run(trainer):
        parts = {"model": trainer.model, HEADS.removesuffix(".safetensors"): trainer.glyph_head}
        begun.append({name: {key: p.clone() for key, p in part.state_dict().items()} for name, part in parts.items()})
        assert trainer.step == 0
        assert not trainer.optimizer.state
        return run(trainer)

    monkeypatch.setattr(train_base, "run", look_and_run)
    history = train_base.main([*smoke, "--seed", "5", "--begin", str(folder), "--out", str(tmp_path / "second")])
    assert [metrics["step"] for metrics in history] == [1]
    for part, tensors in begun[0].items():
        written = load_file(folder / f"{part}.safetensors")
        assert written
        for name, tensor in written.items():
            assert torch.equal(tensors[name].to(tensor.dtype), tensor), name
    (folder / HEADS).unlink()  # a folder from elsewhere has no heads
    assert train_base.main([*smoke, "--begin", str(folder), "--out", str(tmp_path / "third")])
    save_file({"lm_head.weight": torch.zeros(1024, 256)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match="pass a folder of this geometry"):
        train_base.main([*smoke, "--begin", str(folder), "--out", str(tmp_path / "fourth")])
    with pytest.raises(FileNotFoundError, match=r"has no model.safetensors; pass a model's folder"):
        train_base.main([*smoke, "--begin", str(tmp_path), "--out", str(tmp_path / "fifth")])


def test_the_allocators_training_refuses_a_count_of_questions():
    with pytest.raises(ValueError, match="pass --questions 4"):
        make_source(["world:one_field?grids=8x8&questions=4"], seed=0, limit=None, skip_bad=False)


def test_the_export_is_a_small_stock_folder(tmp_path):
    from transformers import AutoConfig, AutoTokenizer, Qwen3VLForConditionalGeneration

    export(build_model(1), tmp_path)
    model = Qwen3VLForConditionalGeneration.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).model_type == "qwen3_vl"
    assert model.generation_config.eos_token_id[0] == tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert 4e6 < sum(p.numel() for p in model.parameters()) < 8e6
    assert len(tokenizer) <= model.config.text_config.vocab_size
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 40e6


def test_key_targets_name_the_field_of_each_cell():
    page = make_page(0, "train", (8, 8), Style(clutter=(0, 0)))
    targets = key_targets(page, (8, 8))
    (label,) = {name for thing in page.things for name in thing.names}
    assert targets.any(0).nonzero()[0].tolist() == [words.KEYS.index(label)]
    written = (glyph_targets(page, (8, 8)) > 0).any(1)
    assert (targets.any(1) <= written).all()


def test_named_boxes_are_the_label_and_the_value_that_a_question_asks_for():
    page = make_page(3, "train", (12, 12), KINDS["form"])
    for question in page.questions[:3]:
        boxes = named_boxes(page, question)
        named = words.asked(question.text)
        assert all(set(thing.names) <= named for thing in page.things if thing.box in boxes)
        left_out = [thing for thing in page.things if thing.names and thing.box not in boxes]
        assert all(set(thing.names) - named for thing in left_out)
        if question.evidence:
            assert len(boxes) >= 2
