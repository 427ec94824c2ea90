"""The dials of ARR-COC: a Qwen3-VL config with the allocator's own typed and limited fields."""

import difflib
import functools
import math
import numbers
from collections.abc import Iterable
from dataclasses import field, fields
from typing import Any

import transformers
from packaging.version import Version

# Release 5.20 is the first whose `generate()` and `forward` take `mm_encoder_outputs`; below it the same code loads
# and gives wrong positions without a word, so it must not load at all.
TRANSFORMERS_FLOOR, TRANSFORMERS_CEILING = "5.20", "6"
if not Version(TRANSFORMERS_FLOOR) <= Version(transformers.__version__) < Version(TRANSFORMERS_CEILING):
    raise ImportError(
        f"ARR-COC needs transformers >= {TRANSFORMERS_FLOOR}, < {TRANSFORMERS_CEILING}, but {transformers.__version__} is "
        f"installed; run: pip install 'transformers>={TRANSFORMERS_FLOOR},<{TRANSFORMERS_CEILING}'"
    )

from huggingface_hub.dataclasses import strict  # noqa: E402
from transformers import Qwen3VLConfig  # noqa: E402

CONFIG_VERSION = 1
ALLOCATION_MODES = ("select", "foveated")

# Dials that live in the processor, because the number of placeholders is fixed when the prompt is written.
PROCESSOR_DIALS = ("token_budget", "texture_size", "question_turn")
SHAPES = ("perspective_channels", "scorer_hidden_size", "scorer_heads")  # dials that the tensors' shapes depend on
# How alike an unknown name is to a dial to be a misspelling of it; "temperature" and "feature_size" of other configs are less.
_ALIKE = 0.86
# How alike the first words of two names of calls are; "text" and "user" of other models' inputs are less like "query".
_ALIKE_WORDS = 0.7
# What the processor makes of each image beside Qwen3-VL's inputs.
OWN_INPUTS = ("texture_images", "query_input_ids", "query_attention_mask", "image_token_counts")
_OF_TEXT = ("input_ids", "attention_mask", "position_ids")  # what no image reads
# What the model's calls take beside Qwen3-VL's arguments.
CALL_ARGUMENTS = (*OWN_INPUTS, "encode_ratio", "allocation_mode", "encoded_images")


def _number(minimum: float, maximum: float, unit: str):
    """A validator for one number in [minimum, maximum]; NaN and bool are refused."""

    def validate(value):
        if isinstance(value, bool) or not math.isfinite(value) or not minimum <= value <= maximum:
            raise ValueError(f"{value!r} is outside [{minimum}, {maximum}] {unit}; pass a number inside it")

    return validate


def _dial(default: float, minimum: float, maximum: float, unit: str):
    """A config field with its limits and unit, refused outside them at construction and at every assignment."""
    return field(default=default, metadata={"validator": _number(minimum, maximum, unit)})


def check_encode_ratio(value: Any) -> float | str:
    """`value`, where it is a share in (0, 1] or "auto"; ValueError otherwise."""
    if isinstance(value, str) and value == "auto":
        return value
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)  # numpy's too
    if not number or not 0 < value <= 1:  # NaN compares false
        raise ValueError(
            f"encode_ratio={value!r} is not allowed; pass a number above 0 and up to 1 (the share of cells that the vision "
            "tower encodes), or 'auto'"
        )
    return float(value)


def check_spending(encode_ratio: Any, allocation_mode: Any) -> None:
    """Refuses what a call can't mean, where it says anything; also where no image is there to meet it."""
    if encode_ratio is not None:
        check_encode_ratio(encode_ratio)
    if allocation_mode is not None:
        check_allocation_mode(allocation_mode)


def pooling_conflict(coarse_share: float, encode_ratio: float | str, allocation_mode: str) -> str | None:
    """Why pooled cells (`coarse_share` above 0) can't go with how an image is encoded, or `None` where they can."""
    if coarse_share == 0:
        return None
    if encode_ratio != 1.0:
        return (
            f"coarse_share={coarse_share} pools cells that encode_ratio={encode_ratio!r} leaves out; pass encode_ratio=1.0, or "
            "set coarse_share=0"
        )
    if allocation_mode == "foveated":
        return f"coarse_share={coarse_share} pools cells beside a coarse view; pass allocation_mode='select', or set coarse_share=0"
    return None


