"""Random values of everyday pages: amounts, times, dates, names, codes, measures."""

from collections.abc import Sequence
from random import Random

from training.data.document_words import (
    COUNTRIES,
    DAYS,
    EVENTS,
    FIRST_NAMES,
    LAST_NAMES,
    MONTHS,
    PLACES,
    SYMBOLS,
    TASKS,
    THINGS,
    WORDS,
)

_OF_TABLES = {"free": 1.0, "thing": 0.6, "event": 0.5, "place": 0.3, "word": 0.3}  # how often a value is a table's text


class Values:
    """Random values of one page, whose amounts are in one currency and whose dates and times are written in one way.

    Args:
        phrases: texts that a value that can be any words often is; none if empty.
    """

    def __init__(self, random: Random, phrases: Sequence[str] = ()):
        self.random, self.phrases, self._way = random, phrases, random.randrange(1 << 16)

    def amount(self, amount: float) -> str:
        """An amount as this page writes them."""
        return _written(amount, self._way)

    def make(self, kind: str) -> str:
        """A value of a kind in `ASKING`, but "state", in `SENTENCES` or in `KINDS`, or a number "in" a unit; `KeyError` for
        another."""
        if self.phrases and self.random.random() < _OF_TABLES.get(kind, 0):
            return self.random.choice(self.phrases)
        if kind.startswith("in "):
            return _figure(self.random) + kind.removeprefix("in").replace(" °", "°")
        if kind in _WRITTEN:
            return _WRITTEN[kind](self.random, self._way)
        return _VALUES[kind](self.random)


def _one(ways: Sequence[str], way: int) -> str:
    return ways[way % len(ways)]


def _amount(random: Random, way: int) -> str:
    if way % 5 == 0:
        return _written(random.randint(1000, 9999), way)
    cents = random.choice((0, 50, 99, 95, random.randint(0, 99)))
    return _written(random.randint(5, 999) if way % 5 == 1 else random.randint(1, 99) + cents / 100, way)


def _written(amount: float, way: int) -> str:
    number = f"{amount:,.0f}" if way % 5 < 2 else f"{amount:,.2f}"
    return _one(("${}", "{} EUR", "{}", "€{}", "£{}", "{}", "$ {}", "{} kr", "{} €"), way).format(number)


def _date(random: Random, way: int) -> str:
    day, month, year = random.randint(1, 28), random.randint(1, 12), random.randint(1995, 2030)
    name = MONTHS[month - 1]
    return _one(
        (
            f"{day} {name} {year}",
            f"{name[:3]} {day}, {year}",
            f"{day:02d}.{month:02d}.{year}",
            f"{year}-{month:02d}-{day:02d}",
            f"{month}/{day}/{year}",
            f"{name[:3]} {day}",
            f"{day} {name[:3]} {year}",
        ),
        way,
    )


def _short_date(random: Random, way: int) -> str:
    day, month = random.randint(1, 28), random.randint(1, 12)
    name = MONTHS[month - 1][:3]
    return _one((f"{day} {name}", f"{name} {day}", f"{day:02d}/{month:02d}", _date(random, way)), way)


def _time(random: Random, way: int) -> str:
    hour, minute = random.randint(0, 23), random.choice((0, 0, 15, 30, 45, random.randint(0, 59)))
    half = f"{hour % 12 + 1}:{minute:02d}"
    late = random.random() < 0.6
    return _one((f"{hour:02d}:{minute:02d}", f"{hour}:{minute:02d}", half + (" pm" if late else " am"),
                 half + ("PM" if late else "AM")), way)  # fmt: skip


def _when(random: Random, way: int) -> str:
    ago = f"{random.randint(2, 59)} {random.choice(('min', 'h', 'days'))} ago"
    return random.choice((_time(random, way), _short_date(random, way), random.choice(DAYS)[:3], ago, "Yesterday"))


def _code(random: Random) -> str:
    letters = "".join(random.choices("ABCDEFGHKLMNPRSTUVWXYZ", k=random.randint(1, 3)))
    digits = str(random.randint(1, 10 ** random.randint(2, 6)))
    return random.choice((letters + digits, f"{letters}-{digits}", digits, digits + letters[0], f"#{digits}"))


def _person(random: Random) -> str:
    first, last = random.choice(FIRST_NAMES), random.choice(LAST_NAMES)
    return random.choice(
        (
            f"{first} {last}",
            f"{first} {last}",
            first,
            f"{first[0]}. {last}",
            f"{random.choice(('Dr', 'Ms', 'Mr'))} {last}",
        )
    )


def _figure(random: Random) -> str:
    return random.choice((str(random.randint(1, 999)), f"{random.randint(0, 99)}.{random.randint(0, 9)}"))


