"""Questions in other words: `reworded`."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from tests.small_archive import archive_files, tar_of
from training.batches import IGNORED, make_batch
from training.curriculum import STAGES
from training.data import DataError, WorldSource, load_examples
from training.data.table_lookups import words_of
from training.tokenizer import build_tokenizer
from training.world.beside import sentence, with_sentences
from training.world.joining import joined
from training.world.phrasing import phrased
from training.world.wording_lists import AROUND, INSTRUCTIONS, WORLD
from training.world.wordings import (
    find_question,
    lookup_question,
    put_around,
    spoken,
    world_question,
)

SPLITS = ("train", "held_out")
# a question of each way in which the world asks, and what any other wording has to name
DRAWN = {
    "What is the weight?": ("weight",),
    "Read the order date.": ("order date",),
    "What is the weight or, if there is none, the due date?": ("weight", "due date"),
    "What does the red sign say?": ("red",),
    "What colour is the cross?": ("cross",),
    "Which shape is blue?": ("blue",),
    "Count the circles.": ("circles",),
    "Read the fee of Cheese.": ("fee", "cheese"),
    "Which team has the year 2,081?": ("year", "2,081"),
    "What is the value of Jun?": ("jun",),
    "Which is the highest bar?": ("highest",),
}


@pytest.fixture
def small(tmp_path) -> Path:
    return tar_of(tmp_path, archive_files())


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("question", DRAWN)
def test_other_words_name_the_same(question, split):
    asked = {world_question(question, split, Random(seed)) for seed in range(300)}
    assert len({words_of(one) for one in asked}) > 15
    for one in asked:
        assert all(words_of(name).strip() in words_of(one) for name in DRAWN[question]), one
        assert "{" not in one


def test_every_question_of_the_world_has_other_words():
    plain, reworded = (
        load_examples(f"world?grids=12x12&questions=3{more}", "train", 5, 150) for more in ("", "&reworded=1")
    )
    told = [(one.name, one.answers, one.evidence, one.family) for one in plain]
    assert [(one.name, one.answers, one.evidence, one.family) for one in reworded] == told
    for one in plain:
        further = {words_of(world_question(one.question, "train", Random(seed))) for seed in range(40)}
        around = {words_of(spoken(one.question, "train", Random(seed))) for seed in range(400)}
        assert further - around, one.question


def test_no_wording_of_training_is_held_out():
    assert not {*AROUND["train"]} & {*AROUND["held_out"]}
    plain = {words_of(question) for question in DRAWN}
    for question in DRAWN:
        train, held_out = (
            {words_of(world_question(question, split, Random(seed))) for seed in range(2000)} for split in SPLITS
        )
        assert train & held_out <= plain, question


def test_no_wording_is_one_that_is_drawn_or_of_the_other_split():
    for drawn, further in WORLD:
        drawn, train, held_out = (
            {words_of(one) for one in each} for each in (drawn, further["train"], further["held_out"])
        )
        assert not drawn & train
        assert not drawn & held_out
        assert not train & held_out
        assert len(held_out) >= 8


def test_the_same_page_is_asked_in_the_same_words():
    source = WorldSource(seed=2, kinds=("table",), grids=((12, 12),), questions=10, find=3, reworded=True)
    asked = [one.question for one in source.page(3)]
    assert [one.question for one in source.page(3)] == asked
    assert asked != [one.question for one in WorldSource(2, "train", ("table",), ((12, 12),), 10, 3).page(3)]


def test_tables_are_asked_in_other_words(small):
    every = "together=3&find=4&reason=3"
    for split in SPLITS:
        plain, reworded = (load_examples(f"wikitables:{small}?{every}{more}", split, 1) for more in ("", "&reworded=1"))
        assert [(one.name, one.answers, one.evidence) for one in reworded] == [
            (one.name, one.answers, one.evidence) for one in plain
        ]
        assert {one.family for one in reworded} == {one.family for one in plain}
        assert sum(a.question != b.question for a, b in zip(plain, reworded, strict=True)) > len(plain) / 2
        for a, b in zip(plain, reworded, strict=True):
            if a.family == "table_find":
                assert words_of(a.answers[0]) in words_of(b.question)


def test_the_language_stage_asks_in_other_words_and_says_how_to_answer():
    stage = next(stage for stage in STAGES if stage.name == "language")
    for split in SPLITS:
        plain, put = (
            make_batch(replace(stage, reworded=share), split, 5, 48, (8, 8)) for share in (0.0, stage.reworded)
        )
        assert torch.equal(plain.images, put.images)
        assert plain.labels[plain.labels != IGNORED].tolist() == put.labels[put.labels != IGNORED].tolist()
        assert torch.equal(plain.pointers, put.pointers)
        same = (plain.asked == put.asked).all(-1).float().mean()
        assert same > 0.9, "a question in other words asks by the same names, or by another word for one"
        texts = build_tokenizer().batch_decode(put.input_ids)
        told = [any(said in text for said in INSTRUCTIONS[split]) for text in texts]
        assert 0.1 < sum(told) / len(told) < 0.7
        assert not any(said in text for text in texts for said in INSTRUCTIONS[SPLITS[split == "train"]])


def test_the_language_stage_puts_sentences_beside_questions_that_ask_by_the_same_names():
    stage = next(stage for stage in STAGES if stage.name == "language")
    assert 0 < stage.beside < 1
    for split in SPLITS:
        plain, put = (make_batch(replace(stage, beside=share), split, 5, 24, (8, 8)) for share in (0.0, 1.0))
        assert torch.equal(plain.images, put.images)
        assert torch.equal(plain.asked, put.asked), "a sentence may have names of its own, which nobody asks by"
        assert torch.equal(plain.named, put.named)
        assert plain.labels[plain.labels != IGNORED].tolist() == put.labels[put.labels != IGNORED].tolist()
        asked = [(batch.input_ids != batch.input_ids[0, -1]).sum(-1) for batch in (plain, put)]
        assert (asked[1] > asked[0]).all()


def test_a_look_up_names_the_column_unless_the_value_stands_alone():
    named = {"target": "Title", "key": "Series", "value": "{5}"}
    for split in SPLITS:
        keyed, alone = (
            {lookup_question(named, lonely, split, Random(seed)) for seed in range(200)} for lonely in (False, True)
        )
        assert all("Series" in one for one in keyed)
        assert not all("Series" in one for one in alone)
        assert all("Title" in one and "{5}" in one for one in keyed | alone)


def test_where_a_text_stands_is_not_asked_by_the_text_alone():
    # that would ask for what stands at a label
    for split in SPLITS:
        asked = {find_question("find Due date", "Due date", split, Random(seed)) for seed in range(200)}
        assert all(len(words_of(one)) > len(words_of("Due date")) for one in asked)


def test_what_stands_around_a_question():
    assert put_around("What is it?", "please, {q}", Random(1)) in ("please, what is it?", "please, what is it")
    assert put_around("What is it?", "{q} thanks", Random(1)) == "What is it thanks"
    draws = [spoken("Is it Red?", "train", Random(seed)) for seed in range(300)]
    assert {"IS IT RED?", "is it red?", "Is it Red?"} <= set(draws)


def test_a_wrong_value_is_refused(small):
    for spec in ("world?reworded=2", f"wikitables:{small}?reworded=maybe"):
        with pytest.raises(DataError, match=r"reworded='.*' is neither yes nor no"):
            load_examples(spec)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("asked", ["What is the total?", "the due date please", "Name the red shape."])
def test_sentences_stand_beside_what_is_asked(split, asked):
    made = [with_sentences(asked, split, Random(seed)) for seed in range(300)]
    inside = asked.rstrip("?.")
    places = [one.index(inside) for one in made]
    behind = [len(one) - place - len(inside) > 1 for one, place in zip(made, places, strict=True)]
    for told in (places, behind):  # on either side
        assert 0 < sum(map(bool, told)) < len(made)
    for one in made:
        rest = one.replace(inside, "", 1)
        assert len(rest) > 2
        assert rest.count("?") <= 1  # what stands beside it asks nothing
        assert "{" not in one
    assert len({*made}) > 200


def test_sentences_beside_held_out_questions_are_their_own():
    train, held_out = ({sentence(split, Random(seed)) for seed in range(5000)} for split in SPLITS)
    assert not train & held_out
    assert min(len(train), len(held_out)) > 150


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("What is the total?", {"What is this total?", "What is the total again?"}),
        ("which is the second date?", {"which is the 2nd date?"}),
        ("price of tea", {"price of this tea"}),
    ],
)
def test_small_words_are_put_into_what_is_asked(split, asked, wanted):
    made = {phrased(asked, split, Random(seed)) for seed in range(2000)}
    if split == "held_out":
        wanted = {one.replace("again", "precisely") for one in wanted}
    assert wanted <= made
    assert len(made) > 50
    assert not any("{" in one or "  " in one or "? " in one for one in made)
    assert any(one.endswith("?") for one in made) is asked.endswith("?")
    assert all(one.isupper() for one in (phrased(asked.upper(), split, Random(seed)) for seed in range(50)))


def test_held_out_questions_have_other_small_words_beside_common_ones():
    train, held_out = ({phrased("tea", split, Random(seed)) for seed in range(2000)} for split in SPLITS)
    assert len(train - held_out) > 25
    assert len(held_out - train) > 8
    assert "tea on the page" in train & held_out


@pytest.mark.parametrize(("option", "least"), [("beside", 1.0), ("phrased", 0.8)])
@pytest.mark.parametrize(
    "spec", ["world?grids=12x12{}", "wikitables:{path}?page=12x16{}", "documents:{path}?pages=40{}"]
)
def test_a_share_of_the_questions_has_more_words(small, spec, option, least):
    def load(percent):
        more = f"&{option}={percent}" if percent else ""
        return load_examples(spec.format(more, path=small), "train", 3, 60)

    plain, some, all_of_them = map(load, (0, 40, 100))
    for one in (some, all_of_them):
        assert [replace(a, question="") for a in one] == [replace(b, question="") for b in plain]
    if option == "beside":
        assert all(len(a.question) > len(b.question) for a, b in zip(all_of_them, plain, strict=True))
    assert sum(a.question != b.question for a, b in zip(all_of_them, plain, strict=True)) >= least * len(plain)
    longer = sum(a.question != b.question for a, b in zip(some, plain, strict=True)) / len(plain)
    assert 0.2 < longer < 0.6
    assert [a.question for a in load(40)] == [a.question for a in some]


def test_the_endless_world_has_sentences_beside_its_questions():
    plain, beside = (WorldSource(7, "train", questions=3, beside=percent) for percent in (0, 100))
    for number in range(12):
        for one, other in zip(plain.page(number), beside.page(number), strict=True):
            assert other.question != one.question
            assert one.question.rstrip("?.").lower() in other.question.lower()


def test_the_endless_world_has_small_words_in_its_questions():
    plain, put = (WorldSource(7, "train", questions=3, phrased=percent) for percent in (0, 100))
    pairs = [pair for number in range(12) for pair in zip(plain.page(number), put.page(number), strict=True)]
    assert sum(one.question != other.question for one, other in pairs) > 0.8 * len(pairs)
    assert all(one.evidence == other.evidence for one, other in pairs)


@pytest.mark.parametrize(
    "spec", ["world?grids=12x12&questions=3{}", "wikitables:{path}?together=4{}", "documents:{path}?pages=20{}"]
)
def test_a_share_of_the_questions_is_asked_with_another(small, spec):
    plain, some, both = (
        load_examples(spec.format(f"&joined={percent}" if percent else "", path=small), "train", 3, 90)
        for percent in (0, 30, 100)
    )
    pairs = [pair for pair in zip(plain, both, strict=True) if pair[1].family == "joined"]
    for one, put in pairs:
        others = [other for other in plain if other.picture == one.picture and other.question != one.question]
        assert (put.evidence, put.context, put.answers) in [
            (one.evidence + o.evidence, one.context + o.context, (f"{one.answers[0]}, {o.answers[0]}",)) for o in others
        ]
        assert (put.name, put.picture) == (one.name, one.picture)
    assert len(pairs) > 0.4 * len(plain)
    assert all(put == one for one, put in zip(plain, both, strict=True) if put.family != "joined")
    assert 0.1 < sum(one.family == "joined" for one in some) / len(pairs) < 0.5


@pytest.mark.parametrize("split", SPLITS)
def test_two_questions_are_put_into_one_text(split):
    asked = ("What is the total?", "Which batch is shown?")
    made = {joined(*asked, split, Random(seed)) for seed in range(500)}
    assert len(made) > 7
    assert all("What is the total" in one and "hich batch is shown?" in one for one in made)
    named = {joined("What is the total?", "what's the date", split, Random(seed)) for seed in range(500)} - made
    assert all(one.lower().index("total") < one.lower().index("date") for one in named)
    assert {one for one in named if one.lower().count("what") < 2}
    other = SPLITS[1 - SPLITS.index(split)]
    again = {joined(*asked, other, Random(seed)) for seed in range(500)}
    assert not made & again


@pytest.mark.parametrize("option", ["beside", "phrased", "joined"])
@pytest.mark.parametrize("value", ["0", "101", "half"])
def test_no_share_of_the_questions_is_refused(option, value):
    with pytest.raises(DataError, match=f"{option}='?{value}'? is no"):
        load_examples(f"world?{option}={value}", "train", 3, 4)
