"""Videos keep all their tokens: video alone equals stock, beside a pruned image it equals the masked oracle.

torchvision has no CPU build for the torch of `make test`. Its wheel imports once two missing operators are declared, which is done
in a process of its own, from the folder in ARRCOC_TORCHVISION (`make test` sets it up). One that is installed is taken as it is.
"""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers.utils import is_torchvision_available

pytestmark = pytest.mark.core

SCRIPT = """
import json, sys
import torch
if sys.argv[2] == "declare":
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
import numpy as np
from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from PIL import Image
from transformers import Qwen3VLForConditionalGeneration

folder = sys.argv[1]
model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(folder + "/ours").eval()
stock = Qwen3VLForConditionalGeneration.from_pretrained(folder + "/stock").eval()
processor = ARRCOCProcessor.from_pretrained(folder + "/ours")
assert "video_processor" in processor.get_attributes()
random = np.random.default_rng(0)
film = random.integers(0, 256, (4, 64, 96, 3), dtype=np.uint8)
pages = [Image.open(folder + "/0.png"), Image.open(folder + "/1.png")]
IMAGE, VIDEO = {"type": "image"}, {"type": "video"}
PROMPTS = {
    "video": ([[VIDEO]], [], [film]),
    "image and video": ([[IMAGE, VIDEO]], pages[:1], [film]),
    "video and image": ([[VIDEO, IMAGE]], pages[:1], [film]),
    "batch": ([[IMAGE], [VIDEO, IMAGE], [VIDEO]], pages, [film, film[:2, :32, :64]]),
}
OWN = ("texture_images", "query_input_ids", "query_attention_mask", "image_token_counts")


def make(name, budget):
    contents, images, videos = PROMPTS[name]
    text = {"type": "text", "text": "what is the total?"}
    chats = [[{"role": "user", "content": [*content, text]}] for content in contents]
    prompts = processor.apply_chat_template(chats, add_generation_prompt=True, tokenize=False)
    return processor(
        text=prompts, images=images or None, videos=videos, token_budget=budget if images else None, padding=True,
        padding_side="left", return_tensors="pt", videos_kwargs={"do_sample_frames": False},
    )


def gap(one, two):
    return float((one - two).abs().max())


def oracle(pruned, full):
    mask = full["attention_mask"].clone()
    keep = []
    for plan in model.allocate(**pruned):
        kept = torch.zeros(plan.grid[1:], dtype=torch.long)
        kept[plan.positions[:, 1], plan.positions[:, 2]] = 1
        keep.append(kept.flatten())
    mask[full["mm_token_type_ids"] == 1] = torch.cat(keep)
    names = ("input_ids", "mm_token_type_ids", "image_grid_thw", "video_grid_thw", "attention_mask")
    position_ids, _ = stock.model.get_rope_index(**{name: full[name] for name in names})
    inputs = {name: value for name, value in full.items() if name not in OWN}
    return stock(**inputs | {"attention_mask": mask, "position_ids": position_ids}).logits[mask.bool()]


result = {}
with torch.no_grad():
    for name, (_, images, _) in PROMPTS.items():
        full = make(name, "full")
        plain = {key: value for key, value in full.items() if key not in OWN}
        entry = result[name] = {"full": gap(model(**full).logits, stock(**plain).logits)}
        options = {"max_new_tokens": 4, "do_sample": False}
        entry["generations equal"] = torch.equal(model.generate(**full, **options), stock.generate(**plain, **options))
        if images:
            pruned = make(name, 7)
            assert pruned["input_ids"].shape[1] < full["input_ids"].shape[1]
            entry["pruned"] = gap(model(**pruned).logits[pruned["attention_mask"].bool()], oracle(pruned, full))
            out = model.generate(**pruned, **options, output_logits=True, return_dict_in_generate=True)
            longer = dict(pruned)
            new = out.sequences[:, pruned["input_ids"].shape[1] :]
            longer["input_ids"] = out.sequences
            longer["attention_mask"] = torch.cat([pruned["attention_mask"], torch.ones_like(new)], dim=1)
            longer["mm_token_type_ids"] = torch.cat([pruned["mm_token_type_ids"], torch.zeros_like(new)], dim=1)
            uncached = model(**longer).logits[:, -new.shape[1] - 1 : -1]
            entry["cached"] = gap(torch.stack(out.logits, dim=1), uncached)
            beams = model.generate(**pruned, **options, num_beams=2)
            entry["beams"] = list(beams.shape) == list(out.sequences.shape)
        asked = make(name, 7)
        told = {"output_logits": True, "return_dict_in_generate": True}
        begun = model.generate(**asked, **options, **told)
        longer = dict(asked)
        longer["input_ids"] = torch.cat([begun.sequences, asked["input_ids"][:, -6:]], dim=1)
        new = torch.zeros_like(longer["input_ids"][:, asked["input_ids"].shape[1] :])
        longer["attention_mask"] = torch.cat([asked["attention_mask"], new + 1], dim=1)
        longer["mm_token_type_ids"] = torch.cat([asked["mm_token_type_ids"], new], dim=1)
        fresh = model.generate(**longer, **options, **told)
        on = model.generate(**longer, **options, **told, past_key_values=begun.past_key_values)
        entry["continued"] = max(gap(one, two) for one, two in zip(fresh.logits, on.logits))
        if len(asked["input_ids"]) == 1:  # prompt lookup takes one prompt
            guessed = model.generate(**asked, **options, **told, prompt_lookup_num_tokens=20)
            entry["guessed"] = max(gap(one, two) for one, two in zip(begun.logits, guessed.logits))
result["arrays"] = {}
picture = Image.fromarray(np.array(pages[0])[:50, :70])  # to be resized
seen = processor(text=processor.image_token, images=[picture], return_tensors="pt")["texture_images"]
for kind in ("uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"):
    forms = {"torch": torch.from_numpy(np.array(pages[0])).to(getattr(torch, kind))}
    forms |= {} if kind == "bfloat16" else {"numpy": np.array(pages[0]).astype(kind)}
    for name, array in forms.items():
        array = array[:50, :70]
        ours = processor(text=processor.image_token, images=[array], token_budget="full", return_tensors="pt")
        theirs = processor.image_processor(images=[array], return_tensors="pt")
        equal = torch.equal(ours["pixel_values"], theirs["pixel_values"])
        result["arrays"][f"{name} {kind}"] = [equal, torch.equal(seen, ours["texture_images"])]
ones = np.array(pages[0]).astype("float32") / 255
seen = [processor(text=processor.image_token, images=[picture], return_tensors="pt") for picture in (ones, ones * 1.000001)]
result["beyond 1"] = [float(ones.max()), torch.equal(*(each["pixel_values"] for each in seen))]
grey = np.array(pages[0])[..., 0].astype("float32")
result["grey"] = list(processor(text=processor.image_token, images=[grey], return_tensors="pt")["pixel_values"].shape)
json.dump(result, open(folder + "/result.json", "w"))
"""


