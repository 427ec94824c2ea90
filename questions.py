"""The question of each image, read off a prompt in Qwen3-VL's chat format."""

import functools
import re

_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>|(?=<\|im_start\|>)|\Z)", re.DOTALL)
_SPECIAL = re.compile(r"(?:<\|[a-z0-9_]+\|>)+")
_NUMBERED = re.compile(r"(?:Picture|Video) \d+: (?=<\|vision_start\|>)")  # by the template's add_vision_id
# What says after a question how to answer it, as benchmarks do: it begins so, and has no other words than these.
_INSTRUCTION = re.compile(
    r"(?:(?P<condition>(?:if|when)\b[^,\n]*),\s*)?(?:please\s+)?(?:try\s+to\s+)?"
    r"(?:answer|respond|reply|keep|think|reason|be|say|use|thanks|thank\s+you|no\s+explanations?|let['\u2019]s|do\s+not|don['\u2019]t|"
    r"max(?:imum)?\s+(?=\S)|at\s+most|one\s+word|(?:a|(?:your|the|short|brief)\s+answer)(?=:\s*\Z)|"
    r"(?P<gives>give|only|just|output|return|provide|select|choose|pick|write|put|enclose|wrap))\b",
    re.IGNORECASE,
)
_HOW = frozenset((
    "please", "answer", "answers", "respond", "response", "reply", "give", "keep", "only", "just", "directly",
    "briefly", "brief", "shortly", "short", "concisely", "concise", "with", "in", "using", "use", "by", "as", "at",
    "most", "a", "an", "the", "this", "my", "your", "it", "and", "or", "without", "any", "no", "yes", "json", "format",
    "single", "one", "two", "few", "word", "words", "phrase", "phrases", "sentence", "sentences", "option", "options",
    "from", "given", "provided", "choice", "choices", "question", "following", "explanation", "explanations", "else",
    "nothing", "possible", "select", "choose", "pick", "write", "put", "enclose", "wrap", "within", "inside", "tags", "then",
    "you", "can", "output", "return", "provide", "think", "let", "s", "try", "to", "if", "be", "thanks", "thank", "lowercase",
    "uppercase", "english", "french", "german", "spanish", "italian", "portuguese", "chinese", "japanese", "korean",
    "do", "don", "t", "not", "explain", "add", "include", "anything", "max", "maximum", "more", "less", "fewer", "than",
    "unit", "units", "currency", "symbol", "symbols",
))  # fmt: skip
# What may stand before it, "If the answer is not on the page, say 'unanswerable'", and what is said then.
_WHEN = _HOW | frozenset((
    "when", "information", "sufficient", "insufficient", "enough", "is", "are", "isn", "there", "available",
    "present", "visible", "shown", "found", "find", "cannot", "answered", "unanswerable", "answerable", "impossible", "on",
    "image", "picture", "page", "document", "n", "na", "none", "unknown", "unsure", "sure", "know", "i", "say",
))  # fmt: skip
# The same by more than a word: "a number" is a form, "the number" may be what is asked for.
_HOW_PHRASES = re.compile(
    "\\b(?:an?|one|single|word or|phrase or) (?:number|digit|letter|value)s?\\b|\\boption(?:['\u2019]s)? letters?\\b"
    r"|\b(?:\d+|three|five|ten) (?:word|sentence|character)s?\b"
    r"|\b(?:letter|number) of (?:the|your) (?:(?:correct|right|best|chosen) )?(?:option|answer|choice)\b"
    r"|\b(?:correct|right|best|final) (?:option|answer|choice)s?\b|\b(?:options|choices) (?:above|below)\b"
    r"|\b(?:reason )?step by step\b|\bthe (?:thinking|reasoning) process\b|\banswer: ?\W?\w\b|<[^<>\n]{0,20}>|\\boxed\b"
)
# A form behind a question, and what is asked for behind a statement: "Here is my ticket. Respond with the number only."
_NAMED_FORM = re.compile(
    r"\b(?:with (?:only |just )?the (?:number|digit|letter|value|word|name)s?|(?:only|just) the (?:number|value|name)s?)\b(?! of)"
)
# What is to be given is a form of answer, and nothing that a page may show, such as its words.
_FORM = re.compile(r"\b(?:answers?|response|reply|explanations?|an?|one|single|no|yes|json)\b")
_SHOWN = re.compile(r"\bthe (?:words?|phrases?|sentences?|options?|choices?|question)\b")
_ENDS = ("?", "\uff1f")
_LONG = 32  # words of a turn, above which what asks is read alone
_SENTENCES = re.compile("(?<=[.?!\u3002\uff01\uff1f])\\s+|\n+|(?<=[\u3002\uff01\uff1f])")
_WORD = re.compile(r"[^\W_]+")
# as benchmarks begin: "Question:", "Q:", "**Question:**"
_ASKED = re.compile(r"\A(?:hint:.*\n)?\s*\*{0,2}q(?:uestion)?(?::\*{0,2}|\*\*:)\s*(?=\S)", re.IGNORECASE)
# Options of multiple choice: each on a line, or one after another ("(A) red (B) blue", "A. red B. blue C. green").
_OPTION = re.compile(
    r"(?:^[ \t]*\(?([A-Za-z])[.):][ \t]*|(?<=\s)(?:\(([A-Za-z])\)|([A-Z])[.)])[ \t]+)(?=\S)", re.MULTILINE
)
_OPTIONS = re.compile(r"(?:^|(?<=\s))(?:options|choices)\s*:\s*\Z", re.IGNORECASE)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# What a question before options has that leaves it to them to say what is asked: "Which of the following is on the page?"
_NAMES_NOTHING = frozenset((
    "which", "what", "one", "of", "the", "following", "these", "those", "below", "options", "option", "choices", "choice",
    "answers", "answer", "statements", "statement", "words", "word", "texts", "text", "values", "value", "names", "name",
    "numbers", "number", "items", "item", "is", "are", "was", "were", "do", "does", "can", "could", "be", "you", "see", "seen",
    "find", "found", "read", "appear", "appears", "occur", "occurs", "show", "shown", "shows", "stand", "stands", "given",
    "written", "mentioned", "listed", "visible", "present", "contain", "contained", "contains", "there", "here", "on", "in",
    "by", "to", "this", "that", "page", "picture", "image", "photo", "document", "screenshot", "true", "correct", "right",
    "not", "a", "an", "it", "according", "based", "s", "who", "tell", "me",
))  # fmt: skip
# Where this is said, what is listed is asked for, and not to be chosen from: "Can you extract the following fields?"
_LISTED = frozenset(("fields", "details", "entries", "information", "info", "data", "extract"))
_NAMES_A_LIST = (
    _NAMES_NOTHING
    | _LISTED
    | frozenset(("please", "get", "give", "provide", "transcribe", "say", "need", "i", "have", "has"))
)
# Where to look, at the end: "What is the total shown on this page?" No cell is about that.
_PICTURE = (
    r"(?:the|this|that) (?:(?:above|attached|following|given|provided|shown|uploaded) )?"
    r"(?:document|image|page|photo|photograph|picture|scan|screen|screenshot)(?: (?:above|attached|below|given|provided))?"
)
_SEEN = r"(?:displayed|found|given|listed|mentioned|printed|seen|shown|stated|visible|written) "
_WHERE = re.compile(
    rf",? (?:(?:(?:that|which) (?:is|are) |as )?{_SEEN})?(?:in|on|according to) {_PICTURE}(?=\W*\Z)",
    re.IGNORECASE,
)
# The same, where what stands before it is in the picture and not about all of it: "the date of this document".
_OF_PICTURE = re.compile(rf"(?<!page)(?<!image)(?<!photo)(?<!picture) of {_PICTURE}(?=\W*\Z)", re.IGNORECASE)
_ABOUT_ALL = _NAMES_NOTHING | frozenset((
    "kind", "type", "sort", "class", "category", "genre", "format", "purpose", "subject", "topic", "theme", "title", "heading",
    "content", "contents", "summary", "gist", "overview", "description", "caption", "summarize", "summarise", "describe", "style",
    "layout", "background", "colour", "color", "language", "main", "point", "idea", "part", "parts", "side", "top", "bottom",
    "left", "corner", "middle", "centre", "center", "end", "start", "rest", "quality", "size", "mood", "analysis", "account",
    "give", "provide", "write", "brief", "short", "detailed", "please", "your", "and", "good", "morning", "evening", "hi", "hello",
))  # fmt: skip
# Marks around words, "total" or **total**, which are none in a formula; those of the last line also stand between letters.
_AROUND_WORDS = ("** **", "* *", "` `", '" "', "' '", "\u2018 \u2019")
_BRACKETS = ("( )", "[ ]")
_QUOTES = ("\u201c \u201d", "\u201e \u201c", "\u00ab \u00bb", "\u300c \u300d", "\u300e \u300f")
# By these a short text says more than the name of what it asks for: a verb before it ("List all", but "Price list").
_SAYS_MORE = re.compile(
    r"\d|['\u2019]|\b(?:what|which|who|whom|whose|when|where|why|how|is|are|was|were|do|does|did|can|could|will|would|has|have|had|"
    r"yes|no|of|by|for|in|on|at|from|to|with|and|or|the|it|this|that)\b|"
    r"\A(?:(?:please|now|just|kindly|briefly|carefully|fully|quickly|thoroughly)\s+)?"
    r"(?:tell|give|show|find|list|read|count|describe|look|transcribe|translate|summari[sz]e|explain|extract|identify|compare|"
    r"(?:free\s+)?ocr|continue|solve|caption|convert|analy[sz]e|parse|recogni[sz]e|elaborate|detect|locate|digiti[sz]e|paraphrase|"
    r"more|hello|hi|thanks|thank|name(?= ))\b",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"\A(?:the|an?)\s+", re.IGNORECASE)
