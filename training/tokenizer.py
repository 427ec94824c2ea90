"""A small Qwen2 tokenizer for the drawn world, with Qwen's special tokens and a ChatML chat template.

Byte-level BPE behind Qwen's own pre-tokenizer, so any UTF-8 text tokenises; one token per digit and per capital letter
of a value, one per whole word that the world asks for. Learned from the word lists alone: no data, no seed.
"""

import json
from itertools import chain, cycle

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from training.world import words

END_OF_TURN = "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"
# Qwen3-VL's; their ids follow the learned vocabulary
SPECIAL_TOKENS = (
    END_OF_TEXT,
    "<|im_start|>",
    END_OF_TURN,
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

# One turn per message: <|im_start|>role, newline, parts in their own order, <|im_end|>, newline.
CHAT_TEMPLATE = """\
{%- set shown = namespace(images=0, videos=0) -%}
{%- macro parts(content) -%}
{%- if content is string -%}
{{- content -}}
{%- else -%}
{%- for part in content -%}
{%- if part is string -%}
{{- part -}}
{%- elif part.type != 'text' and (part.type == 'image' or part.image|default(none) is not none
    or part.image_url|default(none) is not none) -%}
{%- set shown.images = shown.images + 1 -%}
{{- 'Picture ' ~ shown.images ~ ': ' if add_vision_id -}}
<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type != 'text' and (part.type == 'video' or part.video|default(none) is not none) -%}
{%- set shown.videos = shown.videos + 1 -%}
{{- 'Video ' ~ shown.videos ~ ': ' if add_vision_id -}}
<|vision_start|><|video_pad|><|vision_end|>
{%- elif part.text|default(none) is not none -%}
{{- part.text -}}
{%- else -%}
{{- raise_exception('a content part must be text, image or video, not ' ~ part.type) -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- if tools -%}
{{- raise_exception('this template has no place for tools') -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.tool_calls or message.content is not defined or message.content is none -%}
{{- raise_exception('a message must have content, and no tool_calls, for which this template has no place') -}}
{%- endif -%}
{{- '<|im_start|>' + message.role + '\\n' + parts(message.content) + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


def corpus() -> list[str]:
    """Every word that must become a whole token, as a list of texts; no run of capitals, so those stay single."""
    labels = list(chain(words.LABELS, (label.lower() for label in words.LABELS)))
    questions = [question.format(label=label) for question in words.FIELD_QUESTIONS for label in labels]
    names = list(chain(words.COLOURS, words.SHAPES, words.ROW_NAMES, words.MONTHS))
    spaced = [f" {name}" for name in chain(names, words.COLUMNS, (column.lower() for column in words.COLUMNS))]
    said = [*words.PAGE_KINDS, words.ABSENT, *words.TITLES, *words.COLUMNS]
    frames = chain(
        words.SIGN_QUESTIONS, words.SHAPE_COLOUR_QUESTIONS, words.COLOUR_SHAPE_QUESTIONS, words.COUNT_QUESTIONS,
        words.TABLE_QUESTIONS, words.TABLE_REVERSE_QUESTIONS, words.CHART_QUESTIONS, words.CHART_EXTREME_QUESTIONS,
        words.GIST_QUESTIONS, words.EITHER_QUESTIONS,
    )  # fmt: skip
    fillers = list(
        zip(cycle(words.COLOURS), cycle(words.SHAPES), words.ROW_NAMES, cycle(words.EXTREMES), cycle(words.ROWS))
    )
    asked = [
        frame.format(
            colour=colour, shape=shape, shapes=words.PLURALS[shape], column="price", row=row, kind=kind, value="1",
            label=row, extreme=extreme, first="tax", second="fee",
        )
        for frame in frames
        for colour, shape, row, extreme, kind in fillers
    ]  # fmt: skip
    roles = ["user\n", "assistant\n", "system\n", words.SYSTEM]
    common = [words.TRANSCRIBE, "the a an of to and is in"]
    return [*labels, *questions, *names, *spaced, *said, *asked, *roles, *common]


def build_tokenizer() -> Qwen2Tokenizer:
    """A `Qwen2Tokenizer` of about 880 tokens, with Qwen3-VL's special tokens and our chat template."""
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.NFC()
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=4096, min_frequency=1, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )  # fmt: skip
    learner.train_from_iterator(corpus(), trainer)
    learned = json.loads(learner.to_str())["model"]
    merges = [tuple(merge) for merge in learned["merges"]]
    tokenizer = Qwen2Tokenizer(
        vocab=learned["vocab"], merges=merges, unk_token=END_OF_TEXT, pad_token=END_OF_TEXT, eos_token=END_OF_TURN,
        extra_special_tokens=list(SPECIAL_TOKENS), model_max_length=8192,
    )  # fmt: skip
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
