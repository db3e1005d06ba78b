"""Every private name of PyTorch that capture relies on exists, and is used in the one module that lists it."""

import ast
import importlib
from pathlib import Path

import pytest

import compiler
from compiler.observe import dynamo_names, open_sizes, torch_names

ROOT = Path(compiler.__file__).parent
PRIVATE = ("torch._dynamo", "torch._functorch", "torch._guards", "torch._decomp", "torch._subclasses")


def resolve(dotted):
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for name in parts[split:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


@pytest.mark.parametrize("name", [*torch_names.RELIES_ON, *dynamo_names.RELIES_ON, *open_sizes.RELIES_ON])
def test_the_name_exists(name):
    assert resolve(name) is not None


def test_capture_and_snippets_take_private_names_from_here_only():
    for path in [*(ROOT / "capture").rglob("*.py"), *(ROOT / "snippet").rglob("*.py"), ROOT / "runtime" / "measure.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert not node.module.startswith(PRIVATE), f"{path}: {node.module}"
            if isinstance(node, ast.Attribute):
                assert not ast.unparse(node).startswith(PRIVATE), f"{path}:{node.lineno}: {ast.unparse(node)}"


def test_what_is_watched_is_put_back_and_a_missing_name_is_left_out(monkeypatch):
    from torch._dynamo import convert_frame, resume_execution, symbolic_convert

    owners = (convert_frame, symbolic_convert.InstructionTranslatorBase, resume_execution.ContinueExecutionCache)
    before = [dict(vars(owner)) for owner in owners]
    monkeypatch.setattr(dynamo_names, "WATCHED", (*dynamo_names.WATCHED, "torch._dynamo.convert_frame.no_such_name"))
    log = dynamo_names.FrameLog()
    with dynamo_names.watching_frames(log):
        assert log.missing == ("torch._dynamo.convert_frame.no_such_name",)
        assert convert_frame.wrap_guarded_code is not before[0]["wrap_guarded_code"]
    assert [dict(vars(owner)) for owner in owners] == before
