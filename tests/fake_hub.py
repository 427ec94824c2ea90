"""A Hub on loopback: the endpoints that huggingface_hub calls to create, upload, tag and download model repositories."""

import base64
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

LFS_SUFFIXES = (".safetensors", ".png")
WRITE, READ = "hf_" + "w" * 8, "hf_" + "r" * 8  # a token that may write and one that may not


def git_blob(content: bytes) -> str:
    return sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repository:
    """Commits are snapshots: path -> content."""

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pulls: list[str] = field(default_factory=list)

    def commit(self, files: dict[str, bytes], branch: str | None) -> str:
        oid = sha1(f"{len(self.commits)} {sorted((p, git_blob(c)) for p, c in files.items())}".encode()).hexdigest()
        self.commits[oid] = files
        if branch is not None:
            self.branches[branch] = oid
        return oid

    def resolve(self, revision: str) -> str | None:
        found = self.branches.get(revision) or self.tags.get(revision)
        return found or (revision if revision in self.commits else None)


class FakeHub:
    """The state of the Hub, and what was asked of it.

    Attributes:
        repositories: by "owner/name".
        blobs: LFS content by SHA-256; what was uploaded and not committed stays, as on the Hub.
        calls: (method, path) of every request.
        broken: endpoint names ("commit", "tag", "lfs") -> status that the next call gets in place of an answer.
    """

    def __init__(self):
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self.broken: dict[str, int] = {}
        self.endpoint = ""

    def count(self, words: str, method: str | None = None) -> int:
        """How many requests had `words` in their path."""
        return sum(words in path and method in (None, verb) for verb, path in self.calls)