# What says who answers: "You are a helpful assistant."
_PERSONA = re.compile("you(?: a|['\u2019])re\\b", re.IGNORECASE)
_TOOL = "<tool_response>"  # how Qwen3-VL's template begins what a tool gave back
# What `apply_chat_template(sanitize_control_tokens=True)` puts around control tokens that a user typed.
_MARKED = re.compile("\U000f0000[^\U000f0000\U000f0001\n]*\U000f0001")


def _around(pair: str, inside: str, before: str = "", behind: str = "", gap: str = "") -> re.Pattern:
    first, last = map(re.escape, pair.split())
    return re.compile(rf"{before}{first}{gap}(?=\S)({inside}{{1,200}}?)(?<=\S){gap}{last}{behind}")


_MARKS = [
    *(_around(pair, r"[^\n*]", r"(?<![\w*])", r"(?![\w*])") for pair in _AROUND_WORDS),
    *(_around(pair, r"[^\n()\[\]{}<>*+/=^]", r"(?<![\w)\]}^*])", r"(?![\w(\[{^*])") for pair in _BRACKETS),
    *(_around(pair, f"[^{pair[0]}{pair[-1]}\n]", gap=r"\s?") for pair in _QUOTES),
]


def questions_of(text, image_token: str, turn: str, sanitized: bool = False) -> list[str]:
    """The question of each image placeholder in `text`, in order; none where `text` is no text.

    Args:
        text: a prompt, or a list of them.
        image_token: the placeholder.
        turn: "last_user", whose question all images of a prompt are asked, or "image", the turn that each stands in.
        sanitized: whether control tokens that a user typed are marked, as `apply_chat_template(sanitize_control_tokens=True)`
            does; they are no part of a question.
    """
    prompts = [text] if isinstance(text, str) else list(text)
    if not all(isinstance(prompt, str) for prompt in prompts):
        return []  # the checks that follow refuse it
    questions, read = [], functools.cache(_what_is_asked)  # several images are mostly asked one thing
    for prompt in prompts:
        if sanitized:
            prompt = _MARKED.sub("", prompt)
        turns = [(found, _plain(found[2])) for found in _TURN.finditer(prompt)]
        # what a tool gave back stands in a user's turn too, and asks nothing; nor does a picture alone
        asking = [(found, body) for found, body in turns if body and not body.startswith(_TOOL)]
        by_user = [(found, body) for found, body in asking if found[1] == "user"]
        last = _of_system([body for found, body in asking if found[1] == "system"]) if turns else _plain(prompt)
        last = by_user[-1][1] if by_user else last
        for image in re.finditer(re.escape(image_token), prompt):
            own = [body for found, body in asking if found.start() <= image.start() < found.end()]
            before = [body for found, body in by_user if found.start() < image.start()]
            nearest = (own or before[-1:] or [last])[0]
            questions.append(read(nearest if turn == "image" else last))
    return questions


