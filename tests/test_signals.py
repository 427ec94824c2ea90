"""The training signals: soft top-k and its gradients, each loss by hand, and what reaches the allocator."""

import math

import pytest
import torch
from PIL import Image

from arrcoc import deciding
from arrcoc.checkpoint import STAGE_1
from training import allocator_learner, language_pass, scorers, signals
from training.allocator_batches import AllocatorBatches, AllocatorCollator, ListSource, MixedSource
from training.allocator_learner import AllocatorLearner
from training.batches import IGNORED
from training.data import Example, WorldSource
from training.language_pass import Answer
from training.soft_topk import soft_topk

# every example here has boxes of evidence, and none of context; the tiny model answers nothing right
KINDS = [name for name in signals.SIGNALS if name not in ("lm", "lm_answered", "distill_unmarked", "named", "restored")]


@pytest.fixture(scope="module")
def source(page):
    """Two pages of other sizes with a box each."""
    pages = [page(96, 64, 1), page(64, 80, 2)]
    boxes = ((16, 16, 40, 30), (0, 48, 20, 64))
    return ListSource(
        [Example(p, "what is it?", ("42",), evidence=(box,)) for p, box in zip(pages, boxes, strict=True)]
    )


@pytest.fixture(scope="module")
def batch_for(source, make_processor, tiny_model):
    processor = make_processor(tiny_model())

    def build(learner, number=0):
        collator = AllocatorCollator(processor, learner.needs_language, learner.needs_prompt, seed=3)
        return next(iter(AllocatorBatches(source, collator, 2, start=number)))

    return build


def new_learner(tiny_config, new_model, text, scorer="arrcoc", **dials):
    model = new_model(tiny_config(**dials), awake=False)
    return AllocatorLearner(model, signals.parse_signals(text), scorer)


@pytest.mark.parametrize("count", [0.5, 1.0, 3.7, 11.5])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_soft_topk_sums_to_k(count, scale, report):
    torch.manual_seed(0)
    share = soft_topk(torch.randn(4, 12) * scale, count)
    assert report("soft top-k, sum - K", (share.sum(-1) - count).abs().max()) < 1e-4
    assert ((share >= 0) & (share <= 1)).all()


def test_soft_topk_tends_to_the_hard_one():
    scores = torch.tensor([0.1, 0.9, 0.5, 0.8])
    assert torch.equal(soft_topk(scores, 2, 0.001).round(), torch.tensor([0.0, 1.0, 0.0, 1.0]))
    assert torch.allclose(soft_topk(torch.zeros(4), 1.0), torch.full((4,), 0.25))


