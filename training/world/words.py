"""The words of the drawn world: what labels, signs, shapes, tables, charts and questions may say.

About a hundred names asked for in whole words: every one of them becomes one or two tokens of the tokenizer
(`training.tokenizer`), while digits and capital letters of values stay one token per character.
"""

import re
from functools import cache, lru_cache

LABELS = (
    "Total", "Amount", "Balance", "Tax", "Price", "Fee", "Discount", "Deposit", "Invoice number", "Order number",
    "Serial number", "Account", "Customer", "Ticket", "Seat", "Gate", "Room", "Floor", "Flight", "Platform", "Date",
    "Time", "Year", "Weight", "Height", "Width", "Volume", "Quantity", "Batch", "Model", "Code", "Reference", "Route",
    "Zone", "Locker", "Postcode", "Order date", "Invoice date", "Due date", "Taxi fee", "Entry fee", "Unit price",
    "Subtotal",
)  # fmt: skip

# labels that are easily taken for each other
NEAR_LABELS = (
    ("Order number", "Order date"), ("Invoice number", "Invoice date"), ("Order number", "Invoice number"),
    ("Order date", "Invoice date"), ("Order number", "Serial number"), ("Date", "Due date"), ("Tax", "Taxi fee"),
    ("Fee", "Entry fee"), ("Taxi fee", "Entry fee"), ("Price", "Unit price"), ("Total", "Subtotal"),
    ("Weight", "Height"), ("Account", "Amount"), ("Gate", "Date"),
)  # fmt: skip

FIELD_QUESTIONS = (
    "What is the {label}?",
    "Which {label} is shown?",
    "Read the {label}.",
    "What does it say for {label}?",
)
EITHER_QUESTIONS = ("What is the {first} or, if there is none, the {second}?",)

TRANSCRIBE = "Read the page."

# ink colours of signs and shapes, by the name that questions use (RGB)
COLOURS = {
    "red": (200, 40, 40),
    "green": (40, 140, 60),
    "blue": (40, 80, 190),
    "orange": (225, 130, 30),
    "purple": (130, 60, 160),
    "grey": (110, 110, 110),
}

SHAPES = ("circle", "square", "triangle", "cross", "diamond")
PLURALS = {"circle": "circles", "square": "squares", "triangle": "triangles", "cross": "crosses", "diamond": "diamonds"}

SIGN_WORDS = (
    "EXIT", "OPEN", "STOP", "SALE", "PUSH", "PULL", "TAXI", "BANK", "HOTEL", "NORTH", "SOUTH", "EAST", "WEST", "WAIT",
)  # fmt: skip

SIGN_QUESTIONS = ("What does the {colour} sign say?", "Read the {colour} sign.")
SHAPE_COLOUR_QUESTIONS = ("What colour is the {shape}?", "Which colour has the {shape}?")
COLOUR_SHAPE_QUESTIONS = ("What shape is {colour}?", "Which shape is {colour}?")
COUNT_QUESTIONS = ("How many {shapes} are there?", "Count the {shapes}.")

# what a table's rows may be, by the kind that questions use
ROWS = {
    "product": ("Apples", "Bread", "Butter", "Cheese", "Coffee", "Eggs", "Honey", "Rice"),
    "city": ("Berlin", "London", "Madrid", "Oslo", "Paris", "Rome", "Tokyo", "Vienna"),
    "team": ("Bears", "Eagles", "Foxes", "Hawks", "Lions", "Sharks", "Tigers", "Wolves"),
}
ROW_NAMES = tuple(name for names in ROWS.values() for name in names)
COLUMNS = ("Price", "Tax", "Fee", "Weight", "Year", "Stock", "Size", "Sold", "Cost", "Score")
TABLE_QUESTIONS = ("What is the {column} of {row}?", "Read the {column} of {row}.")
TABLE_REVERSE_QUESTIONS = ("Which {kind} has {column} {value}?", "Which {kind} has the {column} {value}?")

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
CHART_QUESTIONS = ("What is the value of {label}?", "Read the value of {label}.")
CHART_EXTREME_QUESTIONS = ("Which bar is the {extreme}?", "Which is the {extreme} bar?")
EXTREMES = ("highest", "lowest")

TITLES = ("Order", "Invoice", "Ticket", "Report", "Account", "Booking")

GIST_QUESTIONS = ("What kind of page is this?", "Which kind of page is this?")
PAGE_KINDS = ("form", "table", "chart", "scene", "list")
ABSENT = "none"  # the answer where what is asked for is not on the page

# every name by which a question can ask for a thing on the page
KEYS = tuple(dict.fromkeys((*LABELS, *COLOURS, *SHAPES, *ROW_NAMES, *COLUMNS, *MONTHS)))

SYSTEM = "You are a helpful assistant."


@lru_cache(maxsize=20000)
def asked(text: str) -> frozenset[str]:
    """Which of `KEYS` a question asks by; of names within one another the longer one counts."""
    found = set()
    for name in sorted(KEYS, key=len, reverse=True):
        text, count = re.subn(rf"\b{name}(s|es)?\b", "", text, flags=re.IGNORECASE)
        found |= {name} if count else set()
    return frozenset(found)


@cache
def alike(first: str, second: str) -> bool:
    """Whether two labels share a word, contain one another or are easily taken for each other."""
    one, other = first.lower(), second.lower()
    shared = set(one.split()) & set(other.split())
    return bool(shared) or one in other or other in one or {first, second} in [set(pair) for pair in NEAR_LABELS]
