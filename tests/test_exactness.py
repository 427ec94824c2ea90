"""Exactness in logits, float32: full budget against stock, pruned against the masked oracle, attention kernels, bad inputs."""

import copy
from functools import partial

import pytest
import torch
from transformers import StaticCache

from arrcoc.caching import prompt_end

pytestmark = pytest.mark.core

OWN_INPUTS = ("texture_images", "query_input_ids", "query_attention_mask", "image_token_counts")
SHAPES = ["default", "no_deepstack", "one_level", "patch_14", "merge_3", "merge_1", "pooled"]
TOLERANCE = 1e-5
# Trained logits reach 20, where one rounding of float32 is 1.9e-6; measured up to 9.5e-6.
TRAINED_TOLERANCE = 2e-5


def without_own(inputs):
    return {name: value for name, value in inputs.items() if name not in OWN_INPUTS}


def difference(ours, theirs, mask=None):
    gap = (ours.float() - theirs.float()).abs()
    return (gap if mask is None else gap[mask.bool()]).max()


@pytest.fixture(scope="module")
def batch(page):
    """Three chats: one picture, two pictures, a strip."""
    return [page(128, 96), [page(64, 64, 1), page(96, 32, 2)], page(160, 32, 3)]


@torch.no_grad()
@pytest.mark.parametrize("padding_side", ["left", "right"])
@pytest.mark.parametrize("shape", SHAPES)
def test_full_budget_equals_stock_bit_for_bit(
    shape, padding_side, tiny_model, stock_twin, make_processor, make_inputs, batch, report
):
    model = tiny_model(shape)
    inputs = make_inputs(batch, token_budget="full", processor=make_processor(model), padding_side=padding_side)
    expected = stock_twin(model)(**without_own(inputs)).logits
    assert report("full budget - stock", difference(model(**inputs).logits, expected)) == 0
    assert (
        report("full budget - stock, stock's inputs alone", difference(model(**without_own(inputs)).logits, expected))
        == 0
    )


@torch.no_grad()
def test_full_budget_of_the_checkpoint_equals_stock_bit_for_bit(model, stock, make_inputs, page, report):
    inputs = make_inputs([page(160, 128), page(96, 200, 1)], token_budget="full")
    expected = stock(**without_own(inputs)).logits
    assert report("full budget - stock (checkpoint)", difference(model(**inputs).logits, expected)) == 0


@torch.no_grad()
def test_an_image_that_a_mask_hides_is_stocks_where_all_tokens_are_kept(tiny_model, stock_twin, make_inputs, page):
    model, pictures = tiny_model(), [[page(128, 96), page(128, 96, 1)]]
    for budget in ("full", 4):
        inputs = make_inputs(pictures, token_budget=budget)
        first = (inputs["mm_token_type_ids"][0] == 1).nonzero().flatten()[: int(inputs["image_token_counts"][0])]
        inputs["attention_mask"][0, first] = 0
        if budget == "full":
            expected = stock_twin(model)(**without_own(inputs)).logits
            assert difference(model(**inputs).logits, expected) == 0
            continue
        with pytest.raises(
            ValueError, match="attention_mask hides placeholders of an image: the prompt has 2 images, 1 where"
        ):
            model(**inputs)
    other = make_inputs([[page(128, 96), page(64, 64, 1)]], token_budget="full")
    first = (other["mm_token_type_ids"][0] == 1).nonzero().flatten()[: int(other["image_token_counts"][0])]
    other["attention_mask"][0, first] = 0  # stock takes the second for the first, whose size is another
    with pytest.raises(ValueError, match="attention_mask hides placeholders of an image"):
        model(**other)


@torch.no_grad()
@pytest.mark.parametrize("mode", [{"do_sample": False}, {"num_beams": 3}, {"do_sample": True, "top_k": 20}], ids=str)
def test_full_budget_generates_what_stock_generates(mode, tiny_model, stock_twin, make_inputs, batch):
    model = tiny_model()
    stock = stock_twin(model)
    inputs = make_inputs(batch, token_budget="full")
    torch.manual_seed(1)
    ours = model.generate(**inputs, max_new_tokens=6, **mode)
    torch.manual_seed(1)
    theirs = stock.generate(**without_own(inputs), max_new_tokens=6, **mode)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("shape", ["default", "no_deepstack"])
