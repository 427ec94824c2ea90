"""What few calls reach: prompts that go on behind cached pictures, rows of a batch that differ, a plan's parts."""

import math

import pytest
import torch
from PIL import Image, ImageOps
from transformers import DynamicCache, StaticCache

from arrcoc.caching import CACHE
from arrcoc.picture import open_picture
from training import signals

pytestmark = pytest.mark.usefixtures("no_grad")
ONE = {"max_new_tokens": 1, "do_sample": False, "return_dict_in_generate": True}
PER_TOKEN = ("input_ids", "attention_mask", "mm_token_type_ids")


@pytest.fixture
def no_grad():
    with torch.no_grad():
        yield


def test_text_behind_a_second_image_on_a_cache(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs([[page(160, 96), page(128, 64, 1)]], token_budget=5)
    starts = (inputs["mm_token_type_ids"][0] == 1).nonzero().flatten()
    begins, ends, patches = int(starts[5]) - 1, int(starts[-1]) + 2, int(inputs["image_grid_thw"][0].prod())

    def cut(tokens: slice, pixels: slice, images: slice) -> dict:
        own = dict.fromkeys(PER_TOKEN, (slice(None), tokens)) | {"pixel_values": pixels}
        return {name: value[own.get(name, images)] for name, value in inputs.items()}

    cache = model(**cut(slice(begins), slice(patches), slice(1)), use_cache=True).past_key_values
    second = cut(slice(begins, ends), slice(patches, None), slice(1, None))
    model(**second | {"attention_mask": inputs["attention_mask"][:, :ends]}, past_key_values=cache)
    last = inputs["input_ids"][:, ends:]
    found = model(input_ids=last, past_key_values=cache).logits
    assert (found - model(**inputs).logits[:, -last.shape[1] :]).abs().max() < 1e-4


def test_any_row_may_end_with_a_pruned_image(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(128, 96), token_budget=8)
    end = int((inputs["mm_token_type_ids"][0] == 1).nonzero()[-1]) + 1
    ended = {name: inputs[name][:, :end] for name in PER_TOKEN}
    both = {
        name: torch.cat([torch.roll(value, -1, 1), value]) for name, value in ended.items()
    }  # row 0 has text behind
    rest = {name: torch.cat([value] * 2) for name, value in inputs.items() if name not in PER_TOKEN}
    with pytest.raises(ValueError, match="the prompt ends with an image of which some tokens were chosen"):
        model.generate(**both, **rest, max_new_tokens=2)


def test_beside_a_coarse_view_the_tower_sees_what_the_fine_tokens_need(tiny_model, make_inputs, page):
    model, inputs, seen = tiny_model(), make_inputs(page(128, 96), token_budget=40), []
    hook = model.model.visual.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(len(args[0] if args else kwargs["hidden_states"]) // 4), with_kwargs=True
    )
    plan = model.allocate(**inputs, encode_ratio=0.1, allocation_mode="foveated")[0]
    hook.remove()
    assert plan.coarse > 0
    assert seen == [plan.coarse, 40 - plan.coarse]


def test_a_padded_new_part_with_images(tiny_model, make_inputs, page):
    model, begun = tiny_model(), torch.arange(5, 9)[None]
    pictures, asks = [page(128, 96), page(96, 64, 1)], ["date?", "what is the date of it all, if all are added?"]
    both = make_inputs(pictures, asks, token_budget=4)
    cache = model(input_ids=begun.repeat(2, 1), use_cache=True).past_key_values
    mask = torch.cat([torch.ones(2, 4, dtype=torch.long), both["attention_mask"]], 1)
    together = model(**both | {"attention_mask": mask}, past_key_values=cache).logits[:, -1]
    for row, (picture, ask) in enumerate(zip(pictures, asks, strict=True)):
        one = make_inputs(picture, ask, token_budget=4)
        alone = model(input_ids=begun, use_cache=True).past_key_values
        one["attention_mask"] = torch.ones(1, 4 + one["input_ids"].shape[1], dtype=torch.long)
        assert (model(**one, past_key_values=alone).logits[:, -1] - together[row]).abs().max() < 1e-4


def test_a_cache_that_ends_inside_an_image(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(128, 96), token_budget=9)
    cache = model.generate(**inputs, **ONE)[CACHE]
    middle = int((inputs["mm_token_type_ids"][0] == 1).nonzero()[4])
    cache.crop(middle - cache.get_seq_length())
    with pytest.raises(ValueError, match="inside an image; crop it to where the image begins"):
        model.generate(**inputs, **ONE, **{CACHE: cache})


def test_auto_counts_by_the_question_of_each_row(page, make_inputs):
    picture, asks = page(400, 400), ["what is the total?", "list all rows"]
    alone = [make_inputs(picture, ask, "auto")["image_token_counts"].tolist()[0] for ask in asks]
    assert alone[0] < alone[1]
    assert make_inputs([picture] * 2, asks, "auto")["image_token_counts"].tolist() == alone
    assert make_inputs([picture] * 2, asks[::-1], "auto")["image_token_counts"].tolist() == alone[::-1]


def test_a_file_is_turned_once(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (128, 64), "white").save(tmp_path / "lying.jpg", exif=exif)
    opened = open_picture(str(tmp_path / "lying.jpg"))
    assert opened.size == open_picture(opened).size == (64, 128)


def test_a_mirrored_picture_is_another(tiny_model, make_inputs, page):
    model, one = tiny_model(), page(128, 96, 1)
    first = make_inputs(one, "date?", token_budget=4)
    mirrored = make_inputs(ImageOps.mirror(one), "date? then the total?", token_budget=4)
    assert int(first["texture_images"].long().sum()) == int(mirrored["texture_images"].long().sum())
    cache = model.generate(**first, **ONE)[CACHE]
    with pytest.raises(ValueError, match="another picture than prompt"):
        model.generate(**mirrored, **ONE, **{CACHE: cache})


def test_pixels_of_another_contrast_are_refused(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(), token_budget=12)
    encoded, pixels = model.encode_images(**inputs), inputs["pixel_values"]
    other = (pixels - pixels.mean()) * 2 + pixels.mean()
    with pytest.raises(ValueError, match="processed otherwise"):
        model.allocate(**{**inputs, "pixel_values": other}, encoded_images=encoded)


def test_answer_loss_is_of_the_full_models_distribution():
    pruned, full = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.5, 0.5]]).log()
    expected = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)  # 0.511; the other way round 0.368
    assert float(signals.answer_loss(pruned, full)) == pytest.approx(expected, abs=1e-6)


