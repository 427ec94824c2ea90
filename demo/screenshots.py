"""Pictures of the app for the documentation, taken in a real browser.

python -m demo.screenshots --out docs/images
"""

import argparse
import sys
from pathlib import Path

from PIL import Image

from demo.app import build, launch
from demo.browser import open_browser
from demo.instrument import Instrument
from demo.samples import samples, title
from upload import DEFAULT_CHECKPOINT

WIDE, PHONE = (1180, 900), (390, 844)  # pixels
COLOURS = 256  # of a stored picture
SHOWN = "several fields"  # the start of an example's title
ANSWERED = "document.querySelector('#share').innerText.includes('kept')"


def choose_example(page, start: str):
    """Takes the first example whose title begins with `start`."""
    page.locator("#example input").fill(start)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")


def take(url: str, out: Path) -> list[Path]:
    """The page after a question, its maps, and the page on a phone, as PNG files in `out`."""
    taken = []

    def save(target, name: str, **options):
        path = out / f"{name}.png"
        target.screenshot(path=path, **options)
        Image.open(path).convert("P", palette=Image.Palette.ADAPTIVE, colors=COLOURS).save(path, optimize=True)
        taken.append(path)

    with open_browser() as browser:
        for size, name in ((WIDE, "app"), (PHONE, "app_phone")):
            page = browser.new_page(viewport={"width": size[0], "height": size[1]})
            page.goto(url)
            choose_example(page, SHOWN)
            page.wait_for_function("document.querySelector('#tokens').innerText.includes('of this picture')")
            page.get_by_label("number input for Tokens").fill("20")
            page.keyboard.press("Enter")
            page.locator("#ask").click()
            page.wait_for_function(ANSWERED)
            page.wait_for_timeout(1500)  # pictures load
            save(page, name, full_page=True)
            if size == WIDE:
                page.get_by_text("Scores, tensions and texture channels").click()
                page.locator("#show").click()
                page.locator("#maps img").first.wait_for()
                page.wait_for_timeout(1500)
                save(page.locator("#behind"), "app_maps")
            page.close()
    return taken


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--model", default=str(DEFAULT_CHECKPOINT))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    instrument = Instrument.load(options.model)
    examples = [example for example in samples() if title(example).startswith(SHOWN)]
    instrument.warm_up(examples[0].image)
    app = build(instrument, examples)
    try:
        print(*take(launch(app, prevent_thread_lock=True, quiet=True)[1], options.out), sep="\n")
    finally:
        app.close()


if __name__ == "__main__":
    sys.exit(main())
