"""Random values of everyday pages: amounts, times, dates, names, codes, measures."""

from random import Random

from training.data.document_words import DAYS, FIRST_NAMES, LAST_NAMES, MONTHS, PLACES, THINGS, WORDS


def make_value(random: Random, kind: str) -> str:
    """A random value of a kind in `ASKING`, but "state", or in `SENTENCES`; `KeyError` for another."""
    return _VALUES[kind](random)


def _amount(random: Random) -> str:
    number = random.choice(
        (
            f"{random.randint(1, 99)}.{random.randint(0, 99):02d}",
            f"{random.randint(1, 9)},{random.randint(0, 999):03d}",
            str(random.randint(5, 999)),
        )
    )
    return random.choice(("${}", "{} EUR", "{}", "€{}", "£{}", "{}")).format(number)


def _date(random: Random) -> str:
    day, month, year = random.randint(1, 28), random.randint(1, 12), random.randint(1995, 2030)
    name = MONTHS[month - 1]
    return random.choice(
        (
            f"{day} {name} {year}",
            f"{name[:3]} {day}, {year}",
            f"{day:02d}.{month:02d}.{year}",
            f"{year}-{month:02d}-{day:02d}",
            f"{month}/{day}/{year}",
            f"{name[:3]} {day}",
        )
    )


def _time(random: Random) -> str:
    hour, minute = random.randint(0, 23), random.choice((0, 0, 15, 30, 45, random.randint(0, 59)))
    return random.choice(
        (
            f"{hour:02d}:{minute:02d}",
            f"{hour}:{minute:02d}",
            f"{hour % 12 + 1}:{minute:02d} {random.choice(('am', 'pm', 'PM'))}",
        )
    )


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


def _measure(random: Random) -> str:
    number = random.choice((str(random.randint(1, 999)), f"{random.randint(0, 99)}.{random.randint(0, 9)}"))
    return number + random.choice(
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


_VALUES = {
    "amount": _amount,
    "time": _time,
    "date": _date,
    "person": _person,
    "place": lambda random: random.choice(PLACES),
    "code": _code,
    "phone": _phone,
    "email": _email,
    "number": _number,
    "small": lambda random: str(random.randint(1, 60)),
    "year": lambda random: str(random.randint(1700, 2024)),
    "measure": _measure,
    "percent": lambda random: f"{random.randint(1, 99)}%",
    "word": lambda random: random.choice(WORDS),
    "thing": lambda random: random.choice(THINGS).lower(),
    "day": lambda random: random.choice(DAYS),
}  # fmt: skip