def refuse_misspelt_arguments(names: Iterable[str]) -> None:
    """Raises TypeError where an argument of a model's call is none of ours but looks like one, or is another part's."""
    for name in names:
        if meant := _meant(name):
            raise TypeError(f"{name} is not an argument of the model; {meant}")


@functools.lru_cache
def _meant(name: str) -> str:
    if name == "token_budget":
        return "pass it to the processor, which writes as many placeholders"
    if name == "question":
        return "pass it to the processor, which makes query_input_ids of it"
    if name in PROCESSOR_DIALS:
        return f"set it on the processor: processor.{name} = ..."
    if name in SHAPES:
        return "the allocator was built with that of the config; train a new one with --reset --set of training.train_allocator"
    if name in model_dials() and name not in CALL_ARGUMENTS:
        return f"it is read from the config at every call; set model.config.{name}"
    if name in _OF_TEXT:
        return "it is the prompt's and no image's; leave it out"
    close = difflib.get_close_matches(name, CALL_ARGUMENTS, n=1, cutoff=0.8)
    return f"did you mean {close[0]}?" if close and not _is_anothers(name, close[0]) else ""


def _is_anothers(name: str, own: str) -> bool:
    """Whether a name tells what `own` tells of something else, as text_attention_mask does; generic code may pass what is of other
    models, if only as `None`."""
    words, ours = name.split("_"), own.split("_")
    alike = difflib.SequenceMatcher(None, words[0], ours[0]).ratio() > _ALIKE_WORDS
    return len(words) == len(ours) and not alike


def check_allocation_mode(value: Any) -> str:
    """`value`, where it is one of `ALLOCATION_MODES`; ValueError otherwise."""
    if not isinstance(value, str) or value not in ALLOCATION_MODES:
        raise ValueError(f"allocation_mode={value!r} is unknown; pass one of {', '.join(map(repr, ALLOCATION_MODES))}")
    return value


def _deepstack_floor(value):
    if value is not None:
        _number(0, 64, "DeepStack levels, or None for all")(value)


