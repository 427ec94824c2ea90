"""The documentation does what it says: its python blocks run, its commands parse, and what it names is there.

A block runs in a scratch folder after `PRELUDE`, in one namespace with the other blocks of its page. A ```text block right
after a python block is what that block prints. An HTML comment right before a block changes what happens to it:

    <!-- not run: needs the Hub -->    counted as skipped, with its reason; python must still compile, commands parse
    <!-- run -->                       the commands of a shell block are run, not only parsed
"""

import argparse
import ast
import contextlib
import importlib
import io
import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub.constants
import pytest
from PIL import Image

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from evaluation.baselines import METHODS
from evaluation.budgets import parse_budgets
from evaluation.loading import parse_dials
from training.allocator import save_allocator
from training.data import load_examples
from training.signals import parse_signals
from upload import stage

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted(ROOT.glob("training/*.md")),
    *sorted(ROOT.glob("docs/*.md")),
]
REASONS = ("needs the Hub", "needs a GPU", "needs several GPUs", "needs a server", "takes hours")
SHELL = ("bash", "sh")
COMMANDS = ("make ", "python ", "accelerate ", "pip ")  # what an untagged fence of commands begins with

# What every page may take for granted, beside the names that `given` makes: folder, image, messages, model, processor, inputs
# and inputs_of_other_questions; and, in the folder where it runs, my.png, page.png, my_pages, my_test_pages and
# runs/mine/allocator.safetensors.
PRELUDE = """
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, pipeline
"""

HUB_ID = re.compile(r"""from_pretrained\(\s*["'][\w.-]+/[\w.-]+["']""")

# Names of other projects that prose mentions and no code here uses.
FOREIGN = {"refcoco_bbox_rec_val"}

# Folders that commands write to, and placeholders: nothing of this repository.
PRODUCED = ("runs", "results", "build", "staged", "you", "Qwen")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its text, the line of its fence, and the comment before it."""

    page: Path
    language: str
    text: str
    line: int
    comment: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def kind(self) -> str:
        if self.language in SHELL or (not self.language and self.text.startswith(COMMANDS)):
            return "shell"
        return self.language or "text"

    @property
    def reason(self) -> str | None:
        """Why it is not run, or `None`; a console's session is with another machine."""
        if self.kind == "console":
            return "needs a server"
        return self.comment.removeprefix("not run: ") if self.comment.startswith("not run") else None


def blocks_of(page: Path) -> list[Block]:
    lines, found, comment = page.read_text(encoding="utf-8").splitlines(), [], ""
    rows = iter(enumerate(lines, start=1))
    for number, line in rows:
        if fence := re.fullmatch(r"(`{3,})(\w*).*", line.strip()):
            body = []
            for _, inner in rows:
                if inner.strip() == fence[1]:
                    break
                body.append(inner)
            else:
                raise ValueError(f"{page}:{number}: the fence is never closed")
            found.append(Block(page, fence[2], "\n".join(body) + "\n", number, comment))
        if line.strip():
            mark = re.fullmatch(r"<!--\s*(.*?)\s*-->", line.strip())
            comment = mark[1] if mark else ""
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def named(block: Block) -> str:
    return block.name


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(kind: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind == kind]


# What a block runs in ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(checkpoint, tmp_path_factory):
    """The bundled checkpoint as a Hub folder."""
    return str(stage(checkpoint, tmp_path_factory.mktemp("hub") / "arrcoc-small"))