def given_questions(question, images: int) -> list[str]:
    """The question of each of `images` images, from what a caller gives in place of what the prompt says.

    Args:
        question: one text for all images, or a list or tuple with one text per image; "" asks nothing.

    Raises:
        ValueError: it is none of these.
    """
    several = isinstance(question, list | tuple)
    each = list(question) if several else [question]
    for one in each:
        if not isinstance(one, str):
            raise ValueError(
                f"question has {one!r}; pass a text, or a list with one text per image, or leave it out: it is read off the prompt"
            )
    if several and len(each) != images:
        raise ValueError(f"question has {len(each)} texts for {images} images; pass one per image, or one for all")
    return [_in_one_line(one) for one in (each if several else each * images)]


def _of_system(bodies: list[str]) -> str:
    """What a system's turn asks where users show pictures alone: its last text, less who answers and how, if short or asking."""
    sentences = _SENTENCES.split((bodies or [""])[-1])
    asked = " ".join(one for one in sentences if not (_PERSONA.match(one) or _instructs(one)))
    short = len(_WORD.findall(asked)) <= _LONG
    return asked if short or any(end in asked for end in _ENDS) else ""


def _plain(body: str) -> str:
    return _SPECIAL.sub(_between, _NUMBERED.sub("", body)).strip()


def _between(found: re.Match) -> str:
    """What stands in place of control tokens: a space between the words of two texts, as before and after a picture."""
    around = found.string[found.start() - 1 : found.start()], found.string[found.end() : found.end() + 1]
    return " " if all(letter and not letter.isspace() for letter in around) else ""


