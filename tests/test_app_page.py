"""The demo app's page: through Gradio's client, and in a real browser with mouse, keyboard and a phone's width."""

import threading
import time
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from PIL import Image

gr = pytest.importorskip("gradio", reason="the app needs Gradio: pip install -e '.[app]'", exc_type=ImportError)

import demo.app as app_module  # noqa: E402
from demo.app import asker, behind, build, launch, page  # noqa: E402
from demo.asking import Asking  # noqa: E402
from demo.browser import open_browser  # noqa: E402
from demo.instrument import GENERATION, Comparison, Instrument  # noqa: E402
from demo.samples import samples, title  # noqa: E402
from demo.screenshots import choose_example  # noqa: E402

SLOW = 120_000  # ms, for a machine that does other things too
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 375, "height": 740}


@pytest.fixture(scope="module")
def examples():
    return samples()


@pytest.fixture(scope="module")
def uploads(tmp_path_factory):
    return tmp_path_factory.mktemp("uploads")


@pytest.fixture(scope="module")
def served(model, processor, examples, uploads):
    """The running app's address."""
    patch = pytest.MonkeyPatch()
    patch.setenv("GRADIO_TEMP_DIR", str(uploads))
    patch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    app = build(Instrument(model, processor), examples)
    yield launch(app, prevent_thread_lock=True, quiet=True)[1]
    app.close()
    patch.undo()


@pytest.fixture(scope="module")
def browser():
    try:
        with open_browser() as opened:
            yield opened
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture
def visit(browser, served):
    """`visit(size)`: a page of a visitor of its own."""
    contexts = []

    def opened(size=WIDE):
        contexts.append(browser.new_context(viewport=size))
        page = contexts[-1].new_page()
        page.set_default_timeout(SLOW)
        page.goto(served)
        page.locator("#question input").wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def drawn(tmp_path, page):
    """`drawn(width, height)`: a picture file."""

    def save(width=128, height=96, seed=0) -> Path:
        path = tmp_path / f"{width}x{height}.png"
        page(width, height, seed=seed).save(path)
        return path

    return save


def upload(visitor, path: Path, cells: int):
    visitor.locator("#picture input[type=file]").set_input_files(path)
    visitor.get_by_text(f"of the {cells} of this picture").wait_for()


def answered(visitor) -> dict[str, str]:
    """The costs shown, by method, once a question is through."""
    visitor.wait_for_function("document.querySelector('#cost-arrcoc').innerText.includes('cache')")
    return {name: visitor.locator(f"#cost-{name}").inner_text() for name in ("full", "smaller", "arrcoc")}


def tokens(cost: str) -> int:
    return int(cost.split("visual tokens")[1].split()[0])


def wait_until(fact, seconds: float = SLOW / 1000):
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.05)


def generating() -> bool:
    return any(thread.name == GENERATION for thread in threading.enumerate())


# Without a browser


def test_the_page_is_filled_in_the_order_of_its_outputs(model, processor, examples, tmp_path):
    path = tmp_path / "page.png"
    number = next(n for n, example in enumerate(examples) if example.evidence)
    examples[number].image.save(path)
    ask = asker(Instrument(model, processor), examples)
    steps = list(ask(str(path), examples[number].question, "tokens", 20, "select", 1.0, False, None, number))
    *answers, full, smaller, chosen, heat, kept, known, picture, held, seen = steps[-1]
    assert len(answers) == 3
    assert [tokens(cost.replace("</dt><dd>", " ").replace("<", " ")) for cost in (full, chosen)] == [144, 20]
    assert smaller
    assert heat[0].size == heat[1].size == kept.size
    assert examples[number].answers[0] in known
    assert picture.visible
    assert held is not None
    assert len(behind(seen)[1]) == 17
    other = list(ask(str(path), "Something else?", "tokens", 20, "select", 1.0, False, held, number))[-1]
    assert "encoded before" in other[5]
    assert not other[9].visible  # another question than the example's


