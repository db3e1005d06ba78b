"""Imports point one way, processes, SQL and the environment stay where they belong, and the web process never loads torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(path for package in ("compiler", "app") for path in (ROOT / package).rglob("*.py"))

ORDER = [
    "compiler.__main__", "compiler.snippet", "compiler", "compiler.capture", "compiler.pipeline", "compiler.observe", "compiler.assembly",
    "compiler.present", "compiler.runtime", "compiler.codegen", "compiler.schedule", "compiler.lowering", "compiler.verify", "compiler.interp",
    "compiler.ops", "compiler.ir_text", "compiler.ir", "compiler.sizes", "compiler.recorder", "compiler.stats",
    "compiler.blame", "compiler.spans", "compiler.observe.torch_names",
    "compiler.target", "compiler.options", "compiler.errors", "compiler.trace",
]  # fmt: skip
"""From the top down: a module may import from its own line and from those below it."""

WEB = {"compiler.trace", "compiler.options", "compiler.target", "compiler.errors"}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    """The compiler and app modules that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            folder = ROOT / node.module.replace(".", "/")
            inner = {alias.name for alias in node.names if (folder / f"{alias.name}.py").exists() or (folder / alias.name).is_dir()}
            found |= {f"{node.module}.{name}" for name in inner} | ({node.module} if len(inner) < len(node.names) else set())
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] in ("compiler", "app")}


def layer(name: str) -> int | None:
    """The line of ``ORDER`` that a module belongs to: the longest that it begins with."""
    fitting = [entry for entry in ORDER if name == entry or (name.startswith(entry + ".") and entry != "compiler")]
    return ORDER.index(max(fitting, key=len)) if fitting else None


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[-2] != "app"], ids=module_name)
def test_imports_point_down(path):
    name = module_name(path)
    if not name.startswith("compiler"):
        return
    own = layer(name)
    assert own is not None, f"{name} has no place in ORDER"
    for imported in imports(path):
        assert not imported.startswith("app"), f"{name} imports {imported}"
        below = layer(imported)
        assert below is None or below >= own, f"{name} imports {imported}, which stands above it"


def test_every_module_has_a_place():
    assert not [module_name(path) for path in FILES if path.parts[len(ROOT.parts)] == "compiler" and layer(module_name(path)) is None]


@pytest.mark.parametrize("name", ["app.main", "app.store", "app.stages", "app.pages"])
def test_web_process_never_loads_torch(name):
    code = f"import {name}, sys; print(sorted(m for m in sys.modules if m.split('.')[0] in ('torch', 'triton', 'numpy')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def users(words: set[str]) -> set[str]:
    """Files in which one of the dotted names is used as an attribute or imported."""
    found = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            dotted = f"{node.value.id}.{node.attr}" if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""
            listed = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            if dotted in words or listed & words:
                found.add(str(path.relative_to(ROOT)))
    return found


def test_processes_are_started_in_few_places():
    allowed = {"compiler/runtime/build.py", "app/zygote.py", "app/sandbox.py", "app/worker.py", "app/main.py", "app/supervisor.py"}
    assert users({"subprocess", "multiprocessing"}) <= allowed


def test_sql_only_in_the_store():
    found = {str(p.relative_to(ROOT)) for p in FILES if "sqlalchemy" in p.read_text() and "migrations" not in p.parts}
    assert found <= {"app/store.py", "app/models.py"}