def test_full_budget_has_the_gradients_of_stock(shape, tiny_config, new_model, stock_twin, make_inputs, batch, report):
    from_shape = {"vision": {"deepstack_visual_indexes": []}} if shape == "no_deepstack" else {}
    model = new_model(tiny_config(**from_shape)).train()
    stock = stock_twin(model)
    inputs = make_inputs(batch, token_budget="full")
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    losses = [model(**inputs, labels=labels).loss, stock(**without_own(inputs), labels=labels).loss]
    for loss in losses:
        loss.backward()
    assert losses[0] == losses[1]
    ours = {name: p.grad for name, p in model.named_parameters() if ".arrcoc." not in name}
    for name, parameter in stock.named_parameters():
        assert report("full budget - stock, gradients", difference(ours[name], parameter.grad)) == 0, name


def oracle(model, stock, pruned, full, shift=0):
    """Stock's logits for `full` with the dropped cells masked out and all positions original, at the tokens of `pruned`.

    A pooled token's features are put on the cell where it stands, averaged here cell by cell.
    """
    plans = model.allocate(**pruned)
    encoded = stock.model.get_image_features(full["pixel_values"], full["image_grid_thw"], return_dict=True)
    position_ids, _ = stock.model.get_rope_index(
        full["input_ids"],
        mm_token_type_ids=full["mm_token_type_ids"],
        image_grid_thw=full["image_grid_thw"],
        attention_mask=full["attention_mask"],
    )
    keep = []
    tokens, levels = [], [[] for _ in encoded.deepstack_features]
    for number, plan in enumerate(plans):
        _, height, width = plan.grid
        cells = plan.positions[:, 0] * height * width + plan.positions[:, 1] * width + plan.positions[:, 2]
        stands = torch.zeros(len(plan.cell_token), dtype=torch.bool)
        stands[cells] = True
        keep.append(stands)
        features = encoded.pooler_output[number].clone()
        deep = [level[number].clone() for level in encoded.deepstack_features]
        for token, cell in enumerate(cells.tolist()):
            members = plan.cell_token == token
            features[cell] = encoded.pooler_output[number][members].mean(0)
            for index, level in enumerate(encoded.deepstack_features):
                deep[index][cell] = level[number][members].mean(0) * (index < int(plan.depth[token]))
        if model.model.arrcoc.adapter is not None:
            features[cells] = model.model.arrcoc.adapter(features[cells], plan.level)
        tokens.append(features)
        for index, level in enumerate(deep):
            levels[index].append(level)
    encoded.pooler_output, encoded.deepstack_features = tokens, levels
    mask = full["attention_mask"].clone()
    mask[(full["mm_token_type_ids"] == 1) & mask.bool()] = torch.cat(keep).long()
    logits = stock(
        input_ids=full["input_ids"],
        attention_mask=mask,
        position_ids=position_ids + shift * (full["mm_token_type_ids"] == 1),
        mm_encoder_outputs={"image": encoded},
    ).logits
    return logits[mask.bool()]


