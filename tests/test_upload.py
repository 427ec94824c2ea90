"""Staging and uploading: which files go to the Hub, and through which calls."""

from types import SimpleNamespace

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
    (folder / "sub").mkdir()
    (folder / "sub" / "texture.py").write_text("x")
    expected = {*upload.CODE_FILES, "config.json", "model.safetensors", "chat_template.jinja", "README.md"}
    assert set(upload.files_of(folder)) == expected


class Hub:
    """Records the calls of a Hub client."""

    def __init__(self):
        self.calls = []

    def create_repo(self, repo_id, **options):
        self.calls.append(("create", repo_id, options))

    def upload_folder(self, **options):
        self.calls.append(("upload", options["repo_id"], options))
        return SimpleNamespace(oid="abc", commit_url="https://hub/commit/abc")

    def create_tag(self, repo_id, **options):
        self.calls.append(("tag", repo_id, options))


def test_upload_creates_uploads_and_tags_one_commit(folder):
    hub = Hub()
    url = upload.upload(folder, "me/model", private=True, tag="v1", api=hub)
    assert url == "https://hub/commit/abc"
    assert [call[0] for call in hub.calls] == ["create", "upload", "tag"]
    assert hub.calls[0][2] == {"repo_type": "model", "private": True, "exist_ok": True}
    assert hub.calls[1][2]["allow_patterns"] == upload.files_of(folder)
    assert hub.calls[2][2] == {"tag": "v1", "revision": "abc"}


def test_a_folder_in_use_is_not_overwritten(folder):
    with pytest.raises(FileExistsError, match="not empty"):
        upload.stage(upload.DEFAULT_CHECKPOINT, folder)


def test_uploading_needs_a_repository(capsys):
    with pytest.raises(SystemExit):
        upload.main([])
    assert "--repo-id" in capsys.readouterr().err
