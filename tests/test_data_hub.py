"""Hub datasets with mapped columns, on local parquet files; what the library raises comes out as a report."""

import argparse
import pickle
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from evaluation.loading import load_data
from training.allocator_batches import PictureSource
from training.data import DataError, check, hub, load_examples, split_read
from training.data.__main__ import main
from training.data.hub import load_hub


@pytest.fixture
def parquet(tmp_path, monkeypatch) -> Path:
    datasets = pytest.importorskip(
        "datasets", reason="the library datasets is not installed: pip install -e '.[train]'"
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
        "bbox": [[[0, 0, 8, 8]], [[8, 8, 32, 16]], [[0, 0, 2, 1]], [[0.5, 0, 2, 1]]],
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


def test_command_line_checks_the_splits_that_a_dataset_has(parquet, capsys, monkeypatch):
    for options, counted in (("", "4 train: all"), ("&split=train", "4 train: all")):
        monkeypatch.setattr(sys, "argv", ["data", f"hub:{parquet}?{QUERY}{options}"])
        main()
        assert capsys.readouterr().out.split("\n") == [f"       {counted}", ""]
    next(parquet.iterdir()).rename(parquet / "validation-00000-of-00001.parquet")
    monkeypatch.setattr(sys, "argv", ["data", f"hub:{parquet}?{QUERY}"])
    main()
    assert capsys.readouterr().out == "       4 held_out (validation): all\n"
    shutil.copy(next(parquet.iterdir()), parquet / "test-00000-of-00001.parquet")
    main()
    said = capsys.readouterr()
    assert said.out.splitlines()[:2] == ["       4 held_out (validation): all", "       4 test: all"]
    assert "held_out is validation; test can be asked for by name" in said.err
    assert len(load_examples(f"hub:{parquet}?{QUERY}", "test")) == 4
    named = f"hub:{parquet}?{QUERY}&split=validation"
    assert [split_read(named, split) for split in ("train", "held_out", "validation")] == ["validation"] * 3
    monkeypatch.setattr(sys, "argv", ["data", named, "--split", "train"])
    main()
    assert capsys.readouterr().out == "       4 validation: all\n"
    with pytest.raises(ValueError, match="names the split 'validation', and split='test' is asked for"):
        load_examples(named, "test")
    options = argparse.Namespace(data=named, split="held_out", seed=0, limit=None, skip_bad=False)
    assert len(load_data(argparse.ArgumentParser(), options)) == 4
    assert options.split == "validation"  # which results are said to be of


@pytest.mark.parametrize("streaming", [False, True])
def test_pictures_in_an_archive_are_read(parquet, tmp_path, streaming):
    folder = tmp_path / "zipped"
    folder.mkdir()
    line = '{"file_name": "1.png", "question": "a?", "answers": ["1"]}\n'
    with zipfile.ZipFile(folder / "train.zip", "w") as archive:
        archive.write(tmp_path / "1.png", "1.png")
        archive.writestr("metadata.jsonl", line)
    (example,) = load_hub(str(folder), streaming=streaming, limit=1)
    assert example.image.getpixel((0, 0)) == (40, 0, 0)
    with pytest.raises(ValueError, match=r"memory://none.png can't be read \(FileNotFoundError"):
        hub._decode({"path": "memory://none.png"})


def test_a_picture_that_can_not_be_read_is_told_by_its_name_once(tmp_path):
    path = tmp_path / "page.png"
    path.write_bytes(b"no picture")
    for value in ({"bytes": b"no picture", "path": str(path)}, {"bytes": None, "path": str(path)}):
        with pytest.raises(ValueError, match="is not a picture that PIL reads") as told:
            hub._decode(value)
        assert str(told.value).count(str(path)) == 1
    with pytest.raises(FileNotFoundError, match=r"no image file '.*gone\.png'"):
        hub._decode({"bytes": None, "path": str(tmp_path / "gone.png")})


def test_columns_of_another_purpose_are_left_out(parquet, capsys):
    """Datasets of questions have a text called context."""
    file = next(parquet.iterdir())
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_parquet(str(file))
    table.add_column("context", ["a passage"] * 4).add_column("family", [1, 2, 3, 4]).to_parquet(str(file))
    examples = load_examples(f"hub:{parquet}?{QUERY}", "train")
    assert [(example.context, example.family) for example in examples] == [((), "all")] * 4
    said = capsys.readouterr().err
    assert "'context' is Value('string') and is not used: context would be boxes" in said
    assert "'family' is Value('int64') and is not used: family would be a text" in said
    assert "add &" not in said  # which would only be refused
    examples = load_examples(f"hub:{parquet}?{QUERY}&context=&family=".replace("evidence=bbox", "evidence="), "train")
    assert [example.evidence for example in examples] == [()] * 4
    said = capsys.readouterr().err
    assert "is not used: context" not in said
    assert "add &evidence=" not in said  # it was left out on purpose


def test_a_library_that_is_missing_is_told_in_one_line(monkeypatch, capsys):
    def missing(*_):
        raise ImportError("Hub datasets need the library `datasets`")

    monkeypatch.setattr("evaluation.loading.load_examples", missing)
    options = argparse.Namespace(data="world", split="held_out", seed=0, limit=None, skip_bad=False)
    with pytest.raises(SystemExit):
        load_data(argparse.ArgumentParser(), options)
    assert "--data world: Hub datasets need the library" in capsys.readouterr().err


def test_a_stream_without_an_end_needs_a_limit(parquet):
    with pytest.raises(ValueError, match=r"pass a limit \(--limit N\)"):
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


def _write(parquet: Path, **columns) -> None:
    """One row in place of the fixture's, with these columns as the library types them."""
    datasets = pytest.importorskip("datasets")
    row = {"question": "q", "answers": ["x"]} | columns
    datasets.Dataset.from_list([row]).to_parquet(next(parquet.iterdir()))


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("answers", "type_name"),
    [(1, "int64"), ([1.5], "float64"), ({"text": ["x"]}, "text"), ([{"answer": "x"}], "answer")],
)
def test_a_column_of_answers_that_are_no_texts_is_refused(parquet, streaming, answers, type_name):
    _write(parquet, image={"path": str(parquet.parent / "0.png"), "bytes": None}, answers=answers)
    with pytest.raises(DataError, match=rf"has .*{type_name}.* in its column 'answers'.*dataset\.map"):
        load_hub(str(parquet), streaming=streaming, limit=1)