def _measure(random: Random) -> str:
    return _figure(random) + random.choice(
        (" kg", " cm", " m", "%", "%", " km/h", " GB", "°C", "°", " g", " min", " kcal", " ml")
    )


def _phone(random: Random) -> str:
    return random.choice(("{}-{}", "0{} {}", "+{} {}", "({}) {}")).format(
        random.randint(20, 999), random.randint(1000, 999999)
    )


def _email(random: Random) -> str:
    name = random.choice((*FIRST_NAMES, *LAST_NAMES)).lower() + random.choice(("", str(random.randint(1, 99))))
    return f"{name}@{random.choice(('inbox', 'office', 'club', 'shop'))}.{random.choice(('com', 'net', 'org', 'eu'))}"


def _number(random: Random) -> str:
    short, long = str(random.randint(1, 30)), str(random.randint(1, 9999))
    return random.choice((short, long, f"{random.randint(1, 99)},{random.randint(0, 999):03d}"))


def _file(random: Random) -> str:
    name = random.choice((*THINGS, *EVENTS)).lower().replace(" ", random.choice("_-"))
    number = random.choice(("", "", str(random.randint(1, 30)), f"_v{random.randint(1, 9)}"))
    return f"{name}{number}.{random.choice(('pdf', 'doc', 'jpg', 'mp3', 'csv', 'html', 'py', 'odt', 'gif', 'mov'))}"


def _size(random: Random) -> str:
    return f"{_figure(random)} {random.choice(('KB', 'MB', 'GB', 'kB'))}"


def _rating(random: Random) -> str:
    number = f"{random.randint(10, 50) / 10:.1f}"
    return random.choice(("{}", "{}/5", "{} stars", "{} of 5")).format(number)


def _change(random: Random) -> str:
    return f"{random.choice('+-')}{random.randint(0, 19)}.{random.randint(0, 99):02d}{random.choice(('%', '', '%'))}"


def _score(random: Random) -> str:
    return random.choice(("{}:{}", "{}-{}", "{} - {}")).format(random.randint(0, 9), random.randint(0, 9))


def _quantity(random: Random) -> str:
    number = random.choice((str(random.randint(1, 900)), "1/2", "3/4", "1.5"))
    return f"{number} {random.choice(('g', 'ml', 'cups', 'tbsp', 'tsp', 'pieces', 'kg', 'l', 'slices'))}"


_WRITTEN = {"amount": _amount, "date": _date, "short date": _short_date, "time": _time, "when": _when}
_VALUES = {
    "file": _file,
    "size": _size,
    "rating": _rating,
    "change": _change,
    "score": _score,
    "quantity": _quantity,
    "free": lambda random: random.choice(THINGS),
    "event": lambda random: random.choice(EVENTS),
    "first name": lambda random: random.choice(FIRST_NAMES),
    "task": lambda random: random.choice(TASKS),
    "symbol": lambda random: random.choice(SYMBOLS),
    "travel": lambda random: random.choice(("on time", f"{random.randint(2, 90)} min late", "boarding", "cancelled", "delayed")),
    "length": lambda random: f"{random.randint(0, 9)}:{random.randint(0, 59):02d}",
    "weather": lambda random: random.choice(("Rain", "Snow", "Fog", "Clear sky", "Light wind", "Storm", "Showers", "Clouds")),
    "cold": lambda random: f"{random.randint(-15, 9)}°",
    "warm": lambda random: f"{random.randint(10, 39)}°",
    "often": lambda random: random.choice(("once a day", "twice a day", "at night", "before meals", "every 6 hours", "if needed")),
    "grade": lambda random: random.choice(("A", "A-", "B+", "B", "C", "D", "5", "72%", "pass", "very good")),
    "person": _person,
    "place": lambda random: random.choice(PLACES),
    "code": _code,
    "phone": _phone,
    "email": _email,
    "website": lambda random: f"www.{random.choice(LAST_NAMES).lower()}.{random.choice(('com', 'org', 'net'))}",
    "zip": lambda random: str(random.randint(1000, 99999)),
    "iban": lambda random: f"{random.choice(('DE', 'FR', 'ES', 'NL'))}{random.randint(10, 99)} {random.randint(1000, 9999)}",
    "shoes": lambda random: f"{random.randint(34, 47)}{random.choice(('', '.5'))}",
    "country": lambda random: random.choice(COUNTRIES),
    "number": _number,
    "small": lambda random: str(random.randint(1, 60)),
    "year": lambda random: str(random.randint(1700, 2024)),
    "measure": _measure,
    "percent": lambda random: f"{random.randint(1, 99)}%",
    "word": lambda random: random.choice(WORDS),
    "thing": lambda random: random.choice(THINGS).lower(),
    "day": lambda random: random.choice(DAYS),
}  # fmt: skip