def test_soft_topk_gradient_is_that_of_finite_differences_for_scores_count_and_temperature():
    torch.manual_seed(0)
    scores = torch.randn(3, 7, dtype=torch.double, requires_grad=True)
    count = torch.tensor([1.5, 3.0, 5.2], dtype=torch.double, requires_grad=True)
    temperature = torch.tensor(0.7, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(soft_topk, (scores, count, temperature))
    (slope,) = torch.autograd.grad(soft_topk(scores, count).sum(), count)
    assert torch.allclose(slope, torch.ones_like(slope))  # one more token is one more token


@pytest.mark.parametrize("count", [0, 4, -1.0, math.nan])
def test_soft_topk_refuses_a_count_outside_its_cells(count):
    with pytest.raises(ValueError, match="0 < K < 4"):
        soft_topk(torch.zeros(4), count)


def test_signals_are_parsed_and_misspelt_ones_refused():
    assert signals.parse_signals("evidence, lm=0.5") == {"evidence": 1.0, "lm_straight_through": 0.5}
    for bad in ("evidense", "evidence=0", "evidence=x", "lm,lm_straight_through", "", "entropy=-1"):
        with pytest.raises(ValueError, match=r"unknown|twice|above 0"):
            signals.parse_signals(bad)


def test_evidence_target_and_loss_by_hand():
    assert signals.evidence_target(torch.tensor([0.0, 0.04, 0.06, 1.0])).tolist() == [0, 0, 1, 1]
    assert signals.evidence_target(torch.tensor([0.0, 0.01, 0.02])).tolist() == [0, 0, 1]
    assert not signals.evidence_target(torch.zeros(3)).any()
    target, one = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor(1.0)
    flat = signals.evidence_loss(torch.zeros(4), one, target)  # shares of 1/4
    dice = 1 - (2 * 0.25 + 1) / (1 + 1 + 1)
    assert float(flat) == pytest.approx(dice - 0.1 * (math.log(0.25) + 3 * math.log(0.75)) / 4, abs=1e-5)
    assert float(signals.evidence_loss(50 * target, one, target)) == pytest.approx(0, abs=1e-3)
    assert signals.evidence_loss(torch.zeros(4), one, torch.zeros(4)) is None
    assert signals.evidence_loss(torch.zeros(4), one, torch.ones(4)) is None


def test_other_losses_by_hand():
    one = torch.tensor(1.0)
    attention = torch.tensor([0.5, 0.5, 0.0])
    expected = math.log(0.5) - math.log(1 / 3)
    assert float(signals.attention_loss(torch.zeros(3), one, attention)) == pytest.approx(expected, abs=1e-6)
    logits = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    assert float(signals.answer_loss(logits, logits)) == pytest.approx(0, abs=1e-6)
    assert float(signals.entropy_loss(torch.zeros(5), one)) == pytest.approx(1)
    assert float(signals.entropy_loss(torch.tensor([99.0, 0, 0]), one)) == pytest.approx(0, abs=1e-5)
    assert float(signals.tension_loss(torch.tensor([0.5, -0.5, 0]))) == pytest.approx(1 / 6)
    assert signals.binarize_loss(torch.zeros(3), one, 3) is None
    sharp, soft = (signals.binarize_loss(torch.tensor([1.0, 0, 0]), torch.tensor(t), 1) for t in (0.05, 1.0))
    assert sharp < soft


@pytest.mark.parametrize("name", KINDS)
def test_each_signal_reaches_its_whole_stage_by_the_second_step_and_never_the_base(
    name, tiny_config, new_model, batch_for
):
    learner = new_learner(tiny_config, new_model, name)
    learner.progress = 0.5  # `binarize` counts from nothing
    batch = batch_for(learner)
    parameters = dict(learner.scorer.named_parameters())
    # with guesses to learn by
    optimizer = torch.optim.SGD([p for p in learner.parameters() if p.requires_grad], lr=0.1)
    torch.manual_seed(0)
    with torch.no_grad():  # the first step of the gates alone, as large as Adam makes it
        for key, parameter in parameters.items():
            if key.endswith("gate"):
                parameter.fill_(0.05)
    seen = set()
    for _ in range(2):
        optimizer.zero_grad()
        loss = learner(**batch)["loss"]
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in parameters.values() if p.grad is not None)
        seen |= {key for key, p in parameters.items() if p.grad is not None and p.grad.any()}
        optimizer.step()
    # stage 1 has signals of its own; alone, they leave the perspective that both stages use as it is
    reader = {key for key in parameters if key.startswith("reader.")}
    stage_one = reader | {key for key in parameters if key.startswith("early_")}
    taught = {"early_features": reader, "early_evidence": stage_one, "early_distill": stage_one}
    alone = {key for key in parameters if key.startswith(("restorer.", "coarse_mark.", "scope."))}
    taught["coarse"] = {key for key in parameters if key.startswith("coarse_mark.")}
    taught["scope"] = {key for key in parameters if key.startswith("scope.")}
    assert seen == taught.get(name, set(parameters) - stage_one - alone)
    assert all(p.grad is None for key, p in learner.model.named_parameters() if ".arrcoc." not in key)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_batch_of_several_sizes_teaches_what_each_of_its_pictures_does(
    device, tiny_config, new_model, make_processor, monkeypatch
):
    """Pictures are scored in another order than they came in: those of one grid together, where a GPU has them."""
    plain = deciding._together
    monkeypatch.setattr(deciding, "_together", lambda kinds, _, several: plain(kinds, torch.device(device), several))
    model = new_model(tiny_config())
    learner = AllocatorLearner(model, signals.parse_signals("evidence,mass,context,named,early_evidence,early_distill"))
    torch.nn.init.normal_(learner.names.weight)
    sources = [WorldSource(2, kinds=("form",), grids=(grid,), questions=2) for grid in ((8, 12), (12, 8), (8, 8))]
    examples = [source.example(number) for number in range(2) for source in (*sources, sources[0])]
    collator = AllocatorCollator(make_processor(model), language=False, shares=(0.2, 0.2))
    together = learner(**collator(examples, 0))
    alone = [learner(**collator([example], 0)) for example in examples]
    for name in ("evidence", "mass", "context", "named", "early_evidence", "early_distill"):
        torch.testing.assert_close(together[name], torch.stack([each[name] for each in alone if name in each]).mean())