@pytest.mark.parametrize("several", [False, True])
def test_the_numbers_of_classes_are_answered_by_their_names(parquet, several):
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["no", "yes"])
    features = datasets.Features(
        image=datasets.Image(), question=datasets.Value("string"), answers=datasets.List(label) if several else label
    )
    rows = {"image": [str(parquet.parent / f"{i}.png") for i in range(3)], "question": ["a?", "b?", "c?"]}
    answers = [1, 0, -1]
    made = datasets.Dataset.from_dict(rows | {"answers": [[a] for a in answers] if several else answers}, features)
    made.to_parquet(next(parquet.iterdir()))
    with pytest.raises(DataError, match="row 2: "):
        load_hub(str(parquet))
    assert [e.answers for e in load_hub(str(parquet), skip_bad=True)] == [("yes",), ("no",)]


@pytest.mark.parametrize("asked", [{}, {"family": "family"}], ids=["by its name", "mapped"])
def test_the_classes_of_a_column_of_families_are_their_names(asked, parquet):
    datasets = pytest.importorskip("datasets")
    text = datasets.Value("string")
    features = datasets.Features(
        image=datasets.Image(), question=text, answers=text, family=datasets.ClassLabel(names=["form", "chart"])
    )
    rows = {"image": [str(parquet.parent / f"{i}.png") for i in range(3)], "question": ["a?", "b?", "c?"]}
    made = datasets.Dataset.from_dict(rows | {"answers": ["1", "2", "3"], "family": [1, 0, -1]}, features)
    made.to_parquet(next(parquet.iterdir()))
    assert [example.family for example in load_hub(str(parquet), asked)] == ["chart", "form", "all"]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("value", "type_name"),
    [(1, "int64"), ([Image.new("RGB", (4, 4))], "List.Image"), (["a.png"], "List.Value"), ({"file": "a.png"}, "file")],
)
def test_a_column_without_pictures_is_refused(parquet, streaming, value, type_name):
    _write(parquet, image=value)
    with pytest.raises(DataError, match=f"{type_name}.* in its column 'image'.*; map another as image=COLUMN"):
        load_hub(str(parquet), streaming=streaming, limit=1)


