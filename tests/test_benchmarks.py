"""The benchmarks on tiny runs: that what they count is exact, what they compare is the same model, and what they refuse."""

import json

import numpy as np
import pytest
import torch
from transformers.initialization import no_init_weights

from arrcoc import ARRCOCQwen3VLForConditionalGeneration
from benchmarks import growth, prefill, records
from benchmarks.counts import Flops, HostSyncs, PeakMemory, cache_bytes, expected_cache_bytes
from benchmarks.geometry import PUBLISHED, config_of
from benchmarks.methods import Case, build_bench
from benchmarks.pictures import QUESTION, draw
from benchmarks.summary import COUNTS, summarise
from benchmarks.timeline import ALLOCATION, BEFORE, LANGUAGE, OTHER, PARTS, TEXTURE, VIT, Timeline, watched
from evaluation.baselines.interface import Shown

EXISTING = "stock,resize,after-vit"
TINY = ["--geometry", "small", "--dtype", "fp32", "--pixels", "64", "--repeats", "2", "--decode-tokens", "1"]

# Parameters of the published checkpoints. 8B: its model.safetensors.index.json says total_size 17534247392, two bytes each.
# 2B and 4B: counts of the loaded checkpoints that public evaluation reports of Qwen3-VL-{2B,4B}-Instruct give.
PARAMETERS = {"2b": 2_127_532_032, "4b": 4_437_815_808, "8b": 17_534_247_392 // 2}


@pytest.fixture(scope="module")
def bench():
    return build_bench("small", torch.float32, "cpu")


def case(method, bench, share=0.25, pictures=1):
    examples = [Shown(draw(64, seed), QUESTION) for seed in range(pictures)]
    return Case(method, examples, round(share * bench.cells(examples[0])), 0.5)


def call(arguments, capsys) -> dict:
    prefill.main(arguments)
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder and the options of a finished run."""
    out = tmp_path_factory.mktemp("prefill")
    arguments = [*TINY, "--pixels", "64,96", "--methods", EXISTING, "--budget", "0.25", "--growth", "--out", str(out)]
    prefill.main(arguments)
    return out, arguments


@pytest.mark.parametrize("geometry", PARAMETERS)
def test_published_geometries_have_the_published_size(geometry):
    with no_init_weights(), torch.device("meta"):
        model = ARRCOCQwen3VLForConditionalGeneration._from_config(config_of(geometry), dtype=torch.bfloat16)
    model.tie_weights()
    base = [parameter.numel() for name, parameter in model.named_parameters() if ".arrcoc." not in name]
    assert sum(base) == PARAMETERS[geometry]


def test_a_published_geometry_runs_from_patches_of_16_in_bfloat16(monkeypatch, tmp_path, capsys):
    """The published shape with few and narrow layers: its heads, vocabulary, positions and processor are the real ones."""
    vision = {"depth": 2, "hidden_size": 64, "intermediate_size": 64, "deepstack_visual_indexes": [0, 1]}
    text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 16}
    monkeypatch.setitem(PUBLISHED, "8b", {"text": text, "vision": vision, "tied": False})
    arguments = ["--geometry", "8b", "--pixels", "320", "--methods", EXISTING, "--repeats", "1", "--out", str(tmp_path)]
    (entry,) = call(arguments, capsys)["conditions"]
    assert entry["cells"] == 100
    for method, tokens in (("stock", 100), ("resize", 9), ("after-vit", 10)):
        figures = entry["summary"][method]
        assert figures["tokens"]["value"] == tokens
        held = tokens + figures["text_tokens"]["value"]
        assert (
            figures["kv_bytes"]["value"] == held * 2 * 2 * 8 * 128 * 2
        )  # layers, keys and values, heads, width, bytes


def test_stock_shares_every_parameter_and_computes_the_same(bench):
    ours = {parameter.data_ptr() for parameter in bench.model.parameters()}
    assert {parameter.data_ptr() for parameter in bench.stock.parameters()} <= ours
    full = case("after-vit", bench, share=1.0)
    with torch.no_grad():
        logits = [bench.model(**full.prepare(bench)).logits, bench.stock(**case("stock", bench).prepare(bench)).logits]
    assert torch.equal(*logits)


def test_weights_are_the_seeds_and_no_two_rows_are_equal(bench):
    again = build_bench("small", torch.float32, "cpu")
    for (name, one), other in zip(bench.model.named_parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other), name
    other = build_bench("small", torch.float32, "cpu", seed=1)
    embeddings = bench.model.get_input_embeddings().weight
    assert not torch.equal(embeddings, other.model.get_input_embeddings().weight)
    assert len(embeddings.unique(dim=0)) == len(embeddings)
    assert embeddings.std().item() == pytest.approx(bench.model.config.text_config.initializer_range, rel=0.02)


def test_pictures_are_the_same_for_the_same_seed():
    assert draw(96).size == (96, 96)
    assert np.array_equal(draw(96, 3), draw(96, 3))
    assert not np.array_equal(draw(96, 3), draw(96, 4))


@pytest.mark.parametrize("method", EXISTING.split(","))
def test_the_cache_holds_the_kept_tokens_and_the_text(bench, method):
    batch = case(method, bench, pictures=2)
    inputs = batch.prepare(bench)
    with torch.no_grad():
        cache = batch.model(bench)(**inputs, use_cache=True).past_key_values
    kept = int((inputs["input_ids"] == bench.model.config.image_token_id).sum())
    assert kept == 2 * (bench.cells(batch.examples[0]) if method == "stock" else batch.budget)
    text = inputs["input_ids"].numel() - kept
    # 5 layers, keys and values, 4 heads of width 32, 4 bytes each
    assert cache_bytes(cache) == (kept + text) * 5 * 2 * 4 * 32 * 4
    assert cache_bytes(cache) == expected_cache_bytes(bench.model.config.text_config, kept + text, torch.float32)


def test_flops_are_those_of_the_matrices(bench):
    """Worked out from the config: 16 cells are 64 patches."""
    inputs = case("stock", bench).prepare(bench)
    with torch.no_grad(), Flops() as flops:
        bench.stock(**inputs, logits_to_keep=1)
    cells, patches, tokens = 16, 64, inputs["input_ids"].shape[1]
    block = 2 * patches * (4 * 128 * 128 + 2 * 128 * 384) + 4 * patches * patches * 128
    mergers = 4 * 2 * cells * (512 * 512 + 512 * 256)
    assert flops.parts["visual"] == 2 * patches * (3 * 2 * 8 * 8) * 128 + 6 * block + mergers
    layer = 2 * tokens * (256 * (256 + 2 * 128) + 256 * 256 + 3 * 256 * 640) + 4 * tokens * tokens * 256
    assert flops.parts["language_model"] == 5 * layer
    assert flops.parts["lm_head"] == 2 * 256 * bench.model.config.text_config.vocab_size
    assert flops.parts["arrcoc"] == 0
    assert flops.total == sum(flops.parts.values())


def test_peak_memory_sees_what_is_freed_again():
    size = 64 * 2**20
    with PeakMemory(torch.device("cpu")) as memory:
        torch.ones(size // 4).sum()
    if memory.peak is None:
        pytest.skip("this system does not tell the peak of a process's memory")
    assert memory.above == pytest.approx(size, rel=0.1)  # the system counts its pages in batches
    assert memory.peak > memory.above


def test_peak_memory_is_none_where_the_system_hides_it(monkeypatch):
    def hidden(*_):
        raise PermissionError("read-only")

    monkeypatch.setattr("pathlib.Path.write_text", hidden)
    with PeakMemory(torch.device("cpu")) as memory:
        pass
    assert (memory.peak, memory.above) == (None, None)


def test_no_host_synchronisations_are_claimed_for_a_cpu():
    with HostSyncs(torch.device("cpu")) as syncs:
        torch.ones(3).tolist()
    assert syncs.total is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_host_synchronisations_are_counted_where_they_happen():
    value = torch.ones(3, device="cuda")
    with HostSyncs(value.device) as syncs:
        value.sum().item()
        value.sum().item()
    assert syncs.total == 2
    assert len(syncs.places) == 2
    assert all(place.startswith("tests/test_benchmarks.py:") for place in syncs.places)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_run_on_a_gpu_counts_waits_and_tensors(tmp_path, capsys):
    arguments = [*TINY, "--methods", EXISTING, "--device", "cuda", "--out", str(tmp_path)]
    (entry,) = call(arguments, capsys)["conditions"]
    for figures in entry["summary"].values():
        assert figures["host_syncs"] == sum(figures["host_sync_places"].values())
        assert figures["peak_bytes"]["value"] > figures["working_bytes"]["value"] > 0
        parts = sum(figures[f"{part}_s"]["median"] for part in PARTS)
        assert parts == pytest.approx(figures["prefill_s"]["median"], rel=0.2)


def test_a_timeline_gives_each_moment_to_the_innermost_part(monkeypatch):
    line = Timeline(torch.device("cpu"))
    clock = iter(range(100))
    monkeypatch.setattr(line, "_now", lambda: float(next(clock)))
    line.start()
    line.enter(ALLOCATION)  # before the ViT: the first stage
    line.leave()
    line.enter(VIT)
    line.leave()
    line.enter(TEXTURE)
    line.enter(ALLOCATION)
    line.leave()
    line.leave()
    line.enter(LANGUAGE)
    line.leave()
    seconds = line.stop()
    assert seconds == {BEFORE: 2, TEXTURE: 3, VIT: 1, ALLOCATION: 1, LANGUAGE: 1, OTHER: 3}
    assert sum(seconds.values()) == next(clock) - 1
    line.enter(VIT)  # closed: decoding is not part of it
    line.leave()


def test_a_timeline_follows_our_model_and_stock(bench):
    with torch.no_grad(), watched(bench.model, bench.model.device) as line:
        seconds = {}
        for method in ("stock", "after-vit"):
            inputs = case(method, bench).prepare(bench)
            line.start()
            case(method, bench).model(bench)(**inputs)
            seconds[method] = line.stop()
    assert all(set(parts) == set(PARTS) for parts in seconds.values())
    assert seconds["stock"][TEXTURE] == seconds["stock"][ALLOCATION] == 0
    assert all(seconds["after-vit"][part] > 0 for part in PARTS)
    # nothing is left on the modules
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in bench.model.modules())


def test_ratios_to_stock_are_by_round():
    def result(scale, flops):
        times = ("first_token", "processor", *PARTS, "prefill", "decode")
        rounds = [dict.fromkeys(times, second * scale) for second in (1.0, 2.0, 10.0)]
        counted = dict.fromkeys(COUNTS, 8 * scale)
        return counted | {"rounds": rounds, "flops": flops, "flops_of": {}, "host_syncs": None, "host_sync_places": {}}

    summary = summarise({"stock": result(1, 100), "after-vit": result(0.5, 40)}, batch=4)
    half, stock = summary["after-vit"], summary["stock"]
    assert half["prefill_s"]["median"] == 1.0
    assert half["prefill_s"]["ratio"] == {"median": 0.5, "lower_quartile": 0.5, "upper_quartile": 0.5}
    assert half["prefill_speed_up"]["median"] == half["first_token_speed_up"]["median"] == 2
    assert half["speed_up_that_flops_allow"] == 2.5
    assert half["share_of_allowed_speed_up"]["median"] == pytest.approx(0.8)
    assert half["pictures_per_s"]["median"] == 4
    assert half["allocator_of_stock_prefill"]["median"] == 1.0  # texture and allocation, half of stock's second each
    assert half["kv_bytes"] == {"value": 4.0, "ratio": 0.5}
    assert stock["prefill_s"]["ratio"] == {"median": 1.0, "lower_quartile": 1.0, "upper_quartile": 1.0}


def test_another_cpu_is_another_machine(monkeypatch, tmp_path):
    condition = records.Condition("small", 64, 1, 0.1, 0.3, "cpu", "fp32")
    machines = set()
    for name in ("A 1", "B 2"):
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: {name}\n")
        monkeypatch.setattr(records, "CPUINFO", tmp_path / "cpuinfo")
        machines.add(records.settings_of(condition, ["stock"], 2, 1, 0, "")["machine"])
    assert [machine.split(",")[0] for machine in sorted(machines)] == ["A 1", "B 2"]


def test_exponents_are_slopes_on_a_log_log_scale():
    sides = [64, 128, 256]
    assert growth.exponent([side**2 for side in sides], [5.0 * side**2 for side in sides]) == pytest.approx(1)
    assert growth.exponent([side**2 for side in sides], [3.0 * side**4 for side in sides]) == pytest.approx(2)
    assert growth.exponent([4096, 16384], [0.0, 1.0]) is None
    assert growth.exponent([4096], [1.0]) is None


def test_a_run_ends_with_its_results_as_json(finished, capsys):
    out, arguments = finished
    result = call(arguments, capsys)
    assert [entry["settings"]["pixels"] for entry in result["conditions"]] == [64, 96]
    assert [entry["cells"] for entry in result["conditions"]] == [16, 36]
    for entry in result["conditions"]:
        stock, pruned = entry["summary"]["stock"], entry["summary"]["after-vit"]
        assert stock["prefill_s"]["ratio"]["median"] == stock["first_token_speed_up"]["median"] == 1
        assert stock["speed_up_that_flops_allow"] == stock["share_of_allowed_speed_up"]["median"] == 1
        assert pruned["tokens"]["value"] == entry["cells"] / 4
        tokens = pruned["tokens"]["value"] + pruned["text_tokens"]["value"]
        assert pruned["kv_bytes"]["value"] == tokens * 5 * 2 * 4 * 32 * 4
        assert pruned["speed_up_that_flops_allow"] > 1
        assert pruned["host_syncs"] is None
    (name, fits), *_ = result["growth"].items()
    assert (out / f"{name}.png").stat().st_size > 0
    assert set(fits) == set(EXISTING.split(","))
    assert 0.5 < fits["stock"]["flops"] < 2


def test_what_is_there_is_not_measured_again(finished, monkeypatch, capsys):
    out, arguments = finished
    kept = {path: path.read_bytes() for path in out.glob("*.json")}
    monkeypatch.setattr(prefill, "measure", lambda *_: pytest.fail("measured again"))
    call(arguments, capsys)
    assert {path: path.read_bytes() for path in out.glob("*.json")} == kept


def test_a_stopped_run_goes_on_where_it_was(finished, monkeypatch, capsys):
    out, arguments = finished
    (one,) = out.glob("*_96px_*.json")
    one.unlink()
    measured = []

    def measure(bench, cases, *rest):
        measured.append(cases[0].examples[0].image.size)
        return real(bench, cases, *rest)

    real = prefill.measure
    monkeypatch.setattr(prefill, "measure", measure)
    call(arguments, capsys)
    assert measured == [(96, 96)]
    assert one.exists()


@pytest.mark.parametrize("change", [["--repeats", "3"], ["--seed", "1"], ["--methods", "stock"]])
def test_results_of_other_settings_are_refused(finished, change, capsys):
    _, arguments = finished
    with pytest.raises(SystemExit):
        prefill.main([*arguments, *change])
    message = capsys.readouterr().err
    assert change[0].removeprefix("--") in message
    assert "delete it to measure again" in message


def test_a_file_that_is_no_record_is_refused(tmp_path):
    path = tmp_path / "record.json"
    assert records.read(path, {}) is None
    for text in (
        "{",
        "[]",
        "{}",
        '{"settings": []}',
        '{"settings": {}}',
        '{"settings": [], "summary": {}, "cells": 4}',
    ):
        path.write_text(text)
        with pytest.raises(records.SettingsMismatch, match="no record of a benchmark"):
            records.read(path, {})


def test_what_can_not_be_written_is_told_in_words(tmp_path, monkeypatch, capsys):
    call = [*TINY, "--methods", "stock", "--out", str(tmp_path)]
    with monkeypatch.context() as locked:
        locked.setattr(prefill.os, "access", lambda *args: False)
        locked.setattr(prefill, "build_bench", lambda *args: pytest.fail("a model was built"))
        with pytest.raises(SystemExit):
            prefill.main(call)
        assert "nothing can be written there" in capsys.readouterr().err

    def full(path, record):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prefill, "write", full)
    with pytest.raises(SystemExit):
        prefill.main(call)
    assert "No space left on device; conditions that stand in" in capsys.readouterr().err


def test_batches_are_conditions_of_their_own(tmp_path, capsys):
    result = call([*TINY, "--methods", "stock,after-vit", "--batch-sizes", "1,2", "--out", str(tmp_path)], capsys)
    one, two = (entry["summary"]["after-vit"] for entry in result["conditions"])
    assert two["kv_bytes"]["value"] == 2 * one["kv_bytes"]["value"]
    assert two["flops"]["value"] > 1.5 * one["flops"]["value"]
    assert len(list(tmp_path.glob("*.json"))) == 2


@pytest.mark.parametrize(
    ("method", "name", "value"), [("two-stage", "encode_ratio", 0.5), ("foveated", "allocation_mode", "foveated")]
)
def test_what_is_asked_of_the_model(bench, method, name, value):
    inputs, plain = (case(which, bench).prepare(bench) for which in (method, "after-vit"))
    assert inputs.pop(name) == value
    assert set(inputs) == set(plain)
    assert torch.equal(inputs["input_ids"], plain["input_ids"])


@pytest.mark.parametrize(
    ("method", "pixels", "budget", "tokens", "coarse"), [("two-stage", 64, 0.5, 8, 0), ("foveated", 128, 0.9, 58, 16)]
)
def test_our_further_methods_run(method, pixels, budget, tokens, coarse, tmp_path, capsys):
    arguments = [*TINY, "--pixels", str(pixels), "--methods", f"stock,after-vit,{method}", "--budget", str(budget)]
    summary = call([*arguments, "--out", str(tmp_path)], capsys)["conditions"][0]["summary"]
    figures = summary[method]
    assert (figures["tokens"]["value"], figures["coarse_tokens"]["value"]) == (tokens, coarse)
    assert figures["flops"]["value"] == sum(figures["flops_of"].values())
    if method == "two-stage":
        assert figures["flops_of"]["visual"] > 0
        assert figures["flops_of"]["arrcoc"] > summary["after-vit"]["flops_of"]["arrcoc"] > 0
        assert figures["speed_up_that_flops_allow"] > 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--budget", "0"], "'0' is no budget; pass a share between 0 and 1"),
        (["--budget", "nan"], "'nan' is no budget"),
        (["--budget", "-0.1"], "is no budget"),
        (["--budget", "0.1,0.1"], "more than once"),
        (["--encode-ratio", "nan"], "'nan' is no share of the cells; pass one above 0 and up to 1"),
        (["--encode-ratio", "0"], "is no share of the cells"),
        (["--encode-ratio", "1.5"], "is no share of the cells"),
        (["--encode-ratio", "much"], "or 'auto'"),
        (["--geometry", "3b"], "invalid choice: '3b'"),
        (["--methods", "stock,fastest"], "choose from stock, resize, after-vit, two-stage, foveated"),
        (["--methods", "after-vit"], "leaves out stock"),
        (["--methods", "stock,stock"], "no list of different methods"),
        (["--pixels", "0"], "no list of different whole numbers above 0"),
        (["--pixels", "64,64"], "no list of different whole numbers above 0"),
        (["--pixels", "31"], "below 32"),
        (["--growth"], "needs at least two sizes"),
        (["--repeats", "0"], "pass a whole number from 1 on"),
        (["--repeats", "2,3"], "pass a whole number from 1 on"),
        (["--batch-sizes", "1,x"], "whole numbers above 0"),
        (["--dtype", "fp8"], "invalid choice"),
        (["--seed", "-1"], "--seed -1: pass a whole number from 0 on"),
    ],
)
def test_bad_options_are_refused(change, message, tmp_path, capsys):
    with pytest.raises(SystemExit):
        prefill.main([*TINY, "--methods", EXISTING, "--out", str(tmp_path / "out"), *change])
    assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


def test_cuda_is_refused_without_cuda(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        prefill.main([*TINY, "--methods", EXISTING, "--device", "cuda", "--out", str(tmp_path)])
    assert "finds no CUDA device; pass --device cpu" in capsys.readouterr().err


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    with pytest.raises(SystemExit):
        prefill.main([*TINY, "--methods", EXISTING, "--out", str(tmp_path / "out")])
    assert "pass a folder of yours" in capsys.readouterr().err


def test_unknown_geometries_are_refused():
    with pytest.raises(ValueError, match="choose from 2b, 4b, 8b, small"):
        config_of("3b")
