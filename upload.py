"""Stages a complete Hub folder, checks it and sends it.

    python upload.py stage OUT --checkpoint FOLDER-OR-HUB-ID [--allocator FILE] [--allocator-only]
    python upload.py check OUT
    python upload.py push OUT --repo-id you/your-model

`python upload.py --stage-only --checkpoint C --out OUT` writes the model alone, with neither pictures nor results in the card.
"""

import argparse
import shlex
import sys
from importlib import metadata
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError

from publishing.files import CODE_FILES, DEFAULT_CHECKPOINT, PICTURES, ROOT, files_of, human_size

__all__ = ["CODE_FILES", "DEFAULT_CHECKPOINT", "ROOT", "files_of", "main", "stage"]


def stage(checkpoint: str | Path, out: str | Path) -> Path:
    """A folder that the Hub loader reads; see `publishing.staging.stage`."""
    from publishing import staging  # imported late: the demo imports this file and must not know the package

    return staging.stage(checkpoint, out)


def run_stage(options: argparse.Namespace) -> int:
    """`stage`: writes the folder and prints what is in it."""
    from publishing.staging import Source, stage_release

    source = Source(str(options.checkpoint), options.revision, options.allocator, options.base_model, options.license)
    out = stage_release(source, options.out, allocator_only=options.allocator_only, results=options.results)
    names = files_of(out)
    for name in names:
        print(f"  {name:<28} {human_size((out / name).stat().st_size):>9}")
    total = sum((out / name).stat().st_size for name in names)
    print(
        f"staged {len(names)} files, {human_size(total)}, in {out}; next: python upload.py check {shlex.quote(str(out))}"
    )
    return 0


def run_check(options: argparse.Namespace) -> int:
    """`check`: the Hub contract, then a fresh process that loads, generates and runs the pipeline."""
    from publishing.contract import is_allocator_only, notes_of, problems_of
    from publishing.fresh import LoadFailed, load_in_fresh_process

    if problems := problems_of(options.out):
        print(*(f"problem: {problem}" for problem in problems), sep="\n", file=sys.stderr)
        return 1
    for note in notes_of(options.out):
        print(f"note: {note}")
    print(f"contract: {len(files_of(options.out))} files, no problem")
    if options.contract_only:
        return 0
    try:
        result = load_in_fresh_process(
            options.out, PICTURES["page.png"], offline=options.offline or not is_allocator_only(options.out)
        )
    except LoadFailed as error:
        print(f"problem: {error}", file=sys.stderr)
        return 1
    print(f"fresh process: {result['class']} loaded in {result['load_seconds']} s")
    for budget, answer in result["answers"].items():
        tokens = result["tokens"].get(budget)
        print(f"  {budget}{f' ({tokens} tokens)' if tokens else ''}: {answer!r}")
    return 0


def run_push(options: argparse.Namespace) -> int:
    """`push`: shows the plan, asks, and makes one commit and one tag."""
    from huggingface_hub import HfApi

    from publishing.pushing import PushError, Target, describe, execute, plan

    if options.create_pr and options.revision != "main":
        print("upload.py push: --create-pr goes to main; leave out --revision", file=sys.stderr)
        return 2
    try:
        tag = None if options.no_tag else options.tag or f"v{metadata.version('arrcoc')}"
    except metadata.PackageNotFoundError:
        print("upload.py push: the package is not installed, so it has no version; pass --tag", file=sys.stderr)
        return 2
    target = Target(options.repo_id, options.revision, tag, options.private, options.create_pr, options.replace)
    api = HfApi()
    try:
        made = plan(options.out, target, api)
        print(describe(made))
        if made.is_done:
            print(f"nothing changed: {target.repo_id} holds these files at {made.head}")
            return 0
        if not options.yes and not _agreed():
            print("nothing was sent")
            return 1
        print(execute(made, api))
    except PushError as error:
        print(f"upload.py push: {error}", file=sys.stderr)
        return 1
    return 0


def _agreed() -> bool:
    if not sys.stdin.isatty():
        print("nobody is there to ask; pass --yes to send without asking", file=sys.stderr)
        return False
    return input("send this? [y/N] ").strip().lower() in ("y", "yes")


def parser_of() -> argparse.ArgumentParser:
    """The command line's parser."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    new = verbs.add_parser("stage", help="write the folder")
    new.set_defaults(run=run_stage)
    new.add_argument("out", type=Path, help="folder to write, new or empty")
    new.add_argument(
        "--checkpoint", default=str(DEFAULT_CHECKPOINT), help="folder or Hub id, ARR-COC or stock Qwen3-VL"
    )
    new.add_argument("--revision", help="branch, tag or commit of a Hub id")
    new.add_argument("--allocator", type=Path, help="allocator.safetensors that was trained on this checkpoint")
    new.add_argument("--allocator-only", action="store_true", help="leave weights and tokenizer to the base on the Hub")
    new.add_argument(
        "--base-model",
        help="Hub id of the base that the card (and an allocator alone) names, where the checkpoint is a folder",
    )
    new.add_argument(
        "--license", default="apache-2.0", help="of the weights, as the Hub names it (default: %(default)s)"
    )
    new.add_argument(
        "--results",
        type=Path,
        nargs="*",
        help="CSV files of evaluation.run; by default those of this model in results/",
    )
    check = verbs.add_parser("check", help="the Hub contract, and a fresh process that loads and answers")
    check.set_defaults(run=run_check)
    check.add_argument("out", type=Path, help="staged folder")
    check.add_argument("--contract-only", action="store_true", help="run no code of the folder")
    check.add_argument("--offline", action="store_true", help="an allocator-only folder's base is in the cache")
    push = verbs.add_parser("push", help="one commit and one tag")
    push.set_defaults(run=run_push)
    push.add_argument("out", type=Path, help="staged folder")
    push.add_argument("--repo-id", required=True, help="owner/name on the Hub")
    push.add_argument("--private", action="store_true", help="make a new repository private")
    push.add_argument("--revision", default="main", help="branch to commit to (default: %(default)s)")
    push.add_argument("--create-pr", action="store_true", help="send a pull request; no tag is set")
    push.add_argument("--replace", action="store_true", help="delete model files that the folder has not")
    push.add_argument("--tag", help="name of the commit (default: v and the package's version)")
    push.add_argument("--no-tag", action="store_true", help="set no tag")
    push.add_argument("--yes", action="store_true", help="send without asking")
    return parser


def run_stage_only(options: argparse.Namespace) -> int:
    """`--stage-only`: the folder for the demo and for tests."""
    folder = stage(options.checkpoint, options.out)
    print(f"staged {folder}:", *files_of(folder), sep="\n  ")
    return 0


def stage_only_parser() -> argparse.ArgumentParser:
    """The command line's parser where it has `--stage-only`."""
    parser = argparse.ArgumentParser(description=run_stage_only.__doc__)
    parser.set_defaults(run=run_stage_only, verb="--stage-only")
    parser.add_argument("--stage-only", action="store_true", required=True)
    parser.add_argument("--checkpoint", default=str(DEFAULT_CHECKPOINT))
    parser.add_argument("--out", type=Path, default=ROOT / "staged", help="folder to stage in")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Command line of this file; the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = stage_only_parser() if "--stage-only" in arguments else parser_of()
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except (OSError, ValueError, StrictDataclassError) as error:
        print(f"upload.py {options.verb}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
