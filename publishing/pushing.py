"""One commit and one tag from a staged folder: planned and shown first, safe to run again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, RepoFile
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import validate_repo_id
from huggingface_hub.utils.sha import git_hash

from publishing import card
from publishing.contract import problems_of
from publishing.files import (
    ASSEMBLING,
    CARD,
    CHAT_TEMPLATES,
    CODE_FILES,
    PICKLES,
    VOCABULARIES,
    files_of,
    human_size,
    sha256_of,
)

# Of whichever HTTP library the installed huggingface_hub is built on: no answer at all, as opposed to a refusal.
_HTTP_ERROR = HfHubHTTPError.__bases__[0]


class PushError(RuntimeError):
    """What stands in the way of a push and what to do about it; says what has been sent, if anything has."""


@dataclass(frozen=True)
class Target:
    """Where a folder is sent.

    Attributes:
        repo_id: "owner/name".
        revision: branch that the commit goes to; made from main if it is not there.
        tag: name of the commit; None for no tag. With `create_pr` the tag is left to whoever merges.
        private: make a new repository private.
        create_pr: send a pull request in place of a commit to the branch.
        replace: delete model files in the repository that the folder has not.
    """

    repo_id: str
    revision: str = "main"
    tag: str | None = None
    private: bool = False
    create_pr: bool = False
    replace: bool = False


@dataclass(frozen=True)
class Item:
    """One file that is to be sent: its bytes where they differ from the folder's, size, hash, and what the Hub has of it."""

    name: str
    source: Path | bytes
    size: int
    sha256: str
    state: str  # "new", "changed" or "same"


@dataclass(frozen=True)
class Plan:
    """What a push would do.

    Attributes:
        items: all files of the list.
        deleted: names that `Target.replace` deletes.
        exists, private: whether the repository is there, and whether it is private.
        head: commit that the branch stands at, or None.
        tagged: commit that the tag stands at, or None.
        tag_fits: whether that commit has these files.
    """

    target: Target
    items: tuple[Item, ...]
    deleted: tuple[str, ...] = ()
    exists: bool = False
    private: bool = False
    head: str | None = None
    tagged: str | None = None
    tag_fits: bool = False

    @property
    def sent(self) -> list[Item]:
        """The files that differ from what the Hub has."""
        return [item for item in self.items if item.state != "same"]

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to commit and nothing to tag."""
        tagged = self.target.create_pr or self.target.tag is None or self.tag_fits
        return self.exists and self.head is not None and not self.sent and not self.deleted and tagged


def items_of(folder: Path, target: Target) -> tuple[Item, ...]:
    """The files of a staged folder as they are sent: the card with the repository's name and tag filled in, or with the branch
    where no tag is made: it would name one that isn't there."""
    items = []
    revision = target.revision if target.create_pr or target.tag is None else target.tag
    for name in files_of(folder):
        source: Path | bytes = folder / name
        if name == CARD:
            text = (folder / name).read_text(encoding="utf-8")
            source = card.pin(text, target.repo_id, revision).encode()
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        items.append(Item(name, source, size, sha256_of(source), "new"))
    return tuple(items)


def plan(folder: Path, target: Target, api: HfApi) -> Plan:
    """Compares a staged folder with the repository; nothing is written, here or there.

    Raises:
        PushError: the folder breaks the Hub contract; no token, no rights, no network; the repository holds model files of
            something else; the tag is taken; the visibility is another.
    """
    if problems := problems_of(folder):
        raise PushError("\n".join([f"{folder} is not fit to be sent:", *(f"  {problem}" for problem in problems)]))
    items = items_of(folder, target)
    if target.repo_id.count("/") != 1:
        raise PushError(f"{target.repo_id!r} names no repository; pass --repo-id owner/name")
    with _errors_told(target):
        validate_repo_id(target.repo_id)
        api.whoami()
        try:
            info = api.repo_info(target.repo_id)
        except RepositoryNotFoundError:
            return Plan(target, items)
        if target.private and not info.private:
            raise PushError(
                f"{target.repo_id} is there already and is public; leave out --private, or change it in its settings first"
            )
        refs = api.list_repo_refs(target.repo_id)
        head = next((ref.target_commit for ref in refs.branches if ref.name == target.revision), None)
        start = head or next((ref.target_commit for ref in refs.branches if ref.name == "main"), None)
        tagged = _tagged(api, target)
        there = _remote_files(api, target.repo_id, start)
        at_tag = there if tagged == start else _remote_files(api, target.repo_id, tagged)
    tag_fits = tagged is not None and all(_state(item, at_tag.get(item.name)) == "same" for item in items)
    items = tuple(replace(item, state=_state(item, there.get(item.name))) for item in items)
    others = tuple(sorted(_model_files(there) - {item.name for item in items}))
    if others and not target.replace:
        raise PushError(
            f"{target.repo_id} holds model files that {folder} has not: {', '.join(others)}; pass another --repo-id, or "
            "--replace to delete them in the same commit"
        )
    made = Plan(target, items, others, True, bool(info.private), head, tagged, tag_fits)
    if tagged is not None and not tag_fits and not target.create_pr:
        raise PushError(
            f"the tag {target.tag} of {target.repo_id} stands at {tagged[:8]}, which has other files; pass a new --tag"
        )
    return made


def _tagged(api: HfApi, target: Target) -> str | None:
    try:
        return api.repo_info(target.repo_id, revision=target.tag).sha if target.tag else None
    except RevisionNotFoundError:
        return None


def _remote_files(api: HfApi, repo_id: str, commit: str | None) -> dict[str, RepoFile]:
    if commit is None:
        return {}
    tree = api.list_repo_tree(repo_id, revision=commit, recursive=True)
    return {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}


