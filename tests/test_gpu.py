"""The bundled model on a real GPU: what it answers there, in which number formats, compiled, offloaded, quantised and trained.

Skipped where there is none; `tests/test_devices.py` has what an imitated device can show.
"""

import copy
import json

import pytest
import torch
from transformers import StaticCache, pipeline

from arrcoc import ARRCOCQwen3VLForConditionalGeneration
from benchmarks.counts import HostSyncs
from evaluation import run as evaluation
from tests.test_devices import MODES, STOCK
from training import train_allocator, train_base

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
QUESTIONS = ["What is the total?", "Which one?", "What is it that is listed here?"]
TRAINING = {  # signals by what they need
    "boxes": "evidence=1,mass=0.5,early_evidence=1,named=0.5,context=0.3",
    "language model": "lm_soft_topk=1,distill_answer=1",
    "gates": "lm_gates=1",
}


@pytest.fixture(autouse=True)
def _exact():
    with torch.no_grad(), torch.backends.cudnn.flags(allow_tf32=False):
        yield


@pytest.fixture(scope="module")
def moved(model):
    """A copy of the bundled model, in float32, on the GPU."""
    return copy.deepcopy(model).to("cuda")


@pytest.fixture
def asked(make_inputs, page):
    """`asked(budget)`: a batch of three questions about three pictures, two of which are of one grid."""
    pictures = [page(), page(96, 128, seed=1), page(seed=2)]
    return lambda budget: make_inputs(pictures, QUESTIONS, token_budget=budget)


def there(inputs):
    return copy.copy(inputs).to("cuda")  # which changes what it is called on