def test_refusals_are_messages_without_a_trace(model, processor, tmp_path, monkeypatch):
    instrument = Instrument(model, processor)
    ask, path = asker(instrument, []), tmp_path / "page.png"
    settings = ("tokens", 20, "select", 1.0, False, None, None)
    with pytest.raises(gr.Error, match="no picture"):
        next(ask(None, "What?", *settings))
    path.write_text("no picture")
    with pytest.raises(gr.Error, match="not a picture"):
        next(ask(str(path), "What?", *settings))
    Image.new("RGB", (64, 64)).save(path)
    with pytest.raises(gr.Error, match="no question"):
        next(ask(str(path), " ", *settings))
    monkeypatch.setattr(instrument, "compare", lambda *arguments: (1 / 0 for _ in "x"))
    with pytest.raises(gr.Error, match="went wrong") as caught:
        next(ask(str(path), "What?", *settings))
    assert "zero" not in str(caught.value)
    with pytest.raises(gr.Error, match="Nothing has been asked"):
        behind(None)


def test_nothing_is_shown_before_it_is_known():
    assert page(Comparison(12, 48))[:6] == ("", "", "", "", "", "")


def test_clients_ask_through_the_api_and_large_files_are_refused(served, drawn, tmp_path):
    from gradio_client import Client, handle_file

    client = Client(served, verbose=False, download_files=False)
    result = client.predict(handle_file(drawn()), "What?", "tokens", 12, "select", 1, False, api_name="/ask")
    assert "12" in result[5]
    assert list(client.view_api(return_format="dict")["named_endpoints"]) == ["/ask"]
    large = tmp_path / "large.png"
    large.write_bytes(b"\x89PNG" + bytes(11 * 2**20))
    with pytest.raises(Exception, match=r"(?i)413|large|size|exceed"):
        client.predict(handle_file(large), "What?", "tokens", 12, "select", 1, False, api_name="/ask")


