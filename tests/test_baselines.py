"""The ways to answer from K visual tokens: what each keeps, where its tokens stand, and what the language model makes of them."""

import json
from dataclasses import dataclass

import pytest
import torch
from PIL import Image

from evaluation import baselines
from evaluation.baselines import (
    cdpruner,
    fastv,
    interface,
    oracle,
    pooling,
    resize,
    selection,
    strided,
    tome,
    visionzip,
)
from evaluation.baselines.divprune import most_diverse
from evaluation.baselines.last_block import watch_last_block
from evaluation.baselines.staged import ENCODE_RATIOS

LEARNED = {"vision_selector", "glimpse_prune", "query_blind"}  # their tests lie with them
NAMES = [name for name in baselines.METHODS if name not in LEARNED]
CHOOSING = ("arrcoc", "random", "strided", "divprune", "cdpruner", "oracle", "visionzip")
MERGING = ("pooling", "tome")
BOXES = ((20, 20, 60, 30), (100, 70, 110, 80))


@dataclass(frozen=True)
class Example:
    image: Image.Image
    question: str
    evidence: tuple = BOXES
    answers: tuple = ("1",)
    family: str = "all"


@pytest.fixture(scope="module")
def tiny(tiny_model):
    return tiny_model()


@pytest.fixture(scope="module")
def tiny_processor(tiny, make_processor):
    return make_processor(tiny)


@pytest.fixture(scope="module")
def examples(page):
    # Grids of 6 x 8 and 6 x 6 cells of 16 pixels.
    return [Example(page(128, 96, seed=1), "what is the total?"), Example(page(96, 96, seed=2), "is it the third?")]


@torch.no_grad()
def logits_of(model, prepared):
    with prepared.during:
        return model(**prepared.inputs).logits[:, -1]


@pytest.mark.parametrize("name", NAMES)
def test_tokens_stay_within_the_budget_and_kept_cells_are_the_tokens(tiny, tiny_processor, examples, name):
    budgets = [12, 9]
    prepared = baselines.find(name)(tiny, tiny_processor, examples, budgets)
    placeholders = interface.count_image_tokens(tiny, prepared.inputs)
    if name == "full":
        assert placeholders == prepared.tokens == [48, 36]
        assert [int(kept.sum()) for kept in prepared.kept] == [48, 36]
    elif name == "fastv":  # two of four layers read all, two the budget
        assert placeholders == [48, 36]
        assert prepared.tokens == [(48 + 12) / 2, (36 + 9) / 2]
        assert [int(kept.sum()) for kept in prepared.kept] == budgets
    else:
        assert placeholders == prepared.tokens
        assert all(0.7 * want <= count <= want for count, want in zip(placeholders, budgets, strict=True))
    if name in CHOOSING:
        assert placeholders == budgets
        dominant = [want - round(want * visionzip.CONTEXTUAL_SHARE) for want in budgets]
        assert [int(kept.sum()) for kept in prepared.kept] == (dominant if name == "visionzip" else budgets)
        assert [tuple(kept.shape) for kept in prepared.kept] == [(6, 8), (6, 6)]
    if name in ("resize", *MERGING):
        assert prepared.kept == [None, None]
    assert torch.isfinite(logits_of(tiny, prepared)).all()


@pytest.mark.parametrize("name", [name for name in (*CHOOSING, *MERGING)])
def test_kept_tokens_have_their_own_features_at_their_own_places(tiny, tiny_processor, examples, name):
    full = selection.encode(tiny, tiny_processor, examples, "full").vision
    prepared = baselines.find(name)(tiny, tiny_processor, examples, [12, 9])
    features = prepared.inputs["mm_encoder_outputs"]["image"]
    *levels, offsets = features.deepstack_features
    for number, (width, kept) in enumerate(zip((8, 6), prepared.kept, strict=True)):
        cells = offsets[number][:, 1] * width + offsets[number][:, 2]
        assert (offsets[number][:, 0] == 0).all()
        assert (cells.diff() > 0).all(), "raster order, no cell twice"
        alone = torch.zeros_like(cells, dtype=torch.bool) if kept is None else kept.flatten()[cells]
        if kept is not None:
            assert int(alone.sum()) == int(kept.sum())
        for have, want in zip(
            (features.pooler_output[number], *(level[number] for level in levels)),
            (full.pooler_output[number], *(level[number] for level in full.deepstack_features)),
            strict=True,
        ):
            assert torch.equal(have[alone], want[cells[alone]])


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_gives_what_each_example_gives_alone(tiny, tiny_processor, examples, name, report):
    method = baselines.find(name)
    together = method(tiny, tiny_processor, examples, [12, 9])
    logits = logits_of(tiny, together)
    for number, budget in enumerate([12, 9]):
        alone = method(tiny, tiny_processor, [examples[number]], [budget])
        assert alone.tokens == [together.tokens[number]]
        if alone.kept[0] is not None:
            assert torch.equal(alone.kept[0], together.kept[number])
        difference = (logits_of(tiny, alone)[0] - logits[number]).abs().max()
        assert report("baselines, batch against alone", difference) < 1e-4


