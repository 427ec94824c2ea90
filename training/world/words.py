"""The words of the drawn world: what labels, signs, shapes and questions may say.

A few dozen label words asked for in whole words: every one of them becomes one or two tokens of the tokenizer
(`training.tokenizer`), while digits and capital letters of values stay one token per character.
"""

LABELS = (
    "Total", "Amount", "Balance", "Tax", "Price", "Fee", "Discount", "Deposit", "Invoice number", "Order number",
    "Serial number", "Account", "Customer", "Ticket", "Seat", "Gate", "Room", "Floor", "Flight", "Platform", "Date",
    "Time", "Year", "Weight", "Height", "Width", "Volume", "Quantity", "Batch", "Model", "Code", "Reference", "Route",
    "Zone", "Locker", "Postcode",
)  # fmt: skip

FIELD_QUESTIONS = (
    "What is the {label}?",
    "Which {label} is shown?",
    "Read the {label}.",
    "What does it say for {label}?",
)

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

SIGN_WORDS = (
    "EXIT", "OPEN", "STOP", "SALE", "PUSH", "PULL", "TAXI", "BANK", "HOTEL", "NORTH", "SOUTH", "EAST", "WEST", "WAIT",
)  # fmt: skip

SIGN_QUESTIONS = ("What does the {colour} sign say?", "Read the {colour} sign.")
SHAPE_COLOUR_QUESTIONS = ("What colour is the {shape}?", "Which colour has the {shape}?")
COLOUR_SHAPE_QUESTIONS = ("What shape is {colour}?", "Which shape is {colour}?")

SYSTEM = "You are a helpful assistant."
