"""The mean of several allocators of one base: ``python -m training.average A B C --out MEAN [--early D]``.

Along one fine-tuning it can keep more than any of them (model soups, Wortsman et al. 2022, section 2).
"""

import argparse
from pathlib import Path

import torch

from arrcoc.checkpoint import COARSE_MARK, RESTORER, SCOPE, STAGE_1
from training.allocator import read_tensors, write_tensors
from training.fingerprint import LATER


def average(paths: list[Path], out: Path, stage_1: Path | None = None) -> Path:
    """Writes the mean of the tensors of `paths` to `out`; those of stage 1, and of the restorer that reads it, are taken from
    `stage_1` if it is given. A file of older code has a neutral mark of coarse views, and the scope of questions of the first that
    has one.

    Raises:
        ValueError: a file is missing or damaged, or of another base, other dials or another form than the first, or `out` is one.
        OSError: see `write_tensors`.
    """
    if any(out.resolve() == path.resolve() for path in [*paths, *([stage_1] if stage_1 else [])]):
        raise ValueError(f"{out} is one of the files that are read and would be lost; pass another --out")
    read = [(path, *read_tensors(path)) for path in [*paths, *([stage_1] if stage_1 else [])]]
    every = [item for _, tensors, _ in read[::-1] for item in tensors.items()]
    later = {name: torch.zeros_like(tensor) for name, tensor in every if name.startswith(COARSE_MARK)}
    later |= {name: tensor for name, tensor in every if name.startswith(SCOPE)}
    files = [(path, later | tensors, metadata) for path, tensors, metadata in read]
    _, first, metadata = files[0]
    if "kind" not in metadata:
        raise ValueError(
            f"{paths[0]} is no allocator; pass allocator.safetensors of a run, not a checkpoint's or a model's tensors"
        )
    for path, tensors, other in files:
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        differ = sorted(name for name in {*other, *metadata} if other.get(name) != metadata.get(name))
        if other.get("base") == metadata.get("base"):  # files of older code say no more of it
            differ = [name for name in differ if name not in LATER or (name in other and name in metadata)]
        if differ or shapes != {name: tensor.shape for name, tensor in first.items()}:
            raise ValueError(
                f"{path} differs from {paths[0]} in {', '.join(differ) or 'its tensors'}; pass allocators of one base that were "
                "trained with the same dials"
            )
    mean = {
        name: torch.stack([tensors[name].float() for _, tensors, _ in files[: len(paths)]]).mean(0) for name in first
    }
    if stage_1:
        mean |= {name: tensor for name, tensor in files[-1][1].items() if name.startswith((*STAGE_1, *RESTORER))}
    said = {name: text for _, _, other in files[::-1] for name, text in other.items()}
    write_tensors(out, {name: tensor.to(first[name].dtype) for name, tensor in mean.items()}, said)
    return out


def main(arguments: list[str] | None = None) -> Path:
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("allocators", nargs="+", type=Path, help="allocator.safetensors files")
    parser.add_argument("--early", type=Path, help="take stage 1 alone, and the restorer that reads it, from this one")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        return average(options.allocators, options.out, options.early)
    except (OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
