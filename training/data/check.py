"""Bad data, found before anything starts: one report that names file, line and what to do for each problem."""

import difflib
import json
import math
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path

from PIL import Image, ImageSequence

from arrcoc.picture import MAX_ASPECT, open_picture

LISTED = 5  # problems of one kind that a report spells out
REQUIRED = ("question", "answers")
OPTIONAL = ("evidence", "context", "family")
_MARK = re.compile(r"<\|[a-z0-9_]+\|>")  # how the tokenizer writes tokens that no text should hold
_PLACES = re.compile(r"<(?:image|video|img)(?:[_ ]?\d+)?>")  # where other models' data say that a picture stands
_MARKS = {  # those of Qwen-VL's prompts
    "<|image_pad|>": "stands for a picture",
    "<|video_pad|>": "stands for a video",
    "<|im_start|>": "begins a turn",
    "<|im_end|>": "ends a turn",
}
# what the parts of folders and of Hub datasets are called, the first there is of them is taken; `datasets` knows them, too
SPLIT_NAMES = {
    "train": ("train", "training"),
    "held_out": ("held_out", "validation", "valid", "val", "dev", "test", "testing", "eval", "evaluation"),
}
_LISTED = re.compile(r"\s*\[\s*([\"']).*\1\s*\]\s*\Z", re.DOTALL)
_SUBFILE_TYPE = 254  # the tag of a frame in a TIFF whose first bit says that it is a smaller copy of another
_ROUNDING = 1e-6  # share of a picture's side by which a box may leave it, as one does that was a share of the side
_OTHER_WORDS = ("content", "contents", "contest")  # as like `context` as its misspellings are
_OTHER_NAMES = {
    "file_name": ("filename", "file", "image", "image_path", "path", "picture"),
    "question": ("query", "prompt", "text", "utterance"),
    "answers": ("answer", "label", "target", "response"),
    "evidence": (  # often left, top, width, height
        "bbox", "bboxes", "box", "boxes", "answer_bbox", "answer_bboxes", "answer_box", "answer_boxes", "bounding_box",
        "bounding_boxes", "evidence_box", "evidence_boxes", "evidence_bbox", "evidence_bboxes", "region", "regions", "location",
        "locations",
    ),
    "context": ("context_box", "context_boxes", "context_bbox", "context_bboxes", "label_box", "label_boxes", "label_bboxes"),
}  # fmt: skip


class DataError(ValueError):
    """The data can't be used as they are; the message lists the problems by kind, each with its place."""


@dataclass(frozen=True)
class Problem:
    """Something wrong at `place` (file:line); `reason` is its kind, `message` says what came and what was wanted."""

    place: str
    reason: str
    message: str


class Problems:
    """Collects the problems of one source, record by record."""

    def __init__(self, source: str):
        self.source = source
        self.found: list[Problem] = []
        self.records: Counter[str] = Counter()  # of each record the first reason, which it is left out for
        self.unread = False  # whether there are records that could not even be counted

    def add(self, place: str, reason: str, message: str, unread: bool = False) -> None:
        """Notes a problem of the record at `place`; `unread` if records behind it can't be read, so that none may be left out."""
        if not any(problem.place == place for problem in self.found[-8:]):
            self.records[reason] += 1
        self.found.append(Problem(place, reason, message))
        self.unread |= unread

    def report(self) -> str:
        """The problems by kind, `LISTED` of each spelt out and the rest counted."""
        lines = [f"{self.source} has {len(self.found)} problem{'s' * (len(self.found) > 1)}:"]
        for reason, count in Counter(problem.reason for problem in self.found).items():
            lines.append(f"  {reason} ({count}):")
            listed = [problem for problem in self.found if problem.reason == reason][:LISTED]
            lines += [f"    {problem.place}: {problem.message}" for problem in listed]
            if count > LISTED:
                lines.append(f"    ... and {count - LISTED} more")
        if self.unread:
            lines.append("Correct these; skip_bad (--skip-bad) doesn't leave out what can't be read.")
        else:
            lines.append("Correct these, or pass skip_bad (--skip-bad) to leave the records out.")
        return "\n".join(lines)

    def settle(self, kept: int, skip_bad: bool) -> dict[str, int]:
        """The number of left-out records by reason, printed to stderr.

        Raises:
            DataError: there are problems and `skip_bad` is false or something could not be read, or no record is left.
        """
        if self.found and (self.unread or not skip_bad):
            raise DataError(self.report())
        if self.found:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.records.most_common())
            print(f"{self.source}: left out {self.records.total()} records ({reasons}), {kept} used", file=sys.stderr)
        if not kept:
            raise DataError(self.report() if self.found else f"{self.source} has no questions; the dataset is empty")
        return dict(self.records)


