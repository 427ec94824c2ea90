"""Folders of pictures with metadata: every kind of bad data is reported with its line before anything starts."""

import json
import pickle
import re
import shutil
import sys
import unicodedata
from pathlib import Path

import pytest
from PIL import Image

from training.data import DataError, Example, load_examples
from training.data.__main__ import main
from training.data.check import LISTED
from training.data.imagefolder import load_imagefolder

GOOD = {"file_name": "a.png", "question": "what is it?", "answers": ["42"], "evidence": [[1, 2, 9, 8]], "family": "f"}


def _folder(tmp_path: Path, *rows, name: str = "metadata.jsonl") -> Path:
    """A folder with a.png of 40 x 30 pixels, b/a.png, and the rows (dict, or a line as it stands)."""
    (tmp_path / "b").mkdir(exist_ok=True, parents=True)
    Image.new("RGB", (40, 30), "white").save(tmp_path / "a.png")
    Image.new("L", (20, 10)).save(tmp_path / "b" / "a.png")
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    (tmp_path / name).write_bytes(b"\n".join(lines) + b"\n")
    return tmp_path


def _without(*names, **changes) -> dict:
    return {name: value for name, value in {**GOOD, **changes}.items() if name not in names}


def test_folder_gives_its_examples_without_holding_pixels(tmp_path):
    folder = _folder(tmp_path, GOOD, {"file_name": "b/a.png", "question": "q", "answers": "one text"}, b"")
    first, second = load_examples(str(folder))
    assert first == Example(
        folder / "a.png", "what is it?", ("42",), "f", ((1, 2, 9, 8),), f"{folder}/metadata.jsonl:1"
    )
    assert (second.answers, second.family, second.evidence) == (("one text",), "all", ())
    assert second.image.mode == "RGB"
    assert second.image.size == (20, 10)
    assert pickle.loads(pickle.dumps(first)) == first


def test_white_space_tells_no_families_apart(tmp_path):
    families = ("a b", "a\n b ", " ", "")
    folder = _folder(tmp_path, *(_without(family=one, question=f"q{n}") for n, one in enumerate(families)))
    assert [example.family for example in load_examples(str(folder))] == ["a b", "a b", "all", "all"]


def test_csv_says_the_same_as_jsonl(tmp_path):
    rows = "\ufefffile_name,question,answers,evidence,context,family\n"
    rows += 'a.png,"what,\nis it?","[""42"", ""forty-two""]","[[1,2,9,8]]","[2,3,4,5]",f\n' + "b/a.png,q,[sic,,,\n"
    folder = _folder(tmp_path, rows.encode(), name="metadata.csv")
    first, second = load_imagefolder(folder)
    assert (first.question, first.answers, first.evidence) == ("what,\nis it?", ("42", "forty-two"), ((1, 2, 9, 8),))
    assert first.context == ((2, 3, 4, 5),)
    assert (second.answers, second.family, second.evidence, second.context) == (("[sic",), "all", (), ())
    assert second.name.endswith("metadata.csv:4")


@pytest.mark.parametrize("above", ["data", "a/b"])
def test_splits_further_down_are_not_taken_for_one(tmp_path, above):
    for split in ("train", "test"):
        place = tmp_path / above / split
        place.mkdir(parents=True)
        Image.new("RGB", (40, 30)).save(place / "a.png")
        (place / "metadata.jsonl").write_text(json.dumps(GOOD) + "\n")
    with pytest.raises(DataError, match=r"pictures in .*test and .*train: pass the folder that holds these"):
        load_examples(str(tmp_path), "train")
    assert len(load_imagefolder(tmp_path)) == 2  # all of it
    assert len(load_examples(str(tmp_path / above), "train")) == 1
    shutil.rmtree(tmp_path / above / "test")
    assert len(load_examples(str(tmp_path), "train")) == 1
    (tmp_path / "x").mkdir()
    (tmp_path / above).rename(tmp_path / "x" / "dev")  # dev/train is one split
    assert len(load_examples(str(tmp_path), "train")) == 1


