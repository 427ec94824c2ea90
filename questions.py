"""The question of each image, read off a prompt in Qwen3-VL's chat format."""

import functools
import re

from .parting import parted
from .question_words import (
    ABOUT_ALL,
    ARTICLE,
    ASKED,
    ASKS_ANEW,
    BEHIND,
    BETWEEN,
    BRACKETED,
    CLAUSE,
    CLOSING,
    COMPARES,
    CONFIRMS,
    ENDS,
    ENDS_IN_BEING,
    ENUMERATED,
    EXTRACTS,
    FIELDS,
    FORM,
    GOES_ON,
    HANDS_OVER,
    HEADING,
    HOW,
    HOW_PHRASES,
    INSTRUCTION,
    LETTERS,
    LISTED,
    LISTED_LINES,
    LISTED_OPTIONS,
    LISTS,
    LONG,
    LOOKS_UP,
    MARKS,
    NAMED_FORM,
    NAMES_A_LIST,
    NAMES_NOTHING,
    OF_PICTURE,
    ONE_OF_THEM,
    OPTION,
    OPTIONS,
    OPTIONS_FIRST,
    OWN,
    PERSONA,
    SAYS_MORE,
    SAYS_ON,
    SENTENCES,
    SEVERAL,
    SHOWN,
    SHOWS,
    TASK,
    TELLS,
    WHEN,
    WHERE,
    WORD,
)

_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>|(?=<\|im_start\|>)|\Z)", re.DOTALL)
_SPECIAL = re.compile(r"(?:<\|[a-z0-9_]+\|>)+")
# by the template's add_vision_id, or by hand
_NUMBERED = re.compile(r"(?:Picture|Video|Image|Photo|Page|Figure) \d+:\s*(?=<\|vision_start\|>)")
_COLON = re.compile(r":\s+")
_LEADS = 8  # at most, before a question: each is looked for in all that is left
_SYSTEM = ("system", "developer")
_NO_USERS = (*_SYSTEM, "assistant", "model", "bot", "gpt", "tool", "function", "observation", "ipython")
_TOOL = "<tool_response>"  # how Qwen3-VL's template begins what a tool gave back
# What `apply_chat_template(sanitize_control_tokens=True)` puts around control tokens that a user typed.
_MARKED = re.compile("\U000f0000[^\U000f0000\U000f0001\n]*\U000f0001")


def questions_of(text, image_token: str, turn: str, sanitized: bool = False) -> list[str] | None:
    """The question of each image placeholder in `text`, in order, a line for each where there are several in one; `None` where
    `text` is no text.

    Args:
        text: a prompt, or a list of them.
        image_token: the placeholder.
        turn: "last_user", whose question all images of a prompt are asked, or "image", the turn that each stands in.
        sanitized: whether control tokens that a user typed are marked, as `apply_chat_template(sanitize_control_tokens=True)`
            does; they are no part of a question.
    """
    prompts = [text] if isinstance(text, str) else list(text)
    if not all(isinstance(prompt, str) for prompt in prompts):
        return None  # the checks that follow refuse it
    questions, read = [], functools.cache(_what_is_asked)  # several images are mostly asked one thing
    for prompt in prompts:
        if sanitized:
            prompt = _MARKED.sub("", prompt)
        turns = [(found, _plain(found[2])) for found in _TURN.finditer(prompt)]
        # what a tool gave back stands in a user's turn too, and asks nothing; nor does a picture alone
        asking = [(found, body) for found, body in turns if body and not body.startswith(_TOOL)]
        # where no turn is called a user's, who is neither system nor answers is one: "human", or a slip
        roles = {found[1] for found, _ in asking}
        users = roles & {"user"} or roles - {*_NO_USERS}
        by_user = [(found, body) for found, body in asking if found[1] in users]
        last = _of_system([body for found, body in asking if found[1] in _SYSTEM]) if turns else _plain(prompt)
        last = _of_user([body for _, body in by_user], last) if by_user else last
        for image in re.finditer(re.escape(image_token), prompt):
            own = [body for found, body in asking if found.start() <= image.start() < found.end()]
            before = [body for found, body in by_user if found.start() < image.start()]
            nearest = (own or before[-1:] or [last])[0]
            questions.append(read(nearest if turn == "image" else last))
    return questions