def tell_taken(source: str | Path, split: str, names: Sequence[str]) -> None:
    """Says on stderr which of several parts `split` is; `names` has the one that is taken first."""
    if names[1:]:
        print(f"{source}: {split} is {names[0]}; {' and '.join(names[1:])} can be asked for by name", file=sys.stderr)


def near_name(name: str, present: Iterable[str]) -> str | None:
    """The column of `present` that was probably meant by `name`, or None."""
    lowered = {str(column).lower().strip(): column for column in present}
    for other in (name, *_OTHER_NAMES.get(name, ())):
        if other in lowered:
            return lowered[other]
    close = difflib.get_close_matches(name, lowered, n=1, cutoff=0.7)
    return lowered[close[0]] if close else None


def check_columns(record: Mapping, place: str, problems: Problems, required: Iterable[str] = REQUIRED) -> bool:
    """Whether the record has all required columns; notes those that lack, and optional ones under another name."""
    unknown = [column for column in record if column not in (*required, *OPTIONAL)]
    complete = True
    for name in required:
        if name not in record:
            near = near_name(name, unknown)
            hint = f"rename {near!r} to it" if near else f"there are {', '.join(map(repr, record)) or 'none'}"
            if name == "file_name" and near and isinstance(record[near], list):
                hint = f"{near!r} holds a list, and a question is about one picture: give its path as file_name"
            problems.add(place, "missing column", f"there is no {name!r}; {hint}")
            complete = False
    for name in OPTIONAL:
        other = misnamed(name, unknown)
        if name not in record and other is not None:
            hint = ", with boxes as [left, top, right, bottom] in pixels" if name in _OTHER_NAMES else ""
            problems.add(place, "misnamed column", f"{other!r} seems to be {name!r}; rename it{hint}")
            complete = False
    return complete


def misnamed(name: str, unknown: Iterable[str]) -> str | None:
    """The column that is `name` under one of its other names or but for a slip, or None."""
    lowered = {column.lower().strip(): column for column in unknown}
    for other in _OTHER_NAMES.get(name, ()):
        if other in lowered:
            return lowered[other]
    # an id is neither a box nor a group
    slips = [column for column in lowered if column not in _OTHER_WORDS and not column.endswith("_id")]
    close = difflib.get_close_matches(name, slips, n=1, cutoff=0.8)
    return lowered[close[0]] if close else None


def check_record(record: Mapping, place: str, problems: Problems) -> dict | None:
    """`question`, `answers` (tuple of str), `evidence`, `context` (tuples of boxes) and `family` of a record with all required
    columns; None, with the problems noted, if one of them can't be used. Boxes are compared with the picture by `check_boxes`."""
    before = len(problems.found)
    question, family = record["question"], record.get("family")
    if not isinstance(question, str):
        problems.add(place, "wrong type", f"question is {shown(question)}; give a text")
    elif not any(character.isprintable() and not character.isspace() for character in question):
        problems.add(place, "empty question", "question has no text")
    else:
        _check_text("question", question, place, problems)
        for mark in dict.fromkeys(_PLACES.findall(question)):
            told = f"question holds {mark}, which this model reads as letters; take it out, the picture stands before the question"
            problems.add(place, "bad text", told)
    if isinstance(family, str):
        _check_text("family", family, place, problems)
    elif family is not None:
        problems.add(place, "wrong type", f"family is {shown(family)}; give a text, or leave it out")
    answers = _answers(record["answers"], place, problems)
    boxes = {name: _boxes(name, record.get(name), place, problems) for name in ("evidence", "context")}
    if len(problems.found) > before:
        return None
    return {"question": question, "answers": answers, **boxes, "family": " ".join((family or "all").split()) or "all"}


def _answers(value, place: str, problems: Problems) -> tuple[str, ...]:
    if value is None or (isinstance(value, (str, list, tuple)) and not value):
        problems.add(place, "no answer", "answers is empty; give a text or a list of texts")
        return ()
    if isinstance(value, str) and _LISTED.match(value):  # a list that is written as a text, as in CSV
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            message = f'answers is {shown(value)}; a list of texts is wanted, or one in JSON, e.g. ["42"]'
            problems.add(place, "not JSON", message)
            return ()
    answers = value if isinstance(value, (list, tuple)) else (value,)
    for answer in answers:
        if not isinstance(answer, str):
            problems.add(place, "wrong type", f"answers holds {shown(answer)}; give texts, numbers in quotes")
            return ()
        _check_text("answers", answer, place, problems)
    if not all(answer.strip() for answer in answers):
        problems.add(place, "no answer", "answers holds an empty text")
    return tuple(answers)


