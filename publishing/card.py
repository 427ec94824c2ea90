"""The model card: `model_card.md` filled from the staged folder, the model and results files."""

import json
import re
from pathlib import Path

import torch
import yaml
from huggingface_hub import ModelCard, ModelCardData
from safetensors import safe_open

from publishing import results as measured
from publishing.files import ALLOCATOR, CARD, DEFAULT_CHECKPOINT, PICTURES, ROOT, files_of, human_size, sha256_of

TEMPLATE = ROOT / "model_card.md"
CITATION = ROOT / "CITATION.cff"
# What stands in a staged card until it is sent: the repository's name and the tag are not known before.
REPOSITORY, REVISION = "OWNER/NAME", "REVISION"
QUESTION = "What does it say for locker?"  # of demo/page.png
SMALL = 1_000_000_000  # parameters below which the card warns that results are from a small model

__all__ = ["CARD", "pin", "render"]


def render(folder: Path, source, model, results: list[measured.Result]) -> str:
    """The card's text, metadata first, with `REPOSITORY` and `REVISION` still open.

    Args:
        folder: staged, all files but the card written.
        source: the `staging.Source` that it was staged from.
        model: the model that was staged.
        results: what the tables are made from; without any they are left out.
    """
    from arrcoc.budget import MODES
    from arrcoc.configuration_arrcoc import TRANSFORMERS_CEILING, TRANSFORMERS_FLOOR
    from arrcoc.texture import TEXTURE_CHANNELS

    whole = not (folder / ALLOCATOR).exists()
    base = source.base_model or source.hub_id
    parameters = sum(parameter.numel() for parameter in model.parameters())
    own = sum(parameter.numel() for parameter in model.model.arrcoc.parameters())
    pictures = {name for name in PICTURES if (folder / name).exists()}
    # Jinja reads the template from a string: text of the values is never a template itself.
    card = ModelCard.from_template(
        metadata(base, whole, source.license, results, "page.png" in pictures),
        template_str=TEMPLATE.read_text(encoding="utf-8"),
        repository=REPOSITORY,
        revision=REVISION,
        whole=whole,
        base=base,
        base_revision=json.loads((folder / "config.json").read_text(encoding="utf-8")).get("base_revision")
        or source.revision,
        bundled=_is_of_drawn_pages(model),
        parameters=count(parameters),
        allocator_parameters=count(own),
        small=parameters < SMALL,
        query_blind=is_query_blind(model),
        reads_scope=bool(model.model.arrcoc.scope.score.weight.any()),
        geometry=geometry(model.config),
        channels=len(TEXTURE_CHANNELS),
        modes=MODES,
        default_budget=source.load_processor().token_budget,
        floor=TRANSFORMERS_FLOOR,
        ceiling=TRANSFORMERS_CEILING,
        pictures=pictures,
        question=QUESTION,
        results=[table(result) for result in results],
        files=file_list(folder),
        citation=citation(),
    )
    return card.content.rstrip() + "\n"


def _is_of_drawn_pages(model) -> bool:
    """Whether the base is the bundled one, or was trained further from it: its embeddings are the same."""
    own = model.get_input_embeddings().weight.detach().cpu()
    with safe_open(DEFAULT_CHECKPOINT / "model.safetensors", "pt") as file:
        bundled = file.get_tensor("model.language_model.embed_tokens.weight")
    return own.shape == bundled.shape and torch.equal(own.to(bundled.dtype), bundled)


def metadata(
    base: str | None, whole: bool, license: str, results: list[measured.Result], with_page: bool
) -> ModelCardData:
    """The card's YAML header."""
    example = {"text": QUESTION}
    if with_page:
        example["src"] = f"https://huggingface.co/{REPOSITORY}/resolve/{REVISION}/page.png"
    found = [entry for result in results for entry in measured.eval_results(result)]
    return ModelCardData(
        library_name="transformers",
        pipeline_tag="image-text-to-text",
        license=license,
        language="en",
        tags=["custom_code", "conversational", "qwen3_vl", "token-reduction"],
        base_model=base,
        base_model_relation=None if base is None else ("finetune" if whole else "adapter"),
        widget=[example],
        model_name=REPOSITORY if found else None,
        eval_results=found or None,
    )


def table(result: measured.Result) -> dict:
    """What the template shows of one run."""
    compared = {name: measured.comparison(result, metric) for metric, name in measured.TABLES.items()}
    return {
        "name": result.path.stem,
        "conditions": measured.conditions(result),
        "costs": measured.costs(result),
        "comparisons": [text for text in compared.values() if text],
        "lost": measured.lost(result),
    }


def is_query_blind(model) -> bool:
    """Whether the allocator is still neutral, so that the question does not count."""
    return float(model.model.arrcoc.participation.gate.detach().abs().max()) == 0


def geometry(config) -> str:
    """The base's shape in words."""
    vision, text = config.vision_config, config.text_config
    side = vision.patch_size * vision.spatial_merge_size
    return (
        f"{vision.depth} vision and {text.num_hidden_layers} language layers, {len(vision.deepstack_visual_indexes)} DeepStack "
        f"levels, one visual token per {side} x {side} pixels"
    )


def count(number: int) -> str:
    """A count of parameters as text: `"6.3 million"`."""
    for size, name in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= size:
            return f"{number / size:.1f} {name}"
    return str(number)


def file_list(folder: Path) -> str:
    """A Markdown table of every file but the card, with size and SHA-256; code first, for reviewers."""
    names = sorted((name for name in files_of(folder) if name != CARD), key=lambda n: (not n.endswith(".py"), n))
    rows = [f"| `{n}` | {human_size((folder / n).stat().st_size)} | `{sha256_of(folder / n)}` |" for n in names]
    return "\n".join(["| file | size | SHA-256 |", "|---|---|---|", *rows])


def citation() -> str:
    """A BibTeX entry made from CITATION.cff, or from the project's name where there is no such file."""
    known = yaml.safe_load(CITATION.read_text(encoding="utf-8")) if CITATION.exists() else {}
    authors = [
        entry.get("name") or ", ".join(filter(None, (entry.get("family-names"), entry.get("given-names"))))
        for entry in known.get("authors", [])
    ]
    fields = {
        "title": known.get("title", "ARR-COC: Qwen3-VL with a token budget"),
        "author": " and ".join(authors),
        "version": str(known.get("version", "")),
        "year": str(known.get("date-released", ""))[:4],
        "url": known.get("url") or known.get("repository-code") or f"https://huggingface.co/{REPOSITORY}",
    }
    body = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items() if value)
    return f"@software{{arrcoc,\n{body}}}"


def pin(text: str, repository: str, revision: str) -> str:
    """A staged card's text with the repository and the revision that it is sent to."""
    names = {REPOSITORY: repository, REVISION: revision}  # at once: a repository's name may hold the other word
    return re.sub("|".join(map(re.escape, names)), lambda found: names[found[0]], text)