def far_from(found, expected) -> float:
    return ((found.float().cpu() - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("mode", MODES)
def test_answers_are_those_of_the_cpu(mode, model, moved, asked, report):
    budget, spending = MODES[mode]
    inputs, short = asked(budget), {"max_new_tokens": 4, "do_sample": False}
    found = moved(**there(inputs), **spending).logits
    gap = (found.cpu() - model(**inputs, **spending).logits).abs().max().item()
    assert report(f"GPU - CPU, logits, float32: {mode}", gap) < 1e-3
    assert torch.equal(
        moved.generate(**there(inputs), **spending, **short).cpu(), model.generate(**inputs, **spending, **short)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_all_tokens_give_stock_logits(dtype, moved, stock_twin, asked):
    own = copy.deepcopy(moved).to(dtype)
    inputs = there(asked("full"))
    stock = stock_twin(own).to("cuda")
    whole = stock(**{name: inputs[name] for name in ("input_ids", "attention_mask", *STOCK)}).logits
    assert torch.equal(own(**inputs).logits, whole)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near(dtype, mode, model, checkpoint, asked, report):
    half = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(checkpoint, dtype=dtype, device_map="cuda").eval()
    budget, spending = MODES[mode]
    inputs = asked(budget)
    found, expected = half(**there(inputs), **spending).logits, model(**inputs, **spending).logits
    assert report(f"GPU in {dtype}, of the norm: {mode}", far_from(found, expected)) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["select", "two stages"])
def test_compiled_by_inductor(mode, model, moved, asked, report):
    budget, spending = MODES[mode]
    inputs = asked(budget)
    compiled = torch.compile(copy.deepcopy(moved))
    found = compiled(**there(inputs), **spending).logits
    assert report(f"compiled, of the norm: {mode}", far_from(found, model(**inputs, **spending).logits)) < 1e-3
    torch.compiler.reset()


def test_decoding_with_a_static_cache(model, moved, asked):
    inputs = asked(12)
    short = {"max_new_tokens": 4, "do_sample": False}
    cache = StaticCache(moved.config.get_text_config(), max_cache_len=256)
    tokens = moved.generate(**there(inputs), past_key_values=cache, **short)
    assert torch.equal(tokens.cpu(), model.generate(**inputs, **short))


@pytest.mark.parametrize("mode", MODES)
def test_half_of_the_layers_on_the_cpu(mode, checkpoint, model, asked, report):
    budget, spending = MODES[mode]
    places = {"model.visual": 0, "model.arrcoc": 0, "lm_head": 0, "model.language_model": 0}
    places |= {f"model.language_model.layers.{number}": "cpu" for number in (1, 2)}
    places |= {f"model.language_model.layers.{number}": 0 for number in (0, 3, 4)}
    places |= {f"model.language_model.{name}": 0 for name in ("embed_tokens", "norm", "rotary_emb")}
    del places["model.language_model"]
    spread = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(
        checkpoint, dtype=torch.float32, device_map=places
    ).eval()
    inputs = asked(budget)
    found, expected = spread(**there(inputs), **spending).logits, model(**inputs, **spending).logits
    assert report(f"layers on the CPU, of the norm: {mode}", far_from(found, expected)) < 1e-4


def test_device_map_auto_and_pipeline(checkpoint, page):
    ask = pipeline("image-text-to-text", model=str(checkpoint), device_map="auto", trust_remote_code=True)
    assert ask.model.device.type == "cuda"
    turn = [{"role": "user", "content": [{"type": "image", "image": page()}, {"type": "text", "text": QUESTIONS[0]}]}]
    (answer,) = ask(text=[turn], max_new_tokens=4, return_full_text=False, processor_kwargs={"token_budget": 12})
    assert isinstance(answer[0]["generated_text"], str)


@pytest.mark.parametrize("kind", ["int8", "float8"])
def test_weights_of_eight_bits(kind, checkpoint, model, asked, report):
    quantization = pytest.importorskip("torchao.quantization", reason="needs torchao: pip install -e '.[quant]'")
    from transformers import TorchAoConfig

    made = {"int8": quantization.Int8WeightOnlyConfig, "float8": quantization.Float8WeightOnlyConfig}[kind]()
    quantised = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(
        checkpoint, quantization_config=TorchAoConfig(made), dtype=torch.bfloat16, device_map="cuda"
    ).eval()
    for mode, (budget, spending) in MODES.items():
        inputs = asked(budget)
        found, expected = quantised(**there(inputs), **spending).logits, model(**inputs, **spending).logits
        assert report(f"torchao {kind} on a GPU, of the norm: {mode}", far_from(found, expected)) < 0.2


@pytest.mark.parametrize("mode", MODES)
def test_waits_do_not_grow_with_the_pictures(mode, moved, stock_twin, make_inputs, page, report):
    (budget, spending), counts, stock = MODES[mode], [], stock_twin(moved).to("cuda")
    for count in (1, 3):
        pictures = [[page(seed=seed) for seed in range(count)]]
        inputs = make_inputs(pictures, QUESTIONS[0], token_budget=budget)
        whole = make_inputs(pictures, QUESTIONS[0], token_budget="full")
        inputs, whole = there(inputs), there(whole)
        moved(**inputs, **spending)
        device = torch.device("cuda")
        ours, theirs = HostSyncs(device), HostSyncs(device)
        with ours:
            moved(**inputs, **spending)
        with theirs:
            stock(**{name: whole[name] for name in ("input_ids", "attention_mask", *STOCK)})
        counts.append((ours.total, theirs.total))
        report(f"waits seen on a GPU, {count} pictures: {mode}", ours.total)
        report(f"waits seen on a GPU, {count} pictures: stock", theirs.total)
    assert counts[0][0] == counts[1][0]


@pytest.mark.parametrize("signals", TRAINING)
def test_the_allocator_trains_and_resumes(signals, checkpoint, tmp_path):
    common = ["--out", str(tmp_path / "run"), "--save-every", "2"]
    begin = [
        "--model",
        str(checkpoint),
        "--data",
        "world",
        "--limit",
        "12",
        "--signals",
        TRAINING[signals],
        "--steps",
        "2",
    ]
    with torch.enable_grad():
        train_allocator.main([*common, *begin, "--batch-size", "4"])
        train_allocator.main([*common, "--resume", "--steps", "3"])
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run" / "metrics.jsonl").open() if "loss" in line]
    assert len(losses) >= 2
    assert all(loss == loss for loss in losses)


def test_the_base_trains(checkpoint, tmp_path):
    options = ["--out", str(tmp_path), "--begin", str(checkpoint), "--stage", "language", "--smoke"]
    with torch.enable_grad():
        history = train_base.main(options)
    assert all(metrics["loss"] < 20 for metrics in history)


def test_an_evaluation(checkpoint, tmp_path, capsys):
    evaluation.main(
        ["--model", str(checkpoint), "--data", "world", "--limit", "8", "--budgets", "0.1,full", "--methods",
         "arrcoc,two_stage,foveated,resize,fastv,glimpse_prune", "--out", str(tmp_path / "world"), "--device",
         "cuda", "--timing", "0",
         "--baseline-weights", str(checkpoint.parent / "baselines")]
    )  # fmt: skip
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert rows
