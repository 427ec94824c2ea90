"""Answers questions about a picture with all visual tokens and with a small budget, and draws where the budget went.

python -m demo.answer --image my.png --question "What is the total?" "What is the date?" --budget 64 --model FOLDER-OR-HUB-ID
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from PIL import Image, ImageOps
from transformers import PreTrainedConfig, pipeline

from publishing.files import check_source
from upload import DEFAULT_CHECKPOINT, ROOT

HERE = Path(__file__).parent
PREFILLS = 7  # timed, after one that is not
BUDGET_NAMES = ("tiny", "small", "base", "large", "auto", "full")
# what a picture or a model that can't be used raises, which is told in one line
TOLD = (OSError, ValueError, Image.DecompressionBombError, StrictDataclassError)
OVERLAY_SIDE = 768  # pixels; a smaller picture is enlarged before it is drawn on


@dataclass(frozen=True)
class Answer:
    """One way to answer: its text, visual tokens, seconds of each prefill, and bytes of the key-value cache after it."""

    text: str
    tokens: int
    prefill: list[float]
    cache_bytes: int


def chat(image, question: str) -> list[dict]:
    """The conversation that asks `question` about `image`, a path, URL or PIL image."""
    return [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": question}]}]


def model_folder(model: str, scratch: Path) -> str:
    """`model` if it is a complete ARR-COC folder or Hub repository, else a folder staged from that checkpoint.

    Staging runs in a process of its own: this one must get the model's code from the folder, as a user does.

    Raises:
        OSError, ValueError: there is no such model, or it can't be staged.
    """
    check_source(model)
    config, _ = PreTrainedConfig.get_config_dict(model)
    entry = config.get("auto_map", {}).get("AutoModelForImageTextToText")
    if entry and (not Path(model).is_dir() or (Path(model) / f"{entry.split('.')[0]}.py").exists()):
        return model
    out = scratch / "staged"
    done = subprocess.run(
        [sys.executable, ROOT / "upload.py", "--stage-only", "--checkpoint", model, "--out", out],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2].removeprefix("upload.py --stage-only: ")
        raise ValueError(f"{model} can't be staged as a Hub folder: {reason}")
    print(f"staged {model} as a Hub folder")
    return str(out)


def prepare(processor, image, question: str, budget):
    """The model's inputs for one question about one picture."""
    return processor.apply_chat_template(
        chat(image, question),
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"token_budget": budget},
    )


@torch.inference_mode()
def measure(pipe, image, question, budget, max_new_tokens) -> Answer:
    """The pipeline's answer at one budget, and what its prefill costs (vision tower, allocation and language model)."""
    inputs = prepare(pipe.processor, image, question, budget).to(pipe.model.device)
    seconds = []
    for _ in range(PREFILLS + 1):
        started = time.perf_counter()
        output = pipe.model(**inputs, use_cache=True, logits_to_keep=1)
        if pipe.model.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    cache = output["cache" if "cache" in output else "past_key_values"]  # since transformers 5.24, and before it
    held = sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))
    reply = pipe(
        chat(image, question),
        processor_kwargs={"token_budget": budget},
        max_new_tokens=max_new_tokens,
        return_full_text=False,
        generate_kwargs={"do_sample": False},  # what is compared is the budget, not a draw
    )
    return Answer(reply[0]["generated_text"], int(inputs["image_token_counts"].sum()), seconds[1:], held)


def report(full: Answer, small: Answer):
    """Prints both answers and the ratios of what they cost."""
    print(f"{'':12} {'all tokens':>16} {'budget':>16} {'ratio':>8}")
    print(f"{'answer':12} {full.text!r:>16} {small.text!r:>16}")
    print(f"{'tokens':12} {full.tokens:>16} {small.tokens:>16} {small.tokens / full.tokens:>8.2f}")
    rows = [statistics.median(full.prefill), statistics.median(small.prefill)]
    print(f"{'prefill':12} {rows[0] * 1e3:>13.1f} ms {rows[1] * 1e3:>13.1f} ms {rows[1] / rows[0]:>8.2f}")
    spread = [f"{min(a.prefill) * 1e3:.1f}-{max(a.prefill) * 1e3:.1f} ms" for a in (full, small)]
    print(f"{'  (spread)':12} {spread[0]:>16} {spread[1]:>16}")
    sizes = [full.cache_bytes, small.cache_bytes]
    print(f"{'cache':12} {sizes[0] / 1024:>12.0f} KiB {sizes[1] / 1024:>12.0f} KiB {sizes[1] / sizes[0]:>8.2f}")


