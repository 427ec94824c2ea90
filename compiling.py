"""What keeps `torch.compile` from giving up."""

from functools import wraps

import torch

# For what chooses and places tokens: it depends on values and sizes, and torch.compile would trace it anew, for minutes, when these
# change (dev/LOG.md). The vision tower and the language model are compiled.
uncompiled = torch.compiler.disable


def with_return_dict(method):
    """A model's method that takes `return_dict`, as transformers' `can_return_tuple` makes it.

    Not by that decorator itself: `torch.compile` counts together how often it compiled any function that stands in it, stock
    Qwen3-VL's three among them, and with two more it gave up at the third prompt of another shape (`recompile_limit`).
    """

    @wraps(method)
    def tuple_or_not(self, *args, return_dict: bool | None = None, **kwargs):
        output = method(self, *args, **kwargs)
        wanted = self.config.return_dict if return_dict is None else return_dict
        return output if wanted else output.to_tuple()

    return tuple_or_not