def given_questions(question, images: int) -> list[str]:
    """The question of each of `images` images, from what a caller gives in place of what the prompt says.

    Args:
        question: one text for all images, or a list or tuple with one text per image; "" asks nothing. Several questions in one
            get a line each.

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
    return [_one_by_one(one) for one in (each if several else each * images)]


def _of_user(bodies: list[str], by_system: str) -> str:
    """What users ask at last: where the last turn goes on about what was asked before ("Are you sure?") or only shows the picture
    ("Here it is."), that, or what a system's turn asks."""
    asking = [body for body in bodies if not _shows(body)]
    for number, body in reversed(list(enumerate(asking))):
        if not (_goes_on(body) or _instructs(body, behind_question=number > 0 or bool(by_system))):
            return body
    return by_system or "".join(asking[-1:])


def _goes_on(body: str) -> bool:
    words = set(WORD.findall(WHERE.sub("", body).lower()))
    about = words <= (GOES_ON if any(end in body for end in ENDS) else SAYS_ON) and not ASKS_ANEW.search(body)
    return about or CONFIRMS.match(body) is not None


def _shows(body: str) -> bool:
    words = set(WORD.findall(body.lower()))
    return len(words) > 1 and bool(words & HANDS_OVER) and words <= SHOWS and not any(end in body for end in ENDS)


def _of_system(bodies: list[str]) -> str:
    """What a system's turn asks where users show pictures alone: its last text, less who answers and how, if short or asking."""
    sentences = SENTENCES.split((bodies or [""])[-1])
    asked = " ".join(one for one in sentences if not (PERSONA.match(one) or _instructs(one)))
    asks = any(end in asked for end in ENDS) or any(EXTRACTS.match(one) for one in SENTENCES.split(asked))
    return asked if asks or len(WORD.findall(asked)) <= LONG else ""


def _plain(body: str) -> str:
    return _SPECIAL.sub(_between, _NUMBERED.sub("", body)).strip()


def _between(found: re.Match) -> str:
    """What stands in place of control tokens: a space between the words of two texts, as before and after a picture."""
    around = found.string[found.start() - 1 : found.start()], found.string[found.end() : found.end() + 1]
    return " " if all(letter and not letter.isspace() for letter in around) else ""


def _what_is_asked(question: str) -> str:
    """What a cell may be about, in a line for each question: not how to answer, options to choose from, that it is in the picture,
    and marks around words, which make other tokens of them."""
    below = HEADING.sub("", question).strip()
    question = below if any(end in below for end in ENDS) else question
    question = ENUMERATED.sub(lambda found: " " if found.start() else "", ASKED.sub("", question))
    question = _without_lead(_without_context(_without_options(_without_instruction(question))))
    return _one_by_one(OWN.sub(" the ", _without_place(" ".join(question.split()))))


def _one_by_one(question: str) -> str:
    return "\n".join(parted(_in_one_line(question)))


def _in_one_line(question: str) -> str:
    for marks in MARKS:
        question = marks.sub(r"\1", question)
    question = " ".join(question.split())
    # in capitals words are other tokens than those of most pages, and those of some: both are read
    if name := _name_alone(question):
        asked = f"What's the {name.lower()}?"
        return asked if name.islower() else f"{asked} {name}"
    uncased = any(
        letter.isalpha() and letter.lower() == letter.upper() for letter in question
    )  # a script without capitals
    if question.isupper() and " " in question and not uncased:
        return f"{question.capitalize()} {question}"
    return question