def test_a_folder_called_world_is_told(tmp_path, monkeypatch, capsys):
    _folder(tmp_path / "world", GOOD)
    monkeypatch.chdir(tmp_path)
    assert len(load_examples("world", "train")) == 1
    assert "not the world that is drawn" in capsys.readouterr().err
    assert len(load_examples("world?grids=8x8", "train", limit=2)) == 2
    assert not capsys.readouterr().err


def test_same_file_name_in_two_folders_is_no_problem(tmp_path):
    folder = _folder(tmp_path, GOOD)
    (folder / "b" / "metadata.jsonl").write_text(json.dumps(_without("evidence")) + "\n")
    assert [e.image.size for e in load_imagefolder(folder)] == [(40, 30), (20, 10)]


def test_split_folders(tmp_path):
    for name in ("train", "validation"):
        (tmp_path / name).mkdir()
        _folder(tmp_path / name, _without(question=f"from {name}?"))
    assert [e.question for e in load_examples(str(tmp_path), "train")] == ["from train?"]
    assert [e.question for e in load_examples(str(tmp_path), "held_out")] == ["from validation?"]
    assert len(load_imagefolder(tmp_path)) == 2
    assert [e.question for e in load_examples(str(tmp_path), "validation")] == ["from validation?"]
    with pytest.raises(ValueError, match="split='test' is not one of train, held_out, validation"):
        load_examples(str(tmp_path), "test")
    (tmp_path / "validation").rename(tmp_path / "other")
    with pytest.raises(DataError, match="no folder held_out or validation"):
        load_examples(str(tmp_path), "held_out")


@pytest.mark.parametrize("names", [("Train", "Test"), ("training", "testing"), ("TRAIN", "valid")])
def test_split_folders_by_other_names(tmp_path, names):
    for name in names:
        (tmp_path / name).mkdir()
        _folder(tmp_path / name, _without(question=name))
    asked = [[example.question for example in load_imagefolder(tmp_path, split)] for split in ("train", "held_out")]
    assert asked == [[names[0]], [names[1]]]


@pytest.mark.parametrize("names", [("train", "training"), ("dev", "DEV")])
def test_two_folders_for_one_split_are_refused(tmp_path, names):
    for name in names:
        (tmp_path / name).mkdir(exist_ok=True)
    if len(list(tmp_path.iterdir())) == 1:
        pytest.skip("this file system takes no two names that differ by case alone")
    with pytest.raises(DataError, match=r"(train and training|DEV and dev) for split='\w+'; make one folder of them"):
        load_examples(str(tmp_path))


