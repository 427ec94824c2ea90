"""What is counted instead of timed: FLOPs, cache bytes, peak memory and host synchronisations."""

import ctypes
import gc
import sys
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

_SITE = Path(torch.__file__).parents[1]
_ROOT = Path(__file__).parents[1]
# torch's own table lacks the CPU's kernel, and on older releases grouped keys.
_ATTENTION = tuple(
    f"_scaled_dot_product_{kernel}_attention{suffix}"
    for kernel, suffix in (("flash", "_for_cpu"), ("flash", ""), ("efficient", ""), ("cudnn", ""))
)


class Flops:
    """Floating-point operations of matrix products, convolutions and attention while entered; a product counts 2.

    Attention is counted in full, as the kernels' formulas of `torch.utils.flop_counter` do, though a causal one skips half.

    Attributes:
        total: all of them.
        parts: those within "visual", "language_model" and "lm_head", and in "arrcoc" all others: the model calls parts of that
            layer one by one, too.
    """

    def __enter__(self):
        counted = {getattr(torch.ops.aten, kernel): _attention_flops for kernel in _ATTENTION}
        self._counter = FlopCounterMode(display=False, custom_mapping=counted)
        self._counter.__enter__()
        return self

    def __exit__(self, *error):
        self._counter.__exit__(*error)
        self.total = self._counter.get_total_flops()
        self.parts = dict.fromkeys(("visual", "language_model", "lm_head"), 0)
        for module, operations in self._counter.get_flop_counts().items():
            names = module.split(".")
            if names[-1] in self.parts and names[1:-1] in ([], ["model"]):
                self.parts[names[-1]] = sum(operations.values())
        self.parts["arrcoc"] = self.total - sum(self.parts.values())


def _attention_flops(query_shape, key_shape, value_shape, *args, out_shape=None, **kwargs) -> int:
    heads = query_shape[1]  # grouped keys are read by several heads
    key, value = ((shape[0], heads, *shape[2:]) for shape in (key_shape, value_shape))
    return sdpa_flop_count(query_shape, key, value)


class PeakMemory:
    """The most memory in use while entered.

    Attributes:
        peak: bytes. On a GPU, of the tensors that torch has allocated, weights included. On a CPU, of the whole process's
            resident set, with Python and its libraries; `None` where the system does not tell: not Linux, or a
            container that hides it.
        above: bytes of it that were not in use at the start: what the prefill itself needs.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.peak = self.above = self._start = None

    def __enter__(self):
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self._start = torch.cuda.memory_allocated(self.device)
        elif sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)  # what earlier methods freed goes back to the system
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark to what is resident now
                self._start = _status("VmRSS")
        return self

    def __exit__(self, *error):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            self.peak = torch.cuda.max_memory_allocated(self.device)
        elif self._start is not None:
            self.peak = _status("VmHWM")
        if self.peak is not None:
            self.above = self.peak - self._start


def _status(name: str) -> int | None:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


class HostSyncs:
    """The times that the host waited for the GPU while entered, as torch's synchronisation debug mode reports them.

    Attributes:
        total: how often; `None` on a CPU, where there is nothing to wait for.
        places: file and line -> how often.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.total, self.places = None, {}

    def __enter__(self):
        if self.device.type == "cuda":
            self._catch = warnings.catch_warnings(record=True)
            self._caught = self._catch.__enter__()
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
        return self

    def __exit__(self, *error):
        if self.device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")
            self._catch.__exit__(*error)
            # Setting the mode warns too, that it is a prototype.
            waits = [entry for entry in self._caught if "called a synchronizing" in str(entry.message)]
            self.places = dict(Counter(f"{_short(entry.filename)}:{entry.lineno}" for entry in waits).most_common())
            self.total = len(waits)


def _short(filename: str) -> str:
    for folder in (_SITE, _ROOT):
        if folder in Path(filename).parents:
            return str(Path(filename).relative_to(folder))
    return Path(filename).name


def cache_bytes(cache) -> int:
    """Bytes of all keys and values in a transformers cache."""
    return sum(
        tensor.numel() * tensor.element_size() for layer in cache.layers for tensor in (layer.keys, layer.values)
    )


def expected_cache_bytes(config, tokens: int, dtype: torch.dtype) -> int:
    """Bytes of the keys and values of `tokens` tokens (of the whole batch) for a language model of this text config."""
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * tokens * dtype.itemsize
