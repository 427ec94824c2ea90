"""What the demo app measures and shows, without the app: three answers to one question, their cost, and what was held for the next.

instrument = Instrument.load("checkpoints/arrcoc-small")
for comparison in instrument.compare(Asking(image, "What is the total?", budget=64)):
    print(comparison.readings)
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from PIL import Image
from transformers import StoppingCriteria, StoppingCriteriaList, TextIteratorStreamer

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from arrcoc.budget import MODES
from arrcoc.caching import CACHE
from arrcoc.encoded import EncodedImages
from benchmarks.counts import PeakMemory, cache_bytes
from demo.asking import Asking
from demo.views import Seen
from evaluation.baselines.interface import full_prompt, grid_of, prompt
from evaluation.baselines.resize import resize
from evaluation.stock import stock_processor_of

METHODS = {"full": "All tokens", "smaller": "Smaller image", "arrcoc": "ARR-COC"}
GENERATION = "generation"  # name of the thread that an answer comes from


@dataclass(frozen=True)
class Reading:
    """One method's answer as far as it has come.

    Attributes:
        text: the answer so far.
        tokens: visual tokens that the language model reads.
        first_token: seconds from picture and question to the first token: processor, vision tower, allocation, prefill.
        peak_bytes, working_bytes: as `benchmarks.counts.PeakMemory` has them, `None` where the system does not tell.
        cache_bytes: keys and values at the end.
        reused: whether the vision tower's output of an earlier question was taken.
        done: whether the rest is final.
    """

    text: str = ""
    tokens: int | None = None
    first_token: float | None = None
    peak_bytes: int | None = None
    working_bytes: int | None = None
    cache_bytes: int | None = None
    reused: bool = False
    done: bool = False


@dataclass(frozen=True, eq=False)
class Held:
    """An encoded picture that its asker holds for the next question, and what it may be taken for."""

    key: tuple
    encoded: EncodedImages


@dataclass(frozen=True, eq=False)
class Comparison:
    """All answers so far.

    Attributes:
        count, cells: the budget in tokens, and the tokens of the whole picture.
        readings: by the names of `METHODS`, in their order; those that have begun.
        note: what the user should know of the budget, or "".
        held: to be passed with the next question.
        seen: where the tokens went, in the last comparison.
    """

    count: int
    cells: int
    note: str = ""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    held: Held | None = None
    seen: Seen | None = None


@dataclass
class _Run:
    """What one method gives to `generate()`."""

    inputs: dict
    tokens: int
    held: Held | None = None
    reused: bool = False


class _TimedStreamer(TextIteratorStreamer):
    """Says when the first token came, which may be before its text is whole."""

    first: float | None = None

    def put(self, value):
        if not self.next_tokens_are_prompt and self.first is None:
            self.first = time.perf_counter()
        super().put(value)


class _Stopped(StoppingCriteria):
    """Ends a generation whose asker has left."""

    def __init__(self):
        self.event = threading.Event()

    def __call__(self, input_ids, scores, **kwargs):
        return torch.full((len(input_ids),), self.event.is_set(), dtype=torch.bool, device=input_ids.device)


class Instrument:
    """A model and its processor. No picture and no question is kept on it: what one asker gets hangs on what they pass alone.

    Args:
        model: `ARRCOCQwen3VLForConditionalGeneration` in eval mode.
        processor: its `ARRCOCProcessor`.
        hold: whether encoded pictures are given back to be held. Where each call runs in a process of its own, they can't be.
    """

    def __init__(self, model, processor, hold: bool = True):
        self.model, self.processor, self.hold = model, processor, hold
        self.stock = stock_processor_of(processor)  # what the other two would be prepared by

    @classmethod
    def load(cls, model: str, device: str | None = None, hold: bool = True) -> "Instrument":
        """From a folder or Hub id, ARR-COC or stock Qwen3-VL; on a GPU where there is one and `device` does not say."""
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        loaded = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(model, dtype="auto").to(device).eval()
        return cls(loaded, ARRCOCProcessor.from_pretrained(model), hold)

    def grid(self, image: Image.Image) -> tuple[int, int]:
        """(rows, columns) of the picture's visual tokens."""
        return grid_of(self.processor, Asking(image, "?"))

    def warm_up(self, image: Image.Image):
        """Answers once for nobody, so that the first user's times are not those of a process that has just begun."""
        for _ in self.compare(Asking(image, "?", max_new_tokens=2)):
            pass

    def compare(self, asking: Asking, held: Held | None = None) -> Iterator[Comparison]:
        """The three answers, one after the other so that none slows another, each time that some text has come.

        Args:
            held: of the last comparison; taken where it fits this picture and these settings, and passed over where not.

        Raises:
            ValueError: the model or the processor refuses the picture, the budget or a setting.
        """
        inputs = self._inputs(asking, asking.budget)
        count, (rows, columns) = int(inputs["image_token_counts"][0]), self.grid(asking.image)
        so_far = Comparison(count, rows * columns, self._note(asking, rows * columns))
        prepared = {
            "full": lambda: self._stock(full_prompt(self.stock, [asking]).to(self.model.device)),
            "smaller": lambda: self._stock(resize(self.model, self.stock, [asking], [count]).inputs),
            "arrcoc": partial(self._chosen, asking, held),
        }
        for name in METHODS:
            for reading, latest in self._stream(prepared[name], asking.max_new_tokens):
                run = latest
                so_far = replace(so_far, readings={**so_far.readings, name: reading})
                yield so_far
        yield replace(so_far, held=run.held if self.hold else None, seen=self._seen(asking, run))

    def _inputs(self, asking: Asking, budget):
        return prompt(self.processor, [asking], token_budget=budget).to(self.model.device)

    def _note(self, asking: Asking, cells: int) -> str:
        wanted = MODES.get(asking.budget, asking.budget)
        if isinstance(wanted, str) or wanted <= cells:
            return ""
        return f"The budget of {wanted} is above the {cells} tokens that this picture has; all are kept."

    def _stock(self, inputs) -> _Run:
        merge = self.model.config.vision_config.spatial_merge_size
        return _Run(dict(inputs), int(inputs["image_grid_thw"].prod()) // merge**2)

    def _chosen(self, asking: Asking, held: Held | None) -> _Run:
        inputs = dict(self._inputs(asking, asking.budget))
        count = int(inputs["image_token_counts"][0])
        spend = {"encode_ratio": asking.encode_ratio, "allocation_mode": asking.allocation_mode}
        if asking.encode_ratio not in (1.0, "auto"):
            return _Run(inputs | spend, count, held)  # encoded for this question alone
        picture = hashlib.sha256(asking.image.tobytes()).hexdigest()
        # The size of the coarse view hangs on the budget.
        of_budget = count if asking.allocation_mode == "foveated" else None
        key = (picture, asking.image.size, asking.encode_ratio, asking.allocation_mode, of_budget)
        reused = held is not None and held.key == key
        if not reused:
            shown = inputs if of_budget else inputs | {"image_token_counts": None}  # what serves other budgets too
            held = Held(key, self.model.encode_images(**shown, **spend))
        if len(held.encoded.vision.pooler_output[0]) < count:
            return _Run(inputs | spend, count, held)  # fewer cells than tokens are not empty paper
        return _Run(inputs | spend | {"encoded_images": held.encoded}, count, held, reused)

    def _stream(self, prepare: Callable[[], _Run], max_new_tokens: int) -> Iterator[tuple[Reading, _Run | None]]:
        """The answer as it grows, with its run at the end. Left early, the generation stops with it."""
        streamer = _TimedStreamer(self.processor.tokenizer, skip_prompt=True, skip_special_tokens=True)
        stopped, result, texts = _Stopped(), {}, []

        def work():
            try:
                with ExitStack() as stack:
                    memory = stack.enter_context(PeakMemory(self.model.device))
                    result["start"] = time.perf_counter()
                    result["run"] = run = prepare()
                    output = self.model.generate(
                        **run.inputs,
                        **{"do_sample": False, "temperature": None, "top_p": None, "top_k": None},
                        max_new_tokens=max_new_tokens,
                        streamer=streamer,
                        stopping_criteria=StoppingCriteriaList([stopped]),
                        return_dict_in_generate=True,
                    )
                result["cache"] = cache_bytes(output[CACHE])
                result["memory"] = (memory.peak, memory.above)
            except Exception as error:
                result["error"] = error
            finally:
                streamer.end()

        thread = threading.Thread(target=torch.no_grad()(work), name=GENERATION, daemon=True)
        thread.start()
        try:
            for text in streamer:
                texts.append(text)
                if streamer.first is not None:
                    yield _reading(texts, streamer, result), result["run"]
        finally:
            stopped.event.set()
            thread.join()
        if "error" in result:
            raise result["error"]
        peak, working = result["memory"]
        final = {"peak_bytes": peak, "working_bytes": working, "cache_bytes": result["cache"], "done": True}
        yield replace(_reading(texts, streamer, result), **final), result["run"]

    @torch.no_grad()
    def _seen(self, asking: Asking, run: _Run) -> Seen:
        allocation = self.model.allocate(**run.inputs)[0]
        channels = {"max_cell_pixels": self.model.config.max_cell_pixels}
        return Seen.of(asking.image, asking.question, allocation, run.inputs["texture_images"][0], **channels)


def _reading(texts: list[str], streamer: _TimedStreamer, result: dict) -> Reading:
    run = result["run"]
    first = None if streamer.first is None else streamer.first - result["start"]
    return Reading("".join(texts).strip(), run.tokens, first, reused=run.reused)
