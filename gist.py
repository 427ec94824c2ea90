"""Questions about a whole picture, such as "Describe this image.": no cell is more what they ask for than another."""

import re

_LONGEST = 40  # words of such a question
_SENTENCES = re.compile("(?<=[.?!:\u3002\uff01\uff1f])\\s+")
_WORD = re.compile(r"[\w'\u2019-]+")
_BE = r"(?: is| are|['\u2019]s)"
_NOUN = r"(?:document|image|page|photo|photograph|picture|scan|scene|screen|screenshot)s?"
_THE = (
    r"(?:(?:the|this|that|these|my) )?(?:(?:whole|entire|full|above|attached|following|given|provided|uploaded) )*"
    rf"{_NOUN}(?: (?:above|attached|below|given|here|provided))?"
)
_IT = rf"(?:{_THE}|this|that|it|these|here)"
_ADJECTIVE = (
    r"(?:brief|clear|comprehensive|concise|detailed|full|general|long|one[- ]line|one[- ]sentence|short|simple|very)"
)
_SUMMARY = rf"(?:{_ADJECTIVE} (?:and |but )?)*(?:caption|description|gist|overview|summary)"
_KIND = r"(?:category|kind|sort|type)s?"
_SEEN = r"(?:depicted|displayed|going on|happening|pictured|presented|seen|shown|there|visible)"
_ASKED = (
    # Describe this image. Explain what you see.
    rf"(?:caption|describe|explain|summari[sz]e)(?: (?:to|for) (?:me|us))?(?: what(?:{_BE} {_SEEN}| you (?:can )?see))?"
    rf"(?:(?: in| on)? {_IT})?",
    rf"describe the {_KIND} of {_NOUN}",
    # Give a short description of this image. Caption:
    rf"(?:(?:create|generate|give|make|provide|write)(?: me| us)? )?(?:(?:an?|the|your) )?{_SUMMARY}(?: (?:about|for|of) {_IT})?",
    # Tell me everything about it.
    rf"tell (?:me|us) (?:(?:all|everything|more|something) )?about {_IT}",
    rf"tell (?:me|us) what (?:{_IT} is|you (?:can )?see(?: (?:in|on) {_IT})?)",
    # What is this page about? What is this a picture of?
    rf"what(?:{_BE})? {_IT}(?: (?:all about|about|showing|an? {_NOUN} of|of))?",
    rf"what{_BE} the (?:(?:general|main|overall) )?(?:content|gist|purpose|subject|theme|topic)s? of {_IT}",
    # What kind of page is this? What type of document do you see?
    rf"(?:what|which) {_KIND} of {_NOUN}(?:{_BE} (?:{_IT}|shown)| do (?:you|i|we) see| am i looking at)",
    rf"what{_BE} (?:the|this) {_KIND} of (?:the |this )?{_NOUN}",
    # What is shown in this image? What's going on?
    rf"what{_BE}(?: {_SEEN})? (?:in|on) {_THE}",
    rf"what{_BE} {_SEEN}(?: here)?",
    # What do you see? What does this picture show?
    rf"what (?:can|could|do) (?:i|we|you) see(?: here| (?:in|on) {_IT})?",
    r"what am i (?:looking at|seeing)",
    rf"what do(?:es)? {_IT} (?:contain|depict|display|illustrate|look like|represent|show)",
)
_LEAD = (
    rf"(?:(?:(?:can|could|will|would) you|hello|help me|hey|hi|kindly|please|tell me|(?:in|on|from|look at) {_THE}) )*"
)
_HOW = (
    r"(?: in (?:(?:full|great|more|some) )?(?:depth|detail|general|short)| in (?:an?|a few|few|one|two|three|your own) "
    r"(?:lines?|paragraphs?|sentences?|words?)| briefly| concisely| shortly| thoroughly| please| (?:for|to) (?:me|us))*"
)
_GIST = re.compile(rf"{_LEAD}(?:{'|'.join(_ASKED)}){_HOW}", re.IGNORECASE)


def asks_for_gist(question: str) -> bool:
    """Whether all that a question in one line says asks what a picture is, shows or tells as a whole."""
    sentences = [_WORD.findall(sentence) for sentence in _SENTENCES.split(question)]
    sentences = [" ".join(words) for words in sentences if words]
    short = sum(sentence.count(" ") + 1 for sentence in sentences) <= _LONGEST
    return bool(sentences) and short and all(map(_GIST.fullmatch, sentences))