@pytest.fixture(scope="module")
def stock(tiny, stock_twin):
    return stock_twin(tiny)


@pytest.mark.parametrize("name", NAMES)
def test_budget_of_all_cells_is_stock(tiny, stock, tiny_processor, examples, name):
    prepared = baselines.find(name)(tiny, tiny_processor, examples, [48, 36])
    assert prepared.tokens == [48, 36]
    with torch.no_grad():
        want = stock(**interface.full_prompt(tiny_processor, examples)).logits[:, -1]
    assert torch.equal(logits_of(tiny, prepared), want)


@pytest.mark.parametrize("name", [name for name in CHOOSING if name != "visionzip"])
def test_chosen_cells_are_stock_with_the_others_masked_out(tiny, stock, tiny_processor, examples, name, report):
    prepared = baselines.find(name)(tiny, tiny_processor, examples, [12, 9])
    inputs = dict(interface.full_prompt(tiny_processor, examples))
    position_ids, _ = stock.model.get_rope_index(
        inputs["input_ids"], inputs["mm_token_type_ids"], inputs["image_grid_thw"], None, inputs["attention_mask"]
    )
    image = inputs["input_ids"] == tiny.config.image_token_id
    mask = inputs["attention_mask"].clone()
    mask[image] = torch.cat([kept.flatten() for kept in prepared.kept]).to(mask.dtype)
    with torch.no_grad():
        want = stock(**inputs | {"attention_mask": mask, "position_ids": position_ids}).logits[:, -1]
    assert report("baselines, chosen against masked", (logits_of(tiny, prepared) - want).abs().max()) < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_one_token_works_beside_a_whole_picture(tiny, tiny_processor, examples, name):
    prepared = baselines.find(name)(tiny, tiny_processor, examples, [1, 36])
    assert torch.isfinite(logits_of(tiny, prepared)).all()
    if name not in ("full", "fastv"):
        assert prepared.tokens == [1, 36]


@pytest.mark.parametrize("name", NAMES)
def test_generation_can_be_repeated(tiny, tiny_processor, examples, name):
    prepared = baselines.find(name)(tiny, tiny_processor, examples, [12, 9])
    texts = []
    for _ in range(2):
        with prepared.during:
            texts.append(tiny.generate(**prepared.inputs, max_new_tokens=3, do_sample=False))
    assert torch.equal(*texts)


@pytest.mark.parametrize("shape", ["no_deepstack", "merge_1", "pooled"])
def test_methods_run_on_other_shapes(tiny_model, make_processor, page, shape):
    model = tiny_model(shape)
    processor = make_processor(model)
    example = Example(page(64, 48), "total?")
    for name in NAMES:
        if shape == "pooled" and name in (*ENCODE_RATIOS, "foveated"):
            # they exclude each other: tests/test_two_stage.py
            assert "coarse_share=0.5 pools cells" in baselines.supports(name, model)
            continue
        prepared = baselines.find(name)(model, processor, [example], [4])
        assert torch.isfinite(logits_of(model, prepared)).all(), name


