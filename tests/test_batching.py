"""A sample's result does not depend on its batch: padding side, neighbours, other images in the prompt."""

import pytest
import torch

pytestmark = pytest.mark.core

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def chats(page):
    """Chats of one, two and three pictures of unlike sizes, with questions of unlike lengths."""
    return {
        "what is the total?": page(128, 96),
        "which shape is red and where does it stand on the page?": [page(64, 64, 1), page(96, 32, 2)],
        "date?": page(32, 160, 3),
        "": [page(48, 48, 4), page(128, 96), page(16, 64, 5)],
    }


def same_plan(one, two) -> bool:
    return all(
        torch.equal(getattr(one, name), getattr(two, name)) for name in ("positions", "level", "depth", "cell_token")
    )


def batched(make_inputs, chats, **options):
    return make_inputs(list(chats.values()), list(chats), **options)


@torch.no_grad()
@pytest.mark.parametrize("padding_side", ["left", "right"])
@pytest.mark.parametrize("shape", ["default", "no_deepstack", "pooled", "merge_3"])
def test_a_chat_in_a_batch_equals_the_chat_alone(
    shape, padding_side, tiny_model, make_processor, make_inputs, chats, report
):
    model = tiny_model(shape)
    options = {"token_budget": 6, "processor": make_processor(model), "padding_side": padding_side}
    inputs = batched(make_inputs, chats, **options)
    logits, plans = model(**inputs).logits, iter(model.allocate(**inputs))
    for row, (question, pictures) in enumerate(chats.items()):
        single = make_inputs([pictures], question, **options)
        for plan in model.allocate(**single):
            assert same_plan(plan, next(plans))
        gap = (model(**single).logits[0] - logits[row][inputs["attention_mask"][row].bool()]).abs().max()
        assert report("batch - single", gap) < TOLERANCE


@torch.no_grad()
def test_a_chat_of_the_checkpoint_in_a_batch_equals_the_chat_alone(model, make_inputs, page, report):
    pictures = [page(160, 128), page(96, 200, 1), page(320, 64, 2)]
    inputs = make_inputs(pictures, token_budget=20)
    logits, plans = model(**inputs).logits, model.allocate(**inputs)
    for row, picture in enumerate(pictures):
        single = make_inputs([picture], token_budget=20)
        assert same_plan(model.allocate(**single)[0], plans[row])
        gap = (model(**single).logits[0] - logits[row][inputs["attention_mask"][row].bool()]).abs().max()
        assert report("batch - single (checkpoint)", gap) < TOLERANCE


@torch.no_grad()
def test_neighbours_and_order_do_not_change_a_chat(tiny_model, make_inputs, page, report):
    model, mine = tiny_model(), page(128, 96)
    expected = model(**make_inputs([mine], token_budget=9)).logits[0]
    for neighbours in ([page(16, 16, 1)], [page(256, 200, 2)], [[page(64, 64, 3), page(200, 32, 4)], page(40, 40, 5)]):
        for order in ([mine, *neighbours], [*neighbours, mine]):
            inputs = make_inputs(order, token_budget=9)
            row = 0 if order[0] is mine else len(order) - 1
            gap = (model(**inputs).logits[row][inputs["attention_mask"][row].bool()] - expected).abs().max()
            assert report("batch - single, other neighbours", gap) < TOLERANCE


@torch.no_grad()
def test_other_images_of_the_prompt_do_not_change_an_allocation(tiny_model, make_inputs, page):
    model, mine = tiny_model(), page(128, 96)
    expected = model.allocate(**make_inputs([mine], token_budget=9))[0]
    for pictures in ([page(64, 64, 1), mine], [mine, page(200, 32, 4)], [page(16, 16, 2), mine, page(96, 96, 3)]):
        plans = model.allocate(**make_inputs([pictures], token_budget=9))
        assert same_plan(plans[pictures.index(mine)], expected)


@torch.no_grad()
def test_budgets_of_the_neighbours_do_not_change_a_chat(tiny_model, make_inputs, page, report):
    model, pictures = tiny_model(), [page(128, 96), page(64, 96, 1)]
    expected = model(**make_inputs(pictures[:1], token_budget=9)).logits[0]
    for budget in (1, 9, 20, "full"):
        inputs = make_inputs(pictures, token_budget=[9, budget])
        gap = (model(**inputs).logits[0][inputs["attention_mask"][0].bool()] - expected).abs().max()
        assert report("batch - single, other budgets", gap) < TOLERANCE


@torch.no_grad()
def test_a_text_in_the_batch_equals_the_text_alone(tiny_model, processor, chat, page, report):
    model = tiny_model()
    text = [{"role": "user", "content": [{"type": "text", "text": "and the date of it, please?"}]}]
    options = {"tokenize": True, "add_generation_prompt": True, "return_dict": True, "return_tensors": "pt"}
    options["processor_kwargs"] = {"token_budget": 9, "padding": True, "padding_side": "left"}
    inputs = processor.apply_chat_template([chat(page()), text, chat(page(64, 64, 1))], **options)
    logits = model(**inputs).logits
    for row, messages in enumerate((chat(page()), text, chat(page(64, 64, 1)))):
        single = processor.apply_chat_template([messages], **options)
        gap = (model(**single).logits[0] - logits[row][inputs["attention_mask"][row].bool()]).abs().max()
        assert report("batch - single, with a text", gap) < TOLERANCE


@pytest.mark.parametrize("mode", [{}, {"num_beams": 3}], ids=["greedy", "beams"])
def test_a_batch_generates_what_its_chats_generate_alone(mode, tiny_model, make_inputs, chats):
    model = tiny_model()
    options = {"max_new_tokens": 5, "do_sample": False, **mode}
    together = model.generate(**batched(make_inputs, chats, token_budget=6), **options)
    for row, (question, pictures) in enumerate(chats.items()):
        alone = model.generate(**make_inputs([pictures], question, token_budget=6), **options)
        assert torch.equal(alone[0, -5:], together[row, -5:])
