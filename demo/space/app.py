"""The Space's entry: the app on the Space's GPU, if it has one."""

import os
from pathlib import Path

try:
    import spaces  # before torch, so that it can stand between torch and a GPU that is lent for each call
except ImportError:
    spaces = None

from demo.app import build, launch
from demo.instrument import Instrument
from demo.samples import samples
from upload import DEFAULT_CHECKPOINT

NAMED = Path(__file__).parent / "model.txt"


def model_name() -> str:
    """`ARRCOC_MODEL`, else what `model.txt` names, else the checkpoint that came with the code."""
    named = NAMED.read_text(encoding="utf-8").strip() if NAMED.exists() else ""
    return os.environ.get("ARRCOC_MODEL") or named or str(DEFAULT_CHECKPOINT)


def make():
    """The Space's app."""
    # Where a GPU is lent, each call runs in a process of its own: nothing on the GPU outlives it.
    lent = spaces is not None and bool(os.environ.get("SPACES_ZERO_GPU"))
    instrument, examples = Instrument.load(model_name(), hold=not lent), samples()
    if not lent:
        instrument.warm_up(examples[0].image)
    seconds = int(os.environ.get("ARRCOC_GPU_SECONDS", "60"))
    return build(instrument, examples, on_gpu=spaces.GPU(duration=seconds) if spaces else None)


if __name__ == "__main__":
    launch(make())