def test_folders_behind_links_are_read_once(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data").mkdir()
    elsewhere = _folder(tmp_path / "elsewhere", GOOD)
    (elsewhere / "b" / "back").symlink_to(elsewhere)
    (tmp_path / "data" / "train").symlink_to(elsewhere)
    assert [e.question for e in load_examples(str(tmp_path / "data"), "train")] == [GOOD["question"]]


def test_metadata_in_hidden_folders_is_not_read(tmp_path):
    folder = tmp_path / ".mine"  # the one that is asked for may be hidden
    copies = folder / ".ipynb_checkpoints"
    copies.mkdir(parents=True)
    _folder(folder, GOOD)
    _folder(copies, _without(question="copy"))
    assert [example.question for example in load_imagefolder(folder)] == [GOOD["question"]]


def test_metadata_above_the_split_folders_is_shared_out_by_file_name(tmp_path):
    def asked(split):
        return [example.question for example in load_imagefolder(tmp_path, split)]

    rows = [_without(file_name=f"{name}/a.png", question=name) for name in ("train", "./test", "b")]
    _folder(tmp_path, *rows[:2])
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
        (tmp_path / "a.png").rename(tmp_path / name / "a.png")
        Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    assert (asked("train"), asked("held_out"), asked(None)) == (["train"], ["./test"], ["train", "./test"])
    (tmp_path / "train" / "metadata.jsonl").write_text(json.dumps(_without(question="own file")))
    assert (asked("train"), asked("held_out")) == (["train", "own file"], ["./test"])

    _folder(tmp_path, *rows, _without(file_name="test/../train/a.png", question="around"))
    for split in ("train", "held_out"):
        with pytest.raises(DataError, match=r"metadata\.jsonl:3: .*b/a\.png is in none of t[a-z]+, t[a-z]+; move it"):
            load_imagefolder(tmp_path, split)
    with pytest.raises(DataError, match=r"metadata\.jsonl:4: .*leaves the folder"):
        load_imagefolder(tmp_path, "held_out")
    _folder(tmp_path, rows[0])
    with pytest.raises(DataError, match="test has no questions; the dataset is empty"):
        load_imagefolder(tmp_path, "held_out")


def test_limit_is_a_seeded_choice_in_the_order_of_the_file(tmp_path):
    folder = _folder(tmp_path, *(_without(question=f"{n}?") for n in range(20)))
    asked = [[int(e.question[:-1]) for e in load_imagefolder(folder, seed=seed, limit=5)] for seed in (0, 0, 1)]
    assert asked[0] == asked[1] == sorted(asked[0])
    assert asked[0] != asked[2]


BAD = {
    "missing column": (_without("question"), "there is no 'question'; there are 'file_name', 'answers'"),
    "misspelt column": (_without("question", questoin="x"), "no 'question'; rename 'questoin' to it"),
    "other name": (_without("file_name", image="a.png"), "there is no 'file_name'; rename 'image' to it"),
    "two pictures": (_without("file_name", file_names=["a.png", "b.png"]), "'file_names' holds a list, and a question"),
    "misspelt optional": (_without("evidence", evidences=[[1, 2, 3, 4]]), "'evidences' seems to be 'evidence'"),
    "one wrong letter": (_without("evidence", Evidense=[[1, 2, 3, 4]]), "'Evidense' seems to be 'evidence'"),
    "boxes by another name": (
        _without("evidence", BBox=[[1, 2, 3, 4]]),
        "'BBox' seems to be 'evidence'; rename it, with boxes as [left, top, right, bottom] in pixels",
    ),
    "boxes of labels": (_without(label_boxes=[[1, 2, 3, 4]]), "'label_boxes' seems to be 'context'"),
    "letter left out": (_without(contxt=[[1, 2, 3, 4]]), "'contxt' seems to be 'context'"),
    "letters turned": (_without("question", quesiton="x"), "no 'question'; rename 'quesiton' to it"),
    "repeated column": (b'{"question": "x", "question": "y"}', "'question' stands twice in one object; keep one"),
    "not JSON": (b"{'file_name': 1}", "one JSON object per line is wanted"),
    "not an object": (b"[1, 2]", "the line is a list"),
    "missing picture": (_without(file_name="none.png"), "there is no file"),
    "other capitals": (_without(file_name="A.PNG"), "there is no file"),
    "pages": (_without(file_name="pages.tiff"), "it has 2 pages, of which the first alone would be read; save each as"),
    "long name": (_without(file_name="x" * 300 + ".png"), "there is no file"),
    "unreadable picture": (_without(file_name="text.png"), "is not a picture that PIL reads"),
    "truncated picture": (_without(file_name="cut.png"), "truncated"),
    "bomb": (_without(file_name="bomb.png"), "decompression bomb"),
    "leaves the folder": (_without(file_name="../a.png"), "leaves the folder"),
    "absolute path": (_without(file_name="/etc/a.png"), "leaves the folder"),
    "no path": (_without(file_name=7), "file_name is 7"),
    "box outside": (_without(evidence=[[1, 2, 41, 8]]), "leaves the picture of 40 x 30 pixels"),
    "box beside": (_without(evidence=[[40, 2, 40.0001, 8]]), "leaves the picture of 40 x 30 pixels"),
    "box in thousandths": (_without(evidence=[[100, 200, 900, 800]]), "if these are thousandths, give pixels"),
    "box of width and height": (_without(evidence=[[20, 10, 5, 5]]), "right and bottom, not width and height"),
    "negative box": (_without(evidence=[[-1, 2, 4, 8]]), "leaves the picture"),
    "inverted box": (_without(evidence=[[9, 2, 1, 8]]), "left < right and top < bottom"),
    "flat box": (_without(evidence=[9, 2, 11, 2]), "has no area"),
    "shares": (
        _without(evidence=[[0.1, 0, 0.5, 1]]),
        "seems to hold shares of the picture of 40 x 30 pixels; give pixels",
    ),
    "NaN box": (_without(evidence=[[float("nan"), 2, 9, 8]]), "not finite"),
    "short box": (_without(evidence=[[1, 2, 3]]), "give a list of [left, top, right, bottom] in pixels"),
    "text box": (_without(evidence="1 2 3 4"), "evidence is str '1 2 3 4'"),
    "empty question": (_without(question="  "), "question has no text"),
    "invisible question": (_without(question="\u200b \ufeff"), "question has no text"),
    "question type": (_without(question=3), "question is int 3; give a text"),
    "no answer": (_without(answers=[]), "answers is empty"),
    "null answer": (_without(answers=None), "answers is empty"),
    "empty answer": (_without(answers=["a", " "]), "answers holds an empty text"),
    "list of another language": (_without(answers="['a', 'b']"), "a list of texts is wanted, or one in JSON"),
    "answer type": (_without(answers=[42]), "answers holds int 42; give texts, numbers in quotes"),
    "family type": (_without(family=["f"]), "family is list"),
    "duplicate": (
        _without(file_name="./a.png", question=" first? "),
        "same question on the same picture stands at",
    ),
}


def test_a_small_copy_in_a_tiff_is_no_page(tmp_path):
    folder = _folder(tmp_path, _without(file_name="scan.tiff"))
    copy = Image.new("1", (4, 4))
    copy.encoderinfo = {"tiffinfo": {254: 1}}
    Image.new("1", (40, 30)).save(folder / "scan.tiff", save_all=True, append_images=[copy])
    with Image.open(folder / "scan.tiff") as scan:
        assert scan.n_frames == 2
    assert len(load_imagefolder(folder)) == 1


def test_a_link_to_nothing_is_a_missing_picture(tmp_path):
    folder = _folder(tmp_path, _without(file_name="link.png"))
    (folder / "link.png").symlink_to(folder / "gone.png")
    with pytest.raises(DataError, match=r"(?m)there is no file .*link\.png$"):
        load_imagefolder(folder)


def test_a_name_that_is_spelt_otherwise_on_disk_is_told(tmp_path):
    decomposed = unicodedata.normalize("NFD", "\u00fc.png")
    folder = _folder(tmp_path, _without(file_name="\u00fc.png"), _without(file_name="Case.png"))
    for name in (decomposed, "case.PNG"):
        Image.new("1", (8, 8)).save(folder / name)
    with pytest.raises(DataError) as error:
        load_imagefolder(folder)
    report = str(error.value)
    assert f"there is no file {folder}/Case.png, but 'case.PNG' in other capitals; write its name as it is" in report
    assert f", but {decomposed!r} whose letters Unicode writes otherwise; write its name as it is on disk" in report


def test_lists_that_are_texts_and_boxes_that_were_shares_are_read(tmp_path):
    rounded = [40 * 0.1, 0, 40 * 1.0000000000000002, 30 * 1.0000000000000002]
    rows = (
        _without(answers='["x", "y"]'),
        _without(question="2?", answers="[1]"),
        _without(question="3?", evidence=[rounded]),
    )
    first, second, third = load_imagefolder(_folder(tmp_path, *rows))
    assert (first.answers, second.answers) == (("x", "y"), ("[1]",))
    assert third.evidence == (tuple(rounded),)


def test_metadata_that_would_not_be_read_are_told(tmp_path):
    folder = _folder(tmp_path, _without())
    (folder / "more").mkdir()
    (folder / "more" / "metadata.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"more.metadata.parquet is not read beside metadata.jsonl; take it away"):
        load_imagefolder(folder)


@pytest.mark.parametrize(("row", "report"), BAD.values(), ids=BAD.keys())
def test_bad_rows_are_reported_with_file_and_line(tmp_path, capsys, monkeypatch, row, report):
    folder = _folder(tmp_path, _without(question="first?"), b"", row, _without(question="another?"))
    Image.effect_noise((60, 60), 50).save(folder / "whole.png")
    (folder / "cut.png").write_bytes((folder / "whole.png").read_bytes()[:900])
    (folder / "text.png").write_text("no picture")
    Image.new("1", (80, 80)).save(folder / "bomb.png")
    Image.new("1", (8, 8)).save(folder / "pages.tiff", save_all=True, append_images=[Image.new("1", (8, 8))])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5000)
    with pytest.raises(DataError) as error:
        load_examples(str(folder))
    assert f"{folder}/metadata.jsonl:3: " in str(error.value)
    assert report in str(error.value)
    assert "metadata.jsonl:1: " not in str(error.value)
    examples = load_examples(str(folder), skip_bad=True)
    assert [example.name[-2:] for example in examples] == [":1", ":4"]
    assert sum(examples.left_out.values()) == 1
    assert "left out 1 records (1 " in capsys.readouterr().err


@pytest.mark.parametrize("limit", [None, 1])
def test_a_record_that_is_left_out_makes_no_duplicate_of_a_good_one(tmp_path, limit):
    folder = _folder(tmp_path, _without(evidence=[[0, 0, 99, 99]]), GOOD, GOOD)
    (example,) = load_examples(str(folder), limit=limit, skip_bad=True)
    assert example.name.endswith(":2")
    with pytest.raises(DataError) as error:
        load_examples(str(folder), limit=limit)
    assert "metadata.jsonl:3: the same question on the same picture stands at" in str(error.value)
    assert "metadata.jsonl:2: " not in str(error.value)


@pytest.mark.parametrize("name", ["bboxes", "evidence_boxes", "answer_bbox", "bounding_box", "regions", "Location"])
def test_likely_names_of_the_evidence_are_told(tmp_path, name):
    row = _without("evidence")
    with pytest.raises(DataError, match=f"'{name}' seems to be 'evidence'; rename it"):
        load_examples(str(_folder(tmp_path, row | {name: GOOD["evidence"]})))


def test_one_report_names_every_kind_and_counts_the_rest(tmp_path):
    rows = [_without(question=" ", answers=[f"{n}"]) for n in range(LISTED + 4)]
    folder = _folder(tmp_path, GOOD, *rows, _without(file_name="none.png"))
    with pytest.raises(DataError) as error:
        load_imagefolder(folder)
    report = str(error.value)
    assert f"has {LISTED + 5} problems" in report
    assert f"empty question ({LISTED + 4})" in report
    assert "... and 4 more" in report
    assert "missing picture (1)" in report
    assert report.count("question has no text") == LISTED


def test_folders_without_usable_metadata_are_refused(tmp_path):
    with pytest.raises(DataError, match="is not a folder"):
        load_imagefolder(tmp_path / "nowhere")
    (tmp_path / "page.png").touch()
    with pytest.raises(DataError, match=f"is a file; pass the folder that it is in, '{re.escape(str(tmp_path))}'"):
        load_examples(str(tmp_path / "page.png"))
    (tmp_path / "page.png").unlink()
    (tmp_path / "meta.jsonl").write_text("")
    (tmp_path / "OTHER.CSV").write_text("")
    with pytest.raises(DataError, match=r"has no metadata\.jsonl or metadata\.csv; there is OTHER\.CSV, meta\.jsonl"):
        load_imagefolder(tmp_path)
    (tmp_path / "metadata.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match="there is no row in it"):
        load_imagefolder(tmp_path)
    (tmp_path / "metadata.jsonl").write_text(json.dumps(GOOD))
    with pytest.raises(DataError, match="there is no file"):  # nothing is left, also if bad rows may be left out
        load_imagefolder(tmp_path, skip_bad=True)
    (tmp_path / "metadata.csv").write_text("file_name,question,answers\n")
    with pytest.raises(DataError, match="has both"):
        load_imagefolder(tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"question": "what is <|image_pad|>?"}, "stands for a picture"),
        (
            {"question": "<image>\nwhat is it?"},
            "question holds <image>, which this model reads as letters; take it out",
        ),
        ({"question": "what is in <image_2>?"}, "question holds <image_2>"),
        ({"question": "what is it?<|im_end|>"}, "question holds <|im_end|>, which ends a turn"),
        ({"answers": "<|im_start|>user"}, "answers holds <|im_start|>, which begins a turn"),
        ({"answers": ["5 <|endoftext|>"]}, "answers holds <|endoftext|>, which is written as the prompt's own tokens"),
        ({"question": "\ud800 x"}, "half of a character"),
        ({"answers": ["\udfff"]}, "half of a character"),
        ({"family": "\ud800"}, "family holds half of a character"),
        ({"question": "a\0b"}, "question holds a NUL"),
        ({"answers": ["a\0"]}, "answers holds a NUL"),
        ({"family": "\0"}, "family holds a NUL"),
        ({"evidence": [[0, 0, 10**400, 3]]}, "not finite"),
        ({"evidence": [[0, 0, 1e-300, 1e-300]]}, "no area"),
        ({"context": 7}, "context is int 7"),
        ({"context": [[0, 0, 41, 3]]}, "leaves the picture"),
        ({"file_name": "strip.png", "evidence": []}, "longer than 200 to 1"),
    ],
)
def test_what_would_stop_a_run_later_is_refused_at_once(tmp_path, changes, says):
    folder = _folder(tmp_path, {**GOOD, **changes})
    Image.new("RGB", (201, 1)).save(folder / "strip.png")
    with pytest.raises(DataError, match=re.escape(says)):
        load_examples(str(folder))
    with pytest.raises(DataError, match="no name"):
        load_examples(" ")


