"""ARRCOCProcessor: Qwen3-VL's processor that writes as many image placeholders as the budget allows.

Beside Qwen3-VL's own inputs it emits the raw images, each image's question and each image's token count.
"""

import copy
import functools
import inspect
import math
import numbers
from dataclasses import dataclass

import torch
from transformers import Qwen3VLProcessor
from transformers.image_utils import make_flat_list_of_images
from transformers.utils import is_torchvision_available, logging
from transformers.video_processing_utils import BaseVideoProcessor

from .arguments import (
    check_nesting,
    check_parts,
    check_texts,
    given,
    is_empty,
    place_of,
    refuse_halves,
    refuse_late,
    refuse_misspelt_dials,
    refuse_unread,
    setting,
)
from .budget import ONE_BUDGET, TIERS, as_entries, auto_token_budget, check_token_budget
from .checkpoint import refuse_allocator_alone
from .configuration_arrcoc import CALL_ARGUMENTS, OWN_INPUTS, PROCESSOR_DIALS, model_dials
from .knowing import InformationScorer
from .picture import check_sizes, open_picture, square
from .questions import given_questions, questions_of
from .texture import pixel_canvas

logger = logging.get_logger(__name__)

# The tokenizer would keep them, and can't be saved with some.
_OF_MODELS = ("dtype", "torch_dtype", "quantization_config", "attn_implementation", "device_map", "max_memory")
QUESTION_TURNS = ("last_user", "image")
# Token counts of questions are padded to a multiple of this, so that batches of unlike questions often agree in shape.
_QUERY_MULTIPLE = 32
_QUERY_ENDS = 64, 192  # tokens of a longer question that the allocator reads, first and last: its time grows with them
# Arguments that change the tokenizer's own state: questions are read with the text's, so that a call in another thread
# never meets a tokenizer that is set otherwise.
_TOKENIZER_STATE = ("padding", "truncation", "max_length", "stride", "pad_to_multiple_of", "padding_side")


@dataclass(frozen=True)
class _Request:
    """What one call asks for, image by image."""

    token_budget: object
    questions: list[str] | None
    text_kwargs: dict


