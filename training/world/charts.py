"""Bar charts: labelled bars with their values written at them."""

from dataclasses import dataclass
from random import Random

from training.world import words
from training.world.canvas import SMALLEST, Box, Canvas, Thing, Written, inner, text_width
from training.world.layout import SPLITS, ChartLayout, value_split
from training.world.question import Question, found, written
from training.world.styles import Style

_BARS = (3, 6)
_CLEARLY = 0.06  # of the highest value: by how much the highest and the lowest bar stand out at least
_EDGE = 4  # pixels left free at the page's edges
_VALUES = {split: [value for value in range(5, 1000) if value_split(str(value)) == split] for split in SPLITS}


@dataclass
class _Chart:
    labels: list[str]
    values: list[int]
    font: str
    size: int
    box: Box  # of the whole chart in pixels


def draw_chart(canvas: Canvas, random: Random, layout: ChartLayout, split: str, style: Style) -> list[Question]:
    """Draws a chart and asks for all of its values and for its highest and lowest bar; none where it doesn't fit."""
    chart = _choose(canvas, random, split, style)
    left, top, right, bottom = chart.box
    if not _fits(chart, layout):
        return []
    canvas.taken.append(chart.box)
    if layout.title == "line":
        title = random.choice(words.TITLES)
        canvas.write(title, left + 2, top + chart.size, chart.font, chart.size, canvas.ink)
        chart.box = (left, top + round(chart.size * 1.4), right, bottom)
    fills = random.sample(sorted(words.COLOURS), len(chart.labels))
    if layout.bars != "colours":
        fills = fills[:1] * len(fills)
    draw = _draw_up if layout.direction == "up" else _draw_right
    places = draw(canvas, layout, chart, fills, random.uniform(0.5, 0.8))
    return _ask(random, chart, places)


def _choose(canvas: Canvas, random: Random, split: str, style: Style) -> _Chart:
    labels = list(random.choice((words.MONTHS, *words.ROWS.values())))
    count = random.randint(*_BARS)
    start = random.randint(0, len(labels) - count)
    chosen = labels[start : start + count] if random.random() < 0.5 else random.sample(labels, count)
    # a limit for each value: all below 100, and two in three of the others
    pool = [value for value in _VALUES[split] if value < random.choice((100, 1000, 1000))]
    while True:
        values = random.sample(pool, count)
        ordered = sorted(values)
        clear = _CLEARLY * ordered[-1]
        if ordered[-1] - ordered[-2] >= clear and ordered[1] - ordered[0] >= clear:
            break
    width = max(min(canvas.width, 124), round(canvas.width * random.uniform(0.7, 1.0)) - 2 * _EDGE)
    height = max(min(canvas.height, 120), round(canvas.height * random.uniform(0.6, 1.0)) - 2 * _EDGE)
    left = random.randint(2, max(2, canvas.width - 2 - width))
    top = random.randint(2, max(2, canvas.height - 2 - height))
    box = (left, top, min(canvas.width - 2, left + width), min(canvas.height - 2, top + height))
    return _Chart(chosen, values, random.choice(style.fonts), random.randint(*style.font_sizes), box)


def _fits(chart: _Chart, layout: ChartLayout) -> bool:
    while True:
        width, height = chart.box[2] - chart.box[0], chart.box[3] - chart.box[1]
        texts = [*chart.labels, *map(str, chart.values)]
        widest = max(text_width(text, chart.font, chart.size) for text in texts)
        line = round(chart.size * 1.3)
        height -= round(chart.size * 1.4) if layout.title == "line" else 0
        if layout.direction == "up":
            fits = (widest + 4) * len(chart.labels) <= width and height >= 2 * line + 40
        else:
            fits = (line + 1) * len(chart.labels) <= height and width >= 2 * widest + 40
        if fits:
            return True
        if chart.size > SMALLEST:
            chart.size -= 1
        elif len(chart.labels) > _BARS[0]:
            dropped = sorted(range(len(chart.values)), key=chart.values.__getitem__)[1]  # neither highest nor lowest
            del chart.labels[dropped], chart.values[dropped]
        else:
            return False