def _check_text(name: str, text: str, place: str, problems: Problems) -> None:
    """Notes a text that can't be tokenized or written to a file, or that holds a mark of the prompt's own."""
    if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        problems.add(
            place, "bad text", f"{name} holds half of a character (a lone surrogate): {shown(text)}; correct it"
        )
    if "\0" in text:
        problems.add(place, "bad text", f"{name} holds a NUL character: {shown(text)}; take it out")
    for mark in dict.fromkeys(_MARK.findall(text)):
        meaning = _MARKS.get(mark, "is written as the prompt's own tokens are, which answers are shown without")
        problems.add(place, "bad text", f"{name} holds {mark}, which {meaning}; take it out")


def _boxes(name: str, value, place: str, problems: Problems) -> tuple:
    wanted = "give a list of [left, top, right, bottom] in pixels"
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        problems.add(place, "wrong type", f"{name} is {shown(value)}; {wanted}")
        return ()
    if len(value) == 4 and not any(isinstance(entry, (list, tuple)) for entry in value):
        value = [value]  # one box
    boxes = []
    for box in value:
        numbers = isinstance(box, (list, tuple)) and len(box) == 4
        if not numbers or not all(isinstance(x, Real) and not isinstance(x, bool) for x in box):
            problems.add(place, "wrong type", f"{name} holds {shown(box)}; {wanted}")
        elif not all(_is_finite(x) for x in box):
            problems.add(place, "bad box", f"the box {shown(box)} has a value that is not finite")
        elif box[0] >= box[2] or box[1] >= box[3] or not (box[2] - box[0]) * (box[3] - box[1]):
            hint = "" if min(box[2:]) <= 0 else " (right and bottom, not width and height)"
            problems.add(
                place, "bad box", f"the box {list(box)} has no area: left < right and top < bottom are wanted{hint}"
            )
        else:
            boxes.append(tuple(box))
    return tuple(boxes)


def _is_finite(number) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond float's range
        return False


def check_boxes(boxes, size: tuple[int, int], place: str, problems: Problems) -> bool:
    """Whether all boxes lie inside of a picture of `size` (width, height) as it is shown, in pixels; notes those that don't."""
    before, picture = len(problems.found), f"the picture of {size[0]} x {size[1]} pixels"
    for box in boxes:
        across, down = _ROUNDING * size[0], _ROUNDING * size[1]
        beside = box[0] >= size[0] or box[1] >= size[1] or box[2] <= 0 or box[3] <= 0  # nothing of it is in the picture
        if beside or box[0] < -across or box[1] < -down or box[2] > size[0] + across or box[3] > size[1] + down:
            hint = "; if these are thousandths, give pixels" if min(box) >= 0 and max(box) <= 1000 else ""
            problems.add(place, "bad box", f"the box {list(box)} leaves {picture}{hint}")
        elif max(box) <= 1 < max(size):
            problems.add(place, "bad box", f"the box {list(box)} seems to hold shares of {picture}; give pixels")
    return len(problems.found) == before


def picture_size(picture) -> tuple[int, int] | str:
    """(width, height) of a picture after reading all of it as the processor would, upright; or what is wrong with it.

    `picture` is a path or a function that gives an image. More pixels than `PIL.Image.MAX_IMAGE_PIXELS` count as wrong.
    """
    opener: Callable = picture if callable(picture) else lambda: picture
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            size = open_picture(source := opener()).size
        if isinstance(source, (str, os.PathLike)) and (pages := _pages_of_tiff(source)) > 1:
            return f"it has {pages} pages, of which the first alone would be read; save each as a file of its own"
    except Exception as error:  # decoders of damaged files raise all sorts
        return str(error) or type(error).__name__
    if max(size) > MAX_ASPECT * min(size):
        return f"{size[0]} x {size[1]} pixels are longer than {MAX_ASPECT} to 1; crop the picture"
    return size


def _pages_of_tiff(path) -> int:
    """How many pages a TIFF has, less smaller copies of them; 1 for other formats, whose frames are an animation or such copies."""
    with Image.open(path) as image:
        if image.format != "TIFF":
            return 1
        frames = ImageSequence.Iterator(image)
        return sum(not frame.tag_v2.get(_SUBFILE_TYPE, 0) & 1 for frame in frames)


def question_key(picture: str, question: str) -> tuple[str, str]:
    """What a question to a picture has in common with the same question, however its words are set apart."""
    return picture, " ".join(question.split())


class Duplicates:
    """Finds the same question asked twice of the same picture."""

    def __init__(self):
        self._first: dict[tuple[str, str], str] = {}

    def check(self, picture: str, question: str, place: str, problems: Problems) -> bool:
        """Whether the pair is new; notes a problem that names the first place if it isn't."""
        first = self._first.setdefault(question_key(picture, question), place)
        if first != place:
            problems.add(place, "duplicate", f"the same question on the same picture stands at {first}")
        return first == place


def shown(value) -> str:
    """A value as a message names it: its type and the beginning of what it holds."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
