"""What a region is called whose code is a library's: after the outermost module or function, at the line of the script that runs it."""

from __future__ import annotations

import sys

import pytest

from compiler.options import Options
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import Trace

LIBRARY = """import functools
import torch

def wrapped(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner

class Inside(torch.nn.Module):
    def forward(self, x):
        return x.sin() + 1

class Outside(torch.nn.Module):
    def __init__(self, breaks=False):
        super().__init__()
        self.first, self.second, self.breaks = Inside(), torch.nn.Linear(4, 4), breaks

    @wrapped
    def forward(self, x):
        y = self.first(x)
        if self.breaks:
            torch._dynamo.graph_break()
        return self.second(y) * 2

def plain(x):
    return x.cos() * 2
"""


@pytest.fixture
def titles(tmp_path, monkeypatch):
    (tmp_path / "a_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "a_library", raising=False)

    def found(source, compiler="fuselab"):
        events = []
        run_snippet(
            "import torch\nimport a_library\n" + source, Options.parse({"measure": False}), find_target("cpu"), compiler, events.append
        )
        trace = Trace.fold(events)
        assert trace.status == "ok", trace.problem
        return [(region.title, region.line) for region in trace.regions]

    yield found
    sys.modules.pop("a_library", None)


@pytest.mark.parametrize("compiler", ["fuselab", "inductor", "eager"])
def test_the_outermost_module_names_the_region(titles, compiler):
    source = "m = a_library.Outside()\nc = torch.compile(m)\nc(torch.ones(2, 4))\n"
    assert titles(source, compiler) == [("Outside", 5)]


def test_the_rest_after_a_break_is_told_apart(titles):
    source = "m = torch.compile(a_library.Outside(breaks=True))\nm(torch.ones(2, 4))\n"
    line = next(place for place, text in enumerate(LIBRARY.splitlines(), 1) if "graph_break" in text)
    assert titles(source) == [("Outside", 4), (f"Outside, after the break at line {line} of a_library.py", 4)]


def test_what_is_the_scripts_own_keeps_its_name(titles):
    source = "m = a_library.Outside()\n@torch.compile\ndef mine(x):\n    return m(x) + 1\nmine(torch.ones(2, 4))\n"
    assert titles(source)[0][0] == "mine"


def test_other_code_of_a_library_is_named_after_its_function(titles):
    assert titles("torch.compile(a_library.plain)(torch.ones(4))\n") == [("plain of a_library.py", 3)]


def test_modules_of_pytorch_stand_where_they_were_built(titles):
    source = "m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())\ntorch.compile(m)(torch.ones(2, 4))\n"
    assert titles(source) == [("Sequential", 3)]
