"""The drawn world, its tokenizer, and that training runs, saves and resumes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from training import train_base
from training.base_model import build_image_processor, build_model, export
from training.batches import IGNORED, conversation, glyph_targets, make_batch, owner_targets, patches
from training.curriculum import STAGES
from training.speed import one_grid
from training.steps import _positions, exact_matches
from training.tokenizer import SPECIAL_TOKENS, build_tokenizer
from training.world import Style, layout_split, layouts, make_page, value_split, words
from training.world.__main__ import write
from training.world.fonts import HELD_OUT_FONTS, TRAIN_FONTS, load_font

ROOT = Path(__file__).resolve().parents[1]
RICH = Style(fields=(1, 4), signs=(0, 2), shapes=(0, 2), dark=0.2)
GRIDS = ((8, 8), (8, 12), (10, 10), (12, 12), (9, 14))

_PRINT_PAGES = """
import hashlib
from training.world import Style, make_page
page_hash = hashlib.sha256()
for seed in range(6):
    page = make_page(seed, "train", (10, 10), Style(fields=(1, 4), signs=(0, 2), shapes=(0, 2), dark=0.2))
    page_hash.update(page.image.tobytes() + repr((page.questions, page.transcript, page.glyphs)).encode())
print(page_hash.hexdigest())
"""


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def _pages(count, split, style=RICH):
    return [make_page(seed, split, GRIDS[seed % len(GRIDS)], style) for seed in range(count)]


def test_same_seed_gives_the_same_page_in_a_fresh_process():
    runs = [
        subprocess.run(
            [sys.executable, "-c", _PRINT_PAGES], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert make_page(1).image.tobytes() != make_page(2).image.tobytes()


def test_splits_share_no_layout_and_no_value():
    assert set(layouts("train")).isdisjoint(layouts("held_out"))
    for split in ("train", "held_out"):
        for page in _pages(60, split):
            assert layout_split(page.layout) == split
            for question in page.questions:
                if question.family.endswith("field") or question.family.endswith("fields"):
                    assert value_split(question.answer) == split


def test_every_part_of_a_held_out_layout_occurs_in_training():
    for name in ("arrangement", "separator", "frame", "emphasis", "placement"):
        seen = {getattr(layout, name) for layout in layouts("train")}
        assert {getattr(layout, name) for layout in layouts("held_out")} <= seen


def test_evidence_boxes_are_on_the_page_and_hold_the_answer():
    for page in _pages(60, "held_out"):
        assert page.questions
        for question in page.questions:
            for left, top, right, bottom in question.evidence:
                assert 0 <= left < right <= page.image.width
                assert 0 <= top < bottom <= page.image.height
                part = np.asarray(page.image.crop((left, top, right, bottom)).convert("L"), dtype=float)
                assert part.std() > 5 or question.family in ("shape_colour", "colour_shape")
                inside = "".join(c for c, x, y in page.glyphs if left <= x < right and top <= y < bottom)
                if question.family in ("one_field", "several_fields", "sign"):
                    assert question.answer in inside


def test_a_box_grown_by_the_ink_of_its_text_would_gain_nothing():
    # worked out on the pixels: on a page without frames or clutter, all ink is inside the evidence
    for seed in range(400):
        page = make_page(seed, "train", (8, 12), Style(clutter=(0, 0)))
        if page.layout.frame == "none":
            left, top, right, bottom = page.questions[0].evidence[0]
            pixels = np.asarray(page.image).copy()
            paper = pixels[0, 0].copy()
            pixels[top:bottom, left:right] = paper
            assert (pixels == paper).all(), seed


def test_a_scaled_page_scales_its_boxes_and_glyphs():
    full = make_page(3, "train", (12, 12), RICH)
    small = make_page(3, "train", (12, 12), RICH, shown=(6, 6))
    assert small.image.size == (96, 96)
    assert [q.text for q in small.questions] == [q.text for q in full.questions]
    for big, little in zip(full.questions, small.questions, strict=True):
        assert np.abs(np.array(big.evidence[0]) / 2 - np.array(little.evidence[0])).max() <= 1
    assert small.glyphs[0][1] == pytest.approx(full.glyphs[0][1] / 2)


def test_bad_arguments_say_what_is_allowed():
    with pytest.raises(ValueError, match="train, held_out"):
        make_page(0, "test")
    with pytest.raises(ValueError, match="at least 4 rows and 8 columns"):
        make_page(0, "train", (3, 8))
    with pytest.raises(KeyError, match="roboto"):
        load_font("comic", 12)


def test_a_missing_font_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr("training.world.fonts.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'arrcoc\[train\]'"):
        load_font("roboto", 77)


def test_unseen_fonts_are_kept_out_of_training():
    assert set(TRAIN_FONTS).isdisjoint(HELD_OUT_FONTS)
    assert make_page(0, "held_out", style=Style(fonts=HELD_OUT_FONTS)).questions


def test_the_imagefolder_can_be_read_back(tmp_path):
    count = write(tmp_path / "pages", 3, "held_out", 5, RICH)
    lines = [json.loads(line) for line in (tmp_path / "pages" / "metadata.jsonl").read_text().splitlines()]
    assert len(lines) == count
    assert {line["file_name"] for line in lines} == {path.name for path in (tmp_path / "pages").glob("*.png")}
    assert set(lines[0]) == {"file_name", "question", "answers", "evidence", "family"}
    with pytest.raises(FileExistsError, match="not empty"):
        write(tmp_path / "pages", 1, "held_out", 5, RICH)


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
    for special in SPECIAL_TOKENS:
        assert len(tokenizer.tokenize(special)) == 1


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


def test_training_sees_what_the_template_and_the_processor_make(tokenizer):
    turns = [("What is the total?", "4821"), ("Read the page.", "Total: 4821\nGate: 7")]
    ids, labels = conversation((2, 3), turns)
    content = [{"type": "image"}, {"type": "text", "text": turns[0][0]}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": turns[0][1]}]
    messages += [{"role": "user", "content": turns[1][0]}, {"role": "assistant", "content": turns[1][1]}]
    text = tokenizer.apply_chat_template(messages, tokenize=False).replace("<|image_pad|>", "<|image_pad|>" * 6)
    assert tokenizer(text)["input_ids"] == [*ids, *tokenizer("\n")["input_ids"]]
    answers = [label for label in labels if label != IGNORED]
    assert tokenizer.decode(answers) == "4821<|im_end|>Total: 4821\nGate: 7<|im_end|>"

    page = make_page(0, "train", (8, 12))
    stock = build_image_processor()([page.image], return_tensors="pt")
    ours = patches(torch.from_numpy(np.array(page.image))[None])
    assert torch.equal(stock["pixel_values"], ours)
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
    fast.model.visual.config._attn_implementation = "batched_images"
    fast.model.language_model.config._attn_implementation = "plain_causal"
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


def test_glyph_targets_stand_where_the_characters_do():
    page = make_page(0, "train", (8, 8), Style(aligned=True, clutter=(0, 0)))
    targets = glyph_targets(page, (8, 8))
    assert targets.shape == (64, 8)
    assert (targets > 0).sum() == len(page.glyphs)


@pytest.mark.parametrize("stage", ["letters", "aligned and free"])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, stage):
    smoke = ["--smoke", "--stage", stage, "--steps"]
    whole = train_base.main([*smoke, "4", "--out", str(tmp_path / "whole")])
    train_base.main([*smoke, "2", "--out", str(tmp_path / "parts")])
    rest = train_base.main([*smoke, "2", "--out", str(tmp_path / "parts"), "--resume"])
    for name in ("loss", "glyph_loss", "gradient_norm"):
        assert [metrics[name] for metrics in rest] == [metrics[name] for metrics in whole[2:]]
    first, second = (torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("whole", "parts"))
    for name, tensor in first["model"].items():
        assert torch.equal(tensor, second["model"][name]), name
    with pytest.raises(FileNotFoundError, match="start without --resume"):
        train_base.main(["--smoke", "--out", str(tmp_path / "none"), "--resume"])


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


def test_owner_targets_name_the_field_of_each_cell():
    page = make_page(0, "train", (8, 8), Style(aligned=True, clutter=(0, 0)))
    targets = owner_targets(page, (8, 8))
    label = page.transcript.split(":")[0]
    assert set(targets.tolist()) == {0, 1 + words.LABELS.index(label)}
    assert ((glyph_targets(page, (8, 8)) > 0).any(1) == (targets > 0)).all()