def _name_alone(question: str) -> str:
    """What is asked for by its name and nothing else, as "the Total?", or "": the allocator reads little of a few words, which are
    then read in a sentence."""
    name = ARTICLE.sub("", question.rstrip("?!.: "))
    alone = len(WORD.findall(name)) in (1, 2, 3) and name.isascii() and ":" not in name and not SAYS_MORE.search(name)
    return name if alone else ""


def _without_context(question: str) -> str:
    """Of many words the sentences that ask, each with a short one that leads to it, and a last one, which may ask too: what else a
    turn quotes would choose more cells than what is asked."""
    if len(WORD.findall(question)) <= LONG:
        return question
    listed = LISTED_LINES.search(question)
    before = question if listed is None else question[: listed.start()]
    sentences, lists = _sentences_of(before)
    words = [len(WORD.findall(sentence)) for sentence in sentences]
    asking = {n for n, one in enumerate(sentences) if any(end in one for end in ENDS) or TELLS.match(one)}
    if not asking:
        return question
    asking |= {n for n, one in enumerate(sentences) if TASK.match(one)}
    asking |= {n for n in lists if asking & {n - 1, n - 2}}
    leading = {number - 1 for number in asking if number and words[number - 1] <= LONG // 2}
    last = {len(sentences) - 1} if words[-1] <= LONG and listed is None and not _instructs(sentences[-1]) else set()
    return " ".join([*(sentences[n] for n in sorted(asking | leading | last)), *([listed[0]] if listed else [])])


def _sentences_of(text: str) -> tuple[list[str], set[int]]:
    """The sentences of a text, each list of fields being one of them, and the numbers of these."""
    text = re.sub(r"[ \t]+", " ", text)  # of which a pattern would try each
    sentences: list[str] = []
    lists, end = set(), 0
    for found in [*FIELDS.finditer(text), None]:
        plain = text[end : found.start() if found else len(text)]
        sentences += [sentence for sentence in SENTENCES.split(plain) if WORD.search(sentence)]
        if found:
            lists.add(len(sentences))
            sentences.append(found[0].strip())
            end = found.end()
    return sentences, lists


def _without_instruction(question: str) -> str:
    """Without what says after it how to answer: no cell of the picture is about that."""
    end = mark = len(question)
    while True:  # of many lines each is read once
        line = question.rfind("\n", 0, end) + 1
        if mark >= end:
            mark = max(question.rfind(sign, 0, end) for sign in ENDS) + 1
            closed = BEHIND.match(question, mark)
            mark = min(end, closed.end()) if mark and closed else 0
        for start in sorted({line, mark} - {0}, reverse=True):  # two texts of a chat may stand without a space between
            asked = start
            while asked and question[asked - 1].isspace():
                asked -= 1
            behind = start == mark or question[:asked].endswith(ENDS)
            if asked and _instructs(question[start:end].strip().strip("()[]*_ "), behind):
                end = asked
                break
        else:
            return question[:end]


def _without_lead(question: str) -> str:
    """Without what says before it who answers and how: "You are an assistant that reads bills. Answer in one word: ..."."""
    start = 0
    for _ in range(_LEADS):
        end = _behind(SENTENCES, question, start, (PERSONA.match, _instructs))
        end = _behind(_COLON, question, start, (_instructs,)) if end == start else end
        if end == start:
            break
        start = end
    return question[start:]


def _behind(mark: re.Pattern, question: str, start: int, tells: tuple) -> int:
    # where what follows the first mark begins, if what stands before it is what one of `tells` looks for, and `start` if not
    found = mark.search(question, start)
    lead = question[start : found.start()] if found else ""
    leads = bool(lead) and any(tell(lead) for tell in tells)
    return found.end() if found and leads and WORD.search(question, found.end()) else start


def _without_options(question: str) -> str:
    """Without the options that end it, which are some where a question or "Options:" stands before them. Where that names nothing,
    they say what is asked, and are read alone; where it asks for what is listed, all of it is the question."""
    whole, question = question, CLOSING.sub("", question)
    if (first := OPTIONS_FIRST.match(question)) and _asks_itself(asked := ASKED.sub("", question[first.end() :])):
        return _without_instruction(asked)
    if listed := LISTED_OPTIONS.search(question) or _bracketed(question):
        asked = question[: listed.start()].rstrip()
        if _asks_itself(asked):
            return _without_instruction(asked)
    found = list(OPTION.finditer(question))[-len(LETTERS) :]
    if not found or "\n" in question[found[-1].end() :].strip():  # more is said after them
        return whole
    for number, first in enumerate(found):
        letters = "".join(filter(None, (letter for option in found[number:] for letter in option.groups()))).upper()
        asks = any(end in question[first.start() :] for end in ENDS)
        if len(letters) > 1 and LETTERS.startswith(letters) and not asks:
            before = question[: first.start()].rstrip()
            asked = _without_instruction(OPTIONS.sub("", before).rstrip())
            # A. Smith and B. Jones
            people = len(letters) == 2 and any(one[3] and one[0].rstrip()[-1] == "." for one in found[number:])
            if not asked or (asked == before and (people or not asked.rstrip("*_\"') ").endswith(ENDS))):
                return whole
            words = set(WORD.findall(asked.lower()))
            several = words & SEVERAL and words & LOOKS_UP and not words & ONE_OF_THEM
            lists = words & LISTS and not words & ONE_OF_THEM and not words <= NAMES_NOTHING
            several = several or (lists and words <= NAMES_A_LIST | SEVERAL | LISTS)
            compares = words & COMPARES and words <= NAMES_NOTHING | COMPARES
            if several or compares or (words & LISTED and words <= NAMES_A_LIST):
                return f"{asked} {question[first.start() :].strip()}"
            if words <= NAMES_NOTHING:
                return OPTION.sub(" or ", question[first.start() :]).removeprefix(" or ")
            return asked
    return whole


def _asks_itself(asked: str) -> bool:
    """Whether it says what is asked without the options, and does not ask for what they list."""
    words = set(WORD.findall(asked.lower()))
    return not (words <= NAMES_NOTHING or words & (LISTED | SEVERAL | LISTS | COMPARES))


def _bracketed(question: str) -> re.Match | None:
    found = BRACKETED.search(question)
    each = [WORD.findall(one.lower()) for one in BETWEEN.split(found[1])] if found else []
    return found if len(each) > 1 and all(0 < len(one) <= 4 and CLAUSE.isdisjoint(one) for one in each) else None


def _without_place(question: str) -> str:
    """Without what says at its end that the answer is in the picture, where the question names anything else."""
    begun, found = max(map(question.rfind, ENDS)) + 1, WHERE.search(question)
    if (
        found
        and found.start() > begun > 0
        and NAMES_NOTHING.issuperset(WORD.findall(question[begun : found.start()].lower()))
    ):
        return question[:begun]  # "What is the total? It is shown in the image."
    asked = WHERE.sub("", question)
    if ENDS_IN_BEING.search(asked):
        return question
    whose = OF_PICTURE.sub("", asked)
    if not ABOUT_ALL.issuperset(WORD.findall(whose.lower())):
        asked = whose
    return question if NAMES_NOTHING.issuperset(WORD.findall(asked.lower())) else asked


def _instructs(text: str, behind_question: bool = False) -> bool:
    begun, said = INSTRUCTION.match(text), text.lower()
    if begun is None or any(end in text for end in ENDS):
        return False
    said, named = NAMED_FORM.subn("", said) if behind_question else (said, 0)
    plain, phrases = HOW_PHRASES.subn("", said)
    if begun["gives"] and (not (named or phrases or FORM.search(said)) or SHOWN.search(plain)):
        return False
    return (WHEN if begun["condition"] or " if " in plain else HOW).issuperset(WORD.findall(plain))