@pytest.fixture(scope="module")
def result(tiny_model, stock_twin, processor, page, tmp_path_factory):
    torchvision, installed = os.environ.get("ARRCOC_TORCHVISION"), is_torchvision_available()
    if not (torchvision or installed):
        pytest.skip("ARRCOC_TORCHVISION names no folder with torchvision; `make test` sets it up")
    folder = tmp_path_factory.mktemp("video")
    tiny_model().save_pretrained(folder / "ours")
    stock_twin(tiny_model()).save_pretrained(folder / "stock")
    processor.save_pretrained(folder / "ours")
    page(128, 96).save(folder / "0.png")
    page(64, 96, 1).save(folder / "1.png")
    env = os.environ | ({} if installed else {"PYTHONPATH": str(Path(torchvision).resolve())})
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), "as it is" if installed else "declare"],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *itertools.product(["numpy", "torch"], ["uint8", "int32", "int64", "float16", "float32", "float64"]),
        ("torch", "bfloat16"),
    ],
)
def test_arrays_of_0_to_255_are_resized_as_stock_resizes_them(name, kind, result):
    """torchvision rounds bytes as it resizes, and clips them; wider values it does not."""
    assert result["arrays"][f"{name} {kind}"] == [True, True]


def test_an_array_beyond_1_by_rounding_is_one_of_0_to_1(result):
    assert result["beyond 1"] == [1.0, True]


def test_a_grey_array_of_floats_becomes_three_channels(result):
    assert result["grey"] == [16 * 12, 3 * 2 * 8 * 8]


@pytest.mark.parametrize("name", ["video", "image and video", "video and image", "batch"])
def test_a_video_at_full_budget_equals_stock_bit_for_bit(name, result, report):
    assert report("full budget - stock, with video", result[name]["full"]) == 0
    assert result[name]["generations equal"]


@pytest.mark.parametrize("name", ["video", "image and video", "video and image", "batch"])
def test_a_chat_with_a_video_goes_on_from_its_cache_and_by_guesses(name, result, report):
    assert report("chat continued from its cache - uncached, with video", result[name]["continued"]) < 1e-5
    if name != "batch":
        assert report("prompt lookup - greedy, with video", result[name]["guessed"]) < 1e-5


@pytest.mark.parametrize("name", ["image and video", "video and image", "batch"])
def test_a_pruned_image_beside_a_video_equals_the_masked_oracle(name, result, report):
    assert report("pruned - masked oracle, with video", result[name]["pruned"]) < 1e-5
    assert report("cached - uncached: greedy, with video", result[name]["cached"]) < 1e-5
    assert result[name]["beams"]
