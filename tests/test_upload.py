"""Staging from the command line, as the demo, the Makefile and `training.export` use it."""

import json
import shutil
import subprocess
import sys

import pytest

import upload
from arrcoc import ARRCOCQwen3VLForConditionalGeneration
from upload import stage


@pytest.fixture
def folder(tmp_path):
    for name in (*upload.CODE_FILES, "config.json", "model.safetensors", "chat_template.jinja", "README.md"):
        (tmp_path / name).write_text("x")
    return tmp_path


def test_only_named_code_and_data_files_ship(folder):
    (folder / "scratch.py").write_text("x")
    (folder / "notes.md").write_text("x")
    (folder / "requirements.txt").write_text("peft\n")  # an endpoint's, which its owner adds on the Hub
    (folder / "picture.png").write_text("x")
    (folder / "sub").mkdir()
    (folder / "sub" / "texture.py").write_text("x")
    expected = {*upload.CODE_FILES, "config.json", "model.safetensors", "chat_template.jinja", "README.md"}
    assert set(upload.files_of(folder)) == expected


def test_a_folder_in_use_is_not_overwritten(folder):
    with pytest.raises(FileExistsError, match="not empty"):
        upload.stage(upload.DEFAULT_CHECKPOINT, folder)


def test_a_folder_may_be_the_current_one_or_a_link(tiny_folder, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    monkeypatch.chdir(tmp_path / "here")
    for out in (".", tmp_path / "link"):
        stage(tiny_folder, out)
    assert all((tmp_path / name / "config.json").is_file() for name in ("here", "there", "link"))


def test_an_adapter_is_no_model(tiny_folder, tiny_model, tmp_path):
    peft = pytest.importorskip("peft")
    adapter = shutil.copytree(tiny_folder, tmp_path / "adapter")
    for file in ("model.safetensors", "config.json"):
        (adapter / file).unlink()
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(tiny_folder)
    peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"])).save_pretrained(adapter)
    with pytest.raises(ValueError, match="is an adapter; merge it into its base"):
        stage(adapter, tmp_path / "out")
    assert not (tmp_path / "out").exists()


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


def test_the_demo_and_staging_need_no_extra_and_the_demo_no_model_code():
    """`make demo`, the first command on a fresh machine, installs neither training's packages nor the evaluation's. The demo
    imports nothing of the package, which would take the place of the folder's code; staging does."""
    lacking = ("datasets", "evaluate", "fontTools", "matplotlib", "peft", "tensorboard")
    code = f"import sys; sys.modules.update(dict.fromkeys({lacking})); import demo.answer; "
    code += "print(sorted(name for name in sys.modules if name.split('.')[0] == 'arrcoc')); "
    code += "import publishing.staging, publishing.pushing"
    done = subprocess.run([sys.executable, "-c", code], cwd=upload.ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-500:]
    assert done.stdout.strip() == "[]"


def test_a_copy_of_the_bundled_checkpoint_is_staged_as_that_is(tiny_folder, tmp_path):
    """Whatever the environment that its tokenizer was loaded in, and with the limits of its base in the card."""
    first = stage(upload.DEFAULT_CHECKPOINT, tmp_path / "first")
    settings = json.loads((first / "tokenizer_config.json").read_text())
    assert not {"is_local", "local_files_only"} & settings.keys()
    (first / "tokenizer_config.json").write_text(json.dumps(settings | {"is_local": False, "local_files_only": True}))
    second = stage(first, tmp_path / "second")
    assert (second / "README.md").read_text() == (
        stage(upload.DEFAULT_CHECKPOINT, tmp_path / "third") / "README.md"
    ).read_text()
    assert "trained from scratch on drawn pages" in (second / "README.md").read_text()
    assert json.loads((second / "tokenizer_config.json").read_text()) == settings
    assert (
        "trained from scratch on drawn pages" not in (stage(tiny_folder, tmp_path / "other") / "README.md").read_text()
    )