class ARRCOCProcessor(Qwen3VLProcessor):
    """Qwen3-VL's processor with a token budget.

    Args:
        image_processor, tokenizer, video_processor, chat_template:
            As `Qwen3VLProcessor`. Without torchvision there is no video processor; images work all the same.
        token_budget (`int` or `str`, defaults to 200):
            Tokens per image where a call does not say. See `__call__`.
        texture_size (`int`, defaults to 512):
            Side in pixels of the square raw image that textures are measured on, in [32, 4096].
        question_turn (`str`, defaults to `"last_user"`):
            Whose text an image is asked: the last user turn's that asks any, or `"image"` for the turn that the image stands in,
            or where that has none the user's before it. What a tool gave back asks nothing, nor does a last turn that goes on
            about what was asked before ("Are you sure?") or says how to answer.

    Raises:
        ValueError: a dial is outside what is allowed.
    """

    _video_settings: dict | None = None  # of the video processor that could not be loaded, as its folder has them

    def __init__(
        self,
        image_processor=None,
        tokenizer=None,
        video_processor=None,
        chat_template=None,
        token_budget=200,
        texture_size=512,
        question_turn="last_user",
        **kwargs,
    ):
        refuse_misspelt_dials(kwargs)
        super().__init__(image_processor, tokenizer, video_processor, chat_template=chat_template, **kwargs)
        self.token_budget = token_budget
        self.texture_size = texture_size
        self.question_turn = question_turn
        self._check_dials()

    def __setattr__(self, name, value):
        if not name.startswith("_") and not hasattr(self, name):
            refuse_misspelt_dials([name])
        super().__setattr__(name, value)

    def _check_dials(self):
        try:
            (budget,) = check_token_budget([self.token_budget], 1, default=None)
        except ValueError as error:
            raise ValueError(
                f"the processor's token_budget={self.token_budget!r} is not a budget for any image; pass {ONE_BUDGET}"
            ) from error
        if not isinstance(self.token_budget, str):
            self.token_budget = int(budget)  # numpy's numbers and tensors can't be saved
        size = self.texture_size
        if isinstance(size, bool) or not isinstance(size, numbers.Integral) or not 32 <= size <= 4096:
            raise ValueError(f"texture_size={size!r} is no whole number of pixels in [32, 4096]; pass one, such as 512")
        self.texture_size = int(size)
        if self.question_turn not in QUESTION_TURNS:
            raise ValueError(f"question_turn={self.question_turn!r} is unknown; pass one of {QUESTION_TURNS}")

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """As `ProcessorMixin.from_pretrained`; a misspelt dial, in the arguments or in the folder, is refused."""
        # Left open, transformers asks on the terminal whether to run the folder's code. This class is that code.
        kwargs.setdefault("trust_remote_code", False)
        # not handed on: the tokenizer reads the model's config with all that it is given, which refuses them
        dials = {name: kwargs.pop(name) for name in PROCESSOR_DIALS if name in kwargs}
        if "_from_pipeline" in kwargs:  # which hands the model's arguments on to the processor, too
            models = {*CALL_ARGUMENTS, *model_dials(), *_OF_MODELS}
            kwargs = {name: value for name, value in kwargs.items() if name not in models}
        try:
            processor = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except OSError as error:
            refuse_allocator_alone(cls.get_processor_dict, pretrained_model_name_or_path, kwargs, error)
            raise
        for name, value in dials.items():
            setattr(processor, name, value)
        processor._check_dials()
        if "video_processor" not in cls.get_attributes():
            processor._video_settings = _video_settings(pretrained_model_name_or_path, kwargs)
        return processor

    @classmethod
    def from_args_and_dict(cls, args, processor_dict, **kwargs):
        refuse_misspelt_dials({**processor_dict, **kwargs})
        return super().from_args_and_dict(args, processor_dict, **kwargs)

    @classmethod
    def get_attributes(cls):
        """Names of the sub-processors; no video processor where torchvision, which it needs, is missing."""
        names = super().get_attributes()
        return names if is_torchvision_available() else [name for name in names if name != "video_processor"]

    def save_pretrained(self, save_directory, **kwargs):
        """As `ProcessorMixin.save_pretrained`; a dial that no call would take is refused."""
        self._check_dials()
        return super().save_pretrained(save_directory, **kwargs)

    @property
    def model_input_names(self):
        return [*super().model_input_names, *OWN_INPUTS]

    def to_dict(self):
        # A folder saved without torchvision must still give a user who has it a video processor.
        output = super().to_dict()
        output.pop("_video_settings", None)
        if "video_processor" not in output:
            names = ("patch_size", "temporal_patch_size", "merge_size", "image_mean", "image_std")
            held = {name: getattr(self.image_processor, name, None) for name in names}
            settings = self._video_settings or {name: value for name, value in held.items() if value is not None}
            output["video_processor"] = {"video_processor_type": "Qwen3VLVideoProcessor"} | settings
        return output

    def __call__(self, images=None, text=None, videos=None, token_budget=None, question=None, **kwargs):
        """Qwen3-VL's inputs with K placeholders per image, and what choosing K cells needs.

        Args:
            images, text, videos, kwargs: as `Qwen3VLProcessor`.
            token_budget: tokens per image: a whole number >= 1; a mode name, "tiny" 64, "small" 100, "base" 256 or
                "large" 400; "auto", decided from the image's own information and the question; "full"; `None` for the
                processor's default; or one entry per image, in a list, tuple or 1-D tensor or array.
            question: the text that chooses, where it is not the one that the prompt asks (see `question_turn`); one text for all
                images, or a list with one per image. The language model reads the prompt alone.

        Returns:
            `BatchFeature` with, beside Qwen3-VL's own entries: `texture_images` (images, 3, S, S) uint8, `query_input_ids` and
            `query_attention_mask` (images, Tq), 0 at padding and else 1, or where a prompt asks several questions in one the number
            of that which a token is of, `image_token_counts` (images,). Text alone has none of these. Without
            `return_tensors` they are tensors, and Qwen3-VL's own are lists and arrays.

        Raises:
            ValueError: a budget, a question, a picture or the number of placeholders is not what it must be; the message says what.
            TypeError: an argument looks like a misspelt dial, or is the model's; of others that are unknown transformers warns.
            FileNotFoundError: a path has no file behind it.
            ImportError: videos came, and torchvision is not installed.
        """
        self._check_dials()
        refuse_misspelt_dials(kwargs)
        kwargs = given(kwargs)
        refuse_late(kwargs)
        refuse_halves(text)
        refuse_halves(question, "question")
        token_budget = as_entries(token_budget)
        if isinstance(images, str) and self.image_token in images:
            raise TypeError("the first argument is images, and a prompt came; pass both by name: text=..., images=...")
        check_texts(text)
        images = None if is_empty(images) else images
        check_nesting(images, text, self.image_token)
        if images is None:  # refused where no image is there to meet it, too
            check_token_budget(token_budget, 0 if isinstance(token_budget, list) else 1)
            given_questions("" if question is None else question, 0)
        videos = None if is_empty(videos) else videos
        if videos is not None and "video_processor" not in self.get_attributes():
            raise ImportError("videos need torchvision, which is not installed; run: pip install torchvision")
        if images is not None:
            # With do_rescale=False, or a factor of the caller's, the values of an array are not for us to scale.
            of_images = functools.partial(setting, kwargs, "images_kwargs")
            rescale = of_images("do_rescale", self.image_processor.do_rescale)
            factor = of_images("rescale_factor", self.image_processor.rescale_factor)
            rescale = rescale and factor is not None and math.isclose(factor, 1 / 255)
            data_format = of_images("input_data_format", None)
            wide = getattr(self.image_processor, "backend", None) == "torchvision"
            images = open_picture(images, data_format, keep_arrays=not rescale, keep_wide=wide)
        questions = None
        if question is not None and images is not None:
            questions = given_questions(question, len(make_flat_list_of_images(images)))
        elif text is not None and images is not None:
            sanitized = bool(kwargs.get("sanitize_control_tokens"))
            questions = questions_of(text, self.image_token, self.question_turn, sanitized)
        text_kwargs = {name: setting(kwargs, "text_kwargs", name, None) for name in _TOKENIZER_STATE}
        text_kwargs = {name: value for name, value in text_kwargs.items() if value is not None}
        # A copy for this call carries the request, so that calls from several threads never see each other's.
        call = copy.copy(self)
        call._request = _Request(token_budget, questions, text_kwargs)
        return super(ARRCOCProcessor, call).__call__(images=images, text=text, videos=videos, **kwargs)

    @functools.wraps(Qwen3VLProcessor.apply_chat_template)
    def apply_chat_template(self, conversation, *args, **kwargs):
        nested = dict(kwargs.get("processor_kwargs") or {})
        if nested:
            kwargs["processor_kwargs"] = nested  # a copy, into which transformers writes
        for name in ("token_budget", "question"):
            if nested.get(name) is not None and kwargs.get(name) is not None:
                raise ValueError(
                    f"{name} came as {kwargs[name]!r} and in processor_kwargs as {nested[name]!r}; pass it in processor_kwargs "
                    "alone"
                )
        signature = inspect.signature(super().apply_chat_template)
        tokenize = signature.bind(conversation, *args, **kwargs).arguments.get("tokenize")  # not by default
        beside = nested.get("images") is not None or kwargs.get("images") is not None  # pictures beside the chat
        check_parts(conversation, collected=bool(tokenize) and not beside)
        if not tokenize:
            refuse_unread(kwargs, nested)
        # Before 5.22, transformers forgets processor_kwargs, a budget among them, beside one that is passed flat: so all are.
        forgetful = nested and not hasattr(super(), "_prepare_processor_kwargs")
        if forgetful and any(name not in signature.parameters for name in kwargs):
            kwargs = {**nested, **kwargs, "processor_kwargs": None}
        return super().apply_chat_template(conversation, *args, **kwargs)

    apply_chat_template.__doc__ = f"""{Qwen3VLProcessor.apply_chat_template.__doc__ or ""}
        ARR-COC: `processor_kwargs={{"token_budget": 128, "question": "the total"}}`, or both beside the other arguments, are those
        of `__call__`; a value that comes both ways is refused with a ValueError.
        """

    def _process_images(self, images, **kwargs):
        pictures = make_flat_list_of_images(images)
        self._refuse_other_patches(kwargs)
        resized = kwargs.get("do_resize", self.image_processor.do_resize)
        check_sizes(pictures, None if resized else self.image_processor.patch_size * self.image_processor.merge_size)
        processed = self.image_processor(images, **kwargs)
        data_format = kwargs.get("input_data_format")
        raw = torch.stack([square(picture, self.texture_size, data_format) for picture in pictures])
        questions = [""] * len(pictures) if self._request.questions is None else self._request.questions
        if len(questions) != len(pictures):  # releases from 5.23 on have said so before
            raise ValueError(
                f"the text has {len(questions)} image placeholders for {len(pictures)} images; write one for each, and none in a "
                "question"
            )
        merge = self.image_processor.merge_size
        grids = [(int(h) // merge, int(w) // merge) for _, h, w in processed["image_grid_thw"]]
        counts = self._token_counts(self._request.token_budget, grids, raw, questions)
        processed.update(self._tokenize_questions(questions))
        processed.update(texture_images=raw, image_token_counts=torch.tensor(counts))
        replacements = [self.replace_image_token(processed, image_idx=index) for index in range(len(pictures))]
        return processed, replacements

    def _refuse_other_patches(self, kwargs: dict) -> None:
        for name in ("patch_size", "temporal_patch_size", "merge_size"):
            came, own = kwargs.get(name), getattr(self.image_processor, name)
            if came is not None and came != own:
                raise ValueError(
                    f"{name}={came!r} cuts an image otherwise than the {own} that the model was made for; leave it out, and change "
                    "the number of cells by size, min_pixels or max_pixels"
                )

    def replace_image_token(self, image_inputs: dict, image_idx: int, **kwargs) -> str:
        """The placeholders of one image: as many as its `image_token_counts` says."""
        return self.image_token * int(image_inputs["image_token_counts"][image_idx])

    def _token_counts(self, token_budget, grids, raw, questions) -> list[int]:
        counts = []
        budgets = check_token_budget(token_budget, len(grids), default=self.token_budget)
        named = token_budget if isinstance(token_budget, list) else [token_budget] * len(grids)
        for (height, width), budget, own, image, question in zip(grids, budgets, named, raw, questions, strict=True):
            cells = height * width
            if budget == "auto":
                canvas = pixel_canvas(image, (height, width))
                budget = min(cells, auto_token_budget(InformationScorer()(canvas, (height, width)), question))
            elif budget == "full":
                budget = cells
            elif budget > cells and own is not None:
                logger.warning_once(
                    "token_budget is above the tokens that an image has; all of them are kept (image_token_counts says how many)"
                )
            counts.append(min(budget, cells))
        return counts

    def _tokenize_questions(self, questions: list[str]) -> dict[str, torch.Tensor]:
        lines = list(dict.fromkeys(line for question in questions for line in question.split("\n")))
        found = self.tokenizer(lines, add_special_tokens=False, return_attention_mask=True, **self._request.text_kwargs)
        ids = [
            [token for token, real in zip(*row, strict=True) if real]
            for row in zip(found["input_ids"], found["attention_mask"], strict=True)
        ]
        of_line = dict(zip(lines, ids, strict=True))
        rows = []  # of each question its tokens, and by which of its lines each stands
        for question in questions:
            row = [(token, n) for n, line in enumerate(question.split("\n"), 1) for token in of_line[line]]
            first, last = _QUERY_ENDS
            rows.append(row if len(row) <= first + last else row[:first] + row[-last:])
        length = -(-max(1, *map(len, rows)) // _QUERY_MULTIPLE) * _QUERY_MULTIPLE
        if self._request.text_kwargs.get("padding") == "max_length":  # rows of several calls are stacked
            length = max(length, self._request.text_kwargs.get("max_length") or 0)
        pad = (self.tokenizer.pad_token_id or 0, 0)
        padded = torch.tensor([row + [pad] * (length - len(row)) for row in rows])
        return {"query_input_ids": padded[..., 0], "query_attention_mask": padded[..., 1]}

    def _get_num_multimodal_tokens(self, image_sizes=None, video_sizes=None, token_budget=None, **kwargs):
        # Serving engines ask this before any picture is there: "auto" reserves its largest tier.
        data = super()._get_num_multimodal_tokens(image_sizes=image_sizes, video_sizes=video_sizes, **kwargs)
        if image_sizes is not None:
            budgets = check_token_budget(token_budget, len(image_sizes), default=self.token_budget)
            limits = [TIERS[-1] if budget == "auto" else budget for budget in budgets]
            data.num_image_tokens = [
                cells if limit == "full" else min(cells, limit)
                for cells, limit in zip(data.num_image_tokens, limits, strict=True)
            ]
        return data


def _video_settings(folder, kwargs: dict) -> dict | None:
    """What a folder or Hub repository says of its video processor; None if it says nothing."""
    try:
        settings, _ = BaseVideoProcessor.get_video_processor_dict(folder, **place_of(kwargs))
    except OSError:
        return None
    return {name: value for name, value in settings.items() if name not in ("image_processor_type", "processor_class")}


ARRCOCProcessor.register_for_auto_class("AutoProcessor")

__all__ = ["ARRCOCProcessor"]