@pytest.mark.parametrize("name", ["content", "Contents", "context_id", "source", "bbox"])
def test_columns_of_ones_own_are_let_be(tmp_path, name):
    assert len(load_imagefolder(_folder(tmp_path, {**GOOD, name: "mine"}))) == 1


def test_an_empty_metadata_file_among_others_is_reported(tmp_path):
    folder = _folder(tmp_path, GOOD)
    for name, content in (("metadata.jsonl", ""), ("metadata.csv", "file_name,question,answers\n")):
        (folder / "b" / name).write_text(content)
        with pytest.raises(DataError, match=rf"b/{name}: there is no row in it"):
            load_imagefolder(folder)
        assert load_imagefolder(folder, skip_bad=True).left_out == {"empty file": 1}
        (folder / "b" / name).unlink()


def test_bad_csv(tmp_path):
    folder = _folder(tmp_path, b"file_name,question,answers", b"a.png,q,x", b"a.png,q", name="metadata.csv")
    with pytest.raises(DataError, match=r"metadata\.csv:3: the row has 2 values; the header has 3 columns"):
        load_imagefolder(folder)
    (folder / "metadata.csv").write_bytes(b"file_name,question,answers\na.png,q\xff,x\n")
    with pytest.raises(DataError, match=r"metadata\.csv:2 is not UTF-8"):
        load_imagefolder(folder)
    (folder / "metadata.csv").write_bytes(b"file_name,question,answers,,\na.png,q," + b"[" * 100_000 + b",,\n")
    assert len(load_imagefolder(folder)) == 1  # a text, however many brackets; columns without a name are no matter


