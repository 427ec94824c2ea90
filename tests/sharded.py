"""Run by torchrun on CPUs: trains an allocator sharded by FSDP2, and goes on from a checkpoint in the middle to the same result."""

import shutil
import sys
from pathlib import Path

from accelerate import state
from accelerate.utils import DistributedType
from safetensors.torch import load_file

from training import train_allocator

_init = state.PartialState.__init__


def _as_on_gpus(self, *args, **kwargs):
    _init(self, *args, **kwargs)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.MULTI_GPU  # accelerate shards on nothing else


if __name__ == "__main__":
    state.PartialState.__init__ = _as_on_gpus
    out, cut = Path(sys.argv[1]) / "run", Path(sys.argv[1]) / "cut"
    asked = [*sys.argv[2:], "--batch-size", "2", "--steps", "4", "--save-every", "2", "--quiet"]
    first = train_allocator.main([*asked, "--out", str(out)])
    processes = state.PartialState()
    assert state.AcceleratorState().is_fsdp2
    if processes.is_main_process:
        shutil.copytree(out, cut, ignore=shutil.ignore_patterns("checkpoint-4", first.name))
    processes.wait_for_everyone()
    resumed = train_allocator.main([*asked, "--out", str(cut), "--resume"])
    processes.wait_for_everyone()  # one of them writes the file
    whole, again = load_file(first), load_file(resumed)
    assert all(tensor.equal(again[name]) for name, tensor in whole.items())
    processes.destroy_process_group()
