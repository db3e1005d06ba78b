"""What the run says of settings of the script's, of errors inside Inductor, and of what stands outside the script's own code."""

import subprocess
import sys

import pytest

from compiler.errors import OptionsError
from compiler.options import Options, read_entries
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import Trace


def traced(source, compiler="inductor", target="cpu", **options):
    events = []
    run_snippet("import torch\n" + source, Options.parse({"measure": False, **options}), find_target(target), compiler, events.append)
    return Trace.fold(events)


@pytest.mark.parametrize(
    "name",
    ["inductor.cpp.cxx", "inductor.trace.debug_dir", "inductor.worker_log_path", "inductor.cuda.cuda_cxx", "dynamo.debug_dir_root",
     "inductor.aot_inductor.output_path", "dynamo.log_file_name", "inductor.profile_bandwidth_output"],
)  # fmt: skip
def test_entries_that_name_programs_and_places_are_refused_by_name(name):
    for parse in (lambda: Options.parse({name: "x"}), lambda: read_entries(f"{name} = 'x'")):
        with pytest.raises(OptionsError, match=name):
            parse()


def test_the_terminal_refuses_them_too(tmp_path):
    (tmp_path / "f.py").write_text("x = 1")
    command = [sys.executable, "-m", "compiler", str(tmp_path / "f.py"), "--config", "inductor.cpp.cxx='/bin/true'"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "inductor.cpp.cxx" in done.stderr


@pytest.mark.parametrize(
    ("where", "stage", "error"),
    [
        ("torch._inductor.scheduler.Scheduler.fuse_nodes", "fusion", RuntimeError("odd")),
        ("torch._inductor.codegen.cpp.CppScheduling.codegen_node", "code", OSError(30, "Read-only file system")),
        ("torch._inductor.graph.GraphLowering.run", "loops", AssertionError("odd")),
    ],
)
def test_an_error_inside_inductor_has_its_stage_and_a_hint(where, stage, error, monkeypatch):
    from compiler.observe.absent_gpu import find

    owner, name = find(where.rpartition(".")[0]), where.rpartition(".")[2]
    plain = getattr(owner, name)

    def fails(self, *args, **given):
        plain(self, *args, **given)
        raise error

    # The frame that raises belongs to Inductor's own file.
    monkeypatch.setattr(owner, name, type(fails)(fails.__code__.replace(co_filename=sys.modules[owner.__module__].__file__), {
        **fails.__globals__}, name, None, fails.__closure__))  # fmt: skip
    problem = traced("f = torch.compile(lambda x: x.sin() + 1)\nf(torch.ones(8))").problem
    assert (problem.stage, problem.line) == (stage, 3)
    assert "Inductor" in problem.hint


def test_what_the_script_tells_torch_compile_is_said_of_its_regions():
    trace = traced(
        "f = torch.compile(lambda x: x.sin(), mode='max-autotune-no-cudagraphs', dynamic=True)\ng = torch.compile(lambda x: x.cos())\n"
        "f(torch.ones(8)); g(torch.ones(8))"
    )
    assert trace.stage("dynamo", 0).facts["torch_compile"] == "dynamic=True, mode='max-autotune-no-cudagraphs'"
    assert "torch_compile" not in trace.stage("dynamo", 1).facts
    assert any("dynamic=True, mode='max-autotune-no-cudagraphs'" in note for note in trace.notes)


def test_regions_without_code_of_the_scripts_have_a_title_and_a_line():
    source = """m = torch.nn.Linear(4, 4)
o = torch.optim.Adam(m.parameters())
m(torch.ones(2, 4)).sum().backward()
torch.compile(o.step)()
"""
    trace = traced(source, "eager")
    assert trace.status == "ok", trace.problem
    assert all(region.title != "graph" and region.line for region in trace.regions), trace.regions
    assert {region.line for region in trace.regions} == {5}


def test_warnings_name_no_place_of_the_installation(tmp_path):
    source = """import torch, warnings
warnings.warn("mine")
warnings.warn_explicit("theirs", UserWarning, "/opt/python/lib/python3.11/site-packages/torch/x.py", 3)
torch.compile(lambda x: x.sin())(torch.ones(4))
"""
    (tmp_path / "f.py").write_text(source)
    command = [sys.executable, "-m", "compiler", str(tmp_path / "f.py"), "--compiler", "inductor", "--target", "sm_90", "--no-measure"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # pytest takes warnings for itself
    assert "mine" in output
    assert "torch/x.py:3: UserWarning: theirs" in output
    assert "site-packages" not in output
    assert "FP_FUSION" not in output


@pytest.mark.parametrize(
    "statement",
    ["import multiprocessing.synchronize as s; s.SemLock._make_name = staticmethod(lambda: '/no/such/name'); s.Lock(ctx=__import__('multiprocessing').get_context())",
     "import torch.distributed as d, datetime\n"
     "d.init_process_group('gloo', init_method='tcp://127.0.0.1:1', rank=1, world_size=2, timeout=datetime.timedelta(seconds=1))"],
)  # fmt: skip
def test_processes_and_networks_are_said_not_to_be_there(statement):
    problem = traced(statement).problem
    assert problem is not None
    assert "no processes" in problem.hint
