"""Several questions in one: "What is the total? Who paid it?", "What are the date and the total?"

Read as one, two questions find less than each finds alone (dev/LOG.md), so each is read by itself. What is not surely several
questions, each of which can be understood without the others, stays whole.
"""

import re

from .question_words import GOES_ON, WORD

_MOST = 4  # questions in one, above which they are read as one
_ENDED = re.compile("(?<=[?\uff1f])\\s+")
# What begins a question that asks for something in the picture.
_ASKS = (
    r"(?:(?:at|by|for|from|in|of|on|to|under|with) )?(?:what(?:['\u2019]?s)?|which|who(?:['\u2019]s)?|whose|whom|when|"
    r"where(?:['\u2019]s)?|how (?:many|much|long|old|far|high|large|big|often)|(?:how|why) (?:is|are|was|were|do|does|did)|"
    r"(?:is|are|was|were|do|does|did|has|have)|(?:please )?(?:tell me|give me|read|find|name))\b"
)
_AND = r"(?:[a-d]\)|(?:and|also|then|besides|plus|next|finally|second|secondly|in addition|as well as|after that)\b[,:]?) *"
_BEGINS = re.compile(
    rf"\W*(?:{_AND})*(?P<asked>(?:[^:?]{{1,60}} is [^:?]{{1,60}}: )?{_ASKS}.*)", re.IGNORECASE | re.DOTALL
)
# "And the date?"
_NAMES_ONE = re.compile(rf"\W*(?:{_AND})+(?P<asked>(?:the|my) [^,?.;:]+)\?\W*", re.IGNORECASE)
# "What is the total and who paid?", but "the place that is large and where French is spoken"
_JOINED = re.compile(
    r",? (?:and|&|plus|as well as)(?: also)? (?=(?:what(?:['\u2019]?s)?|which|who(?:['\u2019]s)?|whose|how (?:many|much)|"
    r"(?:how|when|where|why) (?:is|are|was|were|do|does|did)) )",
    re.IGNORECASE,
)
# "What are the date and the total?", where nothing is of or between the two
_NAMED = re.compile(
    r"(?:please )?(?:what(?: is| are| was| were|['\u2019]s)|give me|tell me|read(?: me)?|find|show me|i need|i want)(?: both)? "
    r"(?P<first>(?:the|my) [^,?.;:]+?),? (?:and|as well as|plus|&) (?P<second>(?:the|my) [^,?.;:]+?)\W*",
    re.IGNORECASE,
)
_RELATES = frozenset((
    "of", "between", "from", "than", "with", "to", "by", "per", "in", "on", "at", "for", "and", "or", "both", "difference", "sum",
    "ratio", "sums", "same", "is", "are", "where", "that", "which", "who", "has", "have",
))  # fmt: skip
# By these a question is about what another one says, or a condition of it: "If there is none, what is the total?"
_LEANS = frozenset((
    "it", "its", "they", "them", "their", "theirs", "he", "him", "his", "she", "her", "hers", "one", "ones", "that", "those",
    "these", "same", "other", "else", "instead", "otherwise", "if", "not", "so", "then", "respectively", "former",
    "latter", "both", "two", "each", "none",
))  # fmt: skip
# but "What does it say for date?"
_OF_PAGE = re.compile(r"\b(?:does|did) (?:it|this|that) (?:give|say|show)\b", re.IGNORECASE)
# A question of these words alone asks for nothing that a cell shows: "Could you help me?"
_SAYS_NOTHING = GOES_ON | frozenset((
    "what", "which", "who", "the", "this", "page", "picture", "image", "document", "photo", "here", "on", "of", "see", "tell",
    "give", "help", "many", "much", "me", "my", "i", "we", "have", "has", "was", "were", "does", "time", "minute", "need", "let",
    "something", "some",
))  # fmt: skip


def parted(question: str) -> list[str]:
    """The questions that `question`, as `questions_of` reads it in one line, puts into one: at least one, and `question` itself
    where it is one."""
    parts = [part for sentence in _ENDED.split(question) if WORD.search(sentence) for part in _of_sentence(sentence)]
    asked = [_asked(part) for part in parts]
    unlike = len({part.lower() for part in asked}) == len(asked)
    return asked if 1 < len(asked) <= _MOST and unlike and all(map(_stands_alone, asked)) else [question]


def _asked(part: str) -> str:
    if named := _NAMES_ONE.fullmatch(part):
        return f"What's {named['asked']}?"
    begun = _BEGINS.fullmatch(part)
    return begun["asked"].rstrip(" ,") if begun else ""


def _of_sentence(sentence: str) -> list[str]:
    named = _NAMED.fullmatch(sentence)
    if named and _RELATES.isdisjoint(_words(f"{named['first']} {named['second']}")):
        return [f"What's {named[name]}?" for name in ("first", "second")]
    return _JOINED.split(sentence)


def _stands_alone(question: str) -> bool:
    words = _words(_OF_PAGE.sub("", question))
    return words.isdisjoint(_LEANS) and not words <= _SAYS_NOTHING


def _words(text: str) -> set[str]:
    return set(WORD.findall(text.lower()))
