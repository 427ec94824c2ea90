"""What people write beside a question: sentences that ask for nothing on the page, before it or behind it.

Those of the held-out split have other frames and other words than those of training.
"""

import re
from random import Random

# what a frame's places stand for: {d} what someone does, {p} a person, {n} and {m} things, {a} how they are, {w} where, {t} when
_WORDS = {
    "train": {
        "d": (
            "filling in my tax return", "packing for a trip", "checking our expenses", "writing a report", "cleaning up the office",
            "helping a neighbour", "preparing a talk", "comparing offers", "planning the weekend", "moving to another flat",
            "closing the books", "sorting old papers", "learning for an exam", "calling the bank", "waiting for an answer",
            "making a list for the team", "reading this on a small screen", "looking for a mistake", "updating our records",
            "translating this for a friend", "entering it all by hand", "getting ready to leave",
        ),
        "p": (
            "boss", "sister", "brother", "neighbour", "landlord", "teacher", "doctor", "colleague", "mother", "father", "friend",
            "accountant", "manager", "daughter", "son", "client", "uncle", "driver", "lawyer", "coach", "assistant", "aunt",
        ),
        "n": (
            "letter", "car", "phone", "kitchen", "printer", "key", "bicycle", "garden", "coffee", "report", "chair", "computer",
            "window", "suitcase", "dinner", "package", "table", "number", "folder", "camera", "scanner", "contract", "lamp",
            "ticket", "wallet", "umbrella", "map", "sofa", "engine", "jacket", "dog", "cat", "roof", "piano", "newspaper", "list",
            "copy", "email", "pencil", "fridge", "shirt", "picture", "battery", "calendar", "bridge", "fence", "paper", "music",
            "answer", "glass", "box", "team", "game", "page", "order", "price", "date", "name", "year", "address",
        ),
        "a": (
            "new", "old", "late", "broken", "cold", "cheap", "empty", "small", "ready", "red", "wet", "too long", "expensive",
            "heavy", "blue", "loud", "wrong", "open", "green", "gone", "dirty", "fine", "closed", "quiet", "lost", "free",
        ),
        "w": (
            "to the airport", "to work", "to the station", "home", "to the library", "to the market", "to school", "to the office",
            "to the hotel", "to the museum", "to the doctor", "to the harbour", "to the theatre", "to the bank", "to Berlin",
            "to the lake", "to London", "to the village", "to the stadium", "to the garage",
        ),
        "t": (
            "yesterday", "this morning", "last week", "on Monday", "in March", "two days ago", "last year", "in the evening",
            "at noon", "on Friday", "after the meeting", "before lunch", "in 2019", "an hour ago", "in summer", "last night",
        ),
    },
    "held_out": {
        "d": (
            "renewing my passport", "settling a bill", "cooking for guests", "archiving these scans", "auditing the branch",
            "replying to a customer",
        ),
        "p": ("wife", "husband", "supervisor", "tenant", "nurse", "grandfather", "partner", "secretary"),
        "n": (
            "laptop", "receipt", "mirror", "ladder", "violin", "parcel", "carpet", "bottle", "notebook", "heater", "invoice",
            "spoon", "train", "photo", "amount", "month",
        ),
        "a": ("torn", "noisy", "tiny", "yellow", "delayed", "unclear", "warm", "sold out"),
        "w": ("to the pharmacy", "to the beach", "to Madrid", "to the cinema", "to the workshop", "to the post office"),
        "t": ("on Sunday", "in the afternoon", "last month", "in 2021", "a while ago", "at midnight"),
    },
}  # fmt: skip
_FRAMES = {
    "train": (
        "I am {d}.", "I'm {d} right now.", "We are {d} and I need this.", "I was {d} {t}.", "My {p} asked me about this {t}.",
        "My {p} is {d}.", "My {p} sent me this {t}.", "My {p} says the {n} is {a}.", "The {n} is {a}.", "The {n} was {a} {t}.",
        "I bought a {n} {t}.", "I forgot my {n}.", "I went {w} {t}.", "We drive {w} and the {n} is {a}.",
        "I left the {n} at home.", "The {n} and the {m} are {a}.", "My {p} lost the {n} on the way {w}.",
        "I have been {d} for hours.", "It has been a long day.", "I can hardly read this.", "My glasses are broken.",
        "Sorry for the bad picture.", "I took this picture {t}.", "This is from the {n} of my {p}.", "I found it in a {n}.",
        "I got this {t}.", "There is not much time.", "I am in a hurry.", "The {n} did not work, so I went {w}.",
        "My {p} and I disagree about it.", "I don't speak the language well.", "Someone put the {n} under the {m}.",
        "Thanks for your help.", "It would help me a lot.", "I need it for my {p}.", "I want to tell my {p}.",
        "I will send it to my {p} {t}.", "Hello!", "Hi there.", "Good morning.", "Thank you in advance.",
        "You are a helpful assistant.", "Here is a picture.", "This is a scan of a page.", "The picture shows a page.",
        "Then we go {w}.", "Later I will check the {n}.", "The {a} {n} belongs to my {p}.", "I once saw a {n} that was {a}.",
        "If the {n} is {a}, we go {w}.", "My {p} wrote a {n} about a {m}.", "I have to go {w} soon.",
        "Nobody knows where the {n} is.", "We talked about the {n} {t}, and about the {m}.", "It should be somewhere on it.",
        "I only need one thing.", "It is the same every year.", "They said that the {n} would be {a}.",
        "I am {d}, and my {p} is {d} too.", "Write it in capitals.", "Describe how you came to it.",
        "Copy it letter by letter.", "Give its coordinates as well.", "Reply in German.", "Say how sure you are.",
        "Format the reply as YAML.", "Do not guess.", "Be precise.", "Mention the line that it stands in.",
        "Keep the spelling as it is.", "Use no more than five words.", "Say none if it is missing.",
        "You are a careful reader of pages.", "Use nothing but the picture.", "Study it first.", "Below is a task.",
        "Here is something about the {n} and the {m}.", "Rules: be short, and do not make anything up.", "Task: read a page.",
        "Act as my {p}.", "Imagine that you are a {p}.", "Reply to what is asked.", "Write one line.",
        "I will check what you say.", "The reply goes to my {p}, who is {d}.",
    ),
    "held_out": (
        "Right now I'm busy {d}.", "A {n} fell on my {m} {t}.", "My {p} keeps asking.", "Greetings from my {p}.",
        "We had a {a} {n}.", "After that I must hurry {w}.", "Attached is something that I photographed {t}.",
        "The {p} told us that every {n} is {a}.", "I'd be grateful.", "That is all I want to know.", "My {p} took the {n} {w}.",
        "I have no idea what to do with this.", "Do it in French.", "Put your reply between two stars.",
        "You are a clerk who reads pages all day.", "Work through this.", "Keep to what can be seen.",
        "Note how certain this is.",
    ),
}  # fmt: skip
_COUNTS = (1, 1, 1, 2, 2, 3, 4)
_PLACE = re.compile(r"\{(\w)\}")


def sentence(split: str, random: Random) -> str:
    """A sentence that asks for nothing on the page, of a split's frames and words."""
    named = {"m": "n"}  # a second thing
    return _PLACE.sub(
        lambda place: random.choice(_WORDS[split][named.get(place[1], place[1])]), random.choice(_FRAMES[split])
    )


def with_sentences(question: str, split: str, random: Random) -> str:
    """The question with one to four sentences beside it: before it three times of five, else behind it or on both sides."""
    said = [sentence(split, random) for _ in range(random.choice(_COUNTS))]
    before = random.choices((len(said), 0, random.randint(0, len(said))), (3, 1, 1))[0]
    ended = question if before == len(said) or question[-1] in ".?!" else question + random.choice("?.")
    return " ".join((*said[:before], ended, *said[before:]))