@torch.no_grad()
@pytest.mark.parametrize("padding_side", ["left", "right"])
@pytest.mark.parametrize("budget", [1, 12, [14, 3, 12, 2]], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_pruned_equals_stock_with_dropped_tokens_masked(
    shape, budget, padding_side, tiny_model, stock_twin, make_processor, make_inputs, batch, report
):
    model = tiny_model(shape)
    processor = make_processor(model)
    pruned = make_inputs(batch, token_budget=budget, processor=processor, padding_side=padding_side)
    full = make_inputs(batch, token_budget="full", processor=processor, padding_side=padding_side)
    assert pruned["image_token_counts"].sum() < full["image_token_counts"].sum()
    logits = model(**pruned).logits[pruned["attention_mask"].bool()]
    gap = difference(logits, oracle(model, stock_twin(model), pruned, full))
    assert report(f"pruned - masked oracle ({shape})", gap) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("budget", [4, 40])
def test_pruned_checkpoint_equals_stock_with_dropped_tokens_masked(budget, model, stock, make_inputs, page, report):
    pictures = [page(160, 128), page(96, 200, 1)]
    pruned, full = (make_inputs(pictures, token_budget=b) for b in (budget, "full"))
    gap = difference(model(**pruned).logits[pruned["attention_mask"].bool()], oracle(model, stock, pruned, full))
    assert report("pruned - masked oracle (checkpoint)", gap) < TRAINED_TOLERANCE


@torch.no_grad()
def test_the_oracle_sees_a_wrong_position(tiny_model, stock_twin, make_inputs, batch, report):
    """The test above has teeth: one cell's shift of the image moves the logits by far more than the tolerance."""
    model = tiny_model()
    pruned, full = (make_inputs(batch, token_budget=b) for b in (20, "full"))
    logits = model(**pruned).logits[pruned["attention_mask"].bool()]
    gap = difference(logits, oracle(model, stock_twin(model), pruned, full, shift=1))
    assert report("(control) pruned - oracle with images shifted by one", gap) > 1e-2


@torch.no_grad()
@pytest.mark.parametrize("shape", ["default", "pooled"])
def test_sdpa_equals_eager(shape, tiny_model, make_inputs, batch, report):
    model = tiny_model(shape)
    inputs = make_inputs(batch, token_budget=15)
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    gap = difference(model(**inputs).logits, eager(**inputs).logits, inputs["attention_mask"])
    assert report("sdpa - eager", gap) < TOLERANCE


def same_plan(one, two) -> bool:
    return all(
        torch.equal(getattr(one, name), getattr(two, name)) for name in ("positions", "level", "depth", "cell_token")
    )


@torch.no_grad()
@pytest.mark.parametrize("budget", [1, 9, 30])
@pytest.mark.parametrize("shape", ["default", "pooled"])
def test_kept_tokens_are_in_raster_order(shape, budget, tiny_model, make_inputs, batch):
    for plan in tiny_model(shape).allocate(**make_inputs(batch, token_budget=budget)):
        _, height, width = plan.grid
        assert (plan.positions >= 0).all()
        assert (plan.positions < torch.tensor(plan.grid)).all()
        cells = plan.positions @ torch.tensor([height * width, width, 1])
        assert (cells.diff() > 0).all()


@torch.no_grad()
@pytest.mark.parametrize("shape", ["default", "pooled"])
def test_the_same_input_gives_the_same_choice_at_any_place_of_a_batch(shape, tiny_model, make_inputs, page, report):
    model = tiny_model(shape)
    alone = model.allocate(**make_inputs(page(128, 96), token_budget=12))[0]
    inputs = make_inputs([page(64, 64, 1), page(128, 96), [page(32, 128, 2), page(128, 96)]], token_budget=12)
    plans = model.allocate(**inputs)
    for plan in (plans[1], plans[3]):
        assert same_plan(alone, plan)
        report("relevance, at another place of a batch", difference(alone.relevance, plan.relevance))
    repeated = model.allocate(**inputs)
    assert all(same_plan(one, two) for one, two in zip(plans, repeated, strict=True))
    assert torch.equal(model(**inputs).logits, model(**inputs).logits)


@torch.no_grad()
def test_the_question_decides_once_the_allocator_is_awake(tiny_model, make_inputs, page):
    questions = ["what is the total?", "which shape is red?", "date?", "how many lines are on the page?"]
    for awake in (True, False):
        first, *others = (
            tiny_model(awake=awake).allocate(**make_inputs(page(160, 128), question, token_budget=30))[0]
            for question in questions
        )
        assert all(same_plan(first, other) for other in others) != awake


@torch.no_grad()
def test_bfloat16_chooses_what_float32_chooses(model, make_inputs, page, report):
    """The share of kept cells that agree; vision features in bfloat16 differ, the scores calculate in float32."""
    half = copy.deepcopy(model).to(torch.bfloat16)
    agree = total = 0
    for seed in range(6):
        inputs = make_inputs(page(160, 128, seed), token_budget=20)
        ours, theirs = model.allocate(**inputs)[0], half.allocate(**inputs)[0]
        agree += len({*map(tuple, ours.positions.tolist())} & {*map(tuple, theirs.positions.tolist())})
        total += len(ours)
        logits = half(**inputs).logits
        assert logits.dtype == torch.bfloat16
        assert torch.isfinite(logits).all()
    report("bfloat16: share of kept cells unlike float32's", 1 - agree / total)
    assert agree / total > 0.9


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_model_turned_to_half_after_loading_generates(dtype, tiny_config, new_model, make_inputs, page):
    model = new_model(tiny_config()).to(dtype)
    out = model.generate(
        **make_inputs(page(), token_budget=10), max_new_tokens=3, return_dict_in_generate=True, output_logits=True
    )
    assert all(torch.isfinite(logits).all() for logits in out.logits)


@torch.no_grad()
def test_text_alone_equals_stock(tiny_model, stock_twin, processor):
    model = tiny_model()
    inputs = processor(text=["what is the total?", "and the date of it?"], padding=True, return_tensors="pt")
    assert torch.equal(model(**inputs).logits, stock_twin(model)(**inputs).logits)
    assert model.allocate(**inputs) == []
    assert model.generate(**inputs, max_new_tokens=3, do_sample=False).shape[0] == 2


@torch.no_grad()
def test_an_image_without_a_question_is_allocated_blind(tiny_model, stock_twin, make_inputs, page, report):
    model = tiny_model()
    pruned, full = (make_inputs(page(), question="", token_budget=b) for b in (10, "full"))
    gap = difference(
        model(**pruned).logits[pruned["attention_mask"].bool()], oracle(model, stock_twin(model), pruned, full)
    )
    assert report("pruned - masked oracle (no question)", gap) < TOLERANCE
    assert not model.allocate(**pruned)[0].scores["participation"].any()
    inputs = {name: value for name, value in pruned.items() if not name.startswith("query_")}
    assert same_plan(model.allocate(**pruned)[0], model.allocate(**inputs)[0])


@torch.no_grad()
@pytest.mark.parametrize("size", [(16, 16), (3200, 16), (16, 3200)], ids=["one cell", "200 wide", "200 high"])
def test_extreme_pictures_equal_the_oracle(size, tiny_model, stock_twin, make_processor, make_inputs, page, report):
    model, processor = tiny_model(), make_processor(tiny_model())
    processor.image_processor.size = {"shortest_edge": 256, "longest_edge": 409600}
    picture = page(*size) if min(size) > 16 or max(size) > 16 else page(32, 32).resize(size)
    pruned, full = (make_inputs(picture, token_budget=b, processor=processor) for b in (9, "full"))
    gap = difference(
        model(**pruned).logits[pruned["attention_mask"].bool()], oracle(model, stock_twin(model), pruned, full)
    )
    assert report("pruned - masked oracle (extreme pictures)", gap) < TOLERANCE


@torch.no_grad()
def test_a_budget_above_the_grid_keeps_every_cell(tiny_model, make_inputs, page):
    inputs, full = (make_inputs(page(), token_budget=b) for b in (100_000, "full"))
    assert torch.equal(inputs["input_ids"], full["input_ids"])
    assert torch.equal(tiny_model()(**inputs).logits, tiny_model()(**full).logits)
    assert len(tiny_model().allocate(**inputs)[0]) == int(inputs["image_grid_thw"].prod()) // 4


def changed(inputs, **values):
    inputs = {**inputs, **values}
    return {name: value for name, value in inputs.items() if value is not None}


def one_placeholder_less(inputs):
    keep = torch.ones_like(inputs["input_ids"][0], dtype=torch.bool)
    keep[(inputs["mm_token_type_ids"][0] == 1).nonzero()[0]] = False
    return {name: inputs[name][:, keep] for name in ("input_ids", "attention_mask", "mm_token_type_ids")}


REFUSALS = {
    "counts of other images": (
        lambda i: changed(i, image_token_counts=i["image_token_counts"].flip(0)),
        "image_token_counts",
    ),
    "too few placeholders": (lambda i: changed(i, **one_placeholder_less(i)), "placeholders"),
    "raw images missing": (lambda i: changed(i, texture_images=None), "texture_images"),
    "raw images of one image only": (lambda i: changed(i, texture_images=i["texture_images"][:1]), "texture_images"),
    "questions of one image only": (lambda i: changed(i, query_input_ids=i["query_input_ids"][:1]), "query_input_ids"),
    "types missing": (lambda i: changed(i, mm_token_type_ids=None), "mm_token_type_ids"),
    "types and counts missing": (
        lambda i: changed(i, mm_token_type_ids=None, image_token_counts=None),
        "mm_token_type_ids",
    ),
    "one grid too few": (
        lambda i: changed(
            i, image_grid_thw=i["image_grid_thw"][:1], pixel_values=i["pixel_values"][: i["image_grid_thw"][0].prod()]
        ),
        "image",
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("way", ["forward", "generate"])
@pytest.mark.parametrize("name", REFUSALS)
def test_inputs_that_do_not_match_are_refused_and_leave_no_trace(name, way, tiny_model, make_inputs, page):
    model = tiny_model()
    good = make_inputs([[page(), page(64, 128, 1)]], token_budget=[12, 10])
    expected = model(**good).logits
    breaks, words = REFUSALS[name]
    call = model if way == "forward" else (lambda **inputs: model.generate(**inputs, max_new_tokens=2))
    with pytest.raises(ValueError, match=words):
        call(**breaks(good))
    assert torch.equal(model(**good).logits, expected)


@torch.no_grad()
@pytest.mark.parametrize("way", ["forward", "generate"])
def test_images_without_placeholders_and_placeholders_without_images_are_refused(
    way, tiny_model, make_inputs, processor, page
):
    model = tiny_model()
    good = make_inputs(page(), token_budget=12)
    text = processor(text="what is the total?", return_tensors="pt")
    call = model if way == "forward" else (lambda **inputs: model.generate(**inputs, max_new_tokens=2))
    images = {name: good[name] for name in ("pixel_values", "image_grid_thw", *OWN_INPUTS)}
    with pytest.raises(ValueError, match="placeholder"):
        call(**{**images, **text, "mm_token_type_ids": torch.zeros_like(text["input_ids"])})
    with pytest.raises(ValueError, match="placeholder"):
        call(**{name: good[name] for name in ("input_ids", "attention_mask", "mm_token_type_ids")})


@torch.no_grad()
def test_prompts_as_embeddings_equal_prompts_as_tokens(tiny_model, make_inputs, batch, report):
    model = tiny_model()
    for budget in (11, "full"):
        inputs = make_inputs(batch, token_budget=budget)
        expected = model(**inputs).logits
        embeds = model.get_input_embeddings()(inputs["input_ids"])
        position_ids, _ = model.model.get_rope_index(**inputs)
        rest = changed(inputs, input_ids=None, inputs_embeds=embeds, position_ids=position_ids)
        gap = difference(model(**rest).logits, expected, inputs["attention_mask"])
        assert report("prompt as embeddings - as tokens", gap) < TOLERANCE
    fresh = copy.deepcopy(model)
    fresh.model.rope_deltas = None
    inputs = make_inputs(batch, token_budget=11)
    embeds = model.get_input_embeddings()(inputs["input_ids"])
    rest = changed(inputs, input_ids=None, inputs_embeds=embeds)
    for either in (fresh, model):  # whatever ran before
        for run in (either, partial(either.generate, max_new_tokens=2)):
            for given in (rest, changed(rest, image_token_counts=None)):
                with pytest.raises(ValueError, match=r"position_ids|do not match"):
                    run(**given)
    options = {"max_new_tokens": 1, "return_dict_in_generate": True, "output_logits": True}
    with_ids = fresh.generate(**inputs, inputs_embeds=embeds, **options).logits[0]
    assert (with_ids - fresh.generate(**inputs, **options).logits[0]).abs().max() < TOLERANCE


@torch.no_grad()
def test_features_that_an_output_holds_may_be_handed_back(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(), token_budget=10)
    seen = model(**inputs)
    if "image_outputs" not in seen:
        pytest.skip("transformers before 5.24 does not return them")
    prompt = {name: inputs[name] for name in ("input_ids", "attention_mask", "mm_token_type_ids", "image_grid_thw")}
    again = model(**prompt, mm_encoder_outputs={"image": seen.image_outputs})
    assert torch.equal(again.logits, seen.logits)
    model.generate(**prompt, mm_encoder_outputs={"image": seen.image_outputs}, num_beams=2, max_new_tokens=1)
    again = model(**prompt, mm_encoder_outputs={"image": seen.image_outputs})  # which beams have left as they were
    assert torch.equal(again.logits, seen.logits)


@torch.no_grad()
def test_tuples_hold_what_named_outputs_hold(tiny_model, make_inputs, page, monkeypatch):
    model, inputs = tiny_model(), make_inputs(page(), token_budget=10)
    named = model.model(**inputs)
    seen = model.model.get_image_features(
        *(inputs[name] for name in ("pixel_values", "image_grid_thw", "texture_images", "query_input_ids")),
        inputs["query_attention_mask"], inputs["image_token_counts"], return_dict=False,
    )  # fmt: skip
    assert type(seen) is tuple
    for way in ("asked for", "configured"):
        if way == "configured":
            monkeypatch.setattr(model.config, "return_dict", False)
        given = model.model(**inputs, **({"return_dict": False} if way == "asked for" else {}))
        assert type(given) is tuple
        assert torch.equal(given[0], named.last_hidden_state)
    assert torch.equal(model.model(**inputs, return_dict=True).last_hidden_state, named.last_hidden_state)


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
@torch.no_grad()
@pytest.mark.parametrize(
    ("mode", "count", "options"),
    # inductor takes minutes on a CPU, and so does aot_eager, which traces what inductor would compile, for many shapes or for
    # stock's layers, too; many shapes take half as long again where the first of them is compiled for itself alone
    [
        ({}, 4, {"backend": "eager", "dynamic": True}),
        ({"encode_ratio": 0.5, "allocation_mode": "foveated"}, 1, {"backend": "aot_eager"}),
    ],
    ids=["select", "foveated in two stages"],
)
def test_torch_compile_equals_eager_mode(mode, count, options, tiny_config, new_model, make_inputs, page, report):
    shallow = {"vision": {"depth": 1, "deepstack_visual_indexes": [0]}, "text": {"num_hidden_layers": 1}}
    model = new_model(tiny_config(**shallow))
    torch._dynamo.reset()
    if options["backend"] == "aot_eager":
        for stock in (model.model.language_model, *model.model.visual.blocks):
            stock.forward = torch.compiler.disable(stock.forward)
    compiled = torch.compile(model, **options)
    # stock's three functions fit below the limit, behind which all runs uncompiled, and would not if ours shared it with them
    shapes = {(64, 64): 10, (48, 64): 11, (96, 64): 9, (96, 128): 20}
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True, recompile_limit=4):
        for size, budget in list(shapes.items())[:count]:
            inputs = make_inputs(page(*size), token_budget=budget)
            gap = difference(compiled(**inputs, **mode).logits, model(**inputs, **mode).logits)
            assert report("compiled - eager mode", gap) < TOLERANCE


@pytest.mark.usefixtures("compiler")
@torch.no_grad()
def test_a_token_behind_a_static_cache_is_one_graph(tiny_model, stock_twin, make_inputs, page):
    """As with stock; else a GPU would wait at every token for how many the cache holds."""
    model, inputs = tiny_model(), make_inputs(page(64, 48), token_budget=6)
    breaks = []
    full = make_inputs(page(64, 48), token_budget="full")
    for one, prompt in ((stock_twin(model), without_own(full)), (model, inputs)):
        cache = StaticCache(config=model.config.get_text_config(), max_cache_len=64)
        one(**prompt, past_key_values=cache, use_cache=True)
        length = prompt["input_ids"].shape[1]
        token = {"input_ids": torch.tensor([[5]]), "position_ids": torch.full((4, 1, 1), length)}
        mask = torch.ones(1, length + 1, dtype=torch.long)
        torch._dynamo.reset()
        told = torch._dynamo.explain(one)(**token, attention_mask=mask, past_key_values=cache, use_cache=True)
        breaks.append((told.graph_count, told.graph_break_count))
    assert breaks == [(1, 0)] * 2


@torch.no_grad()
def test_a_static_cache_that_was_emptied_hands_nothing_on(tiny_model, make_inputs, page):
    """A prompt of one token is no next token of the prompt before."""
    model, inputs = tiny_model(), make_inputs(page(64, 48), token_budget=6)
    cache = StaticCache(config=model.config.get_text_config(), max_cache_len=64)
    short = {"max_new_tokens": 3, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    model.generate(**inputs, past_key_values=cache, max_new_tokens=3)
    for length in (1, 4):
        cache.reset()
        text = torch.arange(5, 5 + length)[None]
        found = model.generate(text, past_key_values=cache, **short)
        assert prompt_end(cache).rope_deltas.tolist() == [[0]]
        torch.testing.assert_close(torch.stack(found.logits), torch.stack(model.generate(text, **short).logits))
