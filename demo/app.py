"""The instrument in a browser: one picture, one question, three answers, and where the tokens went.

python -m demo.app --model FOLDER-OR-HUB-ID
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from types import SimpleNamespace

import gradio as gr
from huggingface_hub.errors import StrictDataclassError

from arrcoc.budget import MODES
from demo.asking import MAX_BYTES, Asking, open_upload
from demo.instrument import METHODS, Comparison, Held, Instrument, Reading
from demo.layout import CSS, INTRODUCTION, TOKENS, UNKNOWN, controls, cost, results
from demo.samples import samples
from demo.views import Seen, heat_pair, kept_picture, maps, missed, tensions
from evaluation.loading import usable_device
from training.data.examples import Example
from upload import DEFAULT_CHECKPOINT

FORGET_AFTER = 1800  # seconds, for uploads, drawn pictures and what a session holds
MAX_WAITING, MAX_SESSIONS = 32, 32  # a session may hold an encoded picture
logger = logging.getLogger(__name__)


def told(work: Callable, *arguments):
    """`work`'s result; what it refuses becomes a message to the user, what breaks becomes one without the inside of it.

    Raises:
        gradio.Error: the message.
    """
    try:
        return work(*arguments)
    except ValueError as error:
        raise gr.Error(str(error), title="Not possible", print_exception=False) from error
    except Exception as error:
        logger.exception("a request failed")
        raise gr.Error(
            "Something went wrong here; the picture and the settings are still there. Try again.",
            title="Failed",
            print_exception=False,
        ) from error


def build(instrument: Instrument, examples: Sequence[Example] = (), on_gpu: Callable | None = None) -> gr.Blocks:
    """The app. What belongs to one user is in session state; the instrument is shared.

    Args:
        on_gpu: decorator of the function that runs the model, such as `spaces.GPU`.
    """
    with gr.Blocks(title="ARR-COC", analytics_enabled=False, delete_cache=(FORGET_AFTER // 3, FORGET_AFTER)) as app:
        gr.Markdown(INTRODUCTION)
        ui = controls(examples)
        out = results()
        state = SimpleNamespace(
            **{name: gr.State(time_to_live=FORGET_AFTER) for name in ("held", "seen", "sample", "cells")}
        )
        _wire_inputs(ui, state, instrument, examples)
        run = asker(instrument, examples)
        settings = [
            ui.picture,
            ui.question,
            ui.budget,
            ui.tokens,
            ui.mode,
            ui.ratio,
            ui.paper,
            state.held,
            state.sample,
        ]
        shown = [*out.answers.values(), *out.costs.values(), out.heat, out.kept, out.share, out.evidence]
        asked = gr.on(
            [ui.ask.click, ui.question.submit],
            on_gpu(run) if on_gpu else run,
            settings,
            [*shown, state.held, state.seen],
            concurrency_limit=1,
            trigger_mode="once",
            show_progress="minimal",
            api_name="ask",
        )
        ui.stop.click(None, cancels=[asked])
        out.show.click(behind, [state.seen], [out.tensions, out.maps], api_visibility="private")
    return app.queue(max_size=MAX_WAITING)


def _wire_inputs(ui, state, instrument: Instrument, examples: Sequence[Example]):
    def looked_at(path, tokens):
        if path is None:
            return gr.skip(), None
        rows, columns = told(lambda: instrument.grid(open_upload(path)))
        cells = rows * columns
        label = f"Tokens, of the {cells} of this picture"
        return gr.Slider(maximum=cells, label=label, **({"value": cells} if tokens > cells else {})), cells

    def named(budget, cells):
        count = cells if budget == "full" else MODES.get(budget)
        return gr.skip() if count is None else min(count, cells or MODES["large"])

    def chosen(number):
        if number is None:
            return gr.skip(), gr.skip(), None
        return examples[number].image, examples[number].question, number

    private = {"api_visibility": "private", "show_progress": "hidden"}
    changed = ui.picture.change(looked_at, [ui.picture, ui.tokens], [ui.tokens, state.cells], **private)
    changed.failure(lambda: None, None, ui.picture, **private)  # what was refused does not stay on the page
    ui.example.input(chosen, ui.example, [ui.picture, ui.question, state.sample], **private)
    gr.on([ui.picture.upload, ui.picture.clear], lambda: (None, None), None, [ui.example, state.sample], **private)
    ui.budget.input(named, [ui.budget, state.cells], ui.tokens, **private)
    # In the browser, so that a question asked at once does not go out with the budget of before.
    ui.tokens.input(None, None, ui.budget, js=f"() => '{TOKENS}'")


def asker(instrument: Instrument, examples: Sequence[Example]) -> Callable:
    """The function behind the button: a generator of what the page shows, in the order of `build`'s outputs."""

    def ask(path, question, budget, tokens, mode, ratio, paper, held: Held | None, sample: int | None):
        if path is None:
            raise gr.Error("There is no picture; upload one, or choose an example.", print_exception=False)
        image = told(open_upload, path)
        count = told(int, tokens) if budget == TOKENS else budget
        asking = told(Asking, image, question or "", count, mode, "auto" if paper else ratio)
        example = None if sample is None or question != examples[sample].question else examples[sample]
        noted = False
        with closing(instrument.compare(asking, held)) as comparisons:
            while (so_far := told(next, comparisons, None)) is not None:
                if so_far.note and not noted:
                    gr.Warning(so_far.note)
                    noted = True
                yield told(page, so_far, example)

    return ask