def _draw_bar(canvas: Canvas, layout: ChartLayout, box: Box, fill: str, label: str) -> None:
    if layout.bars == "outlined":
        canvas.draw.rectangle(inner(box), fill=canvas.mixed(0.15), outline=words.COLOURS[fill], width=2)
    else:
        canvas.draw.rectangle(inner(box), fill=words.COLOURS[fill])
    canvas.things.append(Thing(box, (label,)))


def _draw_up(canvas, layout, chart, fills, share) -> list[tuple[Written, Written]]:
    left, top, right, bottom = chart.box
    line, slot = round(chart.size * 1.3), (right - left) / len(chart.labels)
    base, room = bottom - line - 1, bottom - top - 2 * line - 4
    if layout.axis == "grid":
        for step in range(1, 5):
            canvas.draw.line((left, base - room * step // 4, right, base - room * step // 4), fill=canvas.mixed(0.15))
    if layout.axis != "none":
        canvas.draw.line((left, base, right, base), fill=canvas.ink)
    places = []
    for index, (label, value, fill) in enumerate(zip(chart.labels, chart.values, fills, strict=True)):
        middle, high = left + (index + 0.5) * slot, max(3, round(room * value / max(chart.values)))
        half = max(3, round(slot * share / 2))
        _draw_bar(canvas, layout, (round(middle) - half, base - high, round(middle) + half, base), fill, label)
        written_at = []
        for text, baseline in ((label, base + round(chart.size * 1.0) + 1), (str(value), base - high - 3)):
            start = round(middle - text_width(text, chart.font, chart.size) / 2)
            written_at.append(canvas.write(text, start, baseline, chart.font, chart.size, canvas.ink, names=(label,)))
        places.append(tuple(written_at))
    return places


def _draw_right(canvas, layout, chart, fills, share) -> list[tuple[Written, Written]]:
    left, top, right, bottom = chart.box
    slot = (bottom - top) / len(chart.labels)
    start = left + max(text_width(label, chart.font, chart.size) for label in chart.labels) + 6
    room = right - start - max(text_width(str(value), chart.font, chart.size) for value in chart.values) - 6
    if layout.axis == "grid":
        for step in range(1, 5):
            canvas.draw.line((start + room * step // 4, top, start + room * step // 4, bottom), fill=canvas.mixed(0.15))
    if layout.axis != "none":
        canvas.draw.line((start - 1, top, start - 1, bottom), fill=canvas.ink)
    places = []
    for index, (label, value, fill) in enumerate(zip(chart.labels, chart.values, fills, strict=True)):
        middle, long = round(top + (index + 0.5) * slot), max(3, round(room * value / max(chart.values)))
        half = max(3, round(slot * share / 2))
        _draw_bar(canvas, layout, (start, middle - half, start + long, middle + half), fill, label)
        baseline = middle + round(chart.size * 0.36)
        name = canvas.write(label, left + 1, baseline, chart.font, chart.size, canvas.ink, names=(label,))
        said = canvas.write(str(value), start + long + 4, baseline, chart.font, chart.size, canvas.ink, names=(label,))
        places.append((name, said))
    return places


def _ask(random: Random, chart: _Chart, places: list[tuple[Written, Written]]) -> list[Question]:
    asked = []
    for label, value, (_, place) in zip(chart.labels, chart.values, places, strict=True):
        text = random.choice(words.CHART_QUESTIONS).format(label=label)
        asked.append(written(text, str(value), place, "chart"))
    for extreme, pick in zip(words.EXTREMES, (max, min), strict=True):
        index = chart.values.index(pick(chart.values))
        text = random.choice(words.CHART_EXTREME_QUESTIONS).format(extreme=extreme)
        asked.append(found(text, chart.labels[index], *places[index], "chart_extreme"))
    return asked
