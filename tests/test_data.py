"""Examples from folders, the world and Hub datasets; every kind of bad data is reported with its line before anything starts."""

import json
import pickle
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from training.data import (
    DataError,
    Example,
    ExampleSet,
    WorldSource,
    WorldStream,
    evidence_cells,
    evidence_weight,
    load_examples,
    world_examples,
)
from training.data.__main__ import main
from training.data.check import LISTED
from training.data.hub import HubStream, load_hub
from training.data.imagefolder import load_imagefolder
from training.data.stream import ExampleStream
from training.world import KINDS, Page
from training.world.__main__ import write

GOOD = {"file_name": "a.png", "question": "what is it?", "answers": ["42"], "evidence": [[1, 2, 9, 8]], "family": "f"}


def _folder(tmp_path: Path, *rows, name: str = "metadata.jsonl") -> Path:
    """A folder with a.png of 40 x 30 pixels, b/a.png, and the rows (dict, or a line as it stands)."""
    (tmp_path / "b").mkdir(exist_ok=True)
    Image.new("RGB", (40, 30), "white").save(tmp_path / "a.png")
    Image.new("L", (20, 10)).save(tmp_path / "b" / "a.png")
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    (tmp_path / name).write_bytes(b"\n".join(lines) + b"\n")
    return tmp_path


def _without(*names, **changes) -> dict:
    return {name: value for name, value in {**GOOD, **changes}.items() if name not in names}


# --- evidence on the grid


def test_evidence_cells_by_hand():
    # 2 x 2 cells of 10 x 10 pixels; the two boxes overlap in one quarter of the first cell
    boxes = ((0, 0, 5, 10), (0, 0, 10, 5), (10, 10, 15, 20))
    assert evidence_cells(boxes, (20, 20), (2, 2)).tolist() == [[0.75, 0], [0, 0.5]]
    assert evidence_weight(boxes, (20, 20), (2, 2)).flatten().tolist() == pytest.approx([0.6, 0, 0, 0.4])
    assert evidence_cells((), (20, 20), (2, 3)).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert evidence_weight((), (20, 20), (2, 3)).sum() == 0


def test_evidence_cells_equal_counted_pixels():
    random = np.random.default_rng(0)
    for _ in range(20):
        left, top = random.integers(0, 90, (2, 5))
        boxes = [(x, y, x + w, y + h) for x, y, w, h in zip(left, top, *random.integers(1, 60, (2, 5)), strict=True)]
        pixels = np.zeros((96, 144))
        for x0, y0, x1, y1 in boxes:
            pixels[y0:y1, x0:x1] = 1
        wanted = pixels.reshape(6, 16, 9, 16).mean(axis=(1, 3))
        cells = evidence_cells(boxes, (144, 96), (6, 9))
        assert torch.allclose(cells, torch.tensor(wanted, dtype=torch.float32), atol=1e-6)
        weight = evidence_weight(boxes, (144, 96), (6, 9))
        assert weight.sum().item() == pytest.approx(1, abs=1e-5)
        assert torch.allclose(weight * pixels.sum() / 256, cells, atol=1e-5)


def test_evidence_follows_a_resized_picture_and_odd_grids():
    boxes, twice = [(3, 4, 21, 17)], [(6, 8, 42, 34)]
    assert torch.equal(evidence_cells(boxes, (50, 40), (3, 7)), evidence_cells(twice, (100, 80), (3, 7)))
    assert evidence_cells([(0, 0, 50, 40)], (50, 40), (3, 7)).min() == 1
    assert evidence_weight([(0.25, 0.5, 0.75, 0.9)], (50, 40), (3, 7))[0, 0] == 1
    with pytest.raises(ValueError, match="at least 1 on each side"):
        evidence_cells(boxes, (0, 40), (3, 7))


# --- folders


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


