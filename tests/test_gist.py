"""Questions about a whole picture choose by the picture alone."""

import time

import pytest
import torch

from arrcoc.gist import asks_for_gist

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


def test_what_asks_about_the_whole_picture():
    asked = (
        "Describe this image.", "Describe the image in detail.", "Please describe this picture", "Describe the kind of page.",
        "Can you describe what you see in this photo?", "Summarize the page.", "Summarise this document in one sentence.",
        "Give a short description.", "Provide a one-sentence caption for the provided image.", "Caption:",
        "Write a detailed description of the given image", "Give me a summary of this document.", "Explain this screenshot",
        "Tell me everything about it.", "Could you please tell me what this is?", "Tell me what you see.",
        "What is this?", "what's this", "What is this page about?", "What is this a picture of?", "What are these?",
        "What is the main topic of this page?", "What kind of page is this?", "what sort of document is it?",
        "What type of document do you see?", "what am I looking at?", "What do you see?", "In this image, what do you see?",
        "What is in the picture?", "What's in the image?", "What is shown in this image?", "What is going on here?",
        "What does this image show?", "What does the picture look like?", "Describe this image. What do you see?",
        "Which kind of page is this? WHICH KIND OF PAGE IS THIS?",
    )  # fmt: skip
    assert [question for question in asked if not asks_for_gist(question)] == []


def test_what_asks_for_a_part_of_it():
    """Also what may be the name of a field: a page number, a type, a description."""
    asked = (
        "", "What is the total?", "What page is this?", "Which page is this?", "What is the title of the page?", "What's the type?",
        "What is the description?", "What's the summary?", "What is the content?", "What is the document type?",
        "What is the scan date?", "What is the page number?", "What is the screen size?", "What is the photo credit?",
        "What is the name on the page?", "What is written on the page?", "What is shown as total?", "What is in the box?",
        "What is in here?", "What is this for?", "What is this person holding?", "What color is this?", "What type of car is this?",
        "What is the picture on the wall?", "What do you see on the left?", "What does the sign say?", "What does it cost?",
        "What is it called?", "What is the content of the box?", "What is the summary of costs?", "Describe the sign.",
        "Describe the man in the image.", "Summarize the second paragraph.", "Explain the chart", "Tell me about the total",
        "Is this a form?", "Who is this?", "Where is this?", "How many people are in the image?", "Caption of figure 2?",
        "Describe this image. What is the total?",
    )  # fmt: skip
    assert [question for question in asked if asks_for_gist(question)] == []


@pytest.mark.parametrize(
    "text", ["describe " * 20000, "what is " + "the given " * 20000, "please " * 20000, "a short and " * 20000]
)
def test_long_texts_are_read_at_once(text):
    start = time.process_time()
    assert not asks_for_gist(text)
    assert time.process_time() - start < 1


def test_a_gist_question_chooses_as_no_question_does(model, processor, page, chat):
    """The language model still reads it."""

    def ask(said: str, **budget):
        inputs = processor.apply_chat_template(
            [chat(page(), said)],
            tokenize=True,
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs=budget,
        )
        given = {name: value for name, value in inputs.items() if name not in ("input_ids", "attention_mask")}
        given.pop("mm_token_type_ids")
        return inputs, model.allocate(**given)[0]

    gist, asked = ask("What is this page about?", token_budget=9)
    _, nothing = ask("What is this page about?", token_budget=9, question="")
    _, total = ask("What is the total?", token_budget=9)
    assert "about" in processor.decode(gist["input_ids"][0])
    assert not gist["query_attention_mask"].any()
    assert torch.equal(asked.positions, nothing.positions)
    assert not torch.equal(asked.positions, total.positions)


def test_among_several_pictures_each_has_its_own_question(processor, page, chat):
    inputs = processor(
        text=[IMAGE, IMAGE, IMAGE], images=[page()] * 3, question=["What do you see?", "What is the total?", "Caption:"],
        token_budget=9, return_tensors="pt",
    )  # fmt: skip
    assert inputs["query_attention_mask"].any(-1).tolist() == [False, True, False]