@pytest.fixture
def served_briefly(processor, tiny_model, tmp_path, monkeypatch):
    """The address of an app that forgets after nine seconds and whose model, a random one, never comes to an end."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    monkeypatch.setattr(app_module, "FORGET_AFTER", 9)
    monkeypatch.setattr(app_module, "Asking", partial(Asking, max_new_tokens=50_000))
    app = build(Instrument(tiny_model(), processor))
    yield launch(app, prevent_thread_lock=True, quiet=True)[1]
    app.close()


def test_uploads_are_forgotten_and_stopping_stops(served_briefly, drawn, tmp_path):
    from gradio_client import Client, handle_file

    client = Client(served_briefly, verbose=False, download_files=False)
    job = client.submit(handle_file(drawn()), "What?", "tokens", 12, "select", 1, False, api_name="/ask")
    wait_until(lambda: len(job.outputs()) > 3)
    assert generating()
    assert list(tmp_path.glob("*/128x96.png"))
    job.cancel()
    wait_until(lambda: not generating())
    wait_until(lambda: not list(tmp_path.glob("*/128x96.png")))


# In a browser


def test_upload_ask_change_the_budget_and_compare(visit, drawn):
    visitor = visit()
    upload(visitor, drawn(), 48)
    visitor.locator("#question input").fill("What is the total?")
    visitor.get_by_label("number input for Tokens").fill("12")
    visitor.keyboard.press("Tab")
    wait_until(lambda: visitor.get_by_label("as the slider says").is_checked())
    visitor.locator("#ask").click()
    first = answered(visitor)
    assert {name: tokens(cost) for name, cost in first.items()} == {"full": 48, "smaller": 12, "arrcoc": 12}
    assert "time to first token" in first["arrcoc"]
    assert "encoded before" not in first["arrcoc"]
    visitor.locator("#heat img").nth(1).wait_for()
    visitor.locator("#kept img").wait_for()
    visitor.get_by_label("all", exact=True).check()
    visitor.locator("#ask").click()
    visitor.wait_for_function("document.querySelector('#cost-arrcoc').innerText.includes('encoded before')")
    assert tokens(answered(visitor)["arrcoc"]) == 48


def test_an_example_says_what_was_missed_and_shows_its_maps_on_demand(visit, examples):
    visitor = visit()
    example = next(example for example in examples if example.evidence)
    choose_example(visitor, title(example))
    visitor.get_by_text("of this picture").wait_for()
    assert visitor.locator("#question input").input_value() == example.question
    visitor.locator("#ask").click()
    visitor.wait_for_function("document.querySelector('#share').innerText.includes('was kept')")
    visitor.locator("#evidence img").wait_for()
    visitor.get_by_text("Scores, tensions and texture channels").click()
    visitor.locator("#show").click()
    visitor.locator("#maps img").nth(16).wait_for()
    assert "focus - diversify" in visitor.locator("#tensions").inner_text()


def test_two_visitors_at_once_see_their_own(visit, drawn):
    first, second = visit(), visit()
    upload(first, drawn(128, 96), 48)
    upload(second, drawn(96, 160, seed=1), 60)
    for visitor in (first, second):
        visitor.locator("#question input").fill("What is the total?")
    for visitor in (first, second):
        visitor.locator("#ask").click()
    assert [tokens(answered(visitor)["full"]) for visitor in (first, second)] == [48, 60]
    # a picture that is there need not have been read yet
    size = "image => image.decode().then(() => [image.naturalWidth, image.naturalHeight])"
    sizes = [visitor.locator("#kept img").evaluate(size) for visitor in (first, second)]
    assert [width / height for width, height in sizes] == [128 / 96, 96 / 160]
    third = visit()
    third.get_by_text("Scores, tensions and texture channels").click()
    third.locator("#show").click()
    third.get_by_text("Nothing has been asked yet").wait_for()


def test_a_broken_upload_is_a_message_and_does_not_stay(visit, tmp_path):
    visitor, path = visit(), tmp_path / "broken.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n broken")
    visitor.locator("#picture input[type=file]").set_input_files(path)
    visitor.get_by_text("not a picture").wait_for()
    assert "Traceback" not in visitor.content()
    visitor.locator("#picture input[type=file]").wait_for(state="attached")
    refused, end = visitor.get_by_text("There is no picture").first, time.monotonic() + SLOW / 1000
    while not refused.is_visible() and time.monotonic() < end:
        visitor.locator("#ask").click()  # on a slow machine the picture may still be there, and is refused once more
        visitor.wait_for_timeout(2000)
    refused.wait_for()


def test_a_phone_shows_everything_in_one_column(visit, drawn):
    visitor = visit(PHONE)
    upload(visitor, drawn(), 48)
    visitor.locator("#question input").fill("What is the total?")
    visitor.locator("#ask").click()
    answered(visitor)
    visitor.locator("#kept img").wait_for()
    assert visitor.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    lefts = {round(visitor.locator(f"#answer-{name}").bounding_box()["x"]) for name in ("full", "smaller", "arrcoc")}
    assert len(lefts) == 1


def test_the_keyboard_alone_is_enough(visit, drawn):
    visitor = visit()

    def tab_to(selector: str):
        for _ in range(60):
            visitor.keyboard.press("Tab")
            if visitor.evaluate("wanted => document.activeElement.matches(wanted)", selector):
                return
        raise AssertionError(f"Tab never reaches {selector}")

    tab_to("#picture button")
    choosers = []
    visitor.on("filechooser", lambda chooser: choosers.append(chooser))
    for _ in range(20):  # a page that has just come may not listen yet
        visitor.keyboard.press("Enter")
        visitor.wait_for_timeout(1000)
        if choosers:
            break
    choosers[0].set_files(drawn())
    visitor.get_by_text("of the 48 of this picture").wait_for()
    tab_to("#question input")
    visitor.keyboard.type("What is the total?")
    tab_to("#tokens input[type=range]")
    for _ in range(3):
        visitor.keyboard.press("ArrowLeft")
    chosen = int(visitor.locator("#tokens input[type=range]").input_value())
    assert chosen == 45
    tab_to("#ask")
    visitor.keyboard.press("Enter")
    assert tokens(answered(visitor)["arrcoc"]) == chosen


@pytest.mark.parametrize("option", ["--model", "--tables", "--device"])
def test_a_mistake_on_the_command_line_is_told_in_words(option, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        app_module.main([option, str(tmp_path)])
    assert ended.value.code == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_in_words(monkeypatch, capsys):
    monkeypatch.setattr(app_module, "launch", mock.Mock(side_effect=OSError("no empty port: 7860")))
    with pytest.raises(SystemExit) as ended:
        app_module.main(["--port", "7860"])
    assert ended.value.code == 2
    assert "no empty port: 7860" in capsys.readouterr().err