def test_csv_says_the_same_as_jsonl(tmp_path):
    rows = "\ufefffile_name,question,answers,evidence,context,family\n"
    rows += 'a.png,"what,\nis it?","[""42"", ""forty-two""]","[[1,2,9,8]]","[2,3,4,5]",f\n' + "b/a.png,q,[sic],,,\n"
    folder = _folder(tmp_path, rows.encode(), name="metadata.csv")
    first, second = load_imagefolder(folder)
    assert (first.question, first.answers, first.evidence) == ("what,\nis it?", ("42", "forty-two"), ((1, 2, 9, 8),))
    assert first.context == ((2, 3, 4, 5),)
    assert (second.answers, second.family, second.evidence, second.context) == (("[sic]",), "all", (), ())
    assert second.name.endswith("metadata.csv:4")


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
    (tmp_path / "validation").rename(tmp_path / "other")
    with pytest.raises(DataError, match="no folder held_out or validation"):
        load_examples(str(tmp_path), "held_out")


def test_limit_is_a_seeded_choice_in_the_order_of_the_file(tmp_path):
    folder = _folder(tmp_path, *(_without(question=f"{n}?") for n in range(20)))
    asked = [[int(e.question[:-1]) for e in load_imagefolder(folder, seed=seed, limit=5)] for seed in (0, 0, 1)]
    assert asked[0] == asked[1] == sorted(asked[0])
    assert asked[0] != asked[2]


def test_the_world_can_be_written_and_read(tmp_path):
    write(tmp_path / "pages", 3, "held_out", 0, KINDS["several_fields"])
    examples = load_examples(str(tmp_path / "pages"))
    assert "several_fields" in {e.family for e in examples}
    assert all(example.evidence for example in examples if example.family == "several_fields")


BAD = {
    "missing column": (_without("question"), "there is no 'question'; there are 'file_name', 'answers'"),
    "misspelt column": (_without("question", questoin="x"), "no 'question'; rename 'questoin' to it"),
    "other name": (_without("file_name", image="a.png"), "there is no 'file_name'; rename 'image' to it"),
    "misspelt optional": (_without("evidence", evidences=[[1, 2, 3, 4]]), "'evidences' seems to be 'evidence'"),
    "not JSON": (b"{'file_name': 1}", "one JSON object per line is wanted"),
    "not an object": (b"[1, 2]", "the line is a list"),
    "not UTF-8": (b'{"file_name": "\xff"}', "not JSON"),
    "missing picture": (_without(file_name="none.png"), "there is no file"),
    "unreadable picture": (_without(file_name="text.png"), "is not a picture that PIL reads"),
    "truncated picture": (_without(file_name="cut.png"), "truncated"),
    "bomb": (_without(file_name="bomb.png"), "decompression bomb"),
    "leaves the folder": (_without(file_name="../a.png"), "leaves the folder"),
    "absolute path": (_without(file_name="/etc/a.png"), "leaves the folder"),
    "no path": (_without(file_name=7), "file_name is 7"),
    "box outside": (_without(evidence=[[1, 2, 41, 8]]), "leaves the picture of 40 x 30 pixels"),
    "negative box": (_without(evidence=[[-1, 2, 4, 8]]), "leaves the picture"),
    "inverted box": (_without(evidence=[[9, 2, 1, 8]]), "left < right and top < bottom"),
    "flat box": (_without(evidence=[9, 2, 11, 2]), "has no area"),
    "NaN box": (_without(evidence=[[float("nan"), 2, 9, 8]]), "not finite"),
    "short box": (_without(evidence=[[1, 2, 3]]), "give a list of [left, top, right, bottom] in pixels"),
    "text box": (_without(evidence="1 2 3 4"), "evidence is str '1 2 3 4'"),
    "empty question": (_without(question="  "), "question has no text"),
    "question type": (_without(question=3), "question is int 3; give a text"),
    "no answer": (_without(answers=[]), "answers is empty"),
    "null answer": (_without(answers=None), "answers is empty"),
    "empty answer": (_without(answers=["a", " "]), "answers holds an empty text"),
    "answer type": (_without(answers=[42]), "answers holds int 42; give texts, numbers in quotes"),
    "family type": (_without(family=["f"]), "family is list"),
    "duplicate": (
        _without(file_name="./a.png", question=" first? "),
        "same question on the same picture stands at",
    ),
}