@strict
class ARRCOCQwen3VLConfig(Qwen3VLConfig):
    """Qwen3-VL's config and the allocator's dials.

    Every field keeps its default when a stock Qwen3-VL config is read, so any stock checkpoint loads. A value of the
    wrong type or outside its limits, and a name that looks like a misspelt dial, is refused both in the constructor and
    by later assignment; that `scorer_heads` divides `scorer_hidden_size` is asked in the constructor and where a config is read.

    Args:
        arrcoc_version (`int`, *optional*, defaults to 1):
            Format of these fields. A newer one than this code knows is refused.
        information_weight (`float` in [0, 10], *optional*, defaults to 1.0):
            Weight in the relevance of what a cell tells, a score in [0, 1].
        perspective_weight (`float` in [0, 10], *optional*, defaults to 0.5):
            Weight in the relevance of what stands out, a score in [0, 1] before training.
        participation_weight (`float` in [0, 10], *optional*, defaults to 1.0):
            Weight in the relevance of what the question needs, a score of any size.
        area_strength (`float` in [0, 1], *optional*, defaults to 0.25):
            How far the compress-particularize tension moves relevance towards (-1) or away from (+1) its 3 x 3 mean.
        dilation_strength (`float` in [0, 1], *optional*, defaults to 0.0):
            How far the relevance of a cell that carries information rises to the highest of the four beside it, so that a value
            of several cells is kept whole: 0.35 with the bundled allocator. Off, because it costs an untrained one evidence
            (`dev/LOG.md`).
        diversity (`float` in [0, 0.5], *optional*, defaults to 0.0):
            A cell loses this share of its lead over the lowest cell where one that ranks above it is fully similar, at neutral
            tension; the focus-diversify tension moves the share between 0 and twice this. Off, because it gains a trained
            allocator no evidence (`dev/LOG.md`).
        coverage_floor (`float` in [0, 1], *optional*, defaults to 0.0):
            Share of the fine cells' tokens that is spread over the image, one cell for each block of an even partition. Off,
            because it gains neither a trained nor an untrained allocator anything (`dev/LOG.md`).
        coarse_share (`float` in [0, 0.9], *optional*, defaults to 0.0):
            Share of the budget spent on 2 x 2 and 4 x 4 pooled cells, at neutral tension. 0 keeps fine cells only.
        min_deepstack_levels (`int`, *optional*):
            DeepStack levels that the least relevant kept token receives, more where fewer tokens are kept than there are
            levels to lose; `None` gives every token all of them.
        encode_ratio (`float` in (0, 1] or `"auto"`, *optional*, defaults to 1.0):
            Share of an image's cells that the vision tower encodes, chosen from the raw image and the question alone; with a
            coarse view's tokens at least as many as the image has tokens. 1 encodes all. `"auto"` leaves out empty paper and
            nothing else.
        allocation_mode (`str`, *optional*, defaults to `"select"`):
            `"select"` keeps cells. `"foveated"` spends a part of the budget on a coarse view of the whole image, but none where the
            question is known to be about the whole image, over which cells are spread evenly then.
        coarse_view_share (`float` in [0.05, 0.95], *optional*, defaults to 0.3):
            The largest part of the budget that the coarse view of the foveated mode may take. Where no view is so small (the
            coarsest has an eighth of the image's sides), all of the budget goes to cells.
        coarse_view_min_tokens (`int` in [1, 4096], *optional*, defaults to 9):
            The fewest tokens that a coarse view is worth making with; where its share has no room for them, all of the budget
            goes to cells, too.
        gate_temperature (`float` in [1e-4, 10], *optional*, defaults to 0.1):
            Width, in relevance, of the straight-through gate that carries the training gradient to the scores.
        max_cell_pixels (`int` in [4, 32], *optional*, defaults to 16):
            Side of one merged cell, in pixels, at which textures are measured; `token_budget="auto"` of the processor, which has no
            config, measures at 16.
        perspective_channels (`int` in [1, 1024], *optional*, defaults to 16):
            Width of the perspectival CNN.
        scorer_hidden_size (`int` in [8, 4096], *optional*, defaults to 64):
            Width of the participatory score.
        scorer_heads (`int` in [1, 64], *optional*, defaults to 8):
            Heads of the participatory score.

    Tensors' shapes depend on the last three: they are read when the model is built. Later assignments of the other dials count
    from the next call on, but `coarse_share` can't leave 0 then: its adapter is missing.

    Raises:
        StrictDataclassFieldValidationError: a field has the wrong type or lies outside its limits.
        ValueError: the config is of a newer version, or a name looks like a misspelt dial.
    """

    model_type = "arrcoc_qwen3_vl"
    # of an output, what a Trainer does not gather as predictions: the cache, and features of whatever shapes
    keys_to_ignore_at_inference = ["past_key_values", "cache", "image_outputs", "video_outputs", "rope_deltas"]

    arrcoc_version: int = _dial(CONFIG_VERSION, 1, math.inf, "(a format version)")
    information_weight: float | int = _dial(1.0, 0.0, 10.0, "(a weight)")
    perspective_weight: float | int = _dial(0.5, 0.0, 10.0, "(a weight)")
    participation_weight: float | int = _dial(1.0, 0.0, 10.0, "(a weight)")
    area_strength: float | int = _dial(0.25, 0.0, 1.0, "(a share)")
    dilation_strength: float | int = _dial(0.0, 0.0, 1.0, "(a share)")
    diversity: float | int = _dial(0.0, 0.0, 0.5, "(a share)")
    coverage_floor: float | int = _dial(0.0, 0.0, 1.0, "(a share of the budget)")
    coarse_share: float | int = _dial(0.0, 0.0, 0.9, "(a share of the budget)")
    min_deepstack_levels: int | None = field(default=None, metadata={"validator": _deepstack_floor})
    encode_ratio: float | int | str = field(default=1.0, metadata={"validator": check_encode_ratio})
    allocation_mode: str = field(default="select", metadata={"validator": check_allocation_mode})
    coarse_view_share: float | int = _dial(0.3, 0.05, 0.95, "(a share of the budget)")
    coarse_view_min_tokens: int = _dial(9, 1, 4096, "tokens")
    gate_temperature: float | int = _dial(0.1, 1e-4, 10.0, "(relevance)")
    max_cell_pixels: int = _dial(16, 4, 32, "pixels")
    perspective_channels: int = _dial(16, 1, 1024, "channels")
    scorer_hidden_size: int = _dial(64, 8, 4096, "channels")
    scorer_heads: int = _dial(8, 1, 64, "heads")

    def __post_init__(self, **kwargs):
        self.validate_version()
        super().__post_init__(**kwargs)
        self.validate_scorer()

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        """As `PreTrainedConfig.from_dict`, which assigns `kwargs` after all checks and ignores those of unknown name."""
        for name in kwargs:
            _refuse_misspelt_field(cls, name)
        came = config_dict.get("model_type", cls.model_type)
        if came not in (cls.model_type, ARRCOCQwen3VLConfig.model_type, Qwen3VLConfig.model_type):
            raise ValueError(
                f"the checkpoint is of type {came}, and ARR-COC prunes {Qwen3VLConfig.model_type} alone (dense Qwen3-VL); pass a "
                f"checkpoint of that type, or of {cls.model_type}"
            )
        loaded = super().from_dict(config_dict, **kwargs)
        config = loaded[0] if isinstance(loaded, tuple) else loaded
        config.validate_version()
        config.validate_scorer()
        return loaded

    def validate_version(self):
        """Refuses a config that newer code wrote."""
        if self.arrcoc_version > CONFIG_VERSION:
            raise ValueError(
                f"arrcoc_version={self.arrcoc_version} is newer than version {CONFIG_VERSION} that this code reads; update "
                "the ARR-COC code files of this folder, or load the checkpoint with the code that it was saved with"
            )

    def validate_scorer(self):
        """Refuses a participatory scorer whose width does not divide into its heads."""
        if self.scorer_hidden_size % self.scorer_heads:
            raise ValueError(
                f"scorer_hidden_size={self.scorer_hidden_size} does not divide into scorer_heads={self.scorer_heads}; pass "
                "a multiple"
            )

    def __setattr__(self, name: str, value: Any):
        _refuse_misspelt_field(type(self), name)
        super().__setattr__(name, value)