def test_empty_evidence_in_csv_is_no_other_name(tmp_path):
    folder = _folder(tmp_path, b"file_name,question,answers,evidence,bbox", b"a.png,q,x,,7", name="metadata.csv")
    assert load_imagefolder(folder)[0].evidence == ()


@pytest.mark.parametrize("answers", ["['42', 'forty-two']", "['42' 'forty-two']", " [sic] "])
def test_answers_in_csv_that_are_a_list_but_not_in_json_are_reported(tmp_path, answers):
    rows = (b"file_name,question,answers", f'a.png,q,"{answers}"'.encode(), b'a.png,r," [""42""]"')
    folder = _folder(tmp_path, *rows, name="metadata.csv")
    with pytest.raises(DataError, match=r'csv:2: answers is str .*\]"?\'?; a list in JSON is wanted, e\.g\. \["42"\]'):
        load_imagefolder(folder)
    (kept,) = load_imagefolder(folder, skip_bad=True)
    assert kept.answers == ("42",)


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv"])
@pytest.mark.parametrize(
    ("encoding", "asked"),
    [("utf-16", "q"), ("utf-16-le", "q"), ("utf-16-be", "q"), ("utf-16-le", "è"), ("latin-1", "è")],
)
def test_a_file_that_is_not_utf8_is_refused_as_a_whole(tmp_path, name, encoding, asked):
    lines = [json.dumps(_without(question=f"{asked}{n}"), ensure_ascii=False) for n in range(3)]
    if name.endswith("csv"):
        lines = ["file_name,question,answers", f"a.png,{asked},x"]
    folder = _folder(tmp_path, "\n".join(lines).encode(encoding), name=name)
    for skip_bad in (False, True):
        with pytest.raises(DataError, match=r"metadata\.\w+:[12] is not UTF-8 \(.*\); save the file as UTF-8$"):
            load_imagefolder(folder, skip_bad=skip_bad)


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize(("mark", "came"), [(";", "semicolons"), ("\t", "tabs")])
def test_csv_with_other_separators_is_refused_once(tmp_path, mark, came, quote):
    rows = (("file_name", "question", "answers"), ("a.png", "what, then?", "x"), ("a.png", "q", "x"))
    lines = [mark.join(f"{quote}{value}{quote}" for value in row).encode() for row in rows]
    folder = _folder(tmp_path, *lines, name="metadata.csv")
    for skip_bad in (False, True):
        with pytest.raises(DataError, match=f"has 1 problem:(?s:.*)by {came}; separate them by commas"):
            load_imagefolder(folder, skip_bad=skip_bad)


