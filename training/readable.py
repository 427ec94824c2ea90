"""Questions that a base can read: what is longer than its positions is told before training starts."""

import sys
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from training.data.check import DataError
from training.data.examples import Example, Examples

_REASON = "longer than the model reads"


@dataclass(frozen=True)
class Reader:
    """What a base reads: its tokenizer, and of how many tokens a prompt may be; `None` where its config does not say."""

    tokenizer: PreTrainedTokenizerBase
    most: int | None

    def tokens(self, example: Example) -> int:
        """Of the question and the longest answer together; the picture's are not counted, its budget is drawn."""
        asked, *answers = (len(self.tokenizer(text).input_ids) for text in (example.question, *example.answers))
        return asked + max(answers, default=0)

    def readable(self, examples: Examples, skip_bad: bool = False) -> Examples:
        """Those that it can read, in their order; with `skip_bad` how many were left out is printed, and stands in `left_out`.

        Raises:
            DataError: one is too long, and `skip_bad` is not set, or none is left.
        """
        if self.most is None:
            return examples
        # a character is 12 tokens at most, one per byte of what NFC makes of it: what is short need not be counted
        too_long = {
            number: tokens
            for number, example in enumerate(examples)
            if len(example.question) + max(map(len, example.answers), default=0) > self.most // 12
            and (tokens := self.tokens(example)) > self.most
        }
        if not too_long:
            return examples
        number, tokens = next(iter(too_long.items()))
        told = (
            f"{examples[number].name}: question and answer have {tokens} tokens, more than the {self.most} that the model reads; "
            "shorten them"
        )
        kept = [example for number, example in enumerate(examples) if number not in too_long]
        if not skip_bad or not kept:
            raise DataError(f"{told}, or leave the record out ({len(too_long)} of {len(examples)} are too long)")
        print(f"{told} (left out, {len(too_long)} in all; {len(kept)} used)", file=sys.stderr)
        return Examples(kept, {**examples.left_out, _REASON: len(too_long)})