@pytest.fixture
def place(tmp_path, monkeypatch, page, checkpoint):
    """The scratch folder that stands in for a user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "arrcoc-small").symlink_to(checkpoint)
    for name in ("my.png", "page.png"):
        page(192, 192).save(name)
    for name, seed in (("my_pages", 1), ("my_test_pages", 2)):
        (tmp_path / name).mkdir()
        page(128, 128, seed).save(tmp_path / name / "invoice.png")
        page(128, 128, seed + 2).save(tmp_path / name / "receipt.png")
        records = [
            '{"file_name": "invoice.png", "question": "what is the total?", "answers": ["12"], "evidence": [[8, 16, 60, 32]]}',
            '{"file_name": "receipt.png", "question": "what is the date?", "answers": ["7"], "evidence": [[40, 64, 99, 80]]}',
        ]
        (tmp_path / name / "metadata.jsonl").write_text("\n".join(records) + "\n")
    return tmp_path


@pytest.fixture
def given(place, folder, checkpoint, make_inputs, chat):
    """The namespace of a page's blocks."""
    image = Image.open(ROOT / "demo" / "page.png")
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(checkpoint).eval()
    for out in ("runs/mine", "runs/allocator"):
        save_allocator(model, place / out / "allocator.safetensors")
    names = {
        "__name__": "docs",
        "folder": folder,
        "image": image,
        "messages": chat(image),
        "model": model,
        "processor": ARRCOCProcessor.from_pretrained(checkpoint),
        "inputs": make_inputs(image, token_budget=36),
        "inputs_of_other_questions": make_inputs([image, image], ["the date?", "who signed it?"], token_budget=36),
    }
    exec(PRELUDE, names)
    return names


def expected_of(block: Block) -> str | None:
    """The text block right after a python block."""
    after = BLOCKS[BLOCKS.index(block) + 1 :][:1]
    between = block.line + block.text.count("\n") + 2
    near = after and after[0].page == block.page and after[0].line <= between + 1
    return after[0].text if near and after[0].language == "text" else None


# Python -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", blocks("python"), ids=named)
def test_python_compiles(block):
    assert ast.parse(block.text, block.name).body, f"{block.name} has no statement"


@pytest.mark.parametrize(
    "path", [p for p in PAGES if any(b.page == p and not b.reason for b in blocks("python"))], ids=relative
)
def test_python_blocks_run_in_order(path, given):
    """An error's traceback names the page and the line in it."""
    for block in blocks("python"):
        if block.page != path or block.reason:
            continue
        assert not HUB_ID.search(block.text), (
            f"{block.name} names a Hub id; put `<!-- not run: needs the Hub -->` before it"
        )
        printed = io.StringIO()
        code = compile("\n" * block.line + block.text, str(path), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, given)
        if (wanted := expected_of(block)) is not None:
            assert printed.getvalue().strip() == wanted.strip(), f"{block.name} prints something else"


# Commands ---------------------------------------------------------------------------------------------------------------


def commands_of(text: str) -> list[list[str]]:
    """The words of each command: comments, brackets of optional parts and dots for the rest are taken out."""
    lines = text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    kept = [[word.strip("[]") for word in line if word not in ("...", "…", "$")] for line in words if line]
    return [line for line in kept if line]


class Parsed(Exception):
    """Carries what a command line was parsed to, past the program that would have gone on with it."""


def parsed(module, arguments: list[str], monkeypatch) -> argparse.Namespace:
    """What the parser of `module`'s `main` makes of the arguments; nothing after the parser runs."""
    plain = argparse.ArgumentParser.parse_args

    def stop(self, args=None, namespace=None):
        raise Parsed(plain(self, args, namespace))

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_args", stop)
        patched.setattr(sys, "argv", [module.__name__, *arguments])
        with pytest.raises(Parsed) as stopped:
            module.main()
    return stopped.value.args[0]


def module_of(words: list[str]):
    """The module that `python ...` runs, and its arguments."""
    if words[0] == "-m":
        assert (ROOT / words[1].split(".")[0]).is_dir(), f"there is no package {words[1]}"
        if words[1] in ("demo.app", "demo.screenshots"):
            pytest.importorskip("gradio", reason="the app needs Gradio: pip install -e '.[app]'")
        module = importlib.import_module(words[1])
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"{words[1]}.__main__")
        return module, words[2:]
    assert (ROOT / words[0]).is_file(), f"there is no file {words[0]}"
    path = Path(words[0]).with_suffix("")
    if path.parts[0] == "dev":  # a folder of scripts
        spec = importlib.util.spec_from_file_location(path.stem, ROOT / words[0])
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module, words[1:]
    return importlib.import_module(".".join(path.parts)), words[1:]


