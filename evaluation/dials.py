"""The allocator's dials as they are written on the command line."""

import difflib
import json
from collections.abc import Sequence

from transformers import Qwen3VLConfig

from arrcoc.configuration_arrcoc import SHAPES, ARRCOCQwen3VLConfig

# The allocator's own fields: a change of the others would break the weights' meaning.
DIALS = sorted(set(ARRCOCQwen3VLConfig.__dataclass_fields__) - set(Qwen3VLConfig.__dataclass_fields__))


def parse_dials(pairs: Sequence[str], shapes: bool = False) -> dict:
    """The dials of `DIAL=VALUE` texts by name; their values are checked by the configuration that takes them.

    Args:
        shapes: whether a new layer is built, so that `SHAPES` may be among them.

    Raises:
        ValueError: a text has another form, or names no dial, one that was named before or one that is fixed.
    """
    dials = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set {pair!r} is no DIAL=VALUE; write for instance --set coverage_floor=0.1")
        if name not in DIALS:
            near = difflib.get_close_matches(name, DIALS, n=1)
            raise ValueError(
                f"--set {name!r} is no dial of the configuration; "
                + (f"did you mean {near[0]!r}?" if near else f"they are {', '.join(DIALS)}")
            )
        if name in SHAPES and not shapes:
            raise ValueError(
                f"--set {pair}: the shape of an allocator is fixed when it is made; train a new one with "
                f"training.train_allocator --reset --set {pair}"
            )
        if name in dials:
            raise ValueError(f"--set names {name!r} more than once; name each once")
        try:
            dials[name] = json.loads(value)
        except json.JSONDecodeError:
            dials[name] = value
    return dials