def _state(item: Item, remote: RepoFile | None) -> str:
    if remote is None:
        return "new"
    if remote.lfs is not None:
        return "same" if remote.lfs.sha256 == item.sha256 else "changed"
    content = item.source if isinstance(item.source, bytes) else item.source.read_bytes()
    return "same" if remote.size == item.size and remote.blob_id == git_hash(content) else "changed"


def _model_files(there) -> set[str]:
    """Files of a repository that a loader could take for parts of the model: none in a sub-folder but chat templates."""
    ours = (*CODE_FILES, ASSEMBLING)
    suffixes = (".json", ".jinja", ".safetensors", ".py", *VOCABULARIES, *PICKLES)
    read = (name for name in there if name.rpartition("/")[0] in ("", CHAT_TEMPLATES))
    return {name for name in read if name in ours or name.endswith(suffixes)}


def describe(made: Plan) -> str:
    """What would be sent and where, line by line, with sizes and SHA-256."""
    target = made.target
    kind = (
        ("private" if made.private else "public")
        if made.exists
        else ("new private" if target.private else "new public")
    )
    lines = [f"to {target.repo_id} ({kind} model repository), branch {target.revision}"]
    if target.create_pr:
        lines[0] += ", as a pull request"
    width = max(len(item.name) for item in made.items)
    for item in made.items:
        lines.append(f"  {item.state:<8}{item.name:<{width}}  {human_size(item.size):>9}  {item.sha256}")
    lines += [f"  delete  {name}" for name in made.deleted]
    total, sent = sum(item.size for item in made.items), sum(item.size for item in made.sent)
    lines.append(f"{len(made.items)} files, {human_size(total)}; {len(made.sent)} to send, {human_size(sent)}")
    if made.exists and all(item.state == "new" for item in made.items):
        lines.append(
            "the repository is there and has none of these files: it is new, or an earlier push did not get further"
        )
    if target.tag and not target.create_pr:
        missing = " is all that is missing" if not made.sent and not made.deleted else ""
        lines.append(f"tag {target.tag}" + (" is there" if made.tagged else missing))
    return "\n".join(lines)


def execute(made: Plan, api: HfApi) -> str:
    """Carries a plan out and returns where the result stands. A killed run goes on when it is started again.

    Raises:
        PushError: see `plan`; also where the branch moved since the plan was made.
    """
    target = made.target
    done = "nothing was sent"
    with _errors_told(target, lambda: done):
        if not made.exists:
            api.create_repo(target.repo_id, repo_type="model", private=target.private, exist_ok=True)
            done = "the repository was made, no file is in it yet"
        commit, url = made.head, f"{api.endpoint}/{target.repo_id}"
        if made.head is None and target.revision != "main":
            api.create_branch(target.repo_id, branch=target.revision, exist_ok=True)
        if made.sent or made.deleted:
            info = api.create_commit(
                repo_id=target.repo_id,
                operations=_operations(made),
                commit_message=f"ARR-COC {target.tag or ''}".strip(),
                revision=None if target.create_pr else target.revision,
                create_pr=target.create_pr,
                parent_commit=made.head,
            )
            commit, url = info.oid, info.pr_url or info.commit_url
            done = f"the commit {commit[:8]} was made"
        if target.tag and not target.create_pr and made.tagged is None:
            api.create_tag(target.repo_id, tag=target.tag, revision=commit)
    return url


def _operations(made: Plan) -> list:
    adds = [CommitOperationAdd(path_in_repo=item.name, path_or_fileobj=item.source) for item in made.sent]
    return [*adds, *(CommitOperationDelete(path_in_repo=name) for name in made.deleted)]


@contextmanager
def _errors_told(target: Target, done: Callable[[], str] = lambda: "nothing was sent") -> Iterator[None]:
    """Turns what the Hub or the network raises into a `PushError` that says what to do."""
    try:
        yield
    except (HFValidationError, ValueError) as error:
        raise PushError(f"{error}; {done()}") from error
    except LocalTokenNotFoundError as error:
        raise PushError(
            f"no token: run `hf auth login`, or set HF_TOKEN to one with write access to {target.repo_id}; {done()}"
        ) from error
    except OfflineModeIsEnabled as error:
        raise PushError(f"HF_HUB_OFFLINE is set; unset it to push; {done()}") from error
    except HfHubHTTPError as error:
        raise PushError(f"{_refusal(error, target)}; {done()}, run the same command again to go on") from error
    except (_HTTP_ERROR, ConnectionError, TimeoutError, RuntimeError) as error:
        if isinstance(error, PushError):
            raise
        cause = error.__cause__ if isinstance(error.__cause__, HfHubHTTPError) else None
        words = (
            _refusal(cause, target) if cause else f"the Hub did not answer ({type(error).__name__}: {_first(error)})"
        )
        raise PushError(f"{words}; {done()}, run the same command again to go on") from error


def _refusal(error: HfHubHTTPError, target: Target) -> str:
    status = error.response.status_code if error.response is not None else None
    if isinstance(error, RepositoryNotFoundError):
        return f"{target.repo_id} is not there, or this token may not see it"
    if isinstance(error, RevisionNotFoundError):
        return f"{target.repo_id} has no revision {target.revision}"
    if status == 401:
        return "the Hub does not know this token: run `hf auth login` again, or set HF_TOKEN"
    if status == 403:
        return (
            f"this token may not write to {target.repo_id}: make one with write access at https://huggingface.co/settings/tokens, "
            "or pass --create-pr"
        )
    if status in (409, 412):
        return f"{target.repo_id} has changed since it was compared"
    return f"the Hub answered {status}: {_first(error)}"


def _first(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