@pytest.mark.parametrize("scorer", ["query_blind", "vision_selector", "glimpse_prune"])
def test_other_scorers_learn_from_evidence_and_language(scorer, tiny_config, new_model, batch_for):
    learner = new_learner(tiny_config, new_model, "evidence,lm,lm_soft_topk,distill_attention", scorer)
    batch = batch_for(learner)
    losses = learner(**batch)
    losses["loss"].backward()
    trained = {name for name, p in learner.named_parameters() if p.requires_grad}
    got = {name for name, p in learner.named_parameters() if p.grad is not None}
    stage_1 = {
        name for name in trained if name.partition(".arrcoc.")[2].startswith(STAGE_1)
    }  # which no signal here asks for
    assert got == trained - stage_1
    assert all(torch.isfinite(p.grad).all() for p in learner.parameters() if p.grad is not None)


def test_what_is_needed_has_the_answer_however_little_of_its_cell_it_covers():
    evidence, context = torch.tensor([0.03, 0, 0, 0]), torch.tensor([0, 0.5, 0.02, 0])
    assert signals.needed_target(evidence, context).tolist() == [1, 1, 0, 0]
    assert signals.needed_target(0 * evidence, 0 * context).tolist() == [0, 0, 0, 0]


def test_the_gates_change_no_value(tiny_config, new_model, batch_for):
    learner = new_learner(tiny_config, new_model, "lm")
    batch = batch_for(learner)
    losses = learner(**batch)
    with torch.no_grad():
        pruned = learner.model.eval()(
            input_ids=batch["kept_input_ids"],
            attention_mask=batch["kept_attention_mask"],
            mm_token_type_ids=batch["kept_mm_token_type_ids"],
            labels=batch["kept_labels"],
            **{name: batch[name] for name in ("pixel_values", "image_grid_thw", "texture_images", "query_input_ids",
                                              "query_attention_mask", "image_token_counts")},
        )  # fmt: skip
    assert torch.allclose(losses["lm_straight_through"], pruned.loss, atol=1e-5)


def test_soft_shares_of_zero_and_one_are_exact_pruning(tiny_config, new_model, batch_for, report):
    from training.language_pass import answer_pass, prefixed, soft_pass, with_features
    from training.scorers import scores_of

    learner = new_learner(tiny_config, new_model, "lm,lm_soft_topk,distill_attention")
    batch, model = batch_for(learner), learner.model
    vision = model.model.encode(batch["pixel_values"], batch["image_grid_thw"])
    decisions = [s.decide("straight_through") for s in scores_of("arrcoc", learner.scorer, model, batch, vision)]
    shares = [(d.allocation.cell_token >= 0).float() for d in decisions]
    with torch.no_grad():
        soft = soft_pass(model, prefixed(batch, "full_"), batch["image_grid_thw"], vision, shares)
        kept = with_features(vision, decisions, model.model)
        hard = answer_pass(model, prefixed(batch, "kept_"), batch["image_grid_thw"], kept)
    assert torch.equal(soft.labels, hard.labels)
    assert report("soft pass at shares 0 and 1, against pruning", (soft.logits - hard.logits).abs().max()) < 1e-4


def test_answered_is_what_is_right_in_every_token():
    logits = torch.eye(4)[[0, 1, 2, 3, 0]]
    labels = torch.tensor([0, 1, 2, 0, 0])
    assert signals.answered(logits, labels, torch.tensor([2, 2, 1])).tolist() == [True, False, True]


