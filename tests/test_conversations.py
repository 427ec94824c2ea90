"""Caches that are handed on: a shared beginning, a cropped one, one that ends in an image; each against one pass without."""

import copy

import pytest
import torch
from transformers import DynamicCache, StaticCache

from arrcoc.caching import CACHE, deltas_of, held_rope_deltas, rope_deltas_of

pytestmark = pytest.mark.core

TOLERANCE = 1e-5
SYSTEM = "<|im_start|>system\nYou are a helpful reader of pages.<|im_end|>\n"
PER_TOKEN = ("input_ids", "attention_mask", "mm_token_type_ids")


def asked(question: str) -> str:
    return f"{SYSTEM}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def first_logits(model, inputs, **more):
    options = {"max_new_tokens": 1, "return_dict_in_generate": True, "output_logits": True}
    return model.generate(**inputs, **options, **more).logits[0]


@torch.no_grad()
@pytest.mark.parametrize("before", [1, 2], ids=["after one prompt", "after two"])
def test_a_beginning_of_text_is_shared_whatever_ran_before(before, tiny_model, processor, make_inputs, page, report):
    model = tiny_model()
    prefix, whole = (processor(text=[text], return_tensors="pt") for text in (SYSTEM, asked("what is the total?")))
    expected = model(**whole).logits[:, -1]
    model(**make_inputs([page(128, 96), page(64, 64, 1)][:before], token_budget=4))
    cache = model(**prefix, use_cache=True).past_key_values
    new = {"input_ids": whole["input_ids"][:, prefix["input_ids"].shape[1] :]}
    gaps = [
        model(**new, past_key_values=copy.deepcopy(cache)).logits[:, -1] - expected,
        model(**new, attention_mask=whole["attention_mask"], past_key_values=copy.deepcopy(cache)).logits[:, -1]
        - expected,
        first_logits(model, whole, past_key_values=cache) - expected,
    ]
    assert report("text after a shared beginning - in one pass", max(gap.abs().max() for gap in gaps)) < TOLERANCE
    model(**make_inputs([page(128, 96), page(64, 64, 1)][:before], token_budget=4))
    embedded = model(inputs_embeds=model.get_input_embeddings()(whole["input_ids"]))
    assert torch.equal(embedded.logits[:, -1], expected)