@pytest.mark.filterwarnings("ignore:Downcasting array")
def test_bytes_paths_and_pixels_are_pictures(parquet, tmp_path):
    file = tmp_path / "0.png"
    for value in (str(file), file.read_bytes(), {"bytes": file.read_bytes()}, [[0] * 32] * 16):
        _write(parquet, image=value)
        assert [example.image.size for example in load_hub(str(parquet))] == [(32, 16)]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_damaged_file_is_refused_with_its_cause(parquet, streaming):
    (parquet / "train-00001-of-00001.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"can't be (loaded|read).* is 0 bytes"):
        load_hub(str(parquet), MAPPING, streaming=streaming, limit=9)


@pytest.mark.parametrize("streaming", [False, True])
def test_the_same_question_on_the_same_bytes_is_reported(parquet, streaming):
    datasets = pytest.importorskip("datasets")
    file = next(parquet.iterdir())
    table = datasets.Dataset.from_parquet(str(file)).cast_column("img", datasets.Image(decode=False)).to_list()
    table[2] = table[0] | {"img": table[0]["img"] | {"path": "other.png"}}
    datasets.Dataset.from_list(table).to_parquet(str(file))
    with pytest.raises(DataError, match=r"row 2: the same question on the same picture stands at .*row 0"):
        load_hub(str(parquet), MAPPING, streaming=streaming, limit=9)


@pytest.mark.parametrize("streaming", [False, True])
def test_what_is_asked_of_one_picture_is_grouped_in_training(parquet, streaming, monkeypatch):
    datasets = pytest.importorskip("datasets")
    file = next(parquet.iterdir())
    table = datasets.Dataset.from_parquet(str(file)).cast_column("img", datasets.Image(decode=False)).to_list()
    for row in table[1:3]:
        row["img"] = table[0]["img"]
    datasets.Dataset.from_list(table).to_parquet(str(file))
    opened = []
    monkeypatch.setattr(hub, "picture_size", lambda picture: opened.append(picture) or check.picture_size(picture))
    source = PictureSource(load_hub(str(parquet), MAPPING, streaming=streaming, limit=9), questions=8)
    assert len(opened) == 2, "each picture is opened once"
    asked = sorted([example.question for example in source.page(number)] for number in range(len(source)))
    assert asked == [["a?", "b?", "c?"], ["d?"]]


def test_bad_rows_of_parquet(parquet, capsys):
    datasets = pytest.importorskip("datasets")
    file = next(parquet.iterdir())
    table = datasets.Dataset.from_parquet(str(file)).cast_column("img", datasets.Image(decode=False)).to_list()
    table[1]["img"] = {"bytes": b"no picture", "path": None}
    table[2]["query"] = ""
    datasets.Dataset.from_list(table).to_parquet(str(file))
    with pytest.raises(DataError) as error:
        load_hub(str(parquet), MAPPING)
    assert "row 1: the picture in bytes is not a picture that PIL reads" in str(error.value)
    assert "row 2: question has no text" in str(error.value)
    assert [e.question for e in load_hub(str(parquet), MAPPING, skip_bad=True)] == ["a?", "d?"]
    assert "left out 2 records" in capsys.readouterr().err


def test_a_column_that_seems_to_hold_boxes_is_told_where_it_is_not_mapped(parquet, capsys):
    assert load_hub(str(parquet), {"image": "img", "question": "query"})[0].evidence == ()
    assert f"hub:{parquet}: 'bbox' is not used; if it is evidence with boxes as [left, top" in capsys.readouterr().err
    load_hub(str(parquet), MAPPING)
    assert "not used" not in capsys.readouterr().err


def test_parts_are_called_as_those_of_folders_are(parquet, monkeypatch):
    rows = hub._parts(str(parquet), None, None, False)["train"]
    monkeypatch.setattr(hub, "_parts", lambda *arguments, **more: {"training": rows, "eval": rows, "held_out": rows})
    assert hub.hub_splits("name") == {"train": ["training"], "held_out": ["held_out", "eval"]}
    assert [len(load_hub("name", MAPPING, split=split)) for split in ("train", "held_out", "eval")] == [4, 4, 4]


def test_unknown_datasets_and_splits(parquet, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="has no split 'held_out'; it has train"):
        load_hub(str(parquet), MAPPING, split="held_out")
    with pytest.raises(DataError, match="can't be loaded"):
        load_hub(str(tmp_path / "nowhere"), MAPPING)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[train\]'"):
        load_hub(str(parquet))
