"""Runs transformers' common model tests on stock Qwen3-VL and on ours, and fails where only ours fails.

    python dev/upstream_tests.py                      the installed release
    python dev/upstream_tests.py -k gradient          some of the tests

The tests are not in the wheel: the sdist of the installed release is downloaded to .matrix/upstream. It holds
tests/test_modeling_common.py but neither tests/generation nor tests/exporters, so those two mixins are empty here.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import transformers

ROOT = Path(__file__).resolve().parents[1]
# Modules that tests/test_modeling_common.py imports and the sdist lacks, as empty mixins.
ABSENT = {"exporters/test_export.py": "ExportTesterMixin", "generation/test_utils.py": "GenerationTesterMixin"}

# Where ours differs from stock on purpose: test, or class.test: the reason.
INTENDED = {
    "test_model_weights_reload_no_missing_tied_weights": "loads a file without the model's tensors, which ours refuses",
    "test_inputs_embeds": "images among embeddings alone have no positions; stock counts them as text, ours refuses them",
    **{
        f"PrunedTest.test_training_gradient_checkpointing{how}": "with encode_ratio=1.0 stage 1 takes no part and gets no gradient"
        for how in ("", "_use_reentrant_false", "_use_reentrant_true")
    },
}


def prepare(folder: Path, version: str) -> Path:
    """Unpacks the tests of `version` under `folder`, puts our suite among them and returns their root."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    source = folder / f"transformers-{version}"
    if not source.exists():
        download = ["download", "--no-deps", "--no-binary", ":all:", "-d", str(folder), f"transformers=={version}"]
        subprocess.run([*pip, *download], check=True)
        with tarfile.open(folder / f"transformers-{version}.tar.gz") as archive:
            wanted = [member for member in archive.getmembers() if member.name.startswith(f"{source.name}/tests/")]
            archive.extractall(folder, members=wanted, filter="data")
    if not (folder / "packages").exists():
        subprocess.run(
            [*pip, "install", "--no-deps", "--target", str(folder / "packages"), "parameterized"], check=True
        )
    for name, mixin in ABSENT.items():
        path = source / "tests" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"class {mixin}:\n    pass\n")
        (path.parent / "__init__.py").touch()
    ours = source / "tests" / "models" / "arrcoc"
    ours.mkdir(parents=True, exist_ok=True)
    for package in (source / "tests", ours.parent, ours):
        (package / "__init__.py").touch()
    shutil.copyfile(ROOT / "tests" / "upstream" / "common_suite.py", ours / "test_common_suite.py")
    return source


def run(source: Path, options: list[str]) -> dict[str, dict[str, tuple[str, str]]]:
    """{class: {test: (outcome, message)}} of one run."""
    report = source / "report.xml"
    report.unlink(missing_ok=True)
    path = os.pathsep.join([str(source), str(source.parent / "packages")])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(source),
        f"--junitxml={report}",
    ]
    subprocess.run(
        [*command, "tests/models/arrcoc/test_common_suite.py", *options],
        cwd=source,
        env=os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
    )
    if not report.exists():
        raise SystemExit(f"pytest wrote no report; run it by hand in {source}: {' '.join(command)}")
    outcomes: dict[str, dict[str, tuple[str, str]]] = {}
    for case in ET.parse(report).iter("testcase"):
        kind = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        outcome = "passed" if kind is None else kind.tag
        message = "" if kind is None else (kind.get("message") or "").strip().split("\n")[0]
        outcomes.setdefault(case.get("classname", "").rsplit(".", 1)[-1], {})[case.get("name")] = (outcome, message)
    return outcomes


def main(arguments: list[str] | None = None) -> int:
    """Command line of this file; the exit status is 1 where a test passes for stock and not for ours."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / ".matrix" / "upstream")
    parser.add_argument("-k", help="only tests whose names match, as for pytest")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    source = prepare(options.folder, transformers.__version__)
    outcomes = run(source, ["-k", options.k] if options.k else [])
    lost = []
    for name, results in outcomes.items():
        print(f"{name}: {dict(Counter(outcome for outcome, _ in results.values()))}")
        for test, (outcome, message) in results.items():
            intended = INTENDED.get(test) or INTENDED.get(f"{name}.{test}")
            if name == "StockTest" or outcome == "passed" or outcomes["StockTest"][test][0] != "passed":
                continue
            if intended:
                print(f"  {test}: {outcome}, as intended: {intended}")
            else:
                lost.append(f"  {name}.{test}: {outcome}: {message}")
    print(*(lost or ["every test that stock passes, ours passes"]), sep="\n")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