@functools.cache
def model_dials() -> frozenset[str]:
    """Names of the config's own fields, those of calls among them."""
    return frozenset(_own_fields(ARRCOCQwen3VLConfig))


def _own_fields(config_class: Any) -> list[str]:
    inherited = {f.name for f in fields(Qwen3VLConfig)}
    return [f.name for f in fields(config_class) if f.name not in inherited]


def _refuse_misspelt_field(config_class: Any, name: str):
    """Raises ValueError where `name` is no attribute of the config but looks like one of the dials."""
    if name.startswith("_") or name in config_class.__dataclass_fields__ or hasattr(config_class, name):
        return
    if name in ("min_pixels", "max_pixels"):
        return  # of the image processor; AutoProcessor hands on what it is given
    if name.endswith("_hidden_size"):
        return  # of another part: a Qwen3-VL of later may have one more
    if name in PROCESSOR_DIALS:
        raise ValueError(f"{name} is a dial of the processor, not of the model config; set it on ARRCOCProcessor")
    close = difflib.get_close_matches(name, [*_own_fields(config_class), *PROCESSOR_DIALS], n=1, cutoff=_ALIKE)
    if close:
        raise ValueError(f"{name} is not a field of {config_class.__name__}; did you mean {close[0]}?")


ARRCOCQwen3VLConfig.register_for_auto_class("AutoConfig")

__all__ = ["ARRCOCQwen3VLConfig"]