@pytest.mark.parametrize(
    "dials", [{}, {"encode_ratio": 0.4}, {"encode_ratio": "auto"}, {"allocation_mode": "foveated"}]
)
def test_arrcoc_is_what_the_model_does_itself(dials, tiny, tiny_processor, examples, monkeypatch):
    for name, value in dials.items():
        monkeypatch.setattr(tiny.config, name, value)
    inputs = interface.prompt(tiny_processor, examples, token_budget=[12, 9])
    prepared = baselines.find("arrcoc")(tiny, tiny_processor, examples, [12, 9])
    with torch.no_grad():
        assert torch.equal(tiny(**inputs).logits[:, -1], logits_of(tiny, prepared))
    if "allocation_mode" in dials:
        assert all(0 < int(kept.sum()) < tokens for kept, tokens in zip(prepared.kept, prepared.tokens, strict=True))
        return  # some tokens are of the coarse view
    for kept, allocation in zip(prepared.kept, tiny.allocate(**inputs), strict=True):
        assert kept.nonzero().tolist() == allocation.positions[:, 1:].tolist()


def test_random_depends_on_the_example_alone(tiny, tiny_processor, examples):
    method = baselines.find("random")
    torch.manual_seed(0)
    first = method(tiny, tiny_processor, examples, [12, 9]).kept
    torch.manual_seed(1)
    second = method(tiny, tiny_processor, examples[::-1], [20, 12]).kept[::-1]
    assert torch.equal(first[0], second[0])
    assert (first[1] <= second[1]).all()
    other = Example(examples[0].image, "another question?")
    assert not torch.equal(first[0], method(tiny, tiny_processor, [other], [12]).kept[0])