def check_values(module: str, options: argparse.Namespace):
    """Values that the programs check after their parser: methods, budgets, signals, dials and what is drawn."""
    if module in ("evaluation.run", "evaluation.swap"):
        assert set(options.methods.split(",")) <= set(METHODS)
        parse_budgets(options.budgets)
    if getattr(options, "signals", None):
        parse_signals(options.signals)
    parse_dials(getattr(options, "set", None) or [])
    data = getattr(options, "data", None) or getattr(options, "spec", None) or []
    for spec in [data] if isinstance(data, str) else data:
        if spec.startswith("world"):  # dev.ranks takes SPEC=LIMIT
            load_examples(spec.rpartition("=")[0] if module == "dev.ranks" else spec, limit=1)


def check_paths(words: list[str]):
    for word in words:
        path = word.split("=")[-1]
        looks = re.fullmatch(r"[\w.-]+(/[\w.-]+)+|[\w-]+\.(py|yaml|toml)", path)
        if looks and path.split("/")[0] not in PRODUCED and not path.startswith("my"):
            assert (ROOT / path).exists(), f"there is no {path}"


def check_options(words: list[str], monkeypatch):
    """Fails where a command in running text, which may leave required options out, has one that its program has not."""
    module, arguments = module_of(words)
    if asked := {word for word in arguments if word.startswith("--")}:
        with monkeypatch.context() as patched, contextlib.redirect_stdout(io.StringIO()) as shown:
            patched.setattr(sys, "argv", [module.__name__, "--help"])
            with pytest.raises(SystemExit):
                module.main()
        assert asked <= set(re.findall(r"--[\w-]+", shown.getvalue())), f"{words}: no such option"


def check_make(words: list[str]):
    rules = (ROOT / "Makefile").read_text()
    for word in words:
        name, equals, _ = word.partition("=")
        pattern = rf"\$\({name}\)|\(wildcard {name}|\$\(or \$\({name}\)" if equals else rf"^{re.escape(name)}\s*:(?!=)"
        assert re.search(pattern, rules, re.MULTILINE), (
            f"the Makefile has no {'variable' if equals else 'target'} {name}"
        )


def check_extras(words: list[str]):
    section = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1].split("\n[")[0]
    known = re.findall(r"^(\w+) = \[", section, re.MULTILINE)
    for extras in re.findall(r"\[([\w,]+)\]?", " ".join(words)):
        assert set(extras.split(",")) <= set(known), f"pyproject.toml has not all of the extras {extras}"


def check_command(words: list[str], monkeypatch):
    """Fails where a command names something that is not there."""
    while re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    program, words = words[0], words[1:]
    if program == "accelerate":
        assert words[0] == "launch", words
        start = words.index("-m")
        options = words[1:start]
        assert set(options[::2]) <= {"--config_file", "--num_processes"}, options
        check_paths(options)
        program, words = "python", words[start:]
    if program == "python" and words[:2] == ["-m", "pytest"]:
        check_paths(words[2:])
    elif program == "python":
        module, arguments = module_of(words)
        check_paths(arguments)
        if "--help" not in arguments:
            check_values(module.__name__, parsed(module, arguments, monkeypatch))
    elif program == "make":
        check_make(words)
    elif program == "pip":
        check_extras(words[1:])
    else:
        assert program in ("git", "cd", "source", "tensorboard", "sha256sum"), (
            f"this test does not know {program}; teach it"
        )


