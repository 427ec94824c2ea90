"""What stands on the app's page: picture, question and settings, and below them answers and pictures."""

import html
from collections.abc import Sequence
from types import SimpleNamespace

import gradio as gr

from arrcoc.budget import MODES
from demo.asking import FORMATS, MAX_BYTES
from demo.instrument import METHODS, Reading
from demo.samples import title
from training.data.examples import Example

TOKENS = "tokens"  # the budget's name where the slider says how many
BUDGETS = [
    *((f"{name} ({count})", name) for name, count in MODES.items()),
    ("auto", "auto"),
    ("all", "full"),
    ("as the slider says", TOKENS),
]
BUTTONS = ["download", "fullscreen"]  # and none that sends a picture elsewhere
CSS = """
.cost {display: grid; grid-template-columns: 1fr auto; gap: 2px 12px; font-size: .9em; font-variant-numeric: tabular-nums}
.cost dt, .cost dd {margin: 0} .cost dd {text-align: right}
"""
INTRODUCTION = """# ARR-COC
Ask a picture something. The same model answers from **all** its visual tokens, from a **smaller picture** of the same cost, and
from the tokens that **ARR-COC** chose for the question. Answers run one after the other, so that their times can be compared."""

UNKNOWN = (
    "Ask the question of an example: of those that have one place to read it from, it is known where the answer stands."
)


def cost(reading: Reading) -> str:
    """What an answer cost, as HTML."""
    rows = [("visual tokens", str(reading.tokens))]
    if reading.first_token is not None:
        rows.append(("time to first token", f"{reading.first_token * 1e3:,.0f} ms"))
    if reading.peak_bytes is not None:
        peak, own = reading.peak_bytes / 2**20, reading.working_bytes / 2**20
        rows.append(("peak memory (own part)", f"{peak:,.0f} MiB ({own:,.1f})"))
    if reading.cache_bytes is not None:
        rows.append(("key-value cache", f"{reading.cache_bytes / 1024:,.0f} KiB"))
    if reading.reused:
        rows.append(("picture", "encoded before"))
    return (
        '<dl class="cost">' + "".join(f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in rows) + "</dl>"
    )


def controls(examples: Sequence[Example]) -> SimpleNamespace:
    """Picture, question and settings."""
    ui = SimpleNamespace()
    with gr.Row():
        with gr.Column(min_width=300):
            ui.picture = gr.Image(
                type="filepath",
                image_mode=None,
                format="png",
                sources=["upload", "clipboard"],
                label=f"Picture (up to {MAX_BYTES // 2**20} MB; {', '.join(FORMATS)})",
                height=340,
                elem_id="picture",
            )
            # Gradio's own opens the file, whatever it is; here open_upload() does.
            ui.picture.preprocess = lambda payload: payload.path if payload else None
        with gr.Column(min_width=300):
            names = [(title(example), number) for number, example in enumerate(examples)]
            ui.example = gr.Dropdown(names, value=None, label="Example", elem_id="example", visible=bool(names))
            ui.question = gr.Textbox(label="Question", lines=1, max_lines=1, elem_id="question", submit_btn=False)
            ui.budget = gr.Radio(BUDGETS, value="auto", label="Token budget", elem_id="budget")
            ui.tokens = gr.Slider(1, MODES["large"], value=64, step=1, label="Tokens", elem_id="tokens")
            with gr.Accordion("How tokens are chosen", open=False):
                ui.mode = gr.Radio(["select", "foveated"], value="select", label="Allocation mode", elem_id="mode")
                ui.ratio = gr.Slider(
                    0.05, 1, value=1, step=0.05, label="Encode ratio: share of the cells that the vision tower sees"
                )
                ui.paper = gr.Checkbox(False, label="Leave out empty paper alone (encode ratio auto)", elem_id="paper")
            with gr.Row():
                ui.ask = gr.Button("Ask", variant="primary", elem_id="ask")
                ui.stop = gr.Button("Stop", elem_id="stop")
    return ui


def results() -> SimpleNamespace:
    """Answers and pictures."""
    ui = SimpleNamespace(answers={}, costs={})
    with gr.Row():
        for name, method in METHODS.items():
            with gr.Column(min_width=240):
                ui.answers[name] = gr.Textbox(label=method, lines=2, interactive=False, elem_id=f"answer-{name}")
                ui.costs[name] = gr.HTML(elem_id=f"cost-{name}")
    with gr.Row():
        with gr.Column(min_width=300):
            ui.heat = gr.ImageSlider(
                label="Picture and relevance (kept cells outlined)", format="png", interactive=False, elem_id="heat"
            )
        with gr.Column(min_width=300):
            ui.kept = gr.Image(
                label="Kept cells", format="png", interactive=False, height=500, buttons=BUTTONS, elem_id="kept"
            )
    with gr.Accordion("What did it miss?"):
        ui.share = gr.Markdown(UNKNOWN, elem_id="share")
        ui.evidence = gr.Image(
            label="Where the answer stands, on the kept cells",
            format="png",
            interactive=False,
            visible=False,
            height=400,
            buttons=BUTTONS,
            elem_id="evidence",
        )
    with gr.Accordion("Scores, tensions and texture channels", open=False, elem_id="behind"):
        ui.show = gr.Button("Show them for the last question", elem_id="show")
        ui.tensions = gr.Markdown(elem_id="tensions")
        ui.maps = gr.Gallery(
            label="Maps", columns=6, object_fit="contain", format="png", buttons=BUTTONS, elem_id="maps"
        )
    return ui
