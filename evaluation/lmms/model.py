"""The model class that lmms-eval loads as `--model arrcoc`."""

import difflib
import inspect
import os
import time

import torch
from lmms_eval.api.instance import GenerationResult, TokenCounts
from lmms_eval.api.model import lmms
from lmms_eval.models.model_utils.gen_metrics import log_metrics
from lmms_eval.protocol import ChatMessages
from lmms_eval.utils import Collator
from tqdm import tqdm

from evaluation.lmms.asking import Reply, ask, cut, generation_settings, load
from evaluation.lmms.condition import Condition


class ARRCOC(lmms):
    """Any Qwen3-VL, stock or ours, answering from as many visual tokens as `token_budget` says.

    Args:
        pretrained, revision: folder or Hub id, and its revision.
        method, token_budget, allocation_mode, encode_ratio: see `Condition`.
        allocator: file of a trained allocator for `pretrained`.
        dtype, device, device_map, attn_implementation: of the model; `device` is the first GPU or the CPU.
        batch_size: questions at once. lmms-eval's "auto" is refused.
        min_pixels, max_pixels: bounds of a picture's area; the processor's own where they are missing.

    Raises:
        TypeError: an argument is unknown.
        ValueError: an argument's value is not allowed; the message says what is.
    """

    is_simple = False

    def __init__(
        self,
        pretrained: str,
        method: str = "arrcoc",
        token_budget: float | int | str | None = None,
        allocation_mode: str = "select",
        encode_ratio: float | str = 1.0,
        allocator: str | None = None,
        revision: str | None = None,
        dtype: str = "auto",
        device: str | None = None,
        device_map: str | None = None,
        attn_implementation: str | None = None,
        batch_size: int | str = 1,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
        max_batch_size: int | None = None,  # lmms-eval passes it to every model; "auto" alone would use it
        **unknown,
    ):
        super().__init__()
        _refuse(unknown)
        if int(os.environ.get("WORLD_SIZE", 1)) > 1:
            raise ValueError("arrcoc runs in one process; start one lmms_eval per GPU, each with other --tasks")
        if not str(batch_size).isdecimal() or int(batch_size) < 1:
            raise ValueError(f"batch_size={batch_size!r} is no count of questions; pass a whole number from 1 on")
        self.batch_size = int(batch_size)
        self.condition = Condition(method, token_budget, allocation_mode, encode_ratio)
        placed = {"attn_implementation": attn_implementation, "device_map": device_map}
        placed = {name: value for name, value in placed.items() if value is not None}
        bounds = {"min_pixels": min_pixels, "max_pixels": max_pixels}
        # lmms-eval makes numbers of what looks like one.
        named = {"revision": revision, "allocator": allocator}
        named = {name: str(value) for name, value in named.items() if value is not None}
        self.model, self.processor = load(str(pretrained), self.condition, **named, **bounds, dtype=dtype, **placed)
        if device_map is None:
            self.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.device = self.model.device

    def generate_until(self, requests) -> list[GenerationResult]:
        """The answer to each request, in their order; visual tokens and seconds go to lmms-eval's throughput."""
        order = Collator(
            [request.args for request in requests], lambda args: args[0], lambda args: args[2], grouping=True
        )
        results, replies, seconds = [], [], 0.0
        progress = tqdm(total=len(requests), desc=self.condition.title, unit="question", disable=None)
        for batch in order.get_batched(n=self.batch_size):
            asked = batch[0][2]
            chats = [self._chat(*args[1:2], *args[3:6]) for args in batch]
            start = time.perf_counter()
            answered = ask(self.model, self.processor, self.condition, chats, generation_settings(asked))
            seconds += time.perf_counter() - start
            replies += answered
            for reply in answered:
                counts = TokenCounts(input_tokens=reply.prompt_tokens, output_tokens=reply.new_tokens)
                results.append(GenerationResult(cut(reply.text, asked.get("until")), counts))
            progress.update(len(batch))
        progress.close()
        _log(replies, seconds)
        return order.get_original(results)

    def _chat(self, doc_to_messages, doc_id, task: str, split: str) -> list[dict]:
        chat = ChatMessages(messages=doc_to_messages(self.task_dict[task][split][doc_id]))
        _, videos, sounds = chat.extract_media()
        if videos or sounds:
            raise ValueError(
                f"{task} has videos or sound; arrcoc chooses among the tokens of pictures, leave out the task"
            )
        return chat.to_hf_messages()

    def loglikelihood(self, requests):
        """Not there: raises NotImplementedError."""
        raise NotImplementedError("arrcoc generates answers; choose a task whose output_type is generate_until")

    def generate_until_multi_round(self, requests):
        """Not there: raises NotImplementedError."""
        raise NotImplementedError("arrcoc answers one turn; choose a task whose output_type is generate_until")


def _log(replies: list[Reply], seconds: float):
    tokens = sum(reply.visual_tokens for reply in replies)
    shares = [reply.visual_tokens / reply.cells for reply in replies if reply.cells]
    new = sum(reply.new_tokens for reply in replies)
    figures = {
        "total_requests": len(replies),
        "visual_tokens": tokens / max(1, len(replies)),
        "visual_token_share": sum(shares) / max(1, len(shares)),
    }
    log_metrics(seconds, new, new / max(seconds, 1e-9), figures)


def _refuse(unknown: dict):
    allowed = [name for name in inspect.signature(ARRCOC.__init__).parameters if name not in ("self", "unknown")]
    for name in unknown:
        near = difflib.get_close_matches(name, allowed, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(allowed)}"
        raise TypeError(f"{name} is not an argument of --model arrcoc; {hint}")
