"""The Hub loader's rules and the house's, checked on the files themselves."""

import ast
import sys
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_imports, get_relative_imports

from arrcoc.upload import CODE_FILES

ROOT = Path(__file__).resolve().parents[1]
# httpx of a huggingface_hub below 2, which has its own
THIRD_PARTY = {"torch", "transformers", "huggingface_hub", "httpx", "numpy", "PIL", "packaging", "safetensors"}
# Pure tensor code; the one exception is the picture of an allocation, loaded when it is asked for.
TORCH_ALONE = (
    "texture.py",
    "knowing.py",
    "participating.py",
    "relating.py",
    "matching.py",
    "rows.py",
    "reading.py",
    "balancing.py",
    "allocation.py",
    "attending.py",
)
LOADED_LATE = {"allocation.py": {"overlay"}}
ENTRY_FILES = ("configuration_arrcoc.py", "processing_arrcoc.py", "modeling_arrcoc_qwen.py")
OUTSIDE = {"training", "evaluation", "benchmarks", "demo", "publishing", "tests", "upload"}
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 73  # of code: without docstrings, comments and blank lines

shipped = pytest.mark.parametrize("name", CODE_FILES)


def tree_of(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


def imports(tree: ast.AST):
    """(level, module, names) of every import statement, also those inside of functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name, ()
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module, tuple(alias.name for alias in node.names)


def siblings(name: str) -> set[str]:
    return {module for level, module, _ in imports(tree_of(name)) if level}


def docstring_lines(node: ast.AST) -> set[int]:
    lines = set()
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(inner) is not None:
            first = inner.body[0]
            lines |= set(range(first.lineno, first.end_lineno + 1))
    return lines


def code_lines(source: str, node: ast.AST, first: int, last: int) -> int:
    """Lines from `first` to `last` that are neither docstring nor comment nor blank."""
    skipped = docstring_lines(node)
    lines = source.splitlines()
    numbers = (number for number in range(first, last + 1) if number not in skipped)
    return sum(1 for number in numbers if lines[number - 1].strip() and not lines[number - 1].strip().startswith("#"))


def test_shipped_files_exist_and_are_flat():
    assert len(set(CODE_FILES)) == len(CODE_FILES)
    for name in CODE_FILES:
        assert "/" not in name
        assert (ROOT / name).is_file(), name


def test_shipped_files_are_those_that_the_entry_files_reach():
    reached, waiting = set(), list(ENTRY_FILES)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [f"{module}.py" for module in siblings(name)]
    assert reached == set(CODE_FILES)


@shipped
def test_relative_imports_have_the_form_that_the_loader_knows(name):
    """`from .sibling import name`: no packages, no parents, no stars, and no module imported from the package itself."""
    for level, module, names in imports(tree_of(name)):
        if level:
            assert level == 1, f"{name} imports from a parent package"
            assert module is not None, f"{name} has `from . import`, which the Hub loader can't follow"
            assert "." not in module, f"{name} imports from a sub-package"
            assert f"{module}.py" in CODE_FILES, f"{name} imports {module}, which does not ship"
            assert "*" not in names


@shipped
def test_other_imports_are_packages_that_every_user_has(name):
    for level, module, _ in imports(tree_of(name)):
        if not level:
            package = module.split(".")[0]
            assert package in THIRD_PARTY | sys.stdlib_module_names, f"{name} imports {module}"
            assert package != "arrcoc"


@shipped
def test_the_loader_reads_the_imports_that_python_does(name):
    """The loader searches the text: a line of prose that reads like an import would be followed."""
    assert set(get_relative_imports(ROOT / name)) == siblings(name)
    assert {module.split(".")[0] for module in get_imports(ROOT / name)} <= THIRD_PARTY | sys.stdlib_module_names


def test_the_loader_would_follow_prose(tmp_path):
    """The check above can fail: a docstring line that reads like an import is found by the loader and not by Python."""
    prose = '"""What it does.\n\nfrom .nowhere import something\n"""\n'
    (tmp_path / "module.py").write_text(prose)
    assert get_relative_imports(tmp_path / "module.py") == ["nowhere"]
    assert list(imports(ast.parse(prose))) == []


@pytest.mark.parametrize("name", TORCH_ALONE)
def test_tensor_code_imports_torch_alone(name):
    tree = tree_of(name)
    for level, module, _ in imports(tree):
        if level:
            late = LOADED_LATE.get(name, set())
            assert f"{module}.py" in TORCH_ALONE or module in late, f"{name} imports {module}"
        else:
            assert module.split(".")[0] in {"torch"} | sys.stdlib_module_names, f"{name} imports {module}"
    at_the_top = {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.level}
    assert not at_the_top & LOADED_LATE.get(name, set())


@pytest.mark.parametrize("name", [*CODE_FILES, "__init__.py"])
def test_the_package_imports_nothing_around_it(name):
    for level, module, names in imports(tree_of(name)):
        parts = (module or "").split(".")
        assert not OUTSIDE & set(parts[: 1 if level or parts[0] != "arrcoc" else 2]), f"{name} imports {module}"
        if module in (None, "arrcoc"):
            assert not OUTSIDE & set(names), f"{name} imports {names}"


def python_files() -> list[str]:
    """Every Python file of the repository but its tests, as paths from its root."""
    folders = ("training", "evaluation", "benchmarks", "demo", "publishing", "dev")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.py"), *found])


@pytest.mark.parametrize("name", python_files())
def test_files_and_functions_stay_short(name):
    source = (ROOT / name).read_text(encoding="utf-8")
    tree = ast.parse(source)
    length = code_lines(source, tree, 1, len(source.splitlines()))
    assert length <= MOST_LINES, f"{name} has {length} lines of code: is it two ideas?"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = code_lines(source, node, node.lineno, node.end_lineno)
            assert length <= MOST_LINES_OF_A_FUNCTION, f"{name}: {node.name} has {length} lines of code"


@shipped
def test_public_names_have_docstrings(name):
    """What a user can call says what it gives back; overrides of upstream's methods may rely on upstream's."""
    for node in tree_of(name).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{name}: {node.name} has no docstring"


@pytest.mark.parametrize("name", python_files())
def test_no_star_imports(name):
    assert all("*" not in names for _, _, names in imports(tree_of(name)))