def side_by_side(pictures: list[Image.Image]) -> Image.Image:
    """The pictures, all of one size, in one row."""
    width, height = pictures[0].size
    row = Image.new("RGB", (len(pictures) * (width + 8) - 8, height), "white")
    for number, picture in enumerate(pictures):
        row.paste(picture, (number * (width + 8), 0))
    return row


def common_cells(first, second) -> float:
    """The share of the first allocation's tokens that stand on cells which the second keeps too."""
    places = {tuple(place) for place in second.positions.tolist()}
    return sum(tuple(place) in places for place in first.positions.tolist()) / len(first)


def upright(image: Image.Image) -> Image.Image:
    """`image`, turned as its EXIF tag says where PIL can read all of the others; else as it is, and `overlay` turns it."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # PIL writes every tag anew, and raises what it meets
        return image


def show(pipe, path: str, questions: list[str], budget, max_new_tokens: int, out: Path) -> None:
    """Answers each question about the picture at both budgets, prints what it cost, and saves one overlay per question."""
    image = upright(Image.open(path))
    enlarge = max(1, OVERLAY_SIDE // max(image.size))
    shown = image.resize((image.width * enlarge, image.height * enlarge), Image.Resampling.NEAREST)
    allocations = []
    for question in questions:
        print(f"\n{path}, {image.width} x {image.height} pixels: {question}\n")
        report(*(measure(pipe, path, question, tokens, max_new_tokens) for tokens in ("full", budget)))
        inputs = prepare(pipe.processor, path, question, budget).to(pipe.model.device)
        allocations.append(pipe.model.allocate(**inputs)[0])
    for question, allocation in zip(questions[1:], allocations[1:], strict=True):
        print(f"\n{common_cells(allocation, allocations[0]):.0%} of the cells kept for {question!r} are kept for "
              f"{questions[0]!r} too")  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    side_by_side([allocation.overlay(shown) for allocation in allocations]).save(out)
    print(f"\nwhere the budget went: {out}")


def default_questions() -> list[str]:
    """The questions about the bundled page."""
    return (HERE / "question.txt").read_text(encoding="utf-8").split("\n")[:-1]


def budget_of(text: str) -> int | str:
    """A token count where `text` is one, else a budget's name.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    if text in BUDGET_NAMES:
        return text
    if text.isdecimal() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is no budget; pass a number of tokens >= 1, or {', '.join(BUDGET_NAMES)}")


def main(arguments: list[str] | None = None) -> int:
    """Command line of this file; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", default=str(HERE / "page.png"), help="any picture that PIL reads")
    parser.add_argument("--question", nargs="+", default=default_questions(), help="one or several")
    parser.add_argument("--budget", type=budget_of, default=16, help="visual tokens, a mode name or 'auto'")
    parser.add_argument("--model", default=str(DEFAULT_CHECKPOINT), help="folder or Hub id, ARR-COC or stock Qwen3-VL")
    parser.add_argument("--out", type=Path, default=HERE / "out" / "overlay.png", help="the picture of the allocation")
    parser.add_argument("--max-new-tokens", type=int, default=32)
    options = parser.parse_args(arguments)

    kind = Image.registered_extensions().get(options.out.suffix.lower())
    if options.out.is_dir() or kind not in Image.SAVE:
        parser.error(f"--out {options.out}: pass the picture's file, such as overlay.png")
    if options.max_new_tokens < 1:
        parser.error(f"--max-new-tokens {options.max_new_tokens}: pass 1 or more")
    try:
        with Image.open(options.image) as image:  # told before anything is staged or loaded
            image.load()
        with tempfile.TemporaryDirectory() as scratch:
            pipe = pipeline(
                "image-text-to-text",
                model=model_folder(options.model, Path(scratch)),
                trust_remote_code=True,
                device_map="auto",
            )
            show(pipe, options.image, options.question, options.budget, options.max_new_tokens, options.out)
    except TOLD as error:
        print(f"demo.answer: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
