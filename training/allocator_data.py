"""What an allocator is trained on: the pages that `--data` names, checked, and encoded ahead where that is asked for."""

import argparse
import sys
from pathlib import Path

from accelerate.utils import parse_flag_from_env

from training.ahead import PageCollator, encode_ahead, own_pages
from training.allocator_batches import ListSource, MixedSource, PictureSource, repeated_pages
from training.data import WorldSource, load_examples, world_spec
from training.data.load import WorldSpec
from training.data.world import kinds_of
from training.readable import Reader
from training.run_folder import fingerprint_of


def _world(spec: str, seed: int) -> WorldSpec | None:
    """What `spec` sets, `None` if it is not the world's.

    Raises:
        ValueError: it can't be drawn, such as a kind that is too large for one of its grids, or sets `questions`.
    """
    world = world_spec(spec)
    if world is None:
        return None
    load_examples(spec, "train", seed, limit=len(kinds_of(world.kinds)) * len(world.grids))
    if world.questions:
        raise ValueError(
            f"--data {spec!r} sets questions={world.questions}, which is for evaluation; pass --questions {world.questions} to ask "
            "as many of each page in training"
        )
    return world


def make_source(
    specs: list[str], seed: int, limit: int | None, skip_bad: bool, questions: int = 1, reader: Reader | None = None
):
    """The endless training examples that the specs name, in turn; the world is drawn, everything else is read and checked.

    `questions` examples in a row are of one source. Of each picture so many are asked in a row, where it has as many. What the
    `reader` can't read is bad, too.

    Raises:
        DataError: see `load_examples` and `Reader.readable`.
        ValueError: a spec of the world sets `questions`.
    """
    worlds = [_world(spec, seed) for spec in specs]
    sources = {}
    # what is wrong in a folder is told before tables are read and pages drawn, which takes minutes
    for number in sorted(range(len(specs)), key=lambda number: not Path(specs[number]).is_dir()):
        spec, world = specs[number], worlds[number]
        own = seed + number  # a spec that is named twice gives other pages each time
        if world is not None:
            sources[number] = WorldSource(own, "train", **world._replace(questions=questions)._asdict())
        else:
            examples = load_examples(spec, "train", own, limit, skip_bad)
            examples = examples if reader is None else reader.readable(examples, skip_bad)
            sources[number] = PictureSource(examples, own, questions)
    in_turn = [sources[number] for number in range(len(specs))]
    return in_turn[0] if len(in_turn) == 1 else MixedSource(in_turn, questions)


def fingerprints(source) -> list[str | None]:
    """A hash of each source's pages, names, questions, answers and boxes in order, for `--resume`. No picture is opened; None
    for the world, which is drawn from the seed."""
    sources = source.sources if isinstance(source, MixedSource) else [source]
    return [
        fingerprint_of(example for number in range(len(each)) for example in each.page(number))
        if isinstance(each, PictureSource)
        else None
        for each in sources
    ]


def check_data(options: argparse.Namespace, found: list[str | None]) -> None:
    """Compares the `fingerprints` of the data with those of the run that is resumed.

    Raises:
        ValueError: some differ.
    """
    for spec, was, now in zip(options.data, options.data_fingerprints, found, strict=True):
        if was != now:
            raise ValueError(
                f"--data {spec} is not what the run in {options.out} began with: its names, questions, answers or boxes have "
                "changed; put them back, or pass another --out"
            )


def _pages_ahead(source, options: argparse.Namespace) -> int:
    """How many pages --ahead encodes; says on stderr where that is less than was asked, or where pages come again."""
    pages = options.ahead
    if isinstance(source, PictureSource) and len(source) < pages:
        print(
            f"--ahead {pages}: --data {options.data[0]} has {len(source)} pages with up to --questions {options.questions} each, "
            "which are encoded once",
            file=sys.stderr,
        )
        return len(source)
    for number, asked, held in repeated_pages(source, pages):
        print(
            f"--ahead {pages}: {asked} pages are of --data {options.data[number]}, which has {held}; they come again, up to "
            f"{-(-asked // held)} times each",
            file=sys.stderr,
        )
    return pages


def encoded(learner, collator, source, options: argparse.Namespace, settings) -> tuple[ListSource, PageCollator]:
    """The pages that this process encodes and trains on, and what makes batches of them; `settings` get the batch size that is
    about as many questions as were asked for.

    Raises:
        SystemExit: no page could be encoded as the signals need it.
    """
    if not parse_flag_from_env("ACCELERATE_USE_FSDP"):  # else the base may not fit on one GPU
        learner.to(settings.device)
    count = _pages_ahead(source, options)
    pages = encode_ahead(
        learner.model,
        collator,
        source,
        own_pages(count, settings.process_index, settings.world_size),
        options.quiet,
        "distill_attention" not in learner.weights,
        options.parts,
        for_restorer="restored" in learner.weights,
        blind=options.scorer == "query_blind",
    )
    if not pages:
        raise SystemExit("error: --signals restored: no page could be encoded in part; pass pages of more cells")
    questions_per_page = sum(len(page.evidence) for page in pages) / len(pages)
    settings.per_device_train_batch_size = max(1, round(options.batch_size / questions_per_page))
    return ListSource(pages, options.seed), PageCollator(collator)