def page(so_far: Comparison, example: Example | None = None) -> tuple:
    """Answers, costs, heatmap pair, kept cells, what is known of the evidence, its picture, and what the session holds.

    Args:
        example: whose picture and question were asked, if they were one's.
    """
    readings = [so_far.readings.get(name, Reading()) for name in METHODS]
    answers = [reading.text for reading in readings]
    costs = [cost(reading) if reading.tokens else "" for reading in readings]
    if so_far.seen is None:
        return (*answers, *costs, *[gr.skip()] * 6)
    told_of, picture = UNKNOWN, gr.Image(visible=False)
    if example is not None and example.answers:
        told_of = f"The answer is `{example.answers[0]}`; there is no one place to read it from."
    if example is not None and example.evidence:
        drawn, kept = missed(so_far.seen, example.evidence)
        told_of = f"The answer is `{example.answers[0]}`. Of the area that it is read from, **{kept:.0%}** was kept."
        picture = gr.Image(drawn, visible=True)
    return (
        *answers,
        *costs,
        heat_pair(so_far.seen),
        kept_picture(so_far.seen),
        told_of,
        picture,
        so_far.held,
        so_far.seen,
    )


def behind(seen: Seen | None) -> tuple:
    """The tensions as a table and the gallery of maps of the last question."""
    if seen is None:
        raise gr.Error("Nothing has been asked yet; ask a question first.", print_exception=False)
    rows = "".join(f"| {name} | {value:+.2f} |\n" for name, value in tensions(seen))
    return f"| tension | -1 leans to the first, +1 to the second |\n|---|---|\n{rows}", told(maps, seen)


def launch(app: gr.Blocks, **settings):
    """Serves the app: uploads above `MAX_BYTES` are refused while they come, nothing is recorded."""
    return app.launch(
        theme=gr.themes.Default(),
        css=CSS,
        max_file_size=MAX_BYTES,
        state_session_capacity=MAX_SESSIONS,
        footer_links=[],
        run_history=False,
        enable_monitoring=False,
        **settings,
    )


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(DEFAULT_CHECKPOINT), help="folder or Hub id, ARR-COC or stock Qwen3-VL")
    parser.add_argument("--device", help="default: cuda where there is one, else cpu")
    parser.add_argument("--tables", help="the folder of WikiTableQuestions, for examples of real tables")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 lets other machines in (default: %(default)s)")
    parser.add_argument("--port", type=int, help="default: the first free one from 7860 on")
    options = parser.parse_args(arguments)
    if options.device is not None:
        options.device = usable_device(parser, options.device)
    try:
        examples = samples(options.tables)
        instrument = Instrument.load(options.model, options.device)
        instrument.warm_up(examples[0].image)
        launch(build(instrument, examples), server_name=options.host, server_port=options.port)
    except (OSError, ValueError, StrictDataclassError) as error:  # of the model, the tables or the port
        parser.error(" ".join(str(error).split()))


if __name__ == "__main__":
    sys.exit(main())
