"""Staging from the command line, as the demo, the Makefile and `training.export` use it."""

import pytest

import upload


@pytest.fixture
def folder(tmp_path):
    for name in (*upload.CODE_FILES, "config.json", "model.safetensors", "chat_template.jinja", "README.md"):
        (tmp_path / name).write_text("x")
    return tmp_path


def test_only_named_code_and_data_files_ship(folder):
    (folder / "scratch.py").write_text("x")
    (folder / "notes.md").write_text("x")
    (folder / "picture.png").write_text("x")
    (folder / "sub").mkdir()
    (folder / "sub" / "texture.py").write_text("x")
    expected = {*upload.CODE_FILES, "config.json", "model.safetensors", "chat_template.jinja", "README.md"}
    assert set(upload.files_of(folder)) == expected


def test_a_folder_in_use_is_not_overwritten(folder):
    with pytest.raises(FileExistsError, match="not empty"):
        upload.stage(upload.DEFAULT_CHECKPOINT, folder)


def test_stage_only_says_that_a_folder_is_in_use(folder, capsys):
    assert upload.main(["--stage-only", "--out", str(folder)]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"upload.py --stage-only: {folder} is not empty; pass")


def test_stage_only_writes_the_model_and_a_card(tmp_path, capsys):
    assert upload.main(["--stage-only", "--out", str(tmp_path / "out")]) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names >= {*upload.CODE_FILES, "config.json", "processor_config.json", "model.safetensors", "README.md"}
    assert not any(name.endswith(".png") for name in names)
    assert f"staged {tmp_path / 'out'}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["push", "OUT"], ["stage"], ["send"]])
def test_a_call_that_says_too_little_is_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        upload.main(arguments)
    assert "usage:" in capsys.readouterr().err
