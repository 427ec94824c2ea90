"""How questions are asked around what they ask: the patterns and word lists of `questions`."""

import re

# What says after a question how to answer it, as benchmarks do: it begins so, and has no other words than these.
INSTRUCTION = re.compile(
    r"(?:first,?\s+(?=output\b)|(?:also|then|finally),?\s+)?(?:(?P<condition>(?:if|when)\b[^,\n]*),\s*)?(?:note:\s+)?"
    r"(?:please\s+)?(?:try\s+to\s+)?"
    r"(?:answer|respond|reply|keep|think|reason|be|say|use|thanks|thx|thank\s+you|limit(?=\s+your\s+(?:answer|response)\b)|"
    r"no\s+explanations?|let['\u2019]s|do\s+not|don['\u2019]t|nothing\s+else|explain(?=\s+(?:your|how\s+you|step)\b)|"
    r"copy(?=\s+(?:it|exactly)\b)|"
    r"max(?:imum)?\s+(?=\S)|at\s+most|one\s+word|(?:a|(?:your|the|short|brief|final)\s+answer|output|response|answer)(?=:\s*\Z)|"
    r"in\s+(?:one|a|\d+|two|three|a\s+few)\s+(?:single\s+)?(?:word|sentence)s?|as\s+an?\s+(?:number|integer|word|list)|"
    r"your\s+answer\s+(?:should|must)|the\s+(?:best|correct|right)\s+answer\s+is(?=:\s*\Z)|"
    r"(?:short|brief)\s+answer|(?:number|letter|digits)s?\s+only|yes\s+or\s+no|no\s+(?:additional|need|other)|please(?=\W*\Z)|"
    r"(?P<gives>give|only|just|output|print|return|provide|select|choose|pick|write|put|enclose|wrap))\b",
    re.IGNORECASE,
)
HOW = frozenset((
    "please", "answer", "answers", "respond", "response", "reply", "give", "keep", "only", "just", "directly",
    "briefly", "brief", "shortly", "short", "concisely", "concise", "with", "in", "using", "use", "by", "as", "at",
    "most", "a", "an", "the", "this", "my", "your", "it", "and", "or", "without", "any", "no", "yes", "json", "format",
    "single", "one", "two", "few", "word", "words", "phrase", "phrases", "sentence", "sentences", "option", "options",
    "from", "given", "provided", "choice", "choices", "question", "following", "explanation", "explanations", "else",
    "nothing", "possible", "select", "choose", "pick", "write", "put", "enclose", "wrap", "within", "inside", "tags", "then",
    "you", "can", "output", "return", "provide", "think", "let", "s", "try", "to", "if", "be", "thanks", "thank", "lowercase",
    "uppercase", "english", "french", "german", "spanish", "italian", "portuguese", "chinese", "japanese", "korean",
    "do", "don", "t", "not", "explain", "add", "include", "anything", "max", "maximum", "more", "less", "fewer", "than",
    "unit", "units", "currency", "symbol", "symbols", "additional", "text", "should", "need", "guess", "carefully", "final",
    "note", "know", "me", "digits", "first", "must", "exactly", "limit", "print", "thx", "advance", "truthfully", "honestly",
    "accurately", "precisely", "hallucinate", "lower", "upper", "case", "also", "markdown", "exact", "span", "copy", "make", "up",
    "complete", "simplified", "traditional", "reasoning", "before", "answering", "how", "got",
))  # fmt: skip
# What may stand before it, "If the answer is not on the page, say 'unanswerable'", and what is said then.
WHEN = HOW | frozenset((
    "when", "information", "sufficient", "insufficient", "enough", "is", "are", "isn", "there", "available",
    "present", "visible", "shown", "found", "find", "cannot", "answered", "unanswerable", "answerable", "impossible", "on",
    "image", "picture", "page", "document", "n", "na", "none", "unknown", "unsure", "sure", "know", "i", "say",
))  # fmt: skip
# The same by more than a word: "a number" is a form, "the number" may be what is asked for.
HOW_PHRASES = re.compile(
    "\\b(?:an?|one|single|word or|phrase or) (?:number|digit|letter|value)s?\\b|\\boption(?:['\u2019]s)? letters?\\b"
    r"|\b(?:\d+|three|five|ten) (?:word|sentence|character)s?\b"
    r"|(?<!the )\b(?:number|letter) only\b|\b(?:a|one) single (?:capital )?letter\b"
    r"|\bonly (?:the|a single|one) letter\b(?! (?:\(|of))"
    r"|\b(?:just|with(?: only| just)?) the letter(?: only)?\b(?! (?:\(|of|from|to|by|sent))"
    r"|\b[a-d](?:, ?[a-d]){0,9},? or [a-d]\b|\([a-d](?:(?:[/,]|,? or) ?[a-d])+\)"
    r"|\b(?:based (?:only |solely )?on|from|using|with what is (?:written|shown) (?:in|on)) (?:only )?"
    r"(?:the|this) (?:text (?:in|on) the )?(?:image|picture|page|document|photo)\b(?: above)?"
    r"|\Athe (?:best|correct|right) answer is: ?\Z"
    r"|\b(?:letter|number)(?: \([a-d][^()]*\))? of (?:the|your) (?:(?:correct|right|best|chosen) )?(?:option|answer|choice)\b"
    r"|\b(?:correct|right|best|final) (?:option|answer|choice)s?\b|\b(?:options|choices) (?:above|below)\b"
    r"|\b(?:reason )?step by step\b|\bthe (?:thinking|reasoning) process\b|\banswer: ?\W?\w\b|<[^<>\n]{0,20}>|\\boxed\b"
    r"|\b(?:the |its )?(?:bounding[ -]box(?:es)?|bbox(?:es)?)\b(?: (?:of|for|around) (?:the|your) answer)?(?: as)?"
    r"(?: \[[^\[\]\n]{0,40}\])?"
    r"|\bjson object\b(?: with (?:the|a|one)(?: single)? keys? \W?answer\W?)?(?: (?:like|such as|of the form) \{[^{}\n]{0,60}\})?"
    r"|\b(?:your |the |a )?confidence(?: score| level)?\b(?:,? (?:from|between|on a scale of) \d+ ?(?:to|and|-|\u2013) ?\d+)?"
)
# A form behind a question, and what is asked for behind a statement: "Here is my ticket. Respond with the number only."
NAMED_FORM = re.compile(
    r"\b(?:with (?:only |just )?the (?:number|digit|letter|value|word|name)s?|(?:only|just) the (?:number|value|name)s?)\b(?! of)"
)
# What is to be given is a form of answer, and nothing that a page may show, such as its words.
FORM = re.compile(r"\b(?:answers?|response|reply|explanations?|an?|one|single|no|yes|json)\b")
SHOWN = re.compile(r"\bthe (?:words?|phrases?|sentences?|options?|choices?|question)\b")
ENDS = ("?", "\uff1f")
LONG = 32  # words of a turn, above which what asks is read alone
# not behind what is abbreviated, which a name or a time follows
_SHORT = ("mr", "mrs", "ms", "dr", "st", "no", "nr", "approx", "max", "min", r"a\.m", r"p\.m", r"e\.g", r"i\.e")
_NOT_SHORT = "".join(rf"(?<!\b{short}\.)" for short in _SHORT)
SENTENCES = re.compile(f"(?<=[.?!\u3002\uff01\uff1f]){_NOT_SHORT}\\s+|\n+|(?<=[\u3002\uff01\uff1f])", re.IGNORECASE)
_POLITE = r"\W*(?:(?:please|so|then|now|and)\W+){0,2}"  # what may stand before the first word that tells
# A sentence that asks without a question mark.
TELLS = re.compile(
    _POLITE + r"(?:tell|find|read|give|show|extract|list|look\s+up|say|"
    r"i\s+(?:need|want)(?!\s+(?:it|this|that|them)\b)|"
    "i(?:\u2019|')?d? (?:would )?like)\\b",
    re.IGNORECASE,
)
# What tells a system to read pages, and not how to talk.
EXTRACTS = re.compile(_POLITE + r"(?:extract|find|list|look\s+up|read|transcribe)\b", re.IGNORECASE)
# What one is told to do, beside a sentence that asks: "Compare the two years. Which is larger?"
TASK = re.compile(
    _POLITE + r"(?:calculate|compare|compute|consider|describe|determine|identify|locate|look\s+at|"
    r"summari[sz]e|transcribe|translate|verify|(?:check|count|name|state)\s+(?:all|both|each|every|how|if|the|these|those|whether|"
    r"which))\b",
    re.IGNORECASE,
)
# Lines of at most ten words that list what is asked for behind such a sentence: with bullets or numbers, or of a JSON template.
FIELDS = re.compile(
    r"(?:^[ \t]*(?:[-*\u2022]|\d{1,2}[.)]|[\"{}\[\]])[ \t]*(?:\S+[ \t]+){0,9}\S*[ \t]*(?:\n|\Z)){2,}", re.MULTILINE
)
# Lines behind the last question that say what is asked for, one each.
LISTED_LINES = re.compile(r"(?:\n[ \t]*(?:[-*\u2022][ \t]*)?\w[^\n.?!]{0,40}){2,40}\s*\Z")
# What closes a question and is none of what follows it: marks around it, and between it and the next.
BEHIND = re.compile("[!.\u2026]*[*_\"'\u201d\u2019)\\]\u00bb]*(?:\\s*</\\w+>)?(?:\\s*[-\u2013\u2014])?")
# A turn of these words alone goes on about what was asked before: "Are you sure?", "Try again."
GOES_ON = frozenset((
    "are", "you", "sure", "really", "ok", "okay", "thanks", "thank", "please", "try", "look", "check", "again", "once", "more",
    "that", "is", "isn", "it", "s", "t", "not", "wrong", "incorrect", "correct", "right", "no", "yes", "think", "about", "double",
    "how", "why", "certain", "can", "could", "say", "repeat", "translate", "in", "to", "into", "english", "french", "german",
    "spanish", "italian", "there", "very", "much", "a", "as", "list", "json", "table", "shorter", "longer", "briefly", "short",
    "explain", "your", "answer", "verify", "confirm", "reconsider", "read", "closer", "closely", "carefully", "careful", "so",
    "re", "do", "did", "don", "doesn", "seem", "seems", "looks", "same", "question", "anything", "else", "100", "where", "know",
    "find", "get", "got", "sorry", "wait", "hm", "hmm", "oh", "nope", "yep", "yeah", "pardon", "huh", "thx",
))  # fmt: skip
# The same without a question mark: "Great, thank you!", "Spell it out."
SAYS_ON = GOES_ON | frozenset((
    "great", "perfect", "awesome", "cool", "nice", "good", "continue", "go", "on", "be", "quick", "spell", "out", "i",
))  # fmt: skip
# A turn that says an answer again: "Isn't it 42?", "I think it is Oslo.", but "I see that it is net, how much is gross?"
CONFIRMS = re.compile(
    r"\A\W*(?:(?:no|yes|hm+|but|wait|so|sorry|ok|okay)\W+){0,2}(?:(?:isn|wasn)['\u2019]?t (?:it|that|this)\b|"
    r"i (?:think|thought|believe|guess|see|read|get|got)(?: that)? (?:it|that|this)\b|it (?:says|reads)\b|"
    r"(?:is|was) (?:it|that|this)(?: not)? (?=\S*\d\S*\s*\Z))(?!.*\b(?:what|which|who|whose|whom|when|where|why|how|find|look|"
    r"give|tell)\b)(?:[^?.!\n]|\.(?=\d)){0,60}[?.!]*\s*\Z",
    re.IGNORECASE,
)
# A turn of these words alone shows a picture and asks nothing: "Here is the image.", "Please process this."
HANDS_OVER = frozenset((
    "here", "attached", "see", "process", "image", "images", "picture", "pictures", "photo", "photos", "page", "pages", "document",
    "file", "screenshot", "scan", "one", "attach", "upload", "uploaded", "sent",
))  # fmt: skip
SHOWS = HANDS_OVER | frozenset((
    "is", "it", "you", "go", "are", "the", "this", "that", "these", "my", "please", "below", "above", "s", "and", "a", "again",
    "now", "ok", "okay", "sorry", "i", "forgot", "to", "just", "have", "ve",
))  # fmt: skip
# But these ask about the picture: "How much is it?", "Is there a table?", "Is that French?"
ASKS_ANEW = re.compile(
    r"\b(?:how (?:much|short)|anything in|is (?:it|that|this) in|(?:find|read) (?:a|\d+)|"
    r"is (?:there|it|that) (?:a )?(?:list|question|table|english|french|german|spanish|italian))\b",
    re.IGNORECASE,
)
WORD = re.compile(r"[^\W_]+")
# as benchmarks begin: "Question:", "Q:", "**Question:**", "Question 3 of 10:"
ASKED = re.compile(
    r"\A\s*(?:(?:hint|context):.*\n\s*)?\*{0,2}(?:q|question(?: ?(?:#|no\.? ?)?\d{1,4}(?: ?(?:of|/) ?\d{1,4})?)?"
    r"(?: \([^()\n]{0,30}\))?)(?::\*{0,2}|\*\*:)\s*(?=\S)",
    re.IGNORECASE,
)
HEADING = re.compile(r"^[ \t]*#{1,6} [^\n?\uff1f]{0,60}(?:\n+|\Z)", re.MULTILINE)
# The number of a question, which would find all digits of a page: "1. What is the total?"
ENUMERATED = re.compile(
    r"(?:\A|(?<=[\n?\uff1f]))[ \t]*(?:\(?\d{1,2}[.)]|#\d{1,2}:?)[ \t]+(?=(?:what|which|who|whose|when|where|why|how|is|are|was|"
    r"were|do|does|did|can|could|has|have|in|on|at|for|by|to|tell|find|give|read|name|list|say|please)\b[^\n?\uff1f]*[?\uff1f])",
    re.IGNORECASE,
)
# Options of multiple choice: each on a line, or one after another ("(A) red (B) blue", "A. red B. blue C. green").
OPTION = re.compile(
    r"(?:^[ \t]*(?:[-*\u2022][ \t]+)?(?:[Oo]ption[ \t]+)?\*{0,2}[(\[]?([A-Za-z])[.):\]]\*{0,2}[ \t]*"
    r"|(?<=\s)(?:\(([A-Za-z])\)|([A-Z])[.):]|([a-z])\))[ \t]+)(?=\S)",
    re.MULTILINE,
)
# Options without letters, behind a question mark: in numbered lines, or listed behind "Options:", "Choose from:" and the like.
LISTED_OPTIONS = re.compile(
    r"(?<=[?\uff1f])[*_\"')\]]*\s+(?:"
    r"(?:(?:answer )?(?:options|choices|candidates)(?: are)?|possible (?:answers|values)(?: are)?|"
    r"(?:choose|select|pick) (?:one )?(?:from|of|between)(?: these| the following)?(?: options| choices| answers)?)\s*:"
    r"[^?\uff1f]+\Z"
    r"|(?:(?:choose|select|pick) one (?:of|from)|(?:the|your) answer (?:is|must be|should be) one of):? [^?\uff1f\n]+\Z"
    r"|<(options|choices)>[^?\uff1f]+</\1>\s*\Z"
    r"|[^\n?\uff1f/]{1,40}(?: / [^\n?\uff1f/]{1,40}){1,8}\s*\Z"
    r"|(?:^[ \t]*\|[^\n?\uff1f]*\|[ \t]*(?:\n|\Z)){2,10}\s*\Z"
    r"|(?:^[ \t]*[-*\u2022][ \t]+\S[^\n?\uff1f]{0,60}(?:\n|\Z)){2,9}\s*\Z"
    r"|(?:^[ \t]*\(?(?:1|i)[.):][ \t]*\S[^\n?\uff1f]*\n)"
    r"(?:^[ \t]*\(?(?:[2-9]|[ivx]{2,4})[.):][ \t]*\S[^\n?\uff1f]*(?:\n|\Z)){1,8}\s*\Z)",
    re.IGNORECASE | re.MULTILINE,
)
# The same in brackets, of which each is one of at most four words, and none of `CLAUSE`: "(red / blue)", '["red", "blue"]'
BRACKETED = re.compile(r"(?<=[?\uff1f])[*_\"']*\s*[(\[{]([^()\[\]{}?\uff1f]{3,200})[)\]}][.!]?\s*\Z")
BETWEEN = re.compile(r"\s*(?:[,;/|\n]|\bor\b)\s*")
CLAUSE = frozenset((
    "in", "with", "without", "not", "no", "the", "of", "for", "from", "as", "on", "at", "by", "to", "is", "are", "if", "only",
    "it", "this", "that", "which", "please", "see", "e", "i", "g", "eg", "ie", "below", "above", "left", "right", "top", "bottom",
))  # fmt: skip
# The same before the question.
OPTIONS_FIRST = re.compile(
    r"\A\s*(?:(?:the )?(?:answer )?(?:options|choices|candidates)(?: are)?\s*:[^?\uff1f]*\n(?=[^\n]*[?\uff1f])|"
    r"(?:choose|select|pick) (?:one )?(?:from|of|between)(?: these| the following)? [^?\uff1f:\n]{1,200}:\s*(?=[^\n]*[?\uff1f]))",
    re.IGNORECASE,
)
# The line behind them that asks for one.
CLOSING = re.compile(
    r"\n[ \t]*(?:the (?:best|correct|right) (?:answer|option|choice) is|(?:your |final )?(?:choice|answer|option|response|output)|"
    r"which (?:letter|one)(?: is (?:correct|right))?|pick the right one)(?:\s*[:?.])?\s*\Z",
    re.IGNORECASE,
)
OPTIONS = re.compile(
    r"(?:^|(?<=\s))(?:(?:there are|here are)\s+)?(?:(?:several|some|two|three|four|five|six|the|the answer)\s+)?(?:options|choices)"
    r"(?:\s+are)?(?:\s+(?:listed\s+)?(?:below|as follows))?\s*:\s*\Z",
    re.IGNORECASE,
)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# What a question before options has that leaves it to them to say what is asked: "Which of the following is on the page?"
NAMES_NOTHING = frozenset((
    "which", "what", "one", "of", "the", "following", "these", "those", "below", "options", "option", "choices", "choice",
    "answers", "answer", "statements", "statement", "words", "word", "texts", "text", "values", "value", "names", "name",
    "numbers", "number", "items", "item", "is", "are", "was", "were", "do", "does", "can", "could", "be", "you", "see", "seen",
    "find", "found", "read", "appear", "appears", "occur", "occurs", "show", "shown", "shows", "stand", "stands", "given",
    "written", "mentioned", "listed", "visible", "present", "contain", "contained", "contains", "there", "here", "on", "in",
    "by", "to", "this", "that", "page", "picture", "image", "photo", "document", "screenshot", "true", "correct", "right",
    "not", "a", "an", "it", "according", "based", "s", "who", "tell", "me",
))  # fmt: skip
# Where this is said, what is listed is asked for, and not to be chosen from: "Can you extract the following fields?"
LISTED = frozenset(("fields", "details", "entries", "information", "info", "data", "extract"))
NAMES_A_LIST = (
    NAMES_NOTHING
    | LISTED
    | frozenset(("please", "get", "give", "provide", "transcribe", "say", "need", "i", "have", "has"))
)
# Where several are asked for, they are none to choose from, either: "Could you find these two things?"
SEVERAL = frozenset((
    "these", "following", "two", "three", "four", "five", "both", "things", "items", "entries", "lines", "table",
))  # fmt: skip
LOOKS_UP = frozenset(("find", "read", "fill", "check", "checking", "get", "copy", "value", "values", "say"))
# As "Can you give me the following?" and "Is each of these present?" ask.
LISTS = frozenset(("each", "give", "tell", "provide", "transcribe", "locate", "contain", "missing", "help", "with"))
# What is compared is named by the options alone: "Which is bigger? A. Norway B. Chad"
COMPARES = frozenset((
    "larger", "largest", "bigger", "biggest", "smaller", "smallest", "higher", "highest", "lower", "lowest", "taller", "tallest",
    "older", "oldest", "younger", "youngest", "cheaper", "cheapest", "longer", "longest", "shorter", "shortest", "heavier",
    "heaviest", "more", "most", "fewer", "fewest", "less", "least", "better", "best", "worse", "worst",
))  # fmt: skip
ONE_OF_THEM = frozenset(("which", "correct", "true", "best", "right"))
# Where to look, at the end: "What is the total shown on this page?" No cell is about that.
_PICTURE = (
    r"(?:the|this|that) (?:(?:above|attached|following|given|provided|shown|uploaded) )?"
    r"(?:document|image|page|photo|photograph|picture|scan|screen|screenshot)(?: (?:above|attached|below|given|provided))?"
)
_PAPER = (
    r"(?:this|my) (?:bill|boarding pass|card|contract|form|invoice|label|letter|menu|order|receipt|report|sheet|slide|statement|"
    r"ticket)"
)
_SEEN = r"(?:displayed|found|given|listed|mentioned|printed|seen|shown|stated|visible|written) "
WHERE = re.compile(
    rf",? (?:(?:(?:that|which) (?:is|are) |as )?{_SEEN})?(?:in|on|according to) (?:{_PICTURE}|{_PAPER})(?=\W*\Z)",
    re.IGNORECASE,
)
# The same, where what stands before it is in the picture and not about all of it: "the date of this document".
OF_PICTURE = re.compile(
    rf"(?<!page)(?<!image)(?<!photo)(?<!picture) of (?:(?!the screen){_PICTURE}|{_PAPER})(?=\W*\Z)", re.IGNORECASE
)
ABOUT_ALL = NAMES_NOTHING | frozenset((
    "kind", "type", "sort", "class", "category", "genre", "format", "purpose", "subject", "topic", "theme", "title", "heading",
    "content", "contents", "summary", "gist", "overview", "description", "caption", "summarize", "summarise", "describe", "style",
    "layout", "background", "colour", "color", "language", "main", "point", "idea", "part", "parts", "side", "top", "bottom",
    "left", "corner", "middle", "centre", "center", "end", "start", "rest", "quality", "size", "mood", "analysis", "account",
    "give", "provide", "write", "brief", "short", "detailed", "please", "your", "and", "good", "morning", "evening", "hi", "hello",
))  # fmt: skip
# Where this is left of a question without where to look, that was what it asked: "What shapes are on this page?"
ENDS_IN_BEING = re.compile(r"\b(?:is|are|was|were)\W*\Z", re.IGNORECASE)
# Whose it is, or that it is the one in the picture, no cell says: "What is my total?", "the price of this room"
OWN = re.compile(  # in small letters: "Seasons of My Heart" is a title
    r"(?<!\b[Hh]ere is)(?<!\b[Tt]his is)(?:(?<=\bis)|(?<=\bof)|(?<=\bme)|(?<='s)) (?:my|our|your|this) (?=[^\W\d])"
    r"(?!(?:document|image|page|photo|photograph|picture|scan|screen|screenshot|one|an?|the|own|at|by|for|from|in|on|of|to|with|"
    r"and|or|please|thanks|cheers|about|as|called|used|made|due(?! date)|worth|say|mean|supposed|located|addressed|calculated|"
    r"all|again|going|important|per|showing|taken|written|right|wrong|correct|is|was|were|did|does|do|has|have|had|can|could|"
    r"will|would|should|may|still|paid|built|signed)\b)"
)
# Marks around words, "total" or **total**, which are none in a formula; those of the last line also stand between letters.
_AROUND_WORDS = ("** **", "* *", "` `", '" "', "' '", "\u2018 \u2019")
_BRACKETS = ("( )", "[ ]")
_QUOTES = ("\u201c \u201d", "\u201e \u201c", "\u00ab \u00bb", "\u300c \u300d", "\u300e \u300f")
# By these a short text says more than the name of what it asks for: a verb before it ("List all", but "Price list").
SAYS_MORE = re.compile(
    r"\d|['\u2019]|\b(?:whats?|which|whos?|whom|whose|when|wheres?|why|hows?|is|are|was|were|do|does|did|can|could|will|would|"
    r"has|have|had|"
    r"yes|of|by|for|in|on|at|from|to|with|and|or|the|it|this|that|all|everything|anything)\b|"
    r"\A(?:(?:please|now|just|kindly|briefly|carefully|fully|quickly|thoroughly)\s+)?"
    r"(?:tell|give|show|find|list|read|count|describe|look|transcribe|translate|summari[sz]e|explain|extract|identify|compare|"
    r"(?:free\s+)?ocr|continue|solve|caption|convert|analy[sz]e|parse|recogni[sz]e|elaborate|detect|locate|digiti[sz]e|paraphrase|"
    r"calculate|classify|enumerate|get|help|please|proofread|provide|verify|write|good (?:afternoon|day|evening|morning|night)|"
    r"more|hello|hi|thanks|thank|no|name(?= )|any|all|click|highlight|ok|okay|press|scroll|select|tap|type(?= ))\b",
    re.IGNORECASE,
)
ARTICLE = re.compile(r"\A(?:the|an?)\s+", re.IGNORECASE)
# What says who answers: "You are a helpful assistant."
PERSONA = re.compile("you(?: a|['\u2019])re\\b", re.IGNORECASE)


def _around(pair: str, inside: str, before: str = "", behind: str = "", gap: str = "") -> re.Pattern:
    first, last = map(re.escape, pair.split())
    return re.compile(rf"{before}{first}{gap}(?=\S)({inside}{{1,200}}?)(?<=\S){gap}{last}{behind}")


MARKS = [
    *(_around(pair, r"[^\n*]", r"(?<![\w*])", r"(?![\w*])") for pair in _AROUND_WORDS),
    *(_around(pair, r"[^\n()\[\]{}<>*+/=^]", r"(?<![\w)\]}^*])", r"(?![\w(\[{^*])") for pair in _BRACKETS),
    *(_around(pair, f"[^{pair[0]}{pair[-1]}\n]", gap=r"\s?") for pair in _QUOTES),
]
