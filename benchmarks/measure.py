"""All methods in turn on one batch of pictures: what is counted once, and what is timed in rounds."""

import time
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from tqdm import tqdm

from arrcoc.caching import CACHE
from benchmarks.counts import Flops, HostSyncs, PeakMemory, cache_bytes, expected_cache_bytes
from benchmarks.methods import Bench, Case
from benchmarks.timeline import watched
from evaluation.timing import wait_for


@torch.no_grad()
def measure(bench: Bench, cases: Sequence[Case], repeats: int, decode_tokens: int) -> dict[str, dict]:
    """Method -> its counts and, under `rounds`, its seconds in each of `repeats` rounds.

    The passes that count come first and warm everything up. Then the methods take turns, each round beginning with another
    one, so that a machine that slows down does so for all.

    Raises:
        RuntimeError: a method's cache holds more or less than its image tokens and the text, or its logits are not finite.
    """
    device = bench.model.device
    with watched(bench.model, device) as line:
        results = {}
        for case in tqdm(cases, desc="counting", unit="method", disable=None):
            results[case.method] = _count(bench, case, line, decode_tokens) | {"rounds": []}
        for number in tqdm(range(repeats), desc="timing", unit="round", disable=None):
            for turn in range(len(cases)):
                case = cases[(number + turn) % len(cases)]
                seconds, *_ = _run(bench, case, line, decode_tokens)
                results[case.method]["rounds"].append(seconds)
    return results


def _run(bench: Bench, case: Case, line, decode_tokens: int, watch=None):
    """One batch from pictures to `decode_tokens` tokens after the first: (seconds by part, inputs, outputs of the prefill).

    `watch` is entered around the model's first forward.
    """
    model, device = case.model(bench), bench.model.device
    wait_for(device)
    begin = time.perf_counter()
    inputs = case.prepare(bench)
    wait_for(device)
    prepared = time.perf_counter()
    line.start()
    with watch or nullcontext():
        outputs = model(**inputs, use_cache=True, logits_to_keep=1)
    token = outputs.logits[:, -1].argmax(-1, keepdim=True)
    seconds = line.stop()
    first = time.perf_counter()
    kept = outputs[CACHE], cache_bytes(outputs[CACHE]), outputs.logits
    for _ in range(decode_tokens):
        token = model(input_ids=token, use_cache=True, **{CACHE: kept[0]}).logits[:, -1].argmax(-1, keepdim=True)
    wait_for(device)
    seconds |= {
        "processor": prepared - begin,
        "prefill": first - prepared,
        "first_token": first - begin,
        "decode": (time.perf_counter() - first) / decode_tokens,
    }
    return seconds, inputs, kept[1:]


def _count(bench: Bench, case: Case, line, decode_tokens: int) -> dict:
    device, text = bench.model.device, bench.model.config.text_config
    with_flops, memory, syncs = Flops(), PeakMemory(device), HostSyncs(device)
    _, inputs, (bytes_held, logits) = _run(bench, case, line, decode_tokens, with_flops)
    _run(bench, case, line, decode_tokens, memory)
    if device.type == "cuda":
        _run(bench, case, line, decode_tokens, syncs)
    ids = inputs["input_ids"]
    visual = int((ids == bench.model.config.image_token_id).sum())
    expected = expected_cache_bytes(text, ids.numel(), bench.model.dtype)
    if bytes_held != expected:
        raise RuntimeError(
            f"{case.method} holds {bytes_held} bytes of keys and values, but its {visual} image tokens and "
            f"{ids.numel() - visual} text tokens make {expected}; the model's cache is at fault"
        )
    if not logits.isfinite().all():
        raise RuntimeError(f"{case.method} gave logits that are not finite; pass --dtype fp32 or another --seed")
    return {
        "tokens": visual / len(case.examples),
        "coarse_tokens": _coarse_tokens(bench, case, inputs) / len(case.examples),
        "text_tokens": (ids.numel() - visual) / len(case.examples),
        "kv_bytes": bytes_held,
        "peak_bytes": memory.peak,
        "working_bytes": memory.above,
        "flops": with_flops.total,
        "flops_of": with_flops.parts,
        "host_syncs": syncs.total,
        "host_sync_places": syncs.places,
    }


def _coarse_tokens(bench: Bench, case: Case, inputs) -> int:
    """Of a foveated batch: its tokens of coarse views, none where the budget has no room for one."""
    plans = bench.model.allocate(**inputs) if case.method == "foveated" else []
    return sum(int((plan.level > 0).sum()) for plan in plans)
