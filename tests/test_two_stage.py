"""Stage 1: the vision tower on chosen cells, the foveated mode, and images that are encoded once and asked often."""

import copy
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from PIL import Image
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from arrcoc.allocation import Allocation, apply_to_tokens
from arrcoc.encoding import COARSE_FACTORS, coarse_grid, coarse_view, encode_cells
from arrcoc.looking import EMPTY_CONTRAST, cell_contrast, choose_to_encode
from arrcoc.texture import pixel_canvas

SHAPES = ("default", "no_deepstack", "one_level", "patch_14", "merge_3", "merge_1")
MODES = ({"encode_ratio": 0.4}, {"encode_ratio": "auto"}, {"allocation_mode": "foveated"},
         {"allocation_mode": "foveated", "encode_ratio": 0.5})  # fmt: skip
pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_grad")]


@pytest.fixture
def no_grad():
    with torch.no_grad():
        yield


def features(output):
    return [
        output.last_hidden_state,
        *output.pooler_output,
        *(rows for level in output.deepstack_features for rows in level),
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_all_cells_by_the_hook_are_bit_equal_to_stock(shape, tiny_model, make_inputs, make_processor, page, report):
    model = tiny_model(shape)
    inputs = make_inputs([page(), page(160, 64, seed=2)], processor=make_processor(model), token_budget="full")
    pixels, grid = inputs["pixel_values"], inputs["image_grid_thw"]
    cells = [torch.arange(int(count)) for count in inputs["image_token_counts"]]
    ours = features(encode_cells(model.model.visual, pixels, grid, cells))
    theirs = features(model.model.encode(pixels, grid))
    assert (
        max(report("vision tower by the hook - stock", (a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
        == 0
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_encoded_cells_equal_stock_with_the_others_masked(shape, tiny_model, make_inputs, make_processor, page, report):
    model = tiny_model(shape)
    visual, unit = model.model.visual, model.model.visual.spatial_merge_unit
    inputs = make_inputs(page(), processor=make_processor(model), token_budget="full")
    cells = torch.arange(int(inputs["image_token_counts"][0]))[1::3]
    rows = (cells[:, None] * unit + torch.arange(unit)).flatten()

    def masked(module, query, key, value, attention_mask, scaling, **kwargs):
        bias = torch.full((key.shape[-2],), -math.inf).index_fill(0, rows, 0.0)
        weights = torch.softmax(query @ key.transpose(-1, -2) * scaling + bias, -1)
        return (weights @ value).transpose(1, 2), weights

    ours = encode_cells(visual, inputs["pixel_values"], inputs["image_grid_thw"], [cells])
    before = visual.config._attn_implementation
    ALL_ATTENTION_FUNCTIONS.register("masked_cells", masked)
    visual.config._attn_implementation = "masked_cells"
    try:
        theirs = model.model.encode(inputs["pixel_values"], inputs["image_grid_thw"])
    finally:
        visual.config._attn_implementation = before
    pairs = [(ours.pooler_output[0], theirs.pooler_output[0][cells])]
    pairs += [(a[0], b[0][cells]) for a, b in zip(ours.deepstack_features, theirs.deepstack_features, strict=True)]
    assert max(report("encoded cells - masked vision tower", (a - b).abs().max()) for a, b in pairs) < 2e-5


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_sample_does_not_depend_on_its_batch(mode, tiny_model, make_inputs, page, report):
    model = tiny_model()
    pictures, questions = [page(), page(160, 64, seed=2)], ["what is the total?", "where?"]
    together = make_inputs(pictures, questions, token_budget=14)
    logits = model(**together, **mode).logits
    for row, (picture, question) in enumerate(zip(pictures, questions, strict=True)):
        alone = model(**make_inputs(picture, question, token_budget=14), **mode).logits[0]
        assert report("two-stage, batch - single", (logits[row, -len(alone) :] - alone).abs().max()) < 1e-5


def rescored(model, inputs, tokens, **mode):
    """(steps, vocabulary) logits of `tokens` (steps,) after the prompt of `inputs`, in one pass without a cache."""
    whole = dict(inputs) | {"input_ids": torch.cat([inputs["input_ids"], tokens[None]], -1)}
    for name in ("attention_mask", "mm_token_type_ids"):
        fill = torch.full((1, len(tokens)), int(name == "attention_mask"))
        whole[name] = torch.cat([inputs[name], fill], -1)
    return model(**whole, **mode, use_cache=False).logits[0, inputs["input_ids"].shape[1] - 1 : -1]


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("sampled", [{}, {"do_sample": True, "num_return_sequences": 2}], ids=["greedy", "sampled"])
def test_generation_agrees_with_forward(sampled, mode, tiny_model, make_inputs, page, report):
    model, inputs = tiny_model(), make_inputs(page(), token_budget=14)
    options = {"max_new_tokens": 4, "output_logits": True, "return_dict_in_generate": True}
    made = model.generate(**inputs, **mode, **sampled, **options)
    for row, tokens in enumerate(made.sequences[:, inputs["input_ids"].shape[1] :]):
        stepwise = torch.stack([step[row] for step in made.logits])
        gap = (rescored(model, inputs, tokens, **mode) - stepwise).abs().max()
        assert report("two-stage, cached - uncached", gap) < 1e-5


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_beams_score_what_one_pass_scores(mode, tiny_model, make_inputs, page, report):
    model, pictures = tiny_model(), [page(), page(160, 64, seed=2)]
    inputs = make_inputs(pictures, token_budget=14)
    options = {"max_new_tokens": 4, "output_logits": True, "return_dict_in_generate": True}
    made = model.generate(**inputs, **mode, num_beams=3, num_return_sequences=2, **options)
    scores = model.compute_transition_scores(made.sequences, made.logits, made.beam_indices, normalize_logits=True)
    for row, tokens in enumerate(made.sequences[:, inputs["input_ids"].shape[1] :]):
        single = make_inputs(pictures[row // 2], token_budget=14)
        expected = rescored(model, single, tokens, **mode).log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        assert report("two-stage, cached - uncached: beams", (scores[row] - expected).abs().max()) < 1e-5


def test_the_config_sets_both_for_every_call(tiny_config, new_model, make_inputs, page):
    inputs = make_inputs(page(), token_budget=14)
    model = new_model(tiny_config())
    asked = model(**inputs, encode_ratio=0.4, allocation_mode="foveated").logits
    model.config.encode_ratio, model.config.allocation_mode = 0.4, "foveated"
    assert torch.equal(model(**inputs).logits, asked)
    assert not torch.equal(model(**inputs, encode_ratio=1.0, allocation_mode="select").logits, asked)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_full_budget_is_stock_whatever_the_mode(mode, tiny_model, stock_twin, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(), token_budget="full")
    own = ("texture_images", "query_input_ids", "query_attention_mask", "image_token_counts")
    stock = stock_twin(model)(**{name: value for name, value in inputs.items() if name not in own})
    assert torch.equal(model(**inputs, **mode).logits, stock.logits)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_picture_of_one_cell_works(mode, tiny_model, make_inputs, make_processor):
    model = tiny_model()
    processor = make_processor(model)
    processor.image_processor.size = {"shortest_edge": 1, "longest_edge": 10**6}
    inputs = make_inputs(Image.new("RGB", (16, 16), "red"), processor=processor, token_budget=5)
    assert inputs["image_token_counts"].tolist() == [1]
    assert torch.isfinite(model(**inputs, **mode).logits).all()


@pytest.mark.parametrize("value", [0, -0.1, 1.01, math.nan, math.inf, True, "half", None.__class__, [0.5]])
def test_an_encode_ratio_that_is_none_is_refused(value, tiny_model, tiny_config, make_inputs, page):
    inputs = make_inputs(page(), token_budget=5)
    with pytest.raises(ValueError, match=r"encode_ratio=.*above 0 and up to 1"):
        tiny_model()(**inputs, encode_ratio=value)
    with pytest.raises(StrictDataclassFieldValidationError, match="encode_ratio"):
        tiny_config(encode_ratio=value)


def test_an_encode_ratio_of_numpy_is_a_number(tiny_model, make_inputs, page):
    inputs = make_inputs(page(), token_budget=5)
    ours = [tiny_model().allocate(**inputs, encode_ratio=ratio)[0].positions for ratio in (0.5, np.float32(0.5))]
    assert torch.equal(*ours)


def test_text_alone_refuses_bad_dials_too(tiny_model):
    text = {"input_ids": torch.tensor([[5, 6, 7]])}
    for dials in ({"encode_ratio": 2}, {"allocation_mode": "bad"}):
        for run in (tiny_model(), tiny_model().generate):
            with pytest.raises(ValueError, match=next(iter(dials))):
                run(**text, **dials)


def test_an_unknown_mode_is_refused(tiny_model, tiny_config, make_inputs, page):
    with pytest.raises(ValueError, match="'select', 'foveated'"):
        tiny_model()(**make_inputs(page(), token_budget=5), allocation_mode="fovea")
    with pytest.raises(StrictDataclassFieldValidationError, match="allocation_mode"):
        tiny_config(allocation_mode="fovea")


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_pooled_cells_exclude_left_out_cells_and_coarse_views(mode, tiny_model, make_inputs, page):
    """Whatever the picture, and before the vision tower runs."""
    model, seen = tiny_model("pooled"), []
    hook = model.model.visual.register_forward_pre_hook(lambda *args: seen.append(args))
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8))
    for picture in (page(), noise):
        with pytest.raises(ValueError, match=r"coarse_share=0\.5 pools cells"):
            model(**make_inputs(picture, token_budget=10), **mode)
    assert not seen
    full = make_inputs(page(), token_budget="full")
    assert torch.equal(model(**full, **mode).logits, model(**full).logits)
    hook.remove()


def test_pooled_cells_exclude_images_encoded_in_part(tiny_model, make_inputs, page, monkeypatch):
    """Encoded without a budget, with which nothing would have been pooled."""
    model, inputs = tiny_model("pooled"), make_inputs(page(), token_budget=10)
    of_image = {name: inputs[name] for name in ("pixel_values", "image_grid_thw", "texture_images")}
    encoded = model.encode_images(**of_image, encode_ratio="auto")
    for ask in (model, model.allocate):
        with pytest.raises(ValueError, match=r"coarse_share=0\.5 pools cells that encode_ratio='auto'"):
            ask(**inputs, encoded_images=encoded)
    monkeypatch.setattr(model.config, "encode_ratio", 0.3)  # which whole images are not asked with
    whole = model.encode_images(**of_image, encode_ratio=1.0)
    assert torch.equal(model(**inputs, encoded_images=whole).logits, model(**inputs, encode_ratio=1.0).logits)


def test_the_vision_tower_sees_only_its_share(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(), token_budget=10)  # 8 x 6 cells
    seen = []
    hook = model.model.visual.merger.register_forward_hook(lambda module, args, output: seen.append(len(output)))
    for ratio in (1.0, 0.5, 0.01):
        model(**inputs, encode_ratio=ratio)
    hook.remove()
    assert seen == [48, 24, 10]  # never fewer than the tokens


def test_auto_leaves_out_empty_paper_and_nothing_else(tiny_model, page):
    layer = tiny_model().model.arrcoc
    paper = Image.new("RGB", (256, 256), (250, 248, 240))
    paper.paste(page(128, 96), (32, 48))
    paper.paste((240, 248, 240), (192, 192, 193, 193))  # one pixel, 10 grey levels off in one channel
    image = torch.from_numpy(np.array(paper)).permute(2, 0, 1)
    canvas = pixel_canvas(image, (16, 16))
    glance = layer.look(image, (1, 16, 16))
    glance = replace(glance, contrast=cell_contrast(canvas, (16, 16)))
    cells = choose_to_encode(glance, (1, 16, 16), "auto", 1, 0.1)
    left_out = torch.ones(256, dtype=torch.bool).index_fill(0, cells, False).view(16, 16)
    within = canvas.view(3, 16, 16, 16, 16).amax((2, 4)) - canvas.view(3, 16, 16, 16, 16).amin((2, 4))
    assert within.amax(0)[left_out].max() <= EMPTY_CONTRAST
    assert 100 < left_out.sum() < 256 - 48
    assert not left_out[12, 12]


def test_auto_sees_print_that_is_too_thin_for_the_squeezed_picture(tiny_model, make_inputs, make_processor):
    """A line of one pixel, 20 grey levels off in one channel, on a page that the raw image shows at a quarter of its size."""
    paper = Image.new("RGB", (512, 512), "white")
    paper.paste((235, 255, 255), (0, 257, 512, 258))
    inputs = make_inputs(paper, token_budget=10, processor=make_processor(texture_size=128))
    (glance,) = tiny_model().encode_images(**inputs, encode_ratio="auto").glances
    assert set(range(16 * 32, 17 * 32)) <= set(glance.encoded.tolist())
    assert len(glance.encoded) < 32 * 32 / 2
    # only by its patches: the raw image has lost it
    squeezed = cell_contrast(pixel_canvas(inputs["texture_images"][0], (32, 32)), (32, 32))
    assert squeezed.max() < EMPTY_CONTRAST


def test_auto_keeps_the_edges_of_plain_areas_and_enough_for_the_budget(tiny_model):
    layer = tiny_model().model.arrcoc
    image = torch.full((3, 128, 128), 255, dtype=torch.uint8)

    def look(image):
        seen = layer.look(image, (1, 8, 8))
        with pytest.raises(ValueError, match="does not tell what is empty"):
            choose_to_encode(seen, (1, 8, 8), "auto", 1, 0.1)
        return replace(seen, contrast=cell_contrast(seen.canvas, (8, 8)))

    blank = look(image)
    assert len(choose_to_encode(blank, (1, 8, 8), "auto", 7, 0.1)) == 7
    image = image.clone()
    image[1:, 32:96, 32:96] = 0  # a plain square of 4 x 4 cells
    cells = choose_to_encode(look(image), (1, 8, 8), "auto", 1, 0.1)
    kept = torch.zeros(64, dtype=torch.bool).index_fill(0, cells, True).view(8, 8)
    assert kept[2, 2:6].all()
    assert kept[1, 2:6].all()
    assert not kept[3:5, 3:5].any()
    assert not kept[0].any()


def test_a_coarse_view_is_the_smaller_image_at_the_places_that_it_covers(tiny_model, make_inputs, page, report):
    """Its features are those of the picture that a user would have made smaller, marked."""
    model = tiny_model()
    picture = page(256, 192)  # 16 x 12 cells
    inputs = make_inputs(picture, token_budget=40)
    encoded = model.encode_images(**inputs, allocation_mode="foveated")
    view = encoded.views[0]
    assert (view.factor, len(view)) == (4, 12)
    assert view.positions.tolist() == [[0, row, column] for row in (1, 5, 9) for column in (1, 5, 9, 13)]
    small = make_inputs(picture.resize((64, 48), Image.Resampling.BICUBIC), token_budget="full")
    whole = model.model.encode(small["pixel_values"], small["image_grid_thw"])
    levels = [whole.pooler_output[0], *(level[0] for level in whole.deepstack_features)]
    seen = zip(levels, model.model.arrcoc.coarse_mark(levels), (view.tokens, *view.deepstack), strict=True)
    for number, (plain, theirs, ours) in enumerate(seen):
        apart = (ours - theirs).abs().max() / theirs.abs().max()
        assert report(f"coarse view - smaller image, level {number}", apart) < 0.05
        assert (plain != theirs).any()
    plan = model.allocate(**inputs, allocation_mode="foveated")[0]
    assert (len(plan), int((plan.level == 2).sum())) == (40, 12)
    assert (plan.cell_token >= 0).all()
    fine = plan.positions[12:]
    assert torch.equal(plan.cell_token[fine[:, 1] * 16 + fine[:, 2]], torch.arange(12, 40))
    plan.overlay(picture)


def test_a_view_that_was_made_for_a_smaller_budget_serves_a_larger_one(tiny_model, make_inputs, page):
    model, picture = tiny_model(), page(256, 192)
    encoded = model.encode_images(**make_inputs(picture, token_budget=40), allocation_mode="foveated")
    asked = make_inputs(picture, token_budget=180)
    held, own = (
        model.allocate(**asked, allocation_mode="foveated", **more)[0] for more in ({"encoded_images": encoded}, {})
    )
    assert (len(held), held.coarse) == (180, 12)
    assert (len(own), own.coarse) == (180, 48)


def test_a_coarse_view_has_no_value_that_its_picture_has_not(tiny_model, make_inputs):
    model, picture = tiny_model(), Image.new("RGB", (256, 192), "white")
    picture.paste("black", (0, 0, 128, 192))  # beside an edge bicubic values exceed both sides
    pixels = make_inputs(picture, token_budget=40)["pixel_values"]
    view = coarse_view(pixels, (1, 12, 16), 40, 0.3, model.model.visual)
    assert pixels.min() <= view.pixel_values.min() < view.pixel_values.max() <= pixels.max()


def test_coarse_tokens_come_first_with_all_deepstack_levels(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(), token_budget=14)
    encoded = model.encode_images(**inputs, allocation_mode="foveated")
    view = encoded.views[0]
    asked = {name: inputs[name] for name in ("image_grid_thw", "texture_images", "image_token_counts")}
    kept = model.model.get_image_features(**asked, allocation_mode="foveated", encoded_images=encoded)
    assert len(view.deepstack) == 3
    for rows, coarse in zip(
        (kept.pooler_output, *kept.deepstack_features[:3]), (view.tokens, *view.deepstack), strict=True
    ):
        assert torch.equal(rows[0][: len(view)], coarse)
        assert coarse.abs().sum(-1).min() > 0
        assert len(rows[0]) == 14


def test_a_cell_without_a_token_feeds_the_coarse_token_over_it(tiny_model):
    """3 x 5 cells under 2 x 3 coarse tokens: row 0, rows 1 and 2; columns 0 and 1, 2, 3 and 4. Two cells are kept, the
    second with one DeepStack level of three; the coarse tokens have all."""
    visual = tiny_model().model.visual
    view = coarse_view(torch.rand(15 * 4, 2 * 3 * 8 * 8), (1, 3, 5), 20, 0.3, visual)
    assert view.grid == (1, 4, 6)
    assert view.covers.view(3, 5).tolist() == [[0, 0, 1, 2, 2], [3, 3, 4, 5, 5], [3, 3, 4, 5, 5]]
    height, width = view.positions[:, 1], view.positions[:, 2]  # each token stands in a cell that it covers
    assert view.covers.view(3, 5)[height, width].tolist() == [*range(6)]
    nothing, kept = torch.zeros(1, 3, 5), torch.tensor([[0, 0, 1], [0, 2, 4]])
    fine = Allocation(
        grid=(1, 3, 5),
        relevance=nothing,
        scores={"information": nothing},
        tensions={},
        positions=kept,
        level=torch.zeros(2, dtype=torch.long),
        depth=torch.tensor([3, 1]),
        cell_token=torch.full((15,), -1).index_copy(0, torch.tensor([1, 14]), torch.tensor([0, 1])),
    )
    plan = view.beside(fine)
    assert plan.cell_token.view(3, 5).tolist() == [[0, 6, 1, 2, 2], [3, 3, 4, 5, 5], [3, 3, 4, 5, 7]]
    assert plan.depth.tolist() == [3, 3, 3, 3, 3, 3, 3, 1]
    assert plan.level.tolist() == [1, 1, 1, 1, 1, 1, 0, 0]
    assert plan.positions[6:].tolist() == kept.tolist()
    with pytest.raises(ValueError, match="the first 6 tokens of this plan are those of a coarse view"):
        apply_to_tokens(plan, torch.zeros(15, 2))


@pytest.mark.parametrize(
    ("grid", "budget", "share", "wanted"),
    [((12, 12), 72, 0.6, (2, 6, 6)), ((12, 12), 36, 0.6, (4, 3, 3)), ((12, 12), 14, 0.6, (8, 2, 2)),
     ((1, 200), 60, 0.6, (8, 1, 25)), ((12, 12), 72, 0.3, (4, 3, 3)), ((12, 12), 14, 0.3, (8, 2, 2)),
     ((12, 12), 13, 0.3, None), ((12, 12), 5, 0.9, (8, 2, 2))],
)  # fmt: skip
def test_the_finest_coarse_view_that_fits_is_taken(grid, budget, share, wanted):
    assert coarse_grid((1, *grid), budget, share) == wanted
    assert coarse_grid((1, *grid), budget, share, always=True) == (wanted or (8, 2, 2))


@pytest.mark.parametrize(("budget", "wanted"), [(72, (4, 3, 3)), (30, (4, 3, 3)), (29, None), (14, None)])
def test_no_coarse_view_of_so_few_tokens_that_they_say_more_as_cells(budget, wanted):
    assert coarse_grid((1, 12, 12), budget, 0.3, least=9) == wanted
    assert coarse_grid((1, 12, 12), budget, 0.3, least=9, always=True) == (4, 3, 3)
    assert coarse_grid((1, 5, 5), budget, 0.3, least=10, always=True) is None


def test_the_model_makes_no_coarse_view_of_fewer_tokens_than_its_dial_says(new_model, tiny_config, make_inputs, page):
    model, inputs = new_model(tiny_config()), make_inputs(page(), token_budget=30)
    assert (model.allocate(**inputs, allocation_mode="foveated")[0].level > 0).sum() == 4
    model.config.coarse_view_min_tokens = 9
    plain = model(**inputs).logits
    assert torch.equal(model(**inputs, allocation_mode="foveated").logits, plain)
    encoded = model.encode_images(**inputs, allocation_mode="foveated")
    assert torch.equal(model(**inputs, allocation_mode="foveated", encoded_images=encoded).logits, plain)


def test_a_budget_too_small_for_a_coarse_view_goes_to_cells(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(), token_budget=3)
    plain = model(**inputs).logits
    assert torch.equal(model(**inputs, allocation_mode="foveated").logits, plain)
    assert (model.allocate(**inputs, allocation_mode="foveated")[0].level == 0).all()
    encoded = model.encode_images(**inputs, allocation_mode="foveated")
    assert torch.equal(model(**inputs, allocation_mode="foveated", encoded_images=encoded).logits, plain)
    larger = model.allocate(**make_inputs(page(), token_budget=30), encoded_images=encoded)[0]  # gets the coarsest
    assert len(larger) == 30
    assert (larger.level == COARSE_FACTORS.index(8) + 1).sum() == (larger.level > 0).sum() == 1


def test_what_was_encoded_tells_how_it_is_asked(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(), token_budget=30)
    for mode, other in (("foveated", "select"), ("select", "foveated")):
        encoded = model.encode_images(**inputs, allocation_mode=mode)
        wanted = model(**inputs, allocation_mode=mode).logits
        model.config.allocation_mode = other
        assert torch.allclose(model(**inputs, encoded_images=encoded).logits, wanted, atol=1e-5)
        assert (model.allocate(**inputs, encoded_images=encoded)[0].level > 0).any() == (mode == "foveated")
        with pytest.raises(ValueError, match=f"made for allocation_mode='{mode}', but '{other}' is asked for"):
            model(**inputs, encoded_images=encoded, allocation_mode=other)
        model.config.allocation_mode = "select"


@pytest.mark.parametrize("mode", [{}, *MODES], ids=str)
def test_the_vision_tower_is_kept_from_what_packs_the_prompt(mode, tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(), token_budget=30)
    length = inputs["input_ids"].shape[1]
    ends = torch.tensor([0, length], dtype=torch.int32)
    packed = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": length, "max_length_k": length}
    wanted, seen = model(**inputs, **mode).logits, []
    hook = model.model.visual.register_forward_pre_hook(
        lambda _, args, named: seen.append(set(named)), with_kwargs=True
    )
    found = model(**inputs, **packed, video_position_ids=torch.zeros(3), **mode).logits
    hook.remove()
    assert torch.equal(found, wanted)
    assert len(seen) == (2 if mode.get("allocation_mode") == "foveated" else 1)  # the coarse view has a call of its own
    assert not set().union(*seen) & {*packed, "video_position_ids"}
    if mode:
        with pytest.raises(ValueError, match="image_position_ids is made for every cell"):
            model(**inputs, image_position_ids=torch.zeros(48 * 4, 2, dtype=torch.long), **mode)


@pytest.mark.parametrize("mode", [{}, {"encode_ratio": "auto"}, {"allocation_mode": "foveated"}], ids=str)
def test_images_encoded_once_answer_like_new_ones(mode, tiny_model, make_inputs, page, report):
    model, pictures = tiny_model(), [page(), page(160, 64, seed=2)]
    encoded = model.encode_images(**make_inputs(pictures, token_budget=12), **mode)
    calls = []
    hook = model.model.visual.register_forward_hook(lambda *args: calls.append(1))
    for question, budget in (("what is the total?", 12), ("where is it?", 13)):  # one coarse view fits both
        inputs = make_inputs(pictures, question, token_budget=budget)
        kept = inputs.copy() if mode else {name: value for name, value in inputs.items() if name != "pixel_values"}
        before = len(calls)
        again = model(**kept, **mode, encoded_images=encoded).logits
        made = model.generate(**kept, **mode, encoded_images=encoded, max_new_tokens=3)
        plans = model.allocate(**kept, **mode, encoded_images=encoded)
        assert len(calls) == before  # the vision tower did not run
        assert report("encoded once - anew", (again - model(**inputs, **mode).logits).abs().max()) < 1e-5
        assert torch.equal(made, model.generate(**inputs, **mode, max_new_tokens=3))
        assert [len(plan) for plan in plans] == [budget, budget]
    hook.remove()


@torch.no_grad()
def test_images_encoded_once_meet_the_allocator_as_it_is_now(tiny_config, new_model, make_inputs, page):
    model, inputs = new_model(tiny_config()), make_inputs([page(160, 96)], token_budget=8)
    names = ("pixel_values", "image_grid_thw", "texture_images", "image_token_counts")
    encoded = model.encode_images(**{name: inputs[name] for name in names})
    before = model.allocate(**inputs)[0]
    for parameter in model.model.arrcoc.parameters():
        parameter.copy_(torch.randn_like(parameter) / 4)
    expected = model.allocate(**inputs)[0]
    assert not torch.equal(expected.relevance, before.relevance)
    rest = {name: value for name, value in inputs.items() if name != "pixel_values"}
    assert torch.equal(model.allocate(**rest, encoded_images=encoded)[0].relevance, expected.relevance)


@pytest.mark.parametrize(
    ("mode", "part", "is_read"),
    [
        ({}, "visual.merger", True),
        ({}, "arrcoc.participation", False),
        ({"allocation_mode": "foveated"}, "arrcoc.coarse_mark", True),
        ({"allocation_mode": "foveated"}, "arrcoc.restorer", False),
        ({"encode_ratio": "auto"}, "arrcoc.restorer", True),
        ({"encode_ratio": "auto"}, "arrcoc.reader", True),
    ],
    ids=str,
)
def test_images_encoded_with_other_weights_are_refused(mode, part, is_read, tiny_config, new_model, make_inputs, page):
    model, picture = new_model(tiny_config()), Image.new("RGB", (128, 96), "white")  # empty paper around a page
    picture.paste(page(48, 48))
    inputs = make_inputs(picture, token_budget=30)
    encoded = model.encode_images(**inputs, **mode)
    assert mode.get("encode_ratio") != "auto" or encoded.glances[0].encoded is not None
    for parameter in model.model.get_submodule(part).parameters():
        parameter.add_(0.1)
    if is_read:
        with pytest.raises(ValueError, match="made with other weights than the model has now"):
            model.allocate(**inputs, encoded_images=encoded)
    else:
        model.allocate(**inputs, encoded_images=encoded)
    model.allocate(**inputs, encoded_images=model.encode_images(**inputs, **mode))


@pytest.mark.parametrize(
    ("dial", "mode", "is_read"),
    [
        ({"max_cell_pixels": 8}, "select", True),
        ({"coarse_view_share": 0.6}, "foveated", True),
        ({"coarse_view_min_tokens": 4}, "foveated", True),
        ({"coarse_view_share": 0.6}, "select", False),
    ],
    ids=str,
)
def test_images_encoded_with_other_dials_are_refused(dial, mode, is_read, tiny_config, new_model, make_inputs, page):
    model, inputs = new_model(tiny_config()), make_inputs(page(), token_budget=30)
    encoded = model.encode_images(**inputs, allocation_mode=mode)
    model.config.update(dial)
    if is_read:
        with pytest.raises(ValueError, match="with another max_cell_pixels or coarse view"):
            model.allocate(**inputs, encoded_images=encoded)
    else:
        model.allocate(**inputs, encoded_images=encoded)


def test_images_encoded_before_weights_were_assigned_are_refused(tiny_config, new_model, make_inputs, page):
    model, inputs = new_model(tiny_config()), make_inputs(page(), token_budget=30)
    own, others = (
        {name: make(tensor) for name, tensor in model.state_dict().items()} for make in (torch.clone, torch.rand_like)
    )
    model.load_state_dict(own, assign=True)  # as when it was loaded from a file: nothing was written to either
    encoded = model.encode_images(**inputs)
    model.load_state_dict(others, assign=True)
    with pytest.raises(ValueError, match="loaded anew"):
        model.allocate(**inputs, encoded_images=encoded)


def test_images_encoded_with_another_adapter_are_refused(tiny_config, new_model, make_inputs, page):
    peft = pytest.importorskip("peft")
    model, inputs = new_model(tiny_config()), make_inputs(page(), token_budget=30)
    tuned = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["qkv"], init_lora_weights=False))
    tuned.add_adapter("second", peft.LoraConfig(r=2, target_modules=["qkv"], init_lora_weights=False))
    encoded = model.encode_images(**inputs)
    model.allocate(**inputs, encoded_images=encoded)
    with tuned.disable_adapter(), pytest.raises(ValueError, match="given another adapter"):
        model.allocate(**inputs, encoded_images=encoded)
    model.allocate(**inputs, encoded_images=encoded)
    tuned.set_adapter("second")
    with pytest.raises(ValueError, match="given another adapter"):
        model.allocate(**inputs, encoded_images=encoded)


def test_images_encoded_before_another_allocator_came_are_refused_where_it_made_them(
    tiny_config, new_model, make_inputs, page
):
    model, inputs = new_model(tiny_config()), make_inputs(page(), token_budget=30)
    plain, foveated = (model.encode_images(**inputs, allocation_mode=mode) for mode in ("select", "foveated"))
    model.model.arrcoc = copy.deepcopy(model.model.arrcoc)
    model.allocate(**inputs, encoded_images=plain)
    with pytest.raises(ValueError, match="another allocator was loaded"):
        model.allocate(**inputs, encoded_images=foveated)


@torch.no_grad()
@pytest.mark.parametrize("mode", [{"encode_ratio": "auto"}, {"allocation_mode": "foveated"}], ids=str)
@pytest.mark.parametrize("budgets", [[12, "full"], ["full", 12]], ids=str)
def test_of_two_copies_of_a_picture_the_one_of_that_budget_is_asked(
    mode, budgets, tiny_model, make_inputs, page, report
):
    model, picture = tiny_model(), Image.new("RGB", (128, 96), "white")  # empty paper around a page
    picture.paste(page(48, 48))
    encoded = model.encode_images(**make_inputs([picture] * 2, token_budget=budgets), **mode)
    for wanted in ([12], ["full"], [12, "full"], ["full", 12], ["full", "full", 12]):
        inputs = make_inputs([picture] * len(wanted), token_budget=wanted)
        gap = (model(**inputs, encoded_images=encoded).logits - model(**inputs, **mode).logits).abs().max()
        assert report("two copies of a picture - anew", gap) < 1e-5


@torch.no_grad()
def test_of_copies_none_of_which_has_that_budget_the_next_more_is_asked(tiny_model, make_inputs, page):
    model, picture = tiny_model(), page()
    encoded = model.encode_images(**make_inputs([picture] * 3, token_budget=[12, 30, "full"]))
    for wanted, taken in ((5, 12), (13, 30), (29, 30), (31, 48)):
        inputs = make_inputs(picture, token_budget=wanted)
        found = encoded.shown(model.model, inputs["image_grid_thw"], inputs["texture_images"], [wanted])
        assert found.budgets == [taken]


@torch.no_grad()
@pytest.mark.parametrize("mode", [{}, {"encode_ratio": "auto"}, {"allocation_mode": "foveated"}], ids=str)
def test_images_encoded_once_are_asked_in_any_order_and_as_often_as_wanted(mode, tiny_model, make_inputs, page, report):
    model, pictures = tiny_model(), [page(), page(160, 64, seed=2), page(seed=3)]
    encoded = model.encode_images(**make_inputs(pictures, token_budget=12), **mode)
    calls = []
    hook = model.model.visual.register_forward_hook(lambda *args: calls.append(1))
    for shown in ([0, 0, 0], [2], [1, 2, 1, 0]):
        inputs = make_inputs([pictures[n] for n in shown], "where is it?", token_budget=12)
        before = len(calls)
        again = model(**inputs, encoded_images=encoded).logits
        made = model.generate(**inputs, encoded_images=encoded, num_beams=2, max_new_tokens=3)
        assert len(calls) == before  # the vision tower did not run
        assert report("in any order - anew", (again - model(**inputs, **mode).logits).abs().max()) < 1e-5
        assert torch.equal(made, model.generate(**inputs, **mode, num_beams=2, max_new_tokens=3))
    hook.remove()


@torch.no_grad()
def test_encoded_images_are_copied_and_not_pickled(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(), token_budget=5)
    encoded = model.encode_images(**inputs)
    expected = model(**inputs).logits
    for copied in (copy.copy(encoded), copy.deepcopy(encoded)):
        assert (model(**inputs, encoded_images=copied).logits - expected).abs().max() < 1e-5
    with pytest.raises(TypeError, match=r"call encode_images\(\) where the model is"):
        pickle.dumps(encoded)


@torch.no_grad()
def test_a_picture_encoded_once_answers_a_batch_of_questions(tiny_model, make_inputs, page):
    model, questions = tiny_model(), ["what is the total?", "where?", "who signed it, and when?"]
    encoded = model.encode_images(**make_inputs(page(), token_budget=12))
    batch = make_inputs([page()] * 3, questions, token_budget=12)
    gap = model(**batch, encoded_images=encoded).logits - model(**batch).logits
    assert gap.abs().max() < 1e-5
    del batch["pixel_values"]
    plans = model.allocate(**batch, encoded_images=encoded)
    assert [len(plan) for plan in plans] == [12, 12, 12]


def test_encoded_images_refuse_to_stand_for_pixels_that_were_processed_otherwise(tiny_model, make_inputs, page):
    model, pictures = tiny_model(), [page(), page(160, 64, seed=2)]
    inputs = make_inputs(pictures, token_budget=12)
    encoded, pixels = model.encode_images(**inputs), inputs["pixel_values"]
    half = model(**{**inputs, "pixel_values": pixels.bfloat16()}, encoded_images=encoded).logits
    assert torch.equal(half, model(**inputs, encoded_images=encoded).logits)
    only_second = torch.cat([pixels[: 48 * 4], pixels[48 * 4 :] + 0.1])
    for other in (pixels * 0.9, pixels + 0.1, (pixels + 1) / 2, (pixels + 1) * 127.5, only_second):
        for run in (model, model.generate, model.allocate):
            with pytest.raises(ValueError, match="processed otherwise"):
                run(**{**inputs, "pixel_values": other}, encoded_images=encoded)


def test_encoded_images_refuse_to_stand_for_others(tiny_model, tiny_config, new_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(), token_budget=12)
    encoded = model.encode_images(**inputs)
    assert [glance.canvas for glance in encoded.glances] == [None]  # megabytes that nothing reads again
    for other in (page(seed=5), page(160, 64)):
        with pytest.raises(ValueError, match="other pictures"):
            model(**make_inputs(other, token_budget=12), encoded_images=encoded)
    # the class that another repository's copy of this code has
    methods = {name: getattr(type(encoded), name) for name in ("shown", "spending")}
    theirs = type("EncodedImages", (), {**vars(encoded), **methods})()
    for foreign in (encoded, theirs):
        with pytest.raises(ValueError, match="another model"):
            new_model(tiny_config())(**inputs, encoded_images=foreign)
    features = {"image": model.model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])}
    with pytest.raises(ValueError, match="mm_encoder_outputs and encoded_images are both there"):
        model(**inputs, encoded_images=encoded, mm_encoder_outputs=features)
    with pytest.raises(ValueError, match="came beside mm_encoder_outputs"):
        model(**inputs, mm_encoder_outputs=features)
    with pytest.raises(ValueError, match="allocation_mode"):
        model(**inputs, allocation_mode="foveated", encoded_images=encoded)
    with pytest.raises(ValueError, match="what one question needs"):
        model.encode_images(**inputs, encode_ratio=0.5)
    with pytest.raises(ValueError, match="image 1 is none of its 1"):
        model(**make_inputs([page(), page(seed=2)], token_budget=12), encoded_images=encoded)
    cached = {"past_key_values": model(**inputs, use_cache=True).past_key_values}
    two = make_inputs([page(), page(seed=2)], "and now, of both?", token_budget=12)
    for run in (model, model.generate, model.allocate):
        with pytest.raises(ValueError, match="is a list; pass what encode_images"):
            run(**inputs, encoded_images=[encoded])
    for run in (model, model.generate):
        with pytest.raises(ValueError, match="shows no image"):
            run(input_ids=inputs["input_ids"][:, -4:], encoded_images=encoded)
    with pytest.raises(ValueError, match="the cache has 1 rows"):
        model.generate(**two, **cached, encoded_images=encoded)
    with pytest.raises(ValueError, match="image_token_counts is missing"):
        model.allocate(encoded_images=encoded)
    with pytest.raises(ValueError, match="no image to encode"):
        model.encode_images(input_ids=inputs["input_ids"])
    narrow = model.encode_images(**make_inputs(page(), token_budget=30), allocation_mode="foveated")
    with pytest.raises(ValueError, match=r"\(one of \d+ tokens\); call encode_images"):
        model(**inputs, allocation_mode="foveated", encoded_images=narrow)
    changed = new_model(tiny_config())
    encoded = changed.encode_images(**inputs)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = changed.encode_images(**inputs)
    with pytest.raises(ValueError, match=r"bfloat16, but the model works in .*float32 here"):
        changed(**inputs, encoded_images=mixed)
    with pytest.raises(ValueError, match=r"works in .*bfloat16 here"):
        changed.to(torch.bfloat16)(**inputs, encoded_images=encoded)


def test_encoded_images_refuse_to_stand_for_the_same_at_another_size(tiny_model, make_inputs, make_processor, page):
    model, inputs, smaller = tiny_model(), make_inputs(page(), token_budget=10), make_processor()
    smaller.image_processor.size = {"shortest_edge": 1, "longest_edge": 96 * 64}
    other = make_inputs(page(), token_budget=10, processor=smaller)
    assert torch.equal(other["texture_images"], inputs["texture_images"])
    assert not torch.equal(other["image_grid_thw"], inputs["image_grid_thw"])
    encoded = model.encode_images(**inputs)
    with pytest.raises(ValueError, match="the same at another size"):
        model(**other, encoded_images=encoded)
    model(**inputs, encoded_images=encoded)


def test_auto_encoded_images_refuse_a_budget_above_their_cells(tiny_model, make_inputs):
    blank = Image.new("RGB", (128, 128), "white")
    encoded = tiny_model().encode_images(**make_inputs(blank, token_budget=3), encode_ratio="auto")
    with pytest.raises(ValueError, match=r"encode_ratio=1\.0"):
        tiny_model()(**make_inputs(blank, token_budget=9), encoded_images=encoded)


@pytest.mark.parametrize("budget", [9, 24, 31])  # with room for a coarse view from 30 on
def test_auto_encoded_images_serve_the_budget_that_they_were_made_for(tiny_model, make_inputs, budget):
    model, nearly_blank = tiny_model(), Image.new("RGB", (384, 384), "white")
    nearly_blank.paste("black", (200, 200, 240, 212))
    inputs = make_inputs(nearly_blank, token_budget=budget)
    mode = {"encode_ratio": "auto", "allocation_mode": "foveated"}
    encoded = model.encode_images(**inputs, **mode)
    assert len(encoded.glances[0].encoded) < 576
    assert torch.equal(model(**inputs, encoded_images=encoded).logits, model(**inputs, **mode).logits)


def test_a_chat_goes_on_from_its_cache_with_encoded_images(tiny_model, make_inputs, processor, page, report):
    from transformers import DynamicCache

    model, first = tiny_model(), make_inputs(page(), token_budget=12)
    encoded, cache = model.encode_images(**first), DynamicCache(config=tiny_model().config.text_config)
    said = model.generate(**first, encoded_images=encoded, past_key_values=cache, max_new_tokens=3)
    tail = processor.tokenizer("and now?", return_tensors="pt")["input_ids"]
    ids = torch.cat([said, tail], -1)
    types = torch.nn.functional.pad(first["mm_token_type_ids"], (0, ids.shape[1] - first["input_ids"].shape[1]))
    whole = dict(first) | {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": types}
    options = {"max_new_tokens": 2, "output_logits": True, "return_dict_in_generate": True}
    anew = model.generate(**whole, **options).logits
    on = model.generate(**whole, encoded_images=encoded, past_key_values=cache, **options).logits
    assert report("chat from its cache, encoded once", (torch.stack(anew) - torch.stack(on)).abs().max()) < 1e-5


def cut(inputs, end: int):
    """`inputs` of one chat with two pictures, up to token `end`, behind the first picture."""
    per_token = ("input_ids", "attention_mask", "mm_token_type_ids")
    parts = {name: value[:, :end] if name in per_token else value[:1] for name, value in inputs.items()}
    return parts | {"pixel_values": inputs["pixel_values"][: inputs["image_grid_thw"][0].prod()]}


@pytest.mark.parametrize("mode", [{}, {"encode_ratio": "auto"}, {"allocation_mode": "foveated"}], ids=str)
def test_encoded_images_of_which_the_cache_holds_the_first(mode, tiny_model, make_inputs, page, report):
    model, inputs = tiny_model(), make_inputs([[page(), page(160, 64, seed=2)]], token_budget=12)
    encoded = model.encode_images(**inputs, **mode)
    between = int((inputs["mm_token_type_ids"][0] == 1).nonzero()[11]) + 2
    cache = model(**cut(inputs, between), **mode, use_cache=True).past_key_values
    options = {"max_new_tokens": 2, "output_logits": True, "return_dict_in_generate": True}
    anew = model.generate(**inputs, **mode, **options).logits
    on = model.generate(**inputs, **mode, encoded_images=encoded, past_key_values=cache, **options).logits
    assert report("second picture, encoded once", (torch.stack(anew) - torch.stack(on)).abs().max()) < 1e-5


def test_a_cache_cropped_into_an_image_behind_a_shared_text_is_refused(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(), token_budget=12)
    image = (inputs["mm_token_type_ids"][0] == 1).nonzero()[:, 0]
    first, last = int(image[0]), int(image[-1])
    cache = model(input_ids=inputs["input_ids"][:, :first], use_cache=True).past_key_values
    per_token = ("input_ids", "mm_token_type_ids")
    rest = {name: value[:, first:] if name in per_token else value for name, value in inputs.items()}
    cache = model(**rest, past_key_values=cache, use_cache=True).past_key_values
    cache.crop(last - cache.get_seq_length())
    with pytest.raises(ValueError, match=f"cropped to {last} tokens, but its images end after {last + 1};"):
        model(input_ids=inputs["input_ids"][:, last + 1 :], past_key_values=cache)


def test_the_loss_reaches_stage_one(tiny_config, new_model, make_inputs, page):
    model, inputs = new_model(tiny_config()).train(), make_inputs(page(), token_budget=10)
    with torch.enable_grad():
        model(**inputs, labels=inputs["input_ids"], encode_ratio=0.4).loss.backward()
    layer = model.model.arrcoc
    for name, parameter in (*layer.early_participation.named_parameters(), *layer.reader.named_parameters()):
        assert 0 < parameter.grad.abs().max() < math.inf, name