@pytest.mark.parametrize("names", ["lm_soft_topk,lm_answered", "lm_answered"])
@pytest.mark.parametrize("right", [(True, True), (True, False), (False, False)])
def test_only_what_the_full_model_answers_teaches_by_its_answer(
    names, right, tiny_config, new_model, batch_for, monkeypatch
):
    learner = new_learner(tiny_config, new_model, names)
    batch, passed = batch_for(learner), []
    lengths = (batch["full_labels"][:, 1:] != IGNORED).sum(1)
    kept = torch.tensor(right).repeat_interleave(lengths)

    def full_pass(*arguments):
        labels = batch["full_labels"][:, 1:]
        labels = labels[labels != IGNORED]
        said = torch.where(kept, labels, (labels + 1) % tiny_config().text_config.vocab_size)
        return Answer(torch.nn.functional.one_hot(said, tiny_config().text_config.vocab_size).float(), labels)

    def soft_pass(*arguments):
        passed.append(language_pass.soft_pass(*arguments))
        return passed[-1]

    monkeypatch.setattr(allocator_learner, "full_pass", full_pass)
    monkeypatch.setattr(allocator_learner, "soft_pass", soft_pass)
    losses = learner(**batch)
    if names == "lm_answered":  # nothing else is passed through the language model
        assert [len(answer.labels) for answer in passed] == ([int(kept.sum())] if any(right) else [])
        kept = kept[kept]
    else:
        assert len(passed) == 1  # both share it
        assert torch.allclose(losses["lm_soft_topk"], signals.language_loss(passed[0].logits, passed[0].labels))
    if not any(right):
        assert "lm_answered" not in losses
        return
    answer = passed[0]
    wanted = signals.language_loss(answer.logits[kept], answer.labels[kept])
    assert torch.allclose(losses["lm_answered"], wanted)
    if names != "lm_answered":
        assert torch.allclose(losses["lm_answered"], losses["lm_soft_topk"]) == all(right)


def test_what_the_full_model_says_itself_reaches_the_scores(tiny_config, new_model, batch_for):
    learner = new_learner(tiny_config, new_model, "lm_answered")
    batch, model = batch_for(learner), learner.model
    vision = model.model.encode(batch["pixel_values"], batch["image_grid_thw"])
    full = language_pass.prefixed(batch, "full_")
    said = language_pass.full_pass(model, full, batch["image_grid_thw"], vision, False).logits.argmax(-1)
    labels = batch["full_labels"].clone()
    labels[:, 1:][labels[:, 1:] != IGNORED] = said
    losses = learner(**batch | {"full_labels": labels})
    losses["loss"].backward()
    assert float(losses["lm_answered"]) > 0
    assert any(p.grad is not None and p.grad.any() for p in learner.scorer.parameters())