@pytest.mark.parametrize("skip_bad", [False, True])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            'file_name,question,answers\na.png,q,x\na.png,"q,x\na.png,r,x\n',
            "csv:3: .*the rest of the file can't be read",
        ),
        (
            'file_name,question,answers\na.png,q,x\na.png,"q"r,x\na.png,r,x\n',
            "csv:3: .*the rest of the file can't be read",
        ),
        ("file_name,question,question,answers\na.png,q,r,x\n", "csv:1: 'question' is the name of two columns"),
    ],
)
def test_csv_that_cannot_be_read_to_its_end_is_refused(tmp_path, content, says, skip_bad):
    folder = _folder(tmp_path, content.encode(), name="metadata.csv")
    with pytest.raises(DataError, match=f"(?s){says}.*skip_bad \\(--skip-bad\\) doesn't leave out"):
        load_imagefolder(folder, skip_bad=skip_bad)


def test_boxes_are_of_the_upright_picture(tmp_path):
    folder = _folder(tmp_path, _without(file_name="turned.jpg", evidence=[[0, 0, 20, 39]]))
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its side
    Image.new("RGB", (40, 20), "white").save(folder / "turned.jpg", exif=exif)
    (example,) = load_imagefolder(folder)
    assert example.image.size == (20, 40)
    Image.new("RGB", (1, 1)).save(folder / "dot.png")  # of which a whole pixel is no share
    assert len(load_imagefolder(_folder(tmp_path, _without(file_name="dot.png", evidence=[0, 0, 1, 1])))) == 1


