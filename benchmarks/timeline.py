"""Where the time of a prefill goes: timers around the model's own modules."""

import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager

import torch

TEXTURE, VIT, ALLOCATION, LANGUAGE = "texture_scoring", "vit", "allocation", "language_model"
BEFORE, OTHER = "before_vit", "other"  # what no labelled module does, before the first pass of the ViT and after
PARTS = (BEFORE, TEXTURE, VIT, ALLOCATION, LANGUAGE, OTHER)
# Modules of the allocator's layer that spend the budget; all others measure and score.
SPENDING = ("balancer", "allocator", "adapter")


class Timeline:
    """Shares out the time between `start` and `stop` among `PARTS`.

    On a GPU the borders are events on its stream: nothing waits for them, and the parts add up to the time on the stream.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.open: list[str] | None = None

    def start(self):
        """Begins; the caller has waited for the device."""
        self.open, self.spans, self.seen_vit = [BEFORE], [], False
        self.border = self._now()

    def enter(self, part: str):
        """What follows belongs to `part`."""
        if self.open is None:
            return
        self._cut()
        # Whatever of the allocator runs before the ViT is the first stage.
        self.open.append(TEXTURE if part == ALLOCATION and not self.seen_vit else part)
        if part == VIT:
            self.open[0], self.seen_vit = OTHER, True

    def leave(self):
        """What follows belongs to what was open before."""
        if self.open is not None:
            self._cut()
            self.open.pop()

    def stop(self) -> dict[str, float]:
        """Seconds of each part, all of `PARTS`; waits for the device."""
        self._cut()
        self.open = None
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds = defaultdict(float)
        for part, begin, end in self.spans:
            cuda = self.device.type == "cuda"
            seconds[part] += begin.elapsed_time(end) / 1000 if cuda else end - begin
        return {part: seconds[part] for part in PARTS}

    def _cut(self):
        now = self._now()
        self.spans.append((self.open[-1], self.border, now))
        self.border = now

    def _now(self):
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


@contextmanager
def watched(model, device: torch.device):
    """A `Timeline` that follows `model`, and whichever model shares its modules, while this is entered.

    Of the allocator's layer `SPENDING` is `ALLOCATION`; all else that it does, and any other module of ours, `TEXTURE`.
    """
    line, base = Timeline(device), model.model
    modules = [(base.visual, VIT), (base.language_model, LANGUAGE), (model.lm_head, LANGUAGE)]
    modules += [(child, TEXTURE) for name, child in base.named_children() if name not in ("visual", "language_model")]
    layer = base.arrcoc
    modules += [(child, ALLOCATION if name in SPENDING else TEXTURE) for name, child in layer.named_children()]
    with ExitStack() as stack:
        for module, part in modules:
            stack.callback(module.register_forward_pre_hook(lambda *_, part=part: line.enter(part)).remove)
            stack.callback(module.register_forward_hook(lambda *_: line.leave(), always_call=True).remove)
        # What the layer does besides its forward, such as a first stage.
        for name in [name for name, made in vars(type(layer)).items() if callable(made) and not name.startswith("__")]:
            if name != "forward":
                setattr(layer, name, _timed(getattr(layer, name), line))
                stack.callback(delattr, layer, name)
        yield line


def _timed(function, line: Timeline):
    def timed(*args, **kwargs):
        line.enter(TEXTURE)
        try:
            return function(*args, **kwargs)
        finally:
            line.leave()

    return timed