ROUTES = [
    ("GET", r"/api/whoami-v2", "whoami"),
    ("POST", r"/api/repos/create", "create"),
    ("POST", r"/api/validate-yaml", "validate"),
    ("GET", r"/api/models/([^/]+/[^/]+)", "info"),
    ("GET", r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", "info"),
    ("GET", r"/api/models/([^/]+/[^/]+)/refs", "refs"),
    ("GET", r"/api/models/([^/]+/[^/]+)/tree/([^/]+)(/.+)?", "tree"),
    ("POST", r"/api/models/([^/]+/[^/]+)/preupload/([^/]+)", "preupload"),
    ("POST", r"/api/models/([^/]+/[^/]+)/commit/([^/]+)", "commit"),
    ("POST", r"/api/models/([^/]+/[^/]+)/branch/([^/]+)", "branch"),
    ("POST", r"/api/models/([^/]+/[^/]+)/tag/([^/]+)", "tag"),
    ("POST", r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", "lfs"),
    ("PUT", r"/blobs/([0-9a-f]+)", "blob"),
    ("GET", r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", "resolve"),
    ("HEAD", r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", "resolve"),
]
OPEN_TO_ALL = ("info", "refs", "tree", "resolve", "blob", "validate")
WRITES = ("create", "preupload", "commit", "branch", "tag", "lfs")


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str, code: str | None = None):
        super().__init__(message)
        self.status, self.code = status, code


class Handler(BaseHTTPRequestHandler):
    """One request; `hub` is the state."""

    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.answer()

    do_HEAD = do_POST = do_PUT = do_GET

    def answer(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or self.chunks()
        parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.hub.calls.append((self.command, parts.path))
        try:
            for verb, pattern, name in ROUTES:
                match = re.fullmatch(pattern, parts.path)
                if match and verb == self.command:
                    self.check(name)
                    return getattr(self, name)(*map(unquote, filter(None, match.groups())))
            raise Refused(404, f"no such endpoint: {self.command} {parts.path}", "RepoNotFound")
        except Refused as error:
            headers = {"X-Error-Message": str(error)} | ({"X-Error-Code": error.code} if error.code else {})
            self.reply({"error": str(error)}, error.status, headers)

    def chunks(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return b""
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def check(self, name: str):
        """Refuses who may not call the endpoint, and breaks it once where the test said so."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in (WRITE, READ) and name not in OPEN_TO_ALL:
            raise Refused(401, "Invalid credentials in Authorization header")
        if token == READ and name in WRITES:
            raise Refused(403, "you don't have the rights to write here")
        if name in self.hub.broken:
            raise Refused(self.hub.broken.pop(name), f"{name} is broken")

    def reply(self, value=None, status: int = 200, headers=(), content: bytes | None = None):
        content = json.dumps(value).encode() if content is None else content
        self.send_response(status)
        for name, text in {"Content-Length": str(len(content)), **dict(headers)}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def repository(self, name: str) -> Repository:
        if name not in self.hub.repositories:
            raise Refused(404, "Repository not found", "RepoNotFound")
        return self.hub.repositories[name]

    def snapshot(self, name: str, revision: str) -> tuple[str, dict[str, bytes]]:
        repository = self.repository(name)
        oid = repository.resolve(revision)
        if oid is None:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return oid, repository.commits[oid]

    def whoami(self):
        self.reply({"type": "user", "name": "me", "orgs": [], "auth": {"type": "access_token"}})

    def create(self):
        asked = json.loads(self.body)
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if name in self.hub.repositories:
            raise Refused(409, "You already created this model repo")
        repository = Repository(asked.get("visibility") == "private" or bool(asked.get("private")))
        repository.commit({".gitattributes": b"*.safetensors filter=lfs\n"}, "main")
        self.hub.repositories[name] = repository
        self.reply({"url": f"{self.hub.endpoint}/{name}"})

    def validate(self):
        self.reply({"errors": [], "warnings": []})

    def info(self, name: str, revision: str = "main"):
        oid, files = self.snapshot(name, revision)
        siblings = [{"rfilename": path} for path in files]
        private = self.hub.repositories[name].private
        self.reply(
            {"id": name, "modelId": name, "sha": oid, "private": private, "tags": [], "downloads": 0, "likes": 0}
            | {"siblings": siblings, "pipeline_tag": "image-text-to-text", "library_name": "transformers"}
        )

    def refs(self, name: str):
        repository = self.repository(name)
        branches = [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": c} for n, c in repository.branches.items()]
        tags = [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": c} for n, c in repository.tags.items()]
        self.reply({"branches": branches, "tags": tags, "converts": [], "pullRequests": []})

    def tree(self, name: str, revision: str, folder: str = ""):
        _, files = self.snapshot(name, revision)
        entries = []
        for path, content in files.items():
            if not path.startswith(folder.strip("/")):
                continue
            entry = {"type": "file", "path": path, "size": len(content), "oid": git_blob(content)}
            if path.endswith(LFS_SUFFIXES):
                entry["lfs"] = {"oid": sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
            entries.append(entry)
        if folder and not entries:
            raise Refused(404, f"{folder} does not exist", "EntryNotFound")
        self.reply(entries)

    def preupload(self, name: str, revision: str):
        _, files = self.snapshot(name, revision)
        answers = []
        for file in json.loads(self.body)["files"]:
            mode = "lfs" if file["path"].endswith(LFS_SUFFIXES) else "regular"
            there = files.get(file["path"])
            oid = None if there is None else sha256(there).hexdigest() if mode == "lfs" else git_blob(there)
            answers.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self.reply({"files": answers})

    def lfs(self, name: str):
        self.repository(name)
        objects = []
        for wanted in json.loads(self.body)["objects"]:
            entry = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.hub.blobs:
                entry["actions"] = {"upload": {"href": f"{self.hub.endpoint}/blobs/{wanted['oid']}"}}
            objects.append(entry)
        self.reply({"transfer": "basic", "objects": objects})

    def blob(self, oid: str):
        if sha256(self.body).hexdigest() != oid:
            raise Refused(400, "the content is not that of the hash")
        self.hub.blobs[oid] = self.body
        self.reply({})

    def commit(self, name: str, revision: str):
        oid, files = self.snapshot(name, revision)
        files = dict(files)
        for line in self.body.decode().splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header" and value.get("parentCommit") not in (None, oid):
                raise Refused(412, "the branch has moved")
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
        repository, pull = self.hub.repositories[name], self.query.get("create_pr") == "1"
        new = repository.commit(files, None if pull else revision)
        answer = {"commitOid": new, "commitUrl": f"{self.hub.endpoint}/{name}/commit/{new}"}
        if pull:
            repository.pulls.append(new)
            answer["pullRequestUrl"] = f"{self.hub.endpoint}/{name}/discussions/{len(repository.pulls)}"
        self.reply(answer)

    def branch(self, name: str, branch: str):
        repository = self.repository(name)
        if branch in repository.branches:
            raise Refused(409, "the branch exists")
        start = json.loads(self.body or b"{}").get("startingPoint", "main")
        repository.branches[branch] = self.snapshot(name, start)[0]
        self.reply({})

    def tag(self, name: str, revision: str):
        oid, _ = self.snapshot(name, revision)
        tag = json.loads(self.body)["tag"]
        if tag in self.hub.repositories[name].tags:
            raise Refused(409, "the tag exists")
        self.hub.repositories[name].tags[tag] = oid
        self.reply({})

    def resolve(self, name: str, revision: str, path: str):
        oid, files = self.snapshot(name, revision)
        if path not in files:
            raise Refused(404, f"{path} is not there", "EntryNotFound")
        content = files[path]
        etag = sha256(content).hexdigest() if path.endswith(LFS_SUFFIXES) else git_blob(content)
        self.reply(content=content, headers={"X-Repo-Commit": oid, "ETag": f'"{etag}"'})


@contextmanager
def serve():
    """A running `FakeHub`; its `endpoint` is what HF_ENDPOINT must say."""
    hub = FakeHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