@pytest.mark.parametrize("block", blocks("shell"), ids=named)
def test_commands_parse(block, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for words in commands_of(block.text):
        check_command(words, monkeypatch)


@pytest.mark.parametrize("block", [block for block in blocks("shell") if block.comment == "run"], ids=named)
def test_commands_run(block, place, monkeypatch, capsys):
    for program, *words in commands_of(block.text):
        assert program == "python", f"{program} can't be run here; take the mark off"
        module, arguments = module_of(words)
        monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
        status = module.main()
        assert status is None or status == 0 or isinstance(status, Path), f"{words} ends with {status}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.reason], ids=named)
def test_blocks_that_are_not_run(block):
    """One skip for each, so that the summary of a run counts and names them."""
    assert block.reason in REASONS, f"{block.name}: {block.reason!r} is not one of {REASONS}"
    pytest.skip(f"{block.name} is not run: {block.reason}")


def test_json_is_json():
    for block in blocks("json"):
        assert json.loads(block.text), f"{block.name} is empty"


def test_every_block_is_of_a_known_kind():
    known = ("python", "shell", "console", "text", "json", "bibtex", "yaml", "make")
    assert {block.name: block.kind for block in BLOCKS if block.kind not in known} == {}


# Prose ------------------------------------------------------------------------------------------------------------------


def prose_of(page: Path) -> str:
    """A page without its blocks."""
    return re.sub(r"^(`{3,}).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def slugs_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code_of(page: Path) -> list[str]:
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose_of(page))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page):
    missing = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if file.is_relative_to(ROOT / "results") and not file.exists():
            continue  # what `make evaluate` and `make benchmark` write
        if not file.exists() or (anchor and anchor not in slugs_of(file)):
            missing.append(target)
    assert missing == [], f"{page.name} links to what is not there"


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_prose_names_what_is_there(page, source, monkeypatch):
    """Make targets, modules, files and the names of classes, functions and options in running text."""
    for code in code_of(page):
        if re.fullmatch(r"make [\w-]+", code):
            check_make([code.split()[1]])
        elif code.startswith("python "):
            check_options(code.split()[1:], monkeypatch)
        elif re.fullmatch(r"[\w./-]+\.(py|md|yaml|toml|ipynb)", code):
            known = code.split("/")[0] in PRODUCED or code.startswith("my") or (page.parent / code).exists()
            known = known or f'"{code}"' in source  # what a command writes
            assert known or list(ROOT.glob(code)) or list(ROOT.glob(f"*/{code}")), f"there is no file {code}"


SOURCES = (
    "*.py",
    "training/**/*.py",
    "evaluation/**/*.py",
    "benchmarks/*.py",
    "demo/**/*.py",
    "publishing/*.py",
    "dev/*.py",
)


@pytest.fixture(scope="module")
def source() -> str:
    """The project's code, its tests, Makefile and pyproject.toml in one text."""
    files = [path for pattern in (*SOURCES, "tests/*.py") for path in ROOT.glob(pattern) if path != Path(__file__)]
    return "\n".join(path.read_text(encoding="utf-8") for path in [*files, ROOT / "Makefile", ROOT / "pyproject.toml"])


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_prose_uses_the_names_of_the_code(page, source):
    """What is written like a class, a function or a name with underscores occurs in the code, and so does every option."""
    words, options = FOREIGN | set(re.findall(r"\w+", source)), set(re.findall(r"""["'](--[a-z0-9-]+)["']""", source))
    options |= {"--help", "--trust-remote-code", "--repo-type"}  # of every program, of transformers' own, of hf
    wrong = []
    for code in code_of(page):
        if re.fullmatch(r"[A-Za-z_][\w.]*(\(\))?", code) and re.search(r"_|[a-z][A-Z]|\(\)", code):
            wrong += [part for part in re.findall(r"\w+", code) if part not in words and not part.startswith("my")]
        wrong += [option for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", code) if option not in options]
    assert wrong == [], f"{page.name} names what the code does not"


def test_citation_names_the_version_of_the_package():
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