def test_kept_is_of_fine_cells_alone(tiny_model, make_inputs, page):
    plan = tiny_model("pooled").allocate(**make_inputs(page(128, 96), token_budget=12))[0]
    assert (plan.level > 0).any()
    assert int(plan.kept.sum()) == int((plan.level == 0).sum())


def joined(*parts):
    """Parts of one batch's prompts, one behind the other; what they show is not in it."""
    return {name: torch.cat([part[name] for part in parts], 1) for name in PER_TOKEN}


def text(ids):
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": torch.zeros_like(ids)}


def alone(model, prompt, row, make_inputs, picture, ask, token_budget=9):
    """Logits behind a row of `prompt` without its padding, from no cache; it shows `picture`, one or several, if any."""
    said = prompt["attention_mask"][row].bool()
    shown = make_inputs([[] if picture is None else picture], ask, token_budget=token_budget)
    shown = {name: value for name, value in shown.items() if name not in PER_TOKEN}
    return model(**{name: value[row : row + 1, said] for name, value in prompt.items()}, **shown).logits[0, -1]


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("size", [None, 8])
def test_a_row_that_a_chunk_holds_padding_of_alone_goes_on_where_it_ended(size, static, tiny_model, make_inputs, page):
    model, pictures = tiny_model(), [page(128, 96), page(96, 96, 1)]
    cache = StaticCache(config=model.config.text_config, max_cache_len=200) if static else DynamicCache()
    first = make_inputs(pictures, ["what?"] * 2, token_budget="full")
    said = model.generate(**first, past_key_values=cache, **ONE).sequences[:, -1:]
    second = make_inputs([[], page(128, 64, 2)], ["a?", "what is the total of all of it?"], token_budget="full")
    size = {} if size is None else {"prefill_chunk_size": size}
    begun = joined(first, text(said), second)
    shown = {name: value for name, value in second.items() if name not in PER_TOKEN}
    new = joined(text(said), second) | {"attention_mask": begun["attention_mask"]}
    try:
        said = model.generate(**new, **shown, past_key_values=cache, **size, **ONE).sequences[:, -1:]
    except ValueError as error:
        if "pip install" not in str(error):
            raise
        pytest.skip(str(error))  # transformers below 5.23 drops the pictures of chunks
    whole, held = joined(begun, text(said), text(torch.full((2, 3), 7))), int(cache.get_seq_length())
    third = {"input_ids": whole["input_ids"][:, held:], "attention_mask": whole["attention_mask"]}
    found = model.generate(**third, past_key_values=cache, output_logits=True, **ONE).logits[0]
    for row, seen in enumerate(([pictures[0]], [pictures[1], page(128, 64, 2)])):
        own = alone(model, whole, row, make_inputs, seen, "what?", token_budget="full")
        assert (own - found[row]).abs().max() < 1e-4