@pytest.fixture
def checked(capsys, monkeypatch):
    """What `python -m training.data` prints for these arguments: (standard output's lines, the report or None)."""

    def check(*arguments):
        monkeypatch.setattr(sys, "argv", ["data", *map(str, arguments)])
        report = None
        try:
            main()
        except SystemExit as error:
            report = error.code
        return [line.strip() for line in capsys.readouterr().out.splitlines()], report

    return check


def test_command_line_counts_and_reports(tmp_path, checked, monkeypatch):
    folder = _folder(tmp_path, GOOD, _without(question=""))
    printed, report = checked(folder)
    assert printed == []
    assert report.count("metadata.jsonl:2: question has no text") == 1
    left_out = "train and held_out: left out: empty question"
    assert checked(folder, "--skip-bad") == (["1 train and held_out: f", f"1 {left_out}"], None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install" in checked("hub:some/name")[1]


def test_command_line_counts_questions_without_boxes(tmp_path, checked):
    folder = _folder(
        tmp_path, GOOD, _without("evidence", question="b", areas=[[1, 1, 9, 9]]), _without("evidence", question="c")
    )
    assert checked(folder, "--split", "train") == (["3 train: f", "2 train: without evidence boxes"], None)


def test_command_line_checks_every_split_that_is_there(tmp_path, checked):
    for name in ("train", "val"):
        (tmp_path / name).mkdir()
        _folder(tmp_path / name, GOOD, _without(question="", family=name))
    printed, report = checked(tmp_path)
    assert printed == []
    assert "train/metadata.jsonl:2: question has no text" in report
    assert "val/metadata.jsonl:2: question has no text" in report
    _folder(tmp_path / "val", GOOD)
    printed, report = checked(tmp_path)
    assert printed == ["1 held_out (val): f"]
    assert "train/metadata.jsonl:2: question has no text" in report
    assert checked(tmp_path, "--split", "held_out") == (["1 held_out: f"], None)
    (tmp_path / "test").mkdir()
    _folder(tmp_path / "test", _without(question=""))
    printed, report = checked(tmp_path, "--limit", 1)
    assert "test/metadata.jsonl:1: question has no text" in report
    _folder(tmp_path / "test", GOOD)
    assert checked(tmp_path)[0][:2] == ["1 held_out (val): f", "1 test: f"]
    assert checked(tmp_path, "--split", "test") == (["1 test: f"], None)
    shutil.rmtree(tmp_path / "test")
    shutil.rmtree(tmp_path / "val")
    assert checked(tmp_path, "--skip-bad") == (["1 train: f", "1 train: left out: empty question"], None)


def test_command_line_checks_both_splits_of_the_world(checked):
    assert checked("world:one_field", "--limit", 2) == (["2 train: one_field", "2 held_out: one_field"], None)
    _, report = checked("world:one_feild")
    assert report.count("did you mean") == 1


def test_pictures_that_splits_share_are_counted(tmp_path, checked):
    for split, colours in (("train", ("red", "green", "blue")), ("test", ("green", "white", "blue"))):
        (tmp_path / split).mkdir()
        rows = []
        for number, colour in enumerate(colours):
            Image.new("RGB", (32, 32), colour).save(
                tmp_path / split / f"{number}.png", compress_level=3 + 3 * len(split) % 7
            )
            rows += [{"file_name": f"{number}.png", "question": f"q{ask}", "answers": ["a"]} for ask in range(2)]
        (tmp_path / split / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    printed, report = checked(tmp_path)
    assert report is None
    (told,) = (line for line in printed if "too" in line)
    assert told.startswith("2 pictures of held_out (test) are in train, too: ")
    assert f"{tmp_path / 'test' / 'metadata.jsonl'}:1 shows that of {tmp_path / 'train' / 'metadata.jsonl'}:3" in told
    assert not any("too" in line for line in checked(tmp_path, "--split", "train")[0])
    for number, colour in ((0, "yellow"), (2, "pink")):
        Image.new("RGB", (32, 32), colour).save(tmp_path / "test" / f"{number}.png")
    assert not any("too" in line for line in checked(tmp_path)[0])
