"""Runs the core tests on the newest patch of every minor release of transformers, from the floor on; `make matrix`.

    python dev/matrix.py                   all of them
    python dev/matrix.py 5.20 5.21         these
    python dev/matrix.py 5.20 -- -x -k hub with options for pytest

Each release gets a small environment in .matrix/ that sees the packages of the running one and holds what differs.
"""

import argparse
import re
import subprocess
import sys
import sysconfig
import time
import xml.etree.ElementTree as ET
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".matrix"


def limits() -> tuple[Version, Version]:
    """The supported range, from pyproject.toml."""
    floor, ceiling = re.search(r'"transformers>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text()).groups()
    return Version(floor), Version(ceiling)


def releases() -> list[str]:
    """The newest patch of each supported minor release on the package index, oldest first."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", "transformers"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    floor, ceiling = limits()
    newest = {}
    for version in map(Version, re.search(r"Available versions: (.*)", listing).group(1).split(", ")):
        if floor <= version < ceiling:
            newest[version.release[:2]] = max(version, newest.get(version.release[:2], version))
    return [str(version) for version in sorted(newest.values())]


def share(folder: str | Path) -> None:
    """A new environment in `folder` that sees the packages of the running one."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    own = subprocess.run(
        [Path(folder) / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # addsitedir also reads the .pth files there, one of which makes the package importable.
    shared = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (Path(own) / "shared.pth").write_text(shared)


def environment(version: str) -> Path:
    """The Python of an environment with this release, made if needed."""
    folder = FOLDER / version
    python = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        share(folder)
        install = ["-m", "pip", "--disable-pip-version-check", "install", "-q", f"transformers=={version}"]
        subprocess.run([python, *install], check=True)
        (folder / ".complete").touch()
    return python


def run(version: str, options: list[str]) -> dict[str, int]:
    """Counts of one run, with its duration in seconds; the output goes to .matrix/VERSION.log."""
    python, report = environment(version), FOLDER / f"{version}.xml"
    report.unlink(missing_ok=True)
    start = time.time()
    with open(FOLDER / f"{version}.log", "w") as log:
        command = [python, "-m", "pytest", "-m", "core and not slow", "-p", "no:cacheprovider", f"--junitxml={report}"]
        subprocess.run([*command, *options], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    counts = {"tests": 0, "failures": 0, "errors": 1, "skipped": 0}
    if report.exists():
        suite = next(ET.parse(report).iter("testsuite"))
        counts = {name: int(suite.get(name)) for name in counts}
    return counts | {"seconds": round(time.time() - start)}


def main(arguments: list[str]) -> int:
    """Command line of this file; the exit status is 1 where a test fails on some release."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", help="of transformers, such as 5.20; all supported ones without")
    wanted, options = parser.parse_args(arguments[:split]).versions, arguments[split + 1 :]
    versions = [v for v in releases() if not wanted or v in wanted or ".".join(v.split(".")[:2]) in wanted]
    if not versions:
        raise SystemExit(f"no supported release of transformers is among {wanted}; pass some of {releases()}")
    FOLDER.mkdir(exist_ok=True)
    results = {}
    for version in versions:
        print(f"transformers {version} ...", flush=True)
        results[version] = run(version, options)
    columns = ("tests", "failures", "errors", "skipped", "seconds")
    print("transformers", *columns, sep="  ")
    for version, counts in results.items():
        print(f"{version:<12}", *(f"{counts[name]:>{len(name)}}" for name in columns), sep="  ")
    failed = [v for v, counts in results.items() if counts["failures"] or counts["errors"] or not counts["tests"]]
    if failed:
        print(f"failed on {', '.join(failed)}; see .matrix/VERSION.log")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
