"""The answers of a run, appended to a file batch by batch, so that a killed run goes on."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

import arrcoc
from publishing.files import CODE_FILES

_CLASSES = ("auto_map", "image_processor_type", "processor_class")  # what an image processor tells of no pixel


@dataclass(frozen=True)
class Answer:
    """What one method said to one question: `recall` is the evidence recall, None where it can't be measured."""

    method: str
    budget: str
    example: str
    answer: str
    tokens: float
    recall: float | None


class RecordsMismatch(ValueError):
    """The file belongs to another run."""


class Records:
    """The answers in `path`, a header line and then one JSON line per answer. A file that is begun anew takes the table and the
    chart beside it away, which were made of other answers.

    Args:
        path: the file; started if it is missing.
        header: what makes two runs the same, as plain JSON values.
        restart: overwrite a file that is there.

    Raises:
        RecordsMismatch: the file's header is another one, which says what differs, or the file is not of a run. It is left
            as it was.

    A last line that a kill cut short is dropped. Lines before it must be whole. What the header of an older file does not
    name is not compared.
    """

    def __init__(self, path: Path, header: dict, restart: bool = False):
        self.path = path
        self._answers: dict[tuple[str, str, str], Answer] = {}
        header = json.loads(json.dumps(header))
        first = json.dumps({"header": header}).encode() + b"\n"
        content = path.read_bytes() if path.exists() and not restart else b""
        if first.startswith(content):  # nothing yet, or what a kill left of this very line
            path.parent.mkdir(parents=True, exist_ok=True)
            for ending in (".csv", ".png"):  # before the header, which would say that they are of this run
                path.with_suffix(ending).unlink(missing_ok=True)
            path.write_bytes(first)
            return
        *whole, cut = content.split(b"\n")
        self._check(whole[0] if whole else b"", header)
        for number, line in enumerate(whole[1:], start=2):
            try:
                self._keep(Answer(**json.loads(line.decode("utf-8"))))
            except (TypeError, ValueError) as error:
                raise RecordsMismatch(f"{path}:{number} is no answer ({error}); pass --restart to overwrite") from error
        if cut:
            os.truncate(path, len(content) - len(cut))

    def _check(self, line: bytes, header: dict):
        try:
            found = json.loads(line.decode("utf-8"))["header"]
        except (KeyError, TypeError, ValueError):
            found = None
        if not isinstance(found, dict):
            raise RecordsMismatch(
                f"{self.path}:1 is no header of a run; pass another --out, or --restart to overwrite the file"
            )
        differing = [
            f"{name} was {found.get(name)!r} and is now {header.get(name)!r}"
            for name in found
            if found.get(name) != header.get(name)
        ]
        if differing:
            raise RecordsMismatch(
                f"{self.path} holds the answers of another run: {'; '.join(differing)}. "
                f"Pass another --out, or --restart to overwrite"
            )

    def _keep(self, answer: Answer):
        self._answers[answer.method, answer.budget, answer.example] = answer

    def get(self, method: str, budget: str, example: str) -> Answer | None:
        """The answer that was recorded, or None."""
        return self._answers.get((method, budget, example))

    def append(self, answers: Sequence[Answer]):
        """Adds the answers of one batch, and writes them to disk before it returns; not those that a run which was stopped within
        the batch wrote already."""
        answers = [one for one in answers if self.get(one.method, one.budget, one.example) is None]
        with open(self.path, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(asdict(answer)) + "\n" for answer in answers))
        for answer in answers:
            self._keep(answer)


def code_fingerprint(*packages: str) -> str:
    """Hash of the model's code and of all Python files of `packages`, folders beside this one, as hexadecimal text."""
    ours = Path(arrcoc.__file__).parent  # which another copy of the repository may have installed
    code = b"".join((ours / name).read_bytes() for name in CODE_FILES)
    beside = Path(__file__).parents[1]
    code += b"".join(path.read_bytes() for package in packages for path in sorted((beside / package).rglob("*.py")))
    return hashlib.sha256(code).hexdigest()[:16]


def model_fingerprint(model) -> str:
    """Hash of the configuration and of every tensor of `model`, as hexadecimal text, the same under every transformers."""
    digest = hashlib.sha256()
    settings = model.config.to_dict().items()
    config = {name: value for name, value in settings if not name.startswith("_") and name != "transformers_version"}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    add_tensors(digest, model.state_dict())
    return digest.hexdigest()[:16]


def tensors_fingerprint(path: Path) -> str:
    """Hash of a safetensors file's tensors and metadata, as hexadecimal text, in whatever order they were written; of its bytes
    where it can't be read as one."""
    digest = hashlib.sha256()
    try:
        with safe_open(path, "pt") as file:
            digest.update(json.dumps(file.metadata(), sort_keys=True).encode())
            names = list(file.keys())
            add_tensors(digest, {name: file.get_tensor(name) for name in names})
    except SafetensorError:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def add_tensors(digest, tensors: Mapping[str, torch.Tensor]) -> None:
    """Updates a hash of `hashlib` with name, form and content of each tensor."""
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def processor_fingerprint(processor) -> str:
    """Hash of what decides which pixels, texture and tokens a model sees of a picture and a question, as hexadecimal text."""
    images = getattr(processor, "image_processor", None)
    settings = {} if images is None else images.to_dict()
    named = {name: value for name, value in settings.items() if value is not None and name not in _CLASSES}
    named |= {name: getattr(processor, name, None) for name in ("texture_size", "chat_template")}
    fast = getattr(getattr(processor, "tokenizer", None), "backend_tokenizer", None)
    read = {} if fast is None else json.loads(fast.to_str())
    named["tokenizer"] = {name: value for name, value in read.items() if name not in ("padding", "truncation")}
    return hashlib.sha256(json.dumps(named, sort_keys=True, default=str).encode()).hexdigest()[:16]


def picture_fingerprint(image) -> str:
    """Hash of a picture's size and pixels, as hexadecimal text."""
    return hashlib.sha256(repr((image.mode, image.size)).encode() + image.tobytes()).hexdigest()[:16]


def data_fingerprint(examples, pictures: Sequence[str]) -> str:
    """Hash of the questions, answers, families, boxes and names of `examples` and of their `pictures`' fingerprints."""
    digest = hashlib.sha256()
    for example, picture in zip(examples, pictures, strict=True):
        boxes = [[float(side) for side in box] for box in example.evidence]
        fields = [picture, example.question, list(example.answers), example.family, boxes, example.name]
        digest.update(json.dumps(fields).encode())
    return digest.hexdigest()[:16]