@pytest.mark.parametrize(("row", "report"), BAD.values(), ids=BAD.keys())
def test_bad_rows_are_reported_with_file_and_line(tmp_path, capsys, monkeypatch, row, report):
    folder = _folder(tmp_path, _without(question="first?"), b"", row, _without(question="another?"))
    Image.effect_noise((60, 60), 50).save(folder / "whole.png")
    (folder / "cut.png").write_bytes((folder / "whole.png").read_bytes()[:900])
    (folder / "text.png").write_text("no picture")
    Image.new("1", (80, 80)).save(folder / "bomb.png")
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
    (tmp_path / "meta.jsonl").write_text("")
    with pytest.raises(DataError, match=r"has no metadata\.jsonl or metadata\.csv; there is meta\.jsonl"):
        load_imagefolder(tmp_path)
    (tmp_path / "metadata.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match="the dataset is empty"):
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
        ({"question": "\ud800 x"}, "half of a character"),
        ({"answers": ["\udfff"]}, "half of a character"),
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
    with pytest.raises(DataError, match=says):
        load_examples(str(folder))
    with pytest.raises(DataError, match="no name"):
        load_examples(" ")


def test_bad_csv(tmp_path):
    folder = _folder(tmp_path, b"file_name,question,answers", b"a.png,q,x", b"a.png,q", name="metadata.csv")
    with pytest.raises(DataError, match=r"metadata\.csv:3: the row has 2 values; the header has 3 columns"):
        load_imagefolder(folder)
    (folder / "metadata.csv").write_bytes(b"file_name,question,answers\na.png,q\xff,x\n")
    with pytest.raises(DataError, match=r"metadata\.csv:2 is not UTF-8"):
        load_imagefolder(folder)
    (folder / "metadata.csv").write_bytes(b'file_name,question,answers\na.png,q,x\na.png,"q,x\n')
    with pytest.raises(DataError, match=r"metadata\.csv:3: .*the rest of the file"):
        load_imagefolder(folder)


def test_boxes_are_of_the_upright_picture(tmp_path):
    folder = _folder(tmp_path, _without(file_name="turned.jpg", evidence=[[0, 0, 20, 39]]))
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its side
    Image.new("RGB", (40, 20), "white").save(folder / "turned.jpg", exif=exif)
    (example,) = load_imagefolder(folder)
    assert example.image.size == (20, 40)


# --- the Hub's library, on local parquet


@pytest.fixture
def parquet(tmp_path, monkeypatch) -> Path:
    datasets = pytest.importorskip(
        "datasets", reason="the library datasets is not installed: pip install 'arrcoc[train]'"
    )
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    pictures = []
    for number in range(4):
        file = tmp_path / f"{number}.png"
        Image.new("RGB", (32, 16), (number * 40, 0, 0)).save(file)
        pictures.append({"bytes": file.read_bytes(), "path": file.name})
    rows = {
        "img": pictures,
        "query": ["a?", "b?", "c?", "d?"],
        "answers": [["1"], ["2", "two"], ["3"], ["4"]],
        "bbox": [[[0, 0, 8, 8]], [[8, 8, 32, 16]], [[0, 0, 1, 1]], [[0.5, 0, 1, 1]]],
    }
    features = datasets.Features(
        img=datasets.Image(), query=datasets.Value("string"), answers=datasets.List(datasets.Value("string")),
        bbox=datasets.List(datasets.List(datasets.Value("float32"))),
    )  # fmt: skip
    (tmp_path / "data").mkdir()
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "data" / "train-00000-of-00001.parquet")
    return tmp_path / "data"


MAPPING = {"image": "img", "question": "query", "evidence": "bbox"}
QUERY = "image=img&question=query&evidence=bbox"