@torch.no_grad()
def test_a_cache_is_taken_under_its_older_and_its_newer_name(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs([page(128, 96)], token_budget=9)
    output = model(**inputs, use_cache=True)
    assert output[CACHE] is output.past_key_values, "transformers 5.24 still has the older name"
    follows = torch.tensor([[5, 6, 7]])
    for part in (model, model.model):
        names = ("past_key_values", "cache")
        older, newer = (part(input_ids=follows, **{name: copy.deepcopy(output[CACHE])})[0] for name in names)
        assert torch.equal(older, newer)
        assert not torch.equal(newer, part(input_ids=follows)[0])
        with pytest.raises(ValueError, match="came as cache and as past_key_values"):
            part(input_ids=follows, **{name: output[CACHE] for name in names})
    expected = model(input_ids=follows, past_key_values=copy.deepcopy(output[CACHE])).logits[:, -1]
    whole = {"input_ids": torch.cat([inputs["input_ids"], follows], dim=1)}
    whole["mm_token_type_ids"] = torch.nn.functional.pad(inputs["mm_token_type_ids"], (0, follows.shape[1]))
    assert (first_logits(model, whole, **{CACHE: output[CACHE]}) - expected).abs().max() < TOLERANCE


@torch.no_grad()
def test_an_image_follows_a_shared_beginning_of_text(tiny_model, make_inputs, page, report):
    model, inputs = tiny_model(), make_inputs([page(128, 96)], token_budget=9)
    expected = model(**inputs).logits[:, -1]
    model(**make_inputs([page(200, 32, 3)], token_budget=4))
    start = int((inputs["mm_token_type_ids"][0] == 1).nonzero()[0])
    cache = model(input_ids=inputs["input_ids"][:, :start], use_cache=True).past_key_values
    rest = {name: value[:, start:] if name in PER_TOKEN else value for name, value in inputs.items()}
    gap = model(**rest | {"attention_mask": inputs["attention_mask"]}, past_key_values=cache).logits[:, -1] - expected
    assert report("image after a shared beginning - in one pass", gap.abs().max()) < TOLERANCE


@torch.no_grad()
def test_a_cache_of_text_is_cropped_to_what_two_prompts_share(tiny_model, processor, report):
    model = tiny_model()
    first, second = (
        processor(text=[asked(text)], return_tensors="pt") for text in ("what?", "who wrote it, and when?")
    )
    shared = processor(text=[SYSTEM], return_tensors="pt")["input_ids"].shape[1]
    cache = model(**first, use_cache=True).past_key_values
    cache.crop(shared - cache.get_seq_length())
    gap = first_logits(model, second, past_key_values=cache) - model(**second).logits[:, -1]
    assert report("cropped to a shared beginning - in one pass", gap.abs().max()) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("passed", ["whole prompt", "without images"])
def test_a_cache_is_cropped_behind_its_image(passed, tiny_model, make_inputs, page, report):
    """As prompt lookup leaves it, too, which crops what it had drafted."""
    model = tiny_model()
    first, second = (make_inputs([page(128, 96)], q, token_budget=9) for q in ("what is it?", "which is the longest?"))
    second |= {name: first[name] for name in ("query_input_ids", "query_attention_mask")}  # the cells are those kept
    expected = model(**second).logits[:, -1]
    cache = model.generate(**first, max_new_tokens=8, prompt_lookup_num_tokens=5, return_dict_in_generate=True)
    cache = cache.past_key_values
    cache.crop(int((first["mm_token_type_ids"][0] == 1).nonzero()[-1]) + 2 - cache.get_seq_length())
    if passed == "without images":
        second = {name: second[name] for name in ("input_ids", "attention_mask")}
    gap = first_logits(model, second, past_key_values=cache) - expected
    assert report("cropped behind an image - in one pass", gap.abs().max()) < TOLERANCE
    cache.crop(3 - cache.get_seq_length())
    with pytest.raises(ValueError, match="cropped to 3 tokens, but its images end after"):
        model(input_ids=first["input_ids"][:, :2], past_key_values=cache)
    if passed == "whole prompt":
        gap = first_logits(model, second, past_key_values=cache) - expected
        assert report("cropped before an image - in one pass", gap.abs().max()) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("budget", [3, "full"])
def test_a_part_may_end_in_an_image(budget, tiny_model, make_inputs, page, report):
    """Even where no cell at the image's far edge was kept, what follows stands behind it."""
    model, inputs = tiny_model(), make_inputs([page(160, 96)], token_budget=budget)
    expected = model(**inputs).logits
    image = (inputs["mm_token_type_ids"][0] == 1).nonzero()
    first, last = int(image[0]), int(image[-1]) + 1
    for start in (0, first):
        cache = None
        if start:
            cache = model(input_ids=inputs["input_ids"][:, :start], use_cache=True).past_key_values
        part = {name: value[:, start:last] if name in PER_TOKEN else value for name, value in inputs.items()}
        part["attention_mask"] = inputs["attention_mask"][:, :last]
        cache = model(**part, past_key_values=cache, use_cache=True).past_key_values
        gap = model(input_ids=inputs["input_ids"][:, last:], past_key_values=cache).logits - expected[:, last:]
        assert report("after a part that ends in an image - in one pass", gap.abs().max()) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("held", [[0, 1], [1, 0], [1]], ids=str)
def test_behind_a_cache_new_images_alone_need_be_encoded(held, tiny_model, make_inputs, page, report):
    model, pictures = tiny_model(), [page(128, 96), page(160, 96, 1)]
    whole = make_inputs([pictures], token_budget=6)
    start = int((whole["mm_token_type_ids"][0] == 1).nonzero()[6])
    first = {name: value[:, :start] if name in PER_TOKEN else value[:1] for name, value in whole.items()}
    first["pixel_values"] = whole["pixel_values"][: int(whole["image_grid_thw"][0].prod())]
    cache = model(**first, use_cache=True).past_key_values
    encoded = model.encode_images(**make_inputs([[pictures[n] for n in held]], token_budget=6))
    gap = first_logits(model, whole, past_key_values=cache, encoded_images=encoded) - model(**whole).logits[:, -1]
    assert report("behind a cache, encoded ahead - in one pass", gap.abs().max()) < TOLERANCE


@pytest.mark.parametrize("positions", [None, torch.zeros(3, 2, 4, device="meta").long()], ids=["text", "placed"])
def test_what_a_cache_holds_stays_on_the_device_of_the_prompt(positions):
    deltas = rope_deltas_of(positions, None, torch.zeros(2, 4, device="meta"), 3)
    assert (deltas.device.type, deltas.shape) == ("meta", (2, 1))


@torch.no_grad()
def test_what_another_thread_leaves_on_the_model_moves_nothing(tiny_model, make_inputs, page, monkeypatch):
    """Stock keeps the last prompt's rope deltas on the model; whatever stands there is another prompt's."""
    model, inputs = tiny_model(), make_inputs([page(160, 96)], token_budget=5)
    follows = model.generate(**inputs, max_new_tokens=3, do_sample=False)[:, -3:-1]
    expected = model(**inputs, use_cache=True).past_key_values
    others = property(lambda self: torch.full((1, 1), 99), lambda self, value: None)
    monkeypatch.setattr(type(model.model), "rope_deltas", others, raising=False)
    cache = model(**inputs, use_cache=True).past_key_values
    assert torch.equal(held_rope_deltas(cache), held_rope_deltas(expected))
    logits = [model(input_ids=follows, past_key_values=each).logits for each in (cache, expected)]
    assert torch.equal(*logits)


@torch.no_grad()
def test_a_cache_that_does_not_tell_where_it_ends_is_refused(tiny_model, make_inputs, page, report):
    model, inputs = tiny_model(), make_inputs([page(160, 96)], token_budget=5)
    own = model(**inputs, use_cache=True).past_key_values
    copied = [(layer.keys.clone(), layer.values.clone()) for layer in own.layers]
    follows = inputs["input_ids"][:, :2]
    whole = torch.cat([inputs["input_ids"], follows], 1)
    expected = model(input_ids=follows, past_key_values=own).logits
    with pytest.raises(ValueError, match=f"holds {whole.shape[1] - 2} tokens and not where"):
        model(input_ids=follows, past_key_values=DynamicCache(copied))
    with pytest.raises(ValueError, match="pass the cache itself"):
        model.generate(input_ids=whole, past_key_values=DynamicCache(copied), max_new_tokens=1)
    after = inputs | {"input_ids": whole, "attention_mask": torch.ones_like(whole)}
    after["mm_token_type_ids"] = torch.nn.functional.pad(inputs["mm_token_type_ids"], (0, 2))
    gap = first_logits(model, after, past_key_values=DynamicCache(copied)) - expected[:, -1]
    assert report("whole prompt after a copied cache - own cache", gap.abs().max()) < TOLERANCE


@torch.no_grad()
def test_embeddings_go_on_from_their_own_cache(tiny_model, make_inputs, page, report):
    model, inputs = tiny_model(), make_inputs([page(160, 96)], token_budget=5)
    cache = model(**inputs, use_cache=True).past_key_values
    follows = inputs["input_ids"][:, :2]
    expected = model(input_ids=follows, past_key_values=copy.deepcopy(cache)).logits[:, -1]
    model(**make_inputs([page(64, 64, 1)], token_budget=2))  # and not from where this prompt ended
    embeds = model.get_input_embeddings()(torch.cat([inputs["input_ids"], follows], 1))
    whole = {"inputs_embeds": embeds, "attention_mask": torch.ones(embeds.shape[:2], dtype=torch.long)}
    gap = first_logits(model, whole, past_key_values=cache) - expected
    assert report("embeddings after a cache - tokens after it", gap.abs().max()) < TOLERANCE


@torch.no_grad()
def test_images_among_embeddings_need_positions(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs([page(128, 96)], token_budget="full")
    expected = model(**inputs).logits
    placing = ("input_ids", "mm_token_type_ids", "image_grid_thw", "attention_mask")
    placed, _ = model.model.get_rope_index(**{name: inputs[name] for name in placing})
    embeds = model.get_input_embeddings()(inputs.pop("input_ids"))
    with pytest.raises(ValueError, match="images need input_ids"):
        model(**inputs, inputs_embeds=embeds)
    assert torch.equal(model(**inputs, inputs_embeds=embeds, position_ids=placed).logits, expected)


def test_several_sequences_of_a_prompt_go_on_from_its_own_place():
    assert deltas_of(torch.tensor([[-3], [5]]), 4).tolist() == [[-3], [-3], [5], [5]]


@torch.no_grad()
def test_guidance_runs_beside_images(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs([page(128, 96)], token_budget=9)
    out = model.generate(
        **inputs,
        guidance_scale=1.5,
        max_new_tokens=2,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    last = inputs["input_ids"][:, -1:]
    with_image, without = model(**inputs).logits[:, -1].log_softmax(-1), model(last).logits[:, -1].log_softmax(-1)
    guided = (without + 1.5 * (with_image - without))[out.scores[0].isfinite()]  # suppressed tokens are not
    torch.testing.assert_close(out.scores[0][out.scores[0].isfinite()], guided, atol=1e-4, rtol=0)


@torch.no_grad()
def test_an_image_that_is_asked_about_again_with_another_budget_is_refused(tiny_model, make_inputs, page):
    """Its further tokens would be read twice, or as many of the text behind it not at all."""
    model, first = tiny_model(), make_inputs([page(128, 96)], token_budget=9)
    known = model.generate(**first, max_new_tokens=2, return_dict_in_generate=True).past_key_values
    of_forward = model(**first, use_cache=True).past_key_values
    for budget in (5, 12):
        again = make_inputs([page(128, 96)], "what is it, and which of all is the longest?", token_budget=budget)
        end = int((again["mm_token_type_ids"][0] == 1).nonzero()[-1]) + 1
        for cache, told in ((known, "as the cache read it"), (of_forward, f"those of the prompt after {end}")):
            with pytest.raises(ValueError, match=f"{told}: an image has other placeholders"):
                model.generate(**again, past_key_values=copy.deepcopy(cache))


@torch.no_grad()
@pytest.mark.parametrize("given", [True, False], ids=["a cache of the user's", "the one that comes back"])
def test_a_prompt_that_shows_another_picture_than_the_cache_read_is_refused(given, tiny_model, make_inputs, page):
    model, options = tiny_model(), {"max_new_tokens": 1, "do_sample": False, "return_dict_in_generate": True}
    pictures = [page(128, 96, 1), page(64, 64, 2)]
    first, again = (
        make_inputs(pictures, [question] * 2, token_budget=4) for question in ("date?", "date? then the total?")
    )
    assert again["input_ids"].shape[1] > first["input_ids"].shape[1]
    cache = model.generate(**first, **options, **({CACHE: DynamicCache()} if given else {}))[CACHE]
    cache.crop(-3)
    model.generate(**again, **options, **{CACHE: copy.deepcopy(cache)})
    for others in ([pictures[0], page(64, 64, 3)], [page(96, 128, 1), pictures[1]], pictures[::-1]):
        other = make_inputs(others, ["date? then the total?"] * 2, token_budget=4)
        with pytest.raises(ValueError, match=r"another picture than prompt \d shows at token \d+; pass the pictures"):
            model.generate(**other, **options, **{CACHE: copy.deepcopy(cache)})
    cache.crop(1 - cache.get_seq_length())  # before the pictures: what follows may be others
    model.generate(**other, **options, **{CACHE: cache})


@torch.no_grad()
def test_pictures_that_the_cache_read_elsewhere_are_refused(tiny_model, make_inputs, page):
    model, options = tiny_model(), {"max_new_tokens": 1, "do_sample": False, "return_dict_in_generate": True}
    asks = ["date?", "what is the date?", "what is the date of it all, if all of the rows are added?"]
    batches = (  # what the cache was made from, what goes on, and what stands elsewhere though the last image ends where it did
        ([page(128, 96)] * 3, 4, asks, [" then?"] * 3, 4, [" then?", " then, and which of these two?", " then?"]),
        ([[page(128, 96), page(128, 96, 1)]], [4, 6], asks[:1], [" then?"], [6, 4], [" then?"]),
        ([page(128, 96), page(64, 64, 1)], [6, 4], asks[::2], [" then?"] * 2, [6, 3], [" then?", " then? or"]),
    )
    for pictures, budget, first, more, other_budget, other in batches:
        made = make_inputs(pictures, first, token_budget=budget)
        cache = model.generate(**made, **options)[CACHE]
        on, elsewhere = (
            make_inputs(pictures, [a + b for a, b in zip(first, ends, strict=True)], token_budget=spent)
            for ends, spent in ((more, budget), (other, other_budget))
        )
        model.generate(**on, **options, **{CACHE: copy.deepcopy(cache)})
        columns = [int((inputs["mm_token_type_ids"] == 1).any(0).nonzero()[-1]) for inputs in (made, elsewhere)]
        assert columns[0] == columns[1]
        with pytest.raises(
            ValueError, match=r"does not show the picture of token \d+ as the cache read it: an image has"
        ):
            model.generate(**elsewhere, **options, **{CACHE: cache})


@torch.no_grad()
@pytest.mark.parametrize("way", ["cropped", "reset"])
def test_what_a_cache_holds_no_more_may_be_something_else(way, tiny_model, processor, make_inputs, page):
    model, options = tiny_model(), {"max_new_tokens": 1, "do_sample": False, "return_dict_in_generate": True}
    first, other = (make_inputs([page(64, 64, seed)], token_budget=4) for seed in (1, 2))
    cache = StaticCache(model.config.text_config, 256) if way == "reset" else DynamicCache()
    model.generate(**first, **options, **{CACHE: cache})
    start = int((first["mm_token_type_ids"][0] == 1).nonzero()[0])
    if way == "reset":
        cache.reset()
    else:
        cache.crop(start - cache.get_seq_length())
    words = torch.arange(1, 41)[None] % 50 + 300
    before = {"input_ids": torch.cat([first["input_ids"][:, :start], words], 1)}
    before["attention_mask"] = torch.ones_like(before["input_ids"])
    before["mm_token_type_ids"] = torch.zeros_like(before["input_ids"])
    model.generate(**before, **options, **{CACHE: cache})
    whole = other | {name: torch.cat([before[name], other[name]], 1) for name in before}
    expected = model.generate(**whole, **options).sequences
    assert torch.equal(model.generate(**whole, **options, **{CACHE: cache}).sequences, expected)


@torch.no_grad()
def test_rows_that_a_caller_put_in_another_order_go_on(tiny_model, make_inputs, page):
    model, options = tiny_model(), {"max_new_tokens": 2, "do_sample": False, "return_dict_in_generate": True}
    pictures, asks, ends = [page(128, 96), page(64, 64, 1)], ["date?", "what is the date of it all?"], [" a?", " a?"]
    cache = model.generate(**make_inputs(pictures, asks, token_budget=4), **options)[CACHE]
    cache.reorder_cache(torch.tensor([1, 0]))
    turned = make_inputs(pictures[::-1], [a + b for a, b in zip(asks, ends, strict=True)][::-1], token_budget=4)
    assert len(model.generate(**turned, **options, **{CACHE: cache}).sequences) == 2


@torch.no_grad()
def test_a_cache_cropped_before_its_image_goes_on_as_text(tiny_model, processor, make_inputs, page, report):
    model = tiny_model()
    texts = [
        asked("what is the total?"),
        asked("what is the total?") + "seven<|im_end|>\nand of the others, which is it?",
    ]
    first, second = (processor(text=[text], return_tensors="pt") for text in texts)
    cache = model(**make_inputs([page(128, 96)], token_budget=9), use_cache=True).past_key_values
    shared = 3
    begun = make_inputs([page(128, 96)], token_budget=9)["input_ids"][:, :shared]
    first, second = (
        {
            "input_ids": torch.cat([begun, x["input_ids"]], 1),
            "attention_mask": torch.ones(1, shared + x["input_ids"].shape[1]),
        }
        for x in (first, second)
    )
    cache.crop(shared - cache.get_seq_length())
    types = {"mm_token_type_ids": torch.zeros_like(first["input_ids"])}
    out = model.generate(**first, **types, past_key_values=cache, max_new_tokens=1, return_dict_in_generate=True)
    types = {"mm_token_type_ids": torch.zeros_like(second["input_ids"])}
    expected = model(input_ids=second["input_ids"]).logits[:, -1]
    gap = first_logits(model, second | types, past_key_values=out.past_key_values) - expected
    assert report("text after an image that was cropped away - in one pass", gap.abs().max()) < TOLERANCE


@torch.no_grad()
def test_a_part_with_positions_may_end_in_a_pruned_image(tiny_model, make_inputs, page, report):
    model, inputs = tiny_model(), make_inputs([page(160, 96)], token_budget=3)
    ids, last = inputs["input_ids"], int((inputs["mm_token_type_ids"][0] == 1).nonzero()[-1]) + 1
    expected = model(**inputs).logits
    named = ("input_ids", "mm_token_type_ids", "image_grid_thw", "attention_mask")
    positions = model.model.get_rope_index(**{name: inputs[name] for name in named})[0]
    part = {name: value[:, :last] if name in PER_TOKEN else value for name, value in inputs.items()}
    ended = model(**part, position_ids=positions[..., :last], use_cache=True).past_key_values
    with pytest.raises(ValueError, match="ends with a pruned image whose position_ids were given"):
        model(input_ids=ids[:, last:], past_key_values=copy.deepcopy(ended))
    for middle in (last + 1, last + 4):
        cache = copy.deepcopy(ended)
        model(input_ids=ids[:, last:middle], position_ids=positions[..., last:middle], past_key_values=cache)
        gap = model(input_ids=ids[:, middle:], past_key_values=cache).logits - expected[:, middle:]
        assert report("after a placed part that ends in an image - in one pass", gap.abs().max()) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("shared", [3, 6, 16, 30])
def test_a_new_part_with_an_image_may_bring_its_positions(shared, tiny_model, processor, make_inputs, page, report):
    """Also where it is as long as what is cached: its types are not those of the whole prompt."""
    model, inputs = tiny_model(), make_inputs([page(128, 96)], token_budget=9)
    begun = torch.arange(5, 5 + shared)[None]
    cache = model(input_ids=begun, use_cache=True).past_key_values
    part = inputs | {"attention_mask": torch.ones(1, shared + inputs["input_ids"].shape[1]).long()}
    expected = first_logits(model, part, past_key_values=copy.deepcopy(cache))
    named = ("input_ids", "mm_token_type_ids", "image_grid_thw")
    positions = model.model.get_rope_index(**{name: inputs[name] for name in named})[0]
    positions = torch.cat([torch.arange(positions.shape[-1]).expand(1, 1, -1), positions]) + shared
    beams = copy.deepcopy(cache)
    beams.batch_repeat_interleave(2)
    gap = first_logits(model, part, position_ids=positions, past_key_values=cache) - expected
    assert report("a part with its positions - without", gap.abs().max()) < TOLERANCE
    gap = first_logits(model, part, past_key_values=beams, num_beams=2) - expected
    assert report("beams of a part with an image - one", gap.abs().max()) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("whole", [True, False], ids=["whole prompt", "new part"])
def test_a_new_image_behind_a_cache_needs_its_pixels(whole, tiny_model, make_inputs, processor, page):
    model, first = tiny_model(), make_inputs([page(128, 96)], token_budget=9)
    cache = model(**first, use_cache=True).past_key_values
    text = f"<|im_end|>\n{asked(processor.image_token + 'and here?')}"
    second = processor(images=page(64, 64, 1), text=text, token_budget=4, return_tensors="pt")
    joined = {name: torch.cat([first[name], second[name]], 1) for name in PER_TOKEN}
    if not whole:  # its mask is that of all
        joined |= {name: second[name] for name in ("input_ids", "mm_token_type_ids")}
    with pytest.raises(ValueError, match=r"but no images(?: came)?; pass pixel_values and image_grid_thw"):
        first_logits(model, joined, past_key_values=copy.deepcopy(cache))
    if whole:  # what the cache has read may come without pixels, and what the model wrote is text
        follows = {
            name: torch.nn.functional.pad(first[name], (0, 3), value=1) for name in ("input_ids", "attention_mask")
        }
        first_logits(model, follows, past_key_values=copy.deepcopy(cache))
        joined["mm_token_type_ids"][:, first["input_ids"].shape[1] :] = 0
        first_logits(model, joined, past_key_values=copy.deepcopy(cache))