@pytest.mark.parametrize(("grid", "count"), [((8, 8), 16), ((6, 8), 5), ((1, 40), 7), ((40, 1), 7), ((3, 4), 12)])
def test_strided_cells_are_evenly_spaced(grid, count):
    cells = strided.spread(*grid, count)
    assert len(cells.unique()) == count
    assert int(cells.min()) >= 0
    assert int(cells.max()) < grid[0] * grid[1]
    if grid == (8, 8):  # the middles of 2 x 2 blocks
        assert {(int(cell) // 8 % 2, int(cell) % 8 % 2) for cell in cells} == {(1, 1)}


def test_pooling_averages_two_by_two_blocks_at_a_quarter(tiny, tiny_processor, examples):
    whole = selection.encode(tiny, tiny_processor, examples[:1], "full").vision.pooler_output[0]
    prepared = baselines.find("pooling")(tiny, tiny_processor, examples[:1], [12])
    pooled = prepared.inputs["mm_encoder_outputs"]["image"].pooler_output[0]
    blocks = whole.view(3, 2, 4, 2, -1).mean((1, 3)).flatten(0, 1)
    torch.testing.assert_close(pooled, blocks)
    assert pooling.pooled_grid(6, 8, 20) == (4, 5)
    assert pooling.pooled_grid(6, 8, 48) == (6, 8)


def test_largest_grid_never_exceeds_the_budget():
    for height, width in ((96, 128), (10, 10), (1, 200), (200, 1), (3, 100)):
        for budget in range(1, 60):
            rows, columns = interface.largest_grid(height, width, budget)
            assert 1 <= rows * columns <= budget
    assert interface.largest_grid(10, 10, 25) == (5, 5)
    assert interface.largest_grid(12, 12, 14) == (3, 4)  # of two that are as good, the wider
    assert interface.largest_grid(2, 20, 20) == (1, 20)  # all of them, where one side is too short for the aspect
    assert interface.largest_grid(6, 58, 34) == (2, 17)
    assert interface.largest_grid(2, 3, 5, (2, 3)) == (2, 2)  # no side is enlarged
    assert interface.largest_grid(3, 3, 8, (3, 3)) == (2, 3)


def test_tome_merges_duplicates_first_and_weighs_by_size():
    torch.manual_seed(0)
    distinct = torch.eye(8)
    metric = torch.cat([distinct, distinct[2:3], distinct[2:3]])  # cells 2, 8 and 9 are alike
    assert tome.merge_similar(metric, 10, 4).tolist() == list(range(10))
    groups = tome.merge_similar(metric, 8, 4)
    assert groups.max() == 7
    assert groups[2] == groups[8] == groups[9]
    assert len(groups[:8].unique()) == 8
    assert len(tome.merge_similar(torch.randn(37, 5), 3, 2).unique()) == 3  # more rounds than asked for
    angles = torch.deg2rad(torch.tensor([120.0, 140, 120, 180, 20, 120, 80]))
    directions = torch.stack([angles.cos(), angles.sin()], -1)
    # of equal weight, the merged ones at 120 degrees would stand nearer to 180 than to 20 and 80
    assert tome.merge_similar(directions, 2, 5).tolist() == [1, 1, 1, 0, 1, 1, 1]
    plan = selection.plan_groups(torch.tensor([0, 0, 0, 1]), width=4)
    assert plan.stands.tolist() == [1, 3]
    assert selection.mix(plan, torch.tensor([[0.0], [1.0], [5.0], [7.0]])).flatten().tolist() == [2, 7]


def test_visionzip_keeps_the_most_attended_and_gathers_the_others():
    attention = torch.tensor([0.0, 9, 0, 8, 0, 7, 0, 6])
    keys = torch.tensor([[1.0, 0], [0, 0], [1, 0], [0, 0], [0, 1], [0, 0], [0, 1], [0, 0]])
    plan = visionzip.zip_cells(attention, keys, 4, width=8)  # 10 / 64 of 4 rounds to one contextual token
    assert plan.kept.nonzero().flatten().tolist() == [1, 3, 5]
    assert plan.stands.tolist() == [1, 3, 4, 5]  # of the others, 0, 2, 4, 6 and 7, the middle one is 4
    assert plan.cell_token.tolist() == [2, 0, 2, 1, 2, 3, 2, 2]
    keys = torch.tensor([[1.0, 0]]).repeat(20, 1)
    keys[[11, 13, 15, 17]] = torch.tensor([0.0, 1])  # as the first of two contextual tokens is
    plan = visionzip.zip_cells(torch.arange(20.0, 0, -1), keys, 13, width=5)
    assert plan.stands.tolist() == [*range(11), 13, 17]
    keys[17] = torch.tensor([1.0, 0])
    plan = visionzip.zip_cells(torch.arange(20.0, 0, -1), keys, 13, width=5)
    assert plan.cell_token[11:].tolist() == [11, 12, 11, 12, 11, 12, 12, 12, 12]


def test_attention_received_in_the_last_block_equals_eager_attention(tiny, tiny_processor, examples, monkeypatch):
    probabilities = []
    softmax = torch.nn.functional.softmax

    def keep(scores, *args, **kwargs):
        probabilities.append(softmax(scores, *args, **kwargs))
        return probabilities[-1]

    attention = tiny.model.visual.blocks[-1].attn
    before = attention.config._attn_implementation
    monkeypatch.setattr(torch.nn.functional, "softmax", keep)
    attention.config._attn_implementation = "eager"
    try:
        with watch_last_block(tiny) as block:
            selection.encode(tiny, tiny_processor, examples, "full")
    finally:
        attention.config._attn_implementation = before
    received = block.attention()
    assert [len(cells) for cells in received] == [48, 36]
    for cells, eager in zip(received, probabilities[-2:], strict=True):
        torch.testing.assert_close(cells, eager[0].mean((0, 1)).view(-1, 4).mean(-1))
    keys = block.keys()
    assert [tuple(key.shape) for key in keys] == [(48, 4 * 16), (36, 4 * 16)]
    assert not attention._forward_pre_hooks
    assert not attention.qkv._forward_hooks


def test_divprune_picks_features_that_lie_far_apart():
    clusters = torch.tensor([[1.0, 0, 0]] * 4 + [[0, 1.0, 0]] * 3 + [[0, 0, 1.0]] * 2 + [[-1.0, 0, 0]])
    clusters = clusters + 0.01 * torch.randn(clusters.shape, generator=torch.Generator().manual_seed(0))
    chosen = most_diverse(clusters, 4)
    assert chosen[0] == 9  # the one without a neighbour
    assert sorted((chosen >= bound).sum().item() for bound in (0, 4, 7, 9)) == [1, 2, 3, 4]  # one of each cluster
    assert len(most_diverse(torch.ones(5, 2), 3).unique()) == 3


def test_cdpruner_weighs_relevance_against_diversity():
    tokens = torch.tensor([[1.0, 0.1, 0], [1.0, 0.1, 0.01], [0.6, 1.0, 0], [0.0, 0, 1.0]])
    relevance = cdpruner.relevance_of(tokens, torch.tensor([[1.0, 0, 0]]))
    assert relevance.min() == 0
    assert relevance.max() == relevance[0] == 1
    # The second is as relevant as the first, but says the same; the last is new, but irrelevant.
    assert cdpruner.greedy_map(tokens, relevance, 2).tolist() == [0, 2]
    assert cdpruner.relevance_of(tokens, torch.zeros(0, 3)).tolist() == [1] * 4
    assert sorted(cdpruner.greedy_map(torch.ones(5, 3), torch.ones(5), 4).tolist()) == [0, 1, 2, 3]


def test_cdpruner_relevance_is_the_cosine_to_the_mean_of_the_question_with_its_own_sign():
    tokens = torch.tensor([[2.0, 0], [0, 1.0], [-1.0, 0]])
    question = torch.tensor([[3.0, 0], [1.0, 0], [0.0, 3.0]])  # their mean is (4 / 3, 1): cosines 0.8, 0.6, -0.8
    torch.testing.assert_close(cdpruner.relevance_of(tokens, question), torch.tensor([1.0, 0.875, 0.0]))
    torch.testing.assert_close(cdpruner.relevance_of(tokens, question, negated=True), torch.tensor([0.0, 0.125, 1.0]))


def test_greedy_map_takes_the_largest_determinant_at_each_step():
    torch.manual_seed(0)
    features, relevance = torch.randn(9, 6).double(), torch.rand(9).double() + 0.1
    kernel = torch.nn.functional.normalize(features, dim=-1) * relevance[:, None]
    kernel = kernel @ kernel.T
    chosen = []
    for _ in range(5):
        rest = [cell for cell in range(9) if cell not in chosen]
        chosen.append(max(rest, key=lambda cell: torch.linalg.det(kernel[[*chosen, cell]][:, [*chosen, cell]]).item()))
    assert cdpruner.greedy_map(features, relevance, 5).tolist() == chosen


def test_cdpruner_negated_keeps_other_cells_of_the_same_question(tiny, tiny_processor, examples):
    asked = [Example(examples[0].image, "who signed the third page of it?")]
    methods = map(baselines.find, ("cdpruner", "cdpruner_negated"))
    (plain,), (negated,) = (method(tiny, tiny_processor, asked, [12]).kept for method in methods)
    assert plain.sum() == negated.sum() == 12
    assert not torch.equal(plain, negated)


def test_cdpruner_depends_on_the_question_and_divprune_does_not(tiny, tiny_processor, examples):
    asked = [Example(examples[0].image, text) for text in ("total?", "who signed the third page of it?")]
    first, second = baselines.find("cdpruner")(tiny, tiny_processor, asked, [12, 12]).kept
    assert not torch.equal(first, second)
    first, second = baselines.find("divprune")(tiny, tiny_processor, asked, [12, 12]).kept
    assert torch.equal(first, second)


def test_oracle_keeps_the_evidence_whole_and_then_its_neighbours(tiny, tiny_processor, examples):
    share = oracle.evidence_share(BOXES, (128, 96), (6, 8))
    assert share[1].tolist() == [0, 0.75 * 0.625, 0.625, 0.75 * 0.625, 0, 0, 0, 0]
    assert share[4].tolist() == [0] * 6 + [0.625 * 0.625, 0]
    assert int((share > 0).sum()) == 4
    (kept,) = baselines.find("oracle")(tiny, tiny_processor, examples[:1], [6]).kept
    assert kept[share > 0].all()
    assert int(kept.sum()) == 6
    assert oracle.evidence_cells(BOXES, (128, 96), (6, 8), 1).tolist() == [8 + 2]
    assert oracle.evidence_cells(((32, 32, 48, 48),), (96, 96), (6, 6), 5).tolist() == [14, 8, 13, 15, 20]
    assert oracle.evidence_cells((), (128, 96), (6, 8), 5).tolist() == strided.spread(6, 8, 5).tolist()
    assert oracle.evidence_share([(0, 0, 64, 96), (32, 0, 128, 96)], (128, 96), (6, 8)).unique().tolist() == [1]


@torch.no_grad()
def without_dropped(model, inputs, kept):
    """The last token's logits when the layers after the second run on the kept tokens alone."""
    caught = {}

    def catch(module, args, kwargs):
        caught.update(hidden=args[0] if args else kwargs["hidden_states"], rotary=kwargs["position_embeddings"])

    text = model.model.language_model
    image = inputs["input_ids"][0] == model.config.image_token_id
    keep = ~image
    keep[image] = kept.flatten()
    hook = text.layers[fastv.LAYERS_BEFORE].register_forward_pre_hook(catch, with_kwargs=True)
    model(**inputs)
    hook.remove()
    hidden = caught["hidden"][:, keep]
    rotary = tuple(part[:, keep] for part in caught["rotary"])
    levels = inputs["mm_encoder_outputs"]["image"].deepstack_features
    length = hidden.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
    for number in range(fastv.LAYERS_BEFORE, len(text.layers)):
        hidden = text.layers[number](hidden, attention_mask=causal, position_embeddings=rotary)
        if number < len(levels):
            hidden[:, image[keep]] += levels[number][0][kept.flatten()]
    return model.lm_head(text.norm(hidden))[:, -1]


def test_fastv_with_more_tokens_than_cells_is_all_of_them(tiny, tiny_processor, examples):
    cells = baselines.cells_of(tiny, tiny_processor, examples[0])
    (every,), (more,) = (
        baselines.find("fastv")(tiny, tiny_processor, examples[:1], [n]).tokens for n in (cells, 10_000)
    )
    assert more == every == cells


def test_fastv_equals_a_run_without_the_dropped_tokens(tiny, tiny_processor, examples, report):
    for example, budget in zip(examples, (12, 9), strict=True):
        prepared = baselines.find("fastv")(tiny, tiny_processor, [example], [budget])
        want = without_dropped(tiny, prepared.inputs, prepared.kept[0])
        have = logits_of(tiny, prepared)
        assert report("fastv masked against dropped", (have - want).abs().max()) < 1e-4
        with torch.no_grad():
            assert (tiny(**prepared.inputs).logits[:, -1] - want).abs().max() > 1e-3, "the hooks stay on"


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_fastv_prefill_removes_what_fastv_masks(tiny_config, new_model, tiny_processor, examples, attention, report):
    model = new_model(tiny_config())
    model.set_attn_implementation(attention)
    for example, budget, cells in zip(examples, (12, 9), (48, 36), strict=True):
        want = logits_of(model, fastv.fastv(model, tiny_processor, [example], [budget]))
        have = fastv.prefill(model, tiny_processor, [example], [budget])
        assert report("fastv removed against masked", (have - want).abs().max()) < 1e-4
        want = logits_of(model, fastv.fastv(model, tiny_processor, [example], [cells]))
        assert (fastv.prefill(model, tiny_processor, [example], [cells]) - want).abs().max() < 1e-4
    with pytest.raises(ValueError, match="got 2 examples"):
        fastv.prefill(model, tiny_processor, examples, [12, 9])


def test_fastv_prefill_runs_later_layers_on_few_tokens(tiny, tiny_processor, examples):
    lengths = []
    hooks = [
        layer.mlp.register_forward_hook(lambda module, args, output: lengths.append(args[0].shape[1]))
        for layer in tiny.model.language_model.layers
    ]
    try:
        fastv.prefill(tiny, tiny_processor, examples[:1], [12])
    finally:
        for hook in hooks:
            hook.remove()
    whole = interface.full_prompt(tiny_processor, examples[:1])["input_ids"].shape[1]
    assert lengths == [whole, whole, whole - 36, whole - 36]


def test_fastv_drops_while_decoding_from_the_cache_too(tiny, tiny_processor, examples, report):
    prepared = baselines.find("fastv")(tiny, tiny_processor, examples, [12, 9])
    settings = {"max_new_tokens": 4, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    with prepared.during:
        cached = tiny.generate(**prepared.inputs, **settings)
        uncached = tiny.generate(**prepared.inputs, **settings, use_cache=False)
        beams = tiny.generate(**prepared.inputs, max_new_tokens=3, num_beams=2, do_sample=False)
    assert torch.equal(cached.sequences, uncached.sequences)
    assert len(beams) == 2
    for one, other in zip(cached.logits, uncached.logits, strict=True):
        assert report("fastv cached against uncached", (one - other).abs().max()) < 1e-4


def test_fastv_ranks_by_the_attention_of_the_second_layer(tiny_config, new_model, tiny_processor, examples):
    model = new_model(tiny_config())
    model.set_attn_implementation("eager")
    prepared = baselines.find("fastv")(model, tiny_processor, examples, [12, 9])
    with torch.no_grad():
        attentions = model(**prepared.inputs, output_attentions=True).attentions[fastv.LAYERS_BEFORE - 1]
    for number, (kept, budget) in enumerate(zip(prepared.kept, (12, 9), strict=True)):
        image = prepared.inputs["input_ids"][number] == model.config.image_token_id
        received = attentions[number, :, -1].mean(0)[image]
        assert kept.flatten().nonzero().flatten().tolist() == sorted(received.topk(budget).indices.tolist())
    assert torch.isfinite(logits_of(model, prepared)).all()


def test_fastv_says_what_it_can_not_run(tiny_config, new_model, tiny):
    assert baselines.supports("fastv", tiny) is None
    assert "2 layers" in baselines.supports("fastv", new_model(tiny_config(text={"num_hidden_layers": 2})))


def test_stock_models_run_full_and_resize(tiny, stock, tiny_processor, examples):
    for name, want in (("full", [48, 36]), ("resize", [12, 9])):
        prepared = baselines.find(name)(stock, tiny_processor, examples, [12, 9])
        assert prepared.tokens == want
        assert len(stock.generate(**prepared.inputs, max_new_tokens=2)) == 2
    assert {name for name in NAMES if baselines.supports(name, stock) is None} == {"full", "resize"}
    assert "ARRCOCQwen3VLForConditionalGeneration" in baselines.supports("tome", stock)
    assert all(baselines.supports(name, tiny) is None for name in NAMES)


def test_our_class_from_a_stock_folder_is_ours_and_is_saved_as_ours(stock, tiny, tmp_path):
    assert baselines.is_arrcoc(tiny)
    assert not baselines.is_arrcoc(stock)
    stock.save_pretrained(tmp_path / "stock")
    loaded = type(tiny).from_pretrained(tmp_path / "stock")
    assert baselines.is_arrcoc(loaded)
    loaded.save_pretrained(tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == "arrcoc_qwen3_vl"


class FixedTiles:
    """A processor of another kind: a placeholder for each 10 x 10 pixels, and one more."""

    image_processor = object()
    image_token_id = 1  # of what stands behind them

    def apply_chat_template(self, chats, **kwargs):
        (chat,) = chats
        width, height = chat[0]["content"][0]["image"].size
        return interface.BatchFeature({"input_ids": torch.tensor([[7] * (1 + (width // 10) * (height // 10)) + [1]])})


def test_resize_finds_the_size_of_any_other_processor(page):
    example = Example(page(200, 100), "total?")
    config = type("Config", (), {"image_token_id": 7})
    model = type("Other", (), {"config": config, "device": "cpu", "dtype": torch.float32})()
    assert baselines.cells_of(model, FixedTiles(), example) == 201
    prepared = resize.resize(model, FixedTiles(), [example], [50])
    assert 40 <= prepared.tokens[0] <= 50
    assert resize.resize(model, FixedTiles(), [example], [201]).tokens == [201]
    with pytest.raises(interface.BudgetTooSmall, match="more than 0 tokens"):
        resize.resize(model, FixedTiles(), [example], [0])


def test_resize_shows_no_dot_for_its_aspect(page):
    """Some processors cut a picture into tiles by its aspect alone: one of two pixels is square, and has fewer."""

    class ByAspect(FixedTiles):
        def apply_chat_template(self, chats, **kwargs):
            width, height = chats[0][0]["content"][0]["image"].size
            return interface.BatchFeature({"input_ids": torch.tensor([[7] * (1 if width == height else 50)])})

    config = type("Config", (), {"image_token_id": 7})
    model = type("Other", (), {"config": config, "device": "cpu", "dtype": torch.float32})()
    with pytest.raises(interface.BudgetTooSmall, match=r"more than 5 tokens on .* made \(32, 16\)"):
        resize.resize(model, ByAspect(), [Example(page(200, 100), "total?")], [5])


def test_pixels_have_the_dtype_of_the_model(tiny, tiny_processor, examples):
    model = type("Half", (), {"config": tiny.config, "device": "cpu", "dtype": torch.bfloat16})()
    for method in (resize.resize, baselines.find("full")):
        assert method(model, tiny_processor, examples[:1], [4]).inputs["pixel_values"].dtype == torch.bfloat16


def test_resize_counts_what_a_processor_adds_to_its_grid(tiny, tiny_processor, page, monkeypatch):
    monkeypatch.setattr(resize, "count_image_tokens", lambda *a: [n + 5 for n in interface.count_image_tokens(*a)])
    assert resize.resize(tiny, tiny_processor, [Example(page(128, 96), "total?")], [20]).tokens[0] <= 20
    monkeypatch.undo()
    assert resize.resize(tiny, tiny_processor, [Example(page(128, 96), "total?")], [20]).tokens[0] == 20


def test_a_rounding_of_other_arguments_is_no_free_grid(tiny_processor, monkeypatch):
    assert interface.resizes_freely(tiny_processor)
    monkeypatch.setattr(interface, "_rounding", lambda images: lambda num_frames, height, width, factor: None)
    assert not interface.resizes_freely(tiny_processor)


def test_resize_opens_each_picture_once(tiny, tiny_processor, page):
    opened = []

    class Drawn:
        question = "total?"

        @property
        def image(self):
            opened.append(self)
            return page(128, 96)

    examples = [Drawn(), Drawn()]
    resize.resize(tiny, tiny_processor, examples, [48, 12])
    assert opened == examples


def test_resize_of_small_pictures_and_strips(tiny, make_processor, page):
    processor = make_processor(tiny)
    processor.image_processor.size = {"shortest_edge": 64 * 64, "longest_edge": 1 << 20}
    small = Example(page(32, 32), "total?")  # brought up to 4 x 4 cells
    assert baselines.cells_of(tiny, processor, small) == 16
    strip = Example(page(1600, 8), "total?")
    prepared = resize.resize(tiny, processor, [small, strip, small], [16, 20, 4])
    assert prepared.tokens == [16, 20, 4]


def test_registry_names_what_it_has():
    with pytest.raises(ValueError, match="did you mean divprune"):
        baselines.find("divprun")
    assert callable(baselines.find("tome"))


def test_titles_tell_what_is_only_in_the_style_of_a_paper():
    assert set(baselines.TITLES) <= set(baselines.METHODS)
    assert baselines.title("vision_selector") == "in the style of VisionSelector"
    assert baselines.title("glimpse_prune") == "in the style of GlimpsePrune (first layers read all tokens)"
    assert baselines.title("fastv") == "fastv (first layers read all tokens)"
    assert baselines.title("full") == "full"
    assert baselines.title("divprune") == "divprune"


def test_a_method_that_is_not_there_is_a_reason_and_not_a_crash(tiny, monkeypatch):
    monkeypatch.setitem(baselines.METHODS, "later", ("evaluation.baselines.later", "later"))
    assert "evaluation.baselines.later" in baselines.supports("later", tiny)
    monkeypatch.setitem(baselines.METHODS, "later", ("evaluation.baselines.full", "later"))
    assert "no method later" in baselines.supports("later", tiny)


@pytest.mark.parametrize("name", [*ENCODE_RATIOS, "foveated"])
def test_the_staged_methods_are_what_the_model_does_itself(tiny, tiny_processor, examples, name):
    modes = {
        "two_stage": {"encode_ratio": 0.35},
        "two_stage_30": {"encode_ratio": 0.3},
        "two_stage_40": {"encode_ratio": 0.4},
        "auto_stage": {"encode_ratio": "auto"},
        "foveated": {"allocation_mode": "foveated"},
    }
    inputs = interface.prompt(tiny_processor, examples, token_budget=[12, 9])
    prepared = baselines.find(name)(tiny, tiny_processor, examples, [12, 9])
    with torch.no_grad():
        assert torch.equal(tiny(**inputs, **modes[name]).logits[:, -1], logits_of(tiny, prepared))
    for kept, plan in zip(prepared.kept, tiny.allocate(**inputs, **modes[name]), strict=True):
        assert kept.nonzero().tolist() == plan.positions[plan.level == 0][:, 1:].tolist()