@pytest.mark.parametrize("streaming", [False, True])
def test_parquet_with_mapped_columns(parquet, streaming):
    examples = load_hub(str(parquet), MAPPING, streaming=streaming, limit=4 if streaming else None)
    assert [e.question for e in examples] == ["a?", "b?", "c?", "d?"]
    assert examples[1].answers == ("2", "two")
    assert examples[1].evidence == ((8, 8, 32, 16),)
    assert [e.image.getpixel((0, 0))[0] for e in examples] == [0, 40, 80, 120]
    assert examples[2].name.endswith("data[train]:row 2")
    assert pickle.loads(pickle.dumps(examples[3])).image.size == (32, 16)
    through_the_door = load_examples(f"hub:{parquet}?{QUERY}&streaming={int(streaming)}", "train", limit=3)
    assert len(through_the_door) == 3


def test_parquet_stream_has_no_end_of_its_own_and_resumes(parquet):
    assert [e.question for e in HubStream(str(parquet), MAPPING)] == ["a?", "b?", "c?", "d?"]
    assert [e.question for e in HubStream(str(parquet), MAPPING, start=2)] == ["c?", "d?"]
    shared = [[e.question for e in HubStream(str(parquet), MAPPING, rank=rank, processes=2)] for rank in (0, 1)]
    assert sorted(shared[0] + shared[1]) == ["a?", "b?", "c?", "d?"]
    with pytest.raises(ValueError, match="pass a limit, or use HubStream"):
        load_hub(str(parquet), MAPPING, streaming=True)


@pytest.mark.parametrize("streaming", [False, True])
def test_wrong_columns_list_those_that_exist(parquet, streaming):
    with pytest.raises(DataError) as error:
        load_hub(str(parquet), {"image": "picture"}, streaming=streaming, limit=1)
    assert "no column 'picture' for image" in str(error.value)
    assert "no column 'question' for question (is it question=query?)" in str(error.value)
    assert "Its columns are img, query, answers, bbox" in str(error.value)
    with pytest.raises(DataError, match="'pictures' can't be mapped"):
        load_hub(str(parquet), {"pictures": "img"}, streaming=streaming, limit=1)


def test_bad_rows_of_parquet(parquet, capsys):
    datasets = pytest.importorskip("datasets")
    file = next(parquet.iterdir())
    table = datasets.Dataset.from_parquet(str(file)).cast_column("img", datasets.Image(decode=False)).to_list()
    table[1]["img"] = {"bytes": b"no picture", "path": None}
    table[2]["query"] = ""
    datasets.Dataset.from_list(table).to_parquet(str(file))
    with pytest.raises(DataError) as error:
        load_hub(str(parquet), MAPPING)
    assert "row 1: " in str(error.value)
    assert "row 2: question has no text" in str(error.value)
    assert [e.question for e in load_hub(str(parquet), MAPPING, skip_bad=True)] == ["a?", "d?"]
    assert "left out 2 records" in capsys.readouterr().err
    with pytest.raises(DataError, match="row 1"):
        list(HubStream(str(parquet), MAPPING))
    stream = HubStream(str(parquet), MAPPING, skip_bad=True)
    assert [e.question for e in stream] == ["a?", "d?"]
    assert sum(stream.left_out.values()) == 2


def test_unknown_datasets_and_splits(parquet, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="has no split 'held_out'; it has train"):
        load_hub(str(parquet), MAPPING, split="held_out")
    with pytest.raises(DataError, match="can't be loaded"):
        load_hub(str(tmp_path / "nowhere"), MAPPING)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'arrcoc\[train\]'"):
        load_hub(str(parquet))


# --- the world


def test_world_examples_are_what_their_pages_say():
    examples = world_examples("held_out", 3, ("one_field", "several_fields"), ((8, 8), (8, 12)), pages=4, questions=2)
    assert [e.image.size for e in examples[:1]] == [(128, 128)]
    assert {"one_field", "several_fields"} <= {e.family for e in examples}
    assert len({e.name for e in examples}) == len(examples)
    again = world_examples("held_out", 3, ("one_field", "several_fields"), ((8, 8), (8, 12)), pages=4, questions=2)
    assert [e.image.tobytes() for e in again] == [e.image.tobytes() for e in examples]
    assert pickle.loads(pickle.dumps(examples[0])).image.tobytes() == examples[0].image.tobytes()
    assert isinstance(examples[0].picture.func(*examples[0].picture.args), Image.Image)
    with pytest.raises(ValueError, match="did you mean 'one_field'"):
        world_examples(kinds=("one_feild",))
    with pytest.raises(ValueError, match="at least one of each"):
        world_examples(pages=0)


