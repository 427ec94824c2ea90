"""The training loss reaches every parameter of the allocator and none of a frozen base, and changes no value."""

import copy

import pytest
import torch

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def pictures(page):
    return [page(128, 96), [page(64, 64, 1), page(96, 64, 2)]]


@pytest.fixture(scope="module")
def labelled(make_inputs, pictures):
    """`labelled(budget)`: a batch with labels on all tokens that are no padding and no placeholder."""

    def build(budget):
        inputs = make_inputs(pictures, token_budget=budget)
        unlearned = (inputs["attention_mask"] == 0) | (inputs["mm_token_type_ids"] == 1)
        return {**inputs, "labels": inputs["input_ids"].masked_fill(unlearned, -100)}

    return build


def learning(model):
    """The allocator's parameters that the loss reaches by name; stage 1's and the restorer's are asked only where cells are left
    out, a coarse view is marked only where there is one, and the scope of a question decides without a gradient."""
    asked = model.config.encode_ratio != 1
    parameters = model.model.arrcoc.named_parameters()
    parts = ("coarse_mark", "scope", *(() if asked else ("early_participation", "reader", "restorer")))
    return {name: parameter for name, parameter in parameters if not any(part in name for part in parts)}


def freeze_base(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".arrcoc." in name)
    return model


# Behind these, which are exactly zero at start, nothing gets a gradient in the first step.
ZERO_GATES = ("gate", "tension.", "up.", "restorer.leave.")


@pytest.mark.parametrize(
    "dials",
    [{}, {"coarse_share": 0.5, "min_deepstack_levels": 1}, {"encode_ratio": 0.6}],
    ids=["fine", "pooled", "two-stage"],
)
def test_every_allocator_parameter_learns_from_the_loss_by_the_second_step(
    dials, tiny_config, new_model, labelled, report
):
    model = freeze_base(new_model(tiny_config(**dials), awake=False)).train()
    optimizer = torch.optim.SGD(model.model.arrcoc.parameters(), lr=0.1)
    parameters = learning(model)
    assert any("adapter" in name for name in parameters) == ("coarse_share" in dials)
    seen = set()
    for step in range(2):
        optimizer.zero_grad()
        model(**labelled(12)).loss.backward()
        got = {name for name, p in parameters.items() if p.grad is not None and p.grad.abs().max() > 0}
        assert all(torch.isfinite(p.grad).all() for p in parameters.values() if p.grad is not None)
        if step == 0:
            neutral = {name for name, p in parameters.items() if not p.detach().any()}
            gates = {name for name in neutral if any(gate in name for gate in ZERO_GATES)}
            assert gates <= got
        seen |= got
        optimizer.step()
    assert seen == set(parameters)
    smallest = min(float(p.grad.abs().max()) for p in parameters.values())
    report("(largest entry of the weakest allocator gradient, second step)", smallest)
    assert all(p.grad is None for name, p in model.named_parameters() if ".arrcoc." not in name)


def test_an_awake_allocator_learns_in_the_first_step(tiny_config, new_model, labelled):
    model = freeze_base(new_model(tiny_config())).train()
    model(**labelled(12)).loss.backward()
    for name, parameter in learning(model).items():
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0, name


def test_a_trainable_base_gets_the_same_gradients_with_and_without_the_allocators(tiny_config, new_model, labelled):
    """The scores see detached features: no gradient enters the base through them."""
    gradients = []
    for frozen in (False, True):
        model = new_model(tiny_config()).train()
        model.model.arrcoc.requires_grad_(not frozen)
        model(**labelled(12)).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if ".arrcoc." not in name})
    for name in gradients[0]:
        torch.testing.assert_close(gradients[0][name], gradients[1][name], rtol=0, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("shape", ["default", "pooled"])
def test_train_mode_has_the_values_of_eval_mode(shape, tiny_model, labelled):
    model = copy.deepcopy(tiny_model(shape))
    inputs = labelled(12)
    expected = model.eval()(**inputs)
    with torch.enable_grad():
        trained = model.train()(**inputs)
    without_grad = model(**inputs)
    for output in (trained, without_grad):
        assert torch.equal(output.logits, expected.logits)
        assert torch.equal(output.loss, expected.loss)


def test_eval_mode_and_full_budget_give_the_allocator_no_gradient(tiny_config, new_model, labelled):
    model = new_model(tiny_config())
    model.eval()(**labelled(12)).loss.backward()
    assert all(p.grad is None for p in model.model.arrcoc.parameters())
    model.train()(**labelled("full")).loss.backward()
    assert all(p.grad is None for p in model.model.arrcoc.parameters())


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("budget", [12, "full"])
def test_gradient_checkpointing_gives_the_same_loss_and_gradients(
    budget, reentrant, tiny_config, new_model, labelled, report
):
    results = []
    for checkpointing in (False, True):
        model = new_model(tiny_config()).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model.enable_input_require_grads()
        loss = model(**labelled(budget)).loss
        loss.backward()
        results.append((loss.detach(), {name: p.grad for name, p in model.named_parameters()}))
    (loss, gradients), (checked_loss, checked) = results
    assert report("gradient checkpointing, loss", (loss - checked_loss).abs()) == 0
    for name, gradient in gradients.items():
        assert (gradient is None) == (checked[name] is None), name
        if gradient is not None:
            assert report("gradient checkpointing, gradients", (gradient - checked[name]).abs().max()) < 1e-6, name


def test_gradient_accumulates_over_batches_of_other_sizes(tiny_config, new_model, make_inputs, page):
    model = freeze_base(new_model(tiny_config())).train()
    for size in ((128, 96), (32, 160), (64, 64)):
        inputs = make_inputs(page(*size), token_budget=6)
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in learning(model).values())


def test_bfloat16_autocast_trains_and_chooses_as_float32(tiny_config, new_model, labelled):
    model = freeze_base(new_model(tiny_config())).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(**labelled(12)).loss
    loss.backward()
    for name, parameter in learning(model).items():
        assert parameter.grad.dtype == torch.float32
        assert torch.isfinite(parameter.grad).all(), name