def _what_is_asked(question: str) -> str:
    """What a cell may be about, in one line: not how to answer, options to choose from, that it is in the picture, and marks around
    words, which make other tokens of them."""
    question = _without_context(_without_options(_without_instruction(_ASKED.sub("", question))))
    return _in_one_line(_without_place(" ".join(question.split())))


def _in_one_line(question: str) -> str:
    for marks in _MARKS:
        question = marks.sub(r"\1", question)
    question = " ".join(question.split())
    # in capitals words are other tokens than those of most pages, and those of some
    if question.isupper() and " " in question:
        return f"{question.capitalize()} {question}"
    return _in_a_sentence(question)


def _in_a_sentence(question: str) -> str:
    """A name alone in a sentence, "What's the total?" for "total": the allocator reads little of one or two words."""
    name = _ARTICLE.sub("", question.rstrip("?!.: "))
    if len(_WORD.findall(name)) not in (1, 2) or not name.isascii() or _SAYS_MORE.search(name):
        return question
    return f"What's the {name}?"


def _without_context(question: str) -> str:
    """Of many words the sentences that ask, each with a short one that leads to it, and a last one, which may ask too: what else a
    turn quotes would choose more cells than what is asked."""
    if len(_WORD.findall(question)) <= _LONG or not any(end in question for end in _ENDS):
        return question
    sentences = [sentence for sentence in _SENTENCES.split(question) if _WORD.search(sentence)]
    words = [len(_WORD.findall(sentence)) for sentence in sentences]
    asking = {number for number, sentence in enumerate(sentences) if any(end in sentence for end in _ENDS)}
    leading = {number - 1 for number in asking if number and words[number - 1] <= _LONG // 2}
    last = {len(sentences) - 1} if words[-1] <= _LONG else set()
    return " ".join(sentences[number] for number in sorted(asking | leading | last))


def _without_instruction(question: str) -> str:
    """Without what says after it how to answer: no cell of the picture is about that."""
    end = mark = len(question)
    while True:  # of many lines each is read once
        line = question.rfind("\n", 0, end) + 1
        if mark >= end:
            mark = max(question.rfind(sign, 0, end) for sign in _ENDS) + 1
        for start in sorted({line, mark} - {0}, reverse=True):  # two texts of a chat may stand without a space between
            asked = start
            while asked and question[asked - 1].isspace():
                asked -= 1
            behind = question[:asked].endswith(_ENDS)
            if asked and _instructs(question[start:end].strip().strip("()[]*_ "), behind):
                end = asked
                break
        else:
            return question[:end]


def _without_options(question: str) -> str:
    """Without the options that end it, which are some where a question or "Options:" stands before them. Where that names nothing,
    they say what is asked, and are read alone; where it asks for what is listed, all of it is the question."""
    found = list(_OPTION.finditer(question))[-len(_LETTERS) :]
    if not found or "\n" in question[found[-1].end() :].strip():  # more is said after them
        return question
    for number, first in enumerate(found):
        letters = "".join(option[1] or option[2] or option[3] for option in found[number:]).upper()
        asks = any(end in question[first.start() :] for end in _ENDS)
        if len(letters) > 1 and _LETTERS.startswith(letters) and not asks:
            before = question[: first.start()].rstrip()
            asked = _without_instruction(_OPTIONS.sub("", before).rstrip())
            people = len(letters) == 2 and any(option[3] for option in found[number:])  # A. Smith and B. Jones
            if not asked or (asked == before and (people or not asked.endswith(_ENDS))):
                return question
            words = set(_WORD.findall(asked.lower()))
            if words & _LISTED and words <= _NAMES_A_LIST:
                return f"{asked} {question[first.start() :].strip()}"
            if words <= _NAMES_NOTHING:
                return _OPTION.sub(" or ", question[first.start() :]).removeprefix(" or ")
            return asked
    return question


def _without_place(question: str) -> str:
    """Without what says at its end that the answer is in the picture, where the question names anything else."""
    asked = _WHERE.sub("", question)
    whose = _OF_PICTURE.sub("", asked)
    if not _ABOUT_ALL.issuperset(_WORD.findall(whose.lower())):
        asked = whose
    return question if _NAMES_NOTHING.issuperset(_WORD.findall(asked.lower())) else asked


def _instructs(text: str, behind_question: bool = False) -> bool:
    begun, said = _INSTRUCTION.match(text), text.lower()
    if begun is None or any(end in text for end in _ENDS):
        return False
    said, named = _NAMED_FORM.subn("", said) if behind_question else (said, 0)
    plain, phrases = _HOW_PHRASES.subn("", said)
    if begun["gives"] and (not (named or phrases or _FORM.search(said)) or _SHOWN.search(plain)):
        return False
    return (_WHEN if begun["condition"] else _HOW).issuperset(_WORD.findall(plain))