class _Numbers:
    def example(self, index: int) -> Example:
        return Example(Image.new("RGB", (1, 1)), str(index), ("",))


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_give_the_same_batches_with_any_number_of_workers(workers):
    def batches(count, **sharing):
        loader = DataLoader(
            ExampleStream(_Numbers(), batch_size=3, **sharing), 3, num_workers=workers, collate_fn=_questions
        )
        return list(islice(loader, count))

    assert batches(4) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert batches(2, start=6) == [[6, 7, 8], [9, 10, 11]]
    assert batches(2, rank=1, processes=2) == [[3, 4, 5], [9, 10, 11]]


def _questions(examples) -> list[int]:
    return [int(example.question) for example in examples]


def test_the_worlds_stream_depends_on_index_and_seed_alone():
    grids, kinds = ((8, 8),), ("one_field", "several_fields")
    first = list(islice(WorldStream(5, kinds=kinds, grids=grids), 5))
    later = list(islice(WorldStream(5, kinds=kinds, grids=grids, start=3), 2))
    assert [e.name for e in later] == [e.name for e in first[3:]]
    assert later[0].image.tobytes() == first[3].image.tobytes()
    assert [e.name for e in islice(WorldStream(6, kinds=kinds, grids=grids), 5)] != [e.name for e in first]
    shown = ExampleSet(WorldSource(5, "train", kinds, grids), 4)
    assert [shown[index].name for index in range(len(shown))] == [e.name for e in first[:4]]
    with pytest.raises(IndexError):
        shown[4]
    with pytest.raises(ValueError, match="a rank below the number of processes"):
        WorldStream(rank=2, processes=2)


def test_stream_skips_pages_without_questions(monkeypatch):
    from training.data import world

    page = Page(Image.new("RGB", (128, 128)), (), "", (), (), None)
    monkeypatch.setattr(world, "_page", lambda *arguments: page)
    with pytest.raises(RuntimeError, match="held no question"):
        WorldSource().example(0)


# --- the door


def test_the_door_to_the_world():
    assert len(load_examples("world:one_field?grids=8x8,8x12", limit=3)) == 3
    found = load_examples("world?grids=12x12&questions=2", limit=5)
    assert len(found) == 5
    assert found[0].image.size == (192, 192)


@pytest.mark.parametrize(
    ("spec", "report"),
    [
        ("wrold", r"no folder 'wrold' \(did you mean 'world'\?\)"),
        ("no/such/folder", r"metadata\.jsonl or metadata\.csv"),
        ("world:one_feild", "did you mean 'one_field'"),
        ("world?grid=8x8", r"'grid' is no option here \(did you mean 'grids'\?\)"),
        ("world?grids=8", "give rows x columns, such as 12x12"),
        ("world?questions=no", "give a whole number"),
        ("world?grids", "name=value"),
        ("wikitables:", "names no path"),
        ("hub:", "names no dataset"),
        ("hub:x/y?colour=z", "'colour' is no option"),
    ],
)
def test_the_door_says_what_is_allowed(spec, report):
    with pytest.raises(ValueError, match=report):
        load_examples(spec)


def test_the_door_checks_its_own_arguments():
    with pytest.raises(ValueError, match="split='dev' is not one of train, held_out"):
        load_examples("world", "dev")
    with pytest.raises(ValueError, match="limit=0"):
        load_examples("world", limit=0)


def test_command_line_counts_and_reports(tmp_path, capsys, monkeypatch):
    folder = _folder(tmp_path, GOOD, _without(question=""))
    monkeypatch.setattr(sys, "argv", ["data", str(folder)])
    with pytest.raises(SystemExit, match=r"metadata\.jsonl:2: question has no text"):
        main()
    monkeypatch.setattr(sys, "argv", ["data", str(folder), "--skip-bad"])
    main()
    printed = capsys.readouterr().out
    assert "1 f\n" in printed
    assert "1 left out: empty question" in printed