def test_a_row_of_padding_beside_one_with_an_image(tiny_model, make_inputs, page):
    model, asks = tiny_model(), ["a?", "what is the total of it all, if all are added?"]
    inputs, cache = make_inputs([[], page(128, 96)], asks, token_budget=9), DynamicCache()
    end = int((inputs["mm_token_type_ids"][1] == 1).nonzero()[-1]) + 2
    assert not inputs["attention_mask"][0, :end].any()
    begun = {name: value[:, :end] if name in PER_TOKEN else value for name, value in inputs.items()}
    model(**begun, past_key_values=cache)
    found = model(
        input_ids=inputs["input_ids"][:, end:], attention_mask=inputs["attention_mask"], past_key_values=cache
    )
    for row, picture in enumerate([None, page(128, 96)]):
        own = alone(model, {name: inputs[name] for name in PER_TOKEN}, row, make_inputs, picture, asks[row])
        assert (own - found.logits[row, -1]).abs().max() < 1e-4


def test_a_picture_behind_padded_text_that_forward_read_goes_on_with_the_whole_prompt(
    tiny_model, make_inputs, page, processor
):
    model, begins = tiny_model(), ["You answer.", "You read bills and answer questions about all that is on them."]
    pictures = [page(128, 96), page(96, 64, 1)]
    begun = processor.tokenizer(begins, padding=True, padding_side="left", return_tensors="pt")
    begun["mm_token_type_ids"] = torch.zeros_like(begun["input_ids"])
    asked = make_inputs(pictures, ["date?"] * 2, token_budget=9)
    both = joined(begun, asked)
    cache = model(**{name: begun[name] for name in PER_TOKEN[:2]}, use_cache=True).past_key_values
    model(**asked | {"attention_mask": both["attention_mask"]}, past_key_values=cache)
    whole = joined(both, text(torch.full((2, 3), 7)))
    rest = {name: value for name, value in asked.items() if name not in PER_TOKEN}
    found = model.generate(**whole, **rest, past_key_values=cache, output_logits=True, **ONE).logits[0]
    for row, picture in enumerate(pictures):
        assert (alone(model, whole, row, make_inputs, picture, "date?") - found[row]).abs().max() < 1e-4


@pytest.mark.parametrize("whole", [False, True], ids=["new part", "whole prompt"])
def test_padded_text_that_forward_read_goes_on_with_images(whole, tiny_model, make_inputs, page, processor):
    model, begins = tiny_model(), ["You answer.", "You read bills and answer questions about all that is on them."]
    pictures, asks = [page(128, 96), page(96, 64, 1)], ["date?", "what is the date of it?"]
    begun = processor.tokenizer(begins, padding=True, padding_side="left", return_tensors="pt")
    begun["mm_token_type_ids"] = torch.zeros_like(begun["input_ids"])
    asked = make_inputs(pictures, asks, token_budget=9)
    both = joined(begun, asked)
    cache = model(**{name: begun[name] for name in PER_TOKEN[:2]}, use_cache=True).past_key_values
    rest = {name: value for name, value in asked.items() if name not in PER_TOKEN}
    shown = both if whole else {name: asked[name] for name in PER_TOKEN} | {"attention_mask": both["attention_mask"]}
    found = model.generate(**shown, **rest, past_key_values=cache, output_logits=True, **ONE).logits[0]
    for row, (picture, ask) in enumerate(zip(pictures, asks, strict=True)):
        assert (alone(model, both, row, make_inputs, picture, ask) - found[row]).abs().max() < 1e-4
