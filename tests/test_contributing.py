"""The recipes of CONTRIBUTING.md do what they promise, in as few files as they say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DIFFS = re.findall(r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)

CUBE = """
import torch
from torch import Tensor
from compiler.capture import compile_region
from compiler.options import Options
from compiler.recorder import Recorder
from compiler.target import find_target

@torch.library.custom_op("lab::cube", mutates_args=())
def cube(self: Tensor) -> Tensor:
    return self * self * self

cube.register_fake(torch.empty_like)
events = []
recorder = Recorder(events.append)
backend = lambda gm, inputs: compile_region(gm, inputs, options=Options(check=True), target=find_target("cpu"), recorder=recorder)
x = torch.randn(100)
torch.testing.assert_close(torch.compile(lambda x: cube(x) + 1, backend=backend)(x), x**3 + 1)
fusion = next(event for event in events if getattr(event, "name", "") == "fusion")
print([kernel.kind for kernel in fusion.kernels], [kernel.steps for kernel in fusion.kernels])
"""
RULE = """
import torch
from compiler.capture import compile_region
from compiler.options import Options
from compiler.recorder import Recorder
from compiler.target import find_target

events = []
recorder = Recorder(events.append)
backend = lambda gm, inputs: compile_region(gm, inputs, options=Options(check=True), target=find_target("cpu"), recorder=recorder)
inputs = [torch.randn(10) for _ in range(12)]
torch.testing.assert_close(torch.compile(lambda *given: sum(given), backend=backend)(*inputs), sum(inputs))
fusion = next(event for event in events if getattr(event, "name", "") == "fusion")
print(sorted({decision.rule for decision in fusion.decisions}))
print([decision.reason for decision in fusion.decisions if decision.rule == "too_many_buffers"][:1])
"""
VIEW = """
from compiler.trace import Section, Stage
from app.stages import STAGES, shown
from app.pages.context import environment

view = next(view for view in STAGES if view.name == "memory")
stage = Stage(region=0, name="fusion", part="forward", facts={"peak_intermediate_bytes": 4096},
              sections=(Section(title="Fused loops", text="for"), Section(title="Memory", text="buf0: 4096 bytes, new")))
page = shown(view, [stage], [], None, "").pages[0].page
print([listing.title for listing in page.listings], page.peak)
print(environment.get_template(view.template).render(page=page, stage=stage))
"""


def files(diff: str) -> set[str]:
    return set(re.findall(r"^\+\+\+ b/(\S+)", diff, re.MULTILINE))


@pytest.fixture
def copy(tmp_path):
    """The tree without what is made from it."""
    for name in ("compiler", "app", "templates", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(folder: Path, code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def apply(folder: Path, diff: str) -> None:
    done = subprocess.run(["git", "apply", "-"], cwd=folder, input=diff, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_are_three_recipes_with_as_many_files_as_they_say():
    assert [len(files(diff)) for diff in DIFFS] == [1, 1, 3]


def test_an_op_is_one_row(copy):
    assert "'extern'" in run(copy, CUBE)
    apply(copy, DIFFS[0])
    after = run(copy, CUBE)
    assert "'extern'" not in after
    assert after.count("'cpp'") == 1, "the op is fused with what follows it"


def test_a_fusion_rule_is_one_function(copy):
    assert "too_many_buffers" not in run(copy, RULE)
    apply(copy, DIFFS[1])
    assert "touch more than 8 buffers" in run(copy, RULE)


def test_a_view_is_three_files(copy):
    apply(copy, DIFFS[2])
    shown = run(copy, VIEW)
    assert shown.startswith("['Memory'] 4096")
    assert "buf0: 4096 bytes, new" in shown
    assert "At most 4096 bytes" in shown