def test_the_teachers_attention_is_a_distribution_over_each_images_cells(tiny_config, new_model, batch_for):
    from training.language_pass import full_pass, prefixed

    learner = new_learner(tiny_config, new_model, "distill_attention")
    batch, model = batch_for(learner), learner.model
    before = model.model.language_model.config._attn_implementation
    vision = model.model.encode(batch["pixel_values"], batch["image_grid_thw"])
    grid = batch["image_grid_thw"]
    eager, plain = (full_pass(model, prefixed(batch, "full_"), grid, vision, a) for a in (True, False))
    sizes = (batch["image_grid_thw"].prod(-1) // 4).tolist()
    assert [len(seen) for seen in eager.attention] == sizes
    assert all(float(seen.sum()) == pytest.approx(1, abs=1e-5) for seen in eager.attention)
    assert torch.allclose(eager.logits, plain.logits, atol=1e-4)
    assert model.model.language_model.config._attn_implementation == before


def test_distill_unmarked_is_of_the_questions_without_boxes_alone(tiny_config, new_model, batch_for):
    learner = new_learner(tiny_config, new_model, "evidence,distill_attention,distill_unmarked")
    batch = batch_for(learner)
    sizes = (batch["image_grid_thw"].prod(-1) // 4).tolist()
    assert len(sizes) == 2
    assert all(cells.any() for cells in batch["evidence"].split(sizes))
    marked = learner(**batch)
    assert "distill_unmarked" not in marked
    found = []
    for number in range(2):
        cells = [part.clone() for part in batch["evidence"].split(sizes)]
        cells[number].zero_()
        found.append(learner(**batch | {"evidence": torch.cat(cells)})["distill_unmarked"])
    assert not torch.isclose(*found)
    assert torch.allclose(torch.stack(found).mean(), marked["distill_attention"])


@pytest.mark.parametrize("number", [0, 1])
def test_the_full_model_answers_questions_without_boxes_alone(number, tiny_config, new_model, batch_for, monkeypatch):
    every = new_learner(tiny_config, new_model, "evidence,distill_attention,distill_unmarked")
    alone = new_learner(tiny_config, new_model, "evidence,distill_unmarked")
    batch, rows = batch_for(every), []
    cells = [part.clone() for part in batch["evidence"].split((batch["image_grid_thw"].prod(-1) // 4).tolist())]
    cells[number].zero_()
    batch |= {"evidence": torch.cat(cells)}
    wanted, full_pass = every(**batch)["distill_unmarked"], allocator_learner.full_pass

    def counted(model, prompt, *rest):
        rows.append(len(prompt["input_ids"]))
        return full_pass(model, prompt, *rest)

    monkeypatch.setattr(allocator_learner, "full_pass", counted)
    torch.testing.assert_close(alone(**batch)["distill_unmarked"], wanted, rtol=1e-4, atol=1e-6)
    assert rows == [1]


@pytest.mark.parametrize(("text", "name"), [("evidence", "evidence"), ("distill_attention", "distill_attention")])
def test_signals_fall_on_a_tiny_overfit(text, name, tiny_config, new_model, batch_for):
    learner = new_learner(tiny_config, new_model, text)
    batch = batch_for(learner)
    gates = [p for n, p in learner.scorer.named_parameters() if n.endswith("gate")]
    rest = [p for n, p in learner.scorer.named_parameters() if not n.endswith("gate")]
    optimizer = torch.optim.Adam([{"params": gates, "lr": 0.1}, {"params": rest, "lr": 0.01}])
    values = []
    for _ in range(40):
        losses = learner(**batch)
        values.append(float(losses[name]))
        optimizer.zero_grad()
        losses["loss"].backward()
        optimizer.step()
    assert values[-1] < 0.6 * values[0]


@pytest.mark.parametrize("text", ["evidence", "early_evidence"])
def test_a_batch_without_evidence_teaches_nothing_but_runs(text, tiny_config, new_model, make_processor, tiny_model):
    learner = new_learner(tiny_config, new_model, text)
    source = ListSource([Example(Image.new("RGB", (64, 64), "white"), "why?", ("no",))])
    batch = AllocatorCollator(make_processor(tiny_model()), language=False)([source.example(0)], 0)
    loss = learner(**batch)["loss"]
    loss.backward()
    assert float(loss.detach()) == 0


def test_no_signal_meets_what_autocast_of_a_gpu_refuses(tiny_config, new_model, batch_for):
    """Its rules, by which tensors on the CPU are sent, too: losses of shares are unsafe there."""
    learner = new_learner(tiny_config, new_model, "evidence,mass,context,entropy,tension,early_evidence,early_distill")
    batch = batch_for(learner)
    torch.set_autocast_enabled("cuda", True)
    try:
        with torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.AutocastCUDA):
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                torch.nn.functional.binary_cross_entropy(torch.tensor([0.5]), torch.tensor([1.0]))
            losses = learner(**batch)
            soft = signals.binarize_loss(torch.arange(4.0), torch.tensor(1.0), 2)
    finally:
        torch.set_autocast_enabled("cuda", False)
    assert torch.isfinite(losses["loss"] + soft)


def test_binary_cross_entropy_is_torchs():
    share, target = torch.rand(9, requires_grad=True), torch.rand(9)
    found = [
        torch.autograd.grad(loss, share)[0]
        for loss in (
            signals._binary_cross_entropy(share, target),
            torch.nn.functional.binary_cross_entropy(share, target),
        )
    ]
    torch.testing.assert_close(*found)


def test_budgets_cover_their_range_and_depend_on_the_batch_number(processor):
    collator = AllocatorCollator(processor, language=False, shares=(0.04, 0.6))
    drawn = torch.cat([collator.budgets([100] * 8, number) for number in range(50)])
    assert 4 <= int(drawn.min()) <= 6
    assert 50 <= int(drawn.max()) <= 60
    assert torch.equal(collator.budgets([100, 50], 7), collator.budgets([100, 50], 7))
    assert collator.budgets([1, 2], 0).tolist() == [1, 1]
    with pytest.raises(ValueError, match="shares"):
        AllocatorCollator(processor, language=False, shares=(0.5, 1.0))


def test_mass_compares_evidence_with_every_other_cell():
    value, target = torch.tensor([1.0, 2.0, 0.0, 0.5]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    share = torch.softmax(value / 0.5, 0)
    assert signals.mass_loss(value, torch.tensor(0.5), target).item() == pytest.approx(-math.log(share[0] + share[1]))
    assert signals.mass_loss(value, torch.tensor(0.5), target * 0) is None


def test_what_is_wanted_learns_to_be_among_a_share_of_the_cells():
    target = torch.zeros(30)
    target[[3, 17]] = 1
    value = torch.zeros(30, requires_grad=True)
    temperature = torch.tensor(0.1)
    loss = signals.among_loss(value, temperature, target, 1 / 3)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(3), abs=1e-4)  # every cell has a third of a place
    assert (value.grad[target > 0] < 0).all()
    assert (value.grad[target == 0] > 0).all()
    assert signals.among_loss(value.detach() + 5 * target, temperature, target, 1 / 3) < 1e-3
    assert signals.among_loss(value, temperature, torch.zeros(30), 1 / 3) is None
    assert signals.among_loss(value, temperature, torch.ones(30), 1 / 3) is None
    assert signals.among_loss(value, temperature, target, 0.05) is None  # a place and a half for two cells
    far_down = (-3 * target).requires_grad_()  # thirty temperatures below all others
    signals.among_loss(far_down, temperature, target, 1 / 3).backward()
    assert (far_down.grad[target > 0] < -1).all()


def test_stage_one_is_taught_to_keep_context_and_stage_two_by_a_signal_of_its_own(tiny_config, new_model, batch_for):
    learner = new_learner(tiny_config, new_model, "evidence,early_evidence,context")
    batch = batch_for(learner)
    assert not batch["context"].any()
    batch["evidence"] = torch.zeros_like(batch["evidence"]).index_fill(0, torch.tensor([1]), 1.0)
    plain = learner(**batch)
    batch["context"] = torch.zeros_like(batch["context"]).index_fill(0, torch.tensor([0]), 1.0)
    both = learner(**batch)
    assert both["evidence"] == plain["evidence"]
    assert both["context"] != plain["context"]
    batch["evidence"], batch["context"] = batch["context"], torch.zeros_like(batch["context"])
    alone = learner(**batch)["early_evidence"]
    weighed = (plain["early_evidence"] + signals.EARLY_CONTEXT * alone) / (1 + signals.EARLY_CONTEXT)
    assert both["early_evidence"] == pytest.approx(float(weighed), rel=1e-5)
    assert signals.EARLY_CONTEXT < 1


def test_what_stage_one_loses_moves_no_temperature():
    value, temperature = torch.rand(9), torch.tensor(0.1, requires_grad=True)
    early = torch.rand(9, requires_grad=True)
    image = scorers.Scored(value, temperature, (1, 3, 3), 2, {}, early=early)
    loss = allocator_learner._early_loss(image, torch.eye(9)[4])
    loss.backward()
    assert early.grad.abs().sum() > 0
    assert temperature.grad is None


def test_what_a_question_names_is_guessed_for_each_image(tiny_config, new_model, batch_for):
    learner = new_learner(tiny_config, new_model, "evidence,named")
    batch = batch_for(learner)
    assert "named" not in learner(**batch)  # nothing is named
    batch["context"] = torch.zeros_like(batch["context"]).index_fill(0, torch.tensor([0]), 1.0)
    first = learner(**batch)["named"]
    assert not learner.scorer.participation.mix._forward_hooks  # what is run outside of a step is not kept
    assert learner(**batch)["named"] == first  # of this batch alone
    batch["context"] = batch["context"].roll(-1)  # the last cell of the last image
    last = learner(**batch)["named"]
    assert last != first
    batch["query_input_ids"] = batch["query_input_ids"].clone()
    batch["query_input_ids"][0] = batch["query_input_ids"][0].flip(0)
    assert learner(**batch)["named"] == last  # another image's question
    assert not any("names" in name for name, _ in learner.model.named_parameters())
    assert new_learner(tiny_config, new_model, "evidence").names is None
    guess, target = torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0])
    by_hand = (5 * math.log(2) + math.log(1 + math.exp(2))) / 2
    assert float(signals.named_loss(guess, target)) == pytest.approx(by_hand, abs=1e-5)


def test_a_guess_is_measured_against_tokens_of_mean_0_and_variance_1():
    tokens = torch.tensor([[1.0, 3.0], [20.0, 10.0]])
    assert float(signals.guess_loss(torch.tensor([[-1.0, 1.0], [1.0, -1.0]]), tokens)) == pytest.approx(0, abs=1e-4)
    assert float(signals.guess_loss(torch.zeros(2, 2), tokens)) == pytest.approx(1, abs=1e-4)


def test_what_guesses_tokens_is_trained_beside_the_allocator_and_not_saved_with_it(tiny_config, new_model, batch_for):
    learner = new_learner(tiny_config, new_model, "early_features")
    learner(**batch_for(learner))["loss"].backward()
    assert all(parameter.grad.any() for parameter in learner.guess.parameters())
    assert not any("guess" in name for name, _ in learner.model.named_parameters())
    assert new_learner(tiny_config, new_model, "evidence").guess is None


def test_a_picture_asked_twice_is_encoded_once_and_alike(tiny_config, new_model, make_inputs, page):
    model = new_model(tiny_config())
    pictures = [page(96, 64, 1), page(96, 64, 1), page(64, 80, 2), page(96, 64, 1)]
    batch = make_inputs(pictures, ["what?", "where?", "what?", "who?"], token_budget="full")
    seen = []
    model.model.visual.patch_embed.register_forward_hook(lambda module, args, output: seen.append(len(output)))
    once, each = scorers.encode_once(model, batch), model.model.encode(batch["pixel_values"], batch["image_grid_thw"])
    assert scorers.repeats(batch) == [False, True, False, False]
    assert seen[0] == seen[1] - 4 * 6 * 4
    torch.testing.assert_close(once.last_hidden_state, each.last_hidden_state, rtol=0, atol=1e-5)
    for ours, theirs in zip(once.deepstack_features, each.deepstack_features, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_a_page_of_the_world_is_asked_several_questions_in_a_row():
    source = WorldSource(seed=3, kinds=("form",), grids=((8, 12),), questions=3)
    first, again, third, other = (source.example(index) for index in range(4))
    assert len({first.question, again.question, third.question}) == 3
    assert first.image.tobytes() == again.image.tobytes() == third.image.tobytes() != other.image.tobytes()
    mixed = MixedSource([source, ListSource([Example(first.image, "q", ("a",), name="listed")])], run=3)
    assert [mixed.example(index).name == "listed" for index in range(9)] == [False] * 3 + [True] * 3 + [False] * 3


def test_named_says_that_another_participation_has_nothing_to_read(tiny_config, new_model):
    model = new_model(tiny_config(), awake=False)
    model.model.arrcoc.participation = torch.nn.Identity()
    with pytest.raises(ValueError, match=r"`participation\.mix`, which Identity lacks; leave it out of --signals"):
        AllocatorLearner(model, signals.parse_signals("evidence,named"))
    AllocatorLearner(model, signals.parse_signals("evidence"))
