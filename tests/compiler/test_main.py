"""The command line: exit statuses, what is printed where, and the trace file."""

import pytest

from compiler.__main__ import main
from compiler.trace import Trace

GOOD = "import torch\ndef f(x):\n    return (x + 1) * 2\ninputs = [torch.ones(4)]\n"


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return str(path)

    return write


def test_a_summary(script, capsys):
    assert main([script(GOOD), "--no-measure"]) == 0
    shown = capsys.readouterr().out
    assert "kernel_0_add_mul" in shown
    assert "1 fusions" in shown
    assert "equal to eager" in shown


def test_one_stage(script, capsys):
    assert main([script(GOOD), "--stage", "aten"]) == 0
    assert "aten.add.Tensor(x, 1)" in capsys.readouterr().out


@pytest.mark.parametrize(("compiler", "named"), [("fuselab", "fallbacks"), ("inductor", "fallback_kernels")])
def test_what_has_no_loops_is_counted(script, tmp_path, compiler, named):
    """A histogram has loops with neither compiler, a sum with both."""
    out = tmp_path / "trace.json"
    text = "import torch\ndef f(x):\n    return torch.histc(x + 1), x.sum()\ninputs = [torch.rand(40)]\n"
    assert main([script(text), "--no-measure", "--compiler", compiler, "--out", str(out)]) == 0
    (loops,) = [stage for stage in Trace.from_json(out.read_text()).stages if stage.name == "loops"]
    assert loops.facts[named] == 1
    assert compiler == "inductor" or loops.facts["fallback_ops"] == "aten.histc.default"


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
@pytest.mark.parametrize(
    ("compiler", "lacks"), [("fuselab", "No lowering rule exists for this op"), ("inductor", "Inductor has no lowering")]
)
def test_a_summary_says_who_answers_each_call(script, capsys, compiler, lacks, target):
    text = "import torch\ndef f(x):\n    return torch.histc(x @ x), torch.linalg.qr(x @ x + 1)\ninputs = [torch.rand(5, 5)]\n"
    assert main([script(text), "--no-measure", "--compiler", compiler, "--target", target]) == 0
    lines = capsys.readouterr().out.splitlines()
    calls = [line.split(maxsplit=2) for line in lines if line.startswith("    extern ")]
    assert all(len(call) == 3 for call in calls), "a call without who answers it"
    fallbacks = [call for call in calls if call[2].startswith("fallback: ")]
    assert {call[2].removeprefix("fallback: ").startswith(lacks) for call in fallbacks} == {True}
    assert {call[2] for call in calls if call not in fallbacks} == {"oneMKL" if target == "cpu" else "cuBLAS"}
    assert f"    {len(calls)} extern calls, {len(fallbacks)} of them fallbacks" in lines
    assert len(fallbacks) == 2


def test_no_calls_are_not_counted(script, capsys):
    assert main([script(GOOD), "--no-measure"]) == 0
    assert "extern calls" not in capsys.readouterr().out


def test_a_fault_names_its_line_and_leaves_a_trace(script, capsys, tmp_path):
    out = tmp_path / "trace.json"
    assert main([script(GOOD + "f(inputs[0])\nboom\n"), "--no-measure", "--out", str(out)]) == 1
    assert ":6: NameError: name 'boom' is not defined" in capsys.readouterr().err
    trace = Trace.from_json(out.read_text())
    assert (trace.status, trace.problem.line) == ("error", 6)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--target", "sm_1"],
        ["--stage", "nothing"],
        ["--policy", "all"],
        ["--compiler", "gcc"],
        ["--out", "/no/folder/x"],
        ["--out", "/proc/x"],
        ["--out", "/tmp"],
    ],
)
def test_usage(script, capsys, wrong):
    with pytest.raises(SystemExit) as error:
        main([script(GOOD), *wrong])
    assert error.value.code == 2
    assert wrong[1].rsplit("/", 1)[0] in capsys.readouterr().err


def test_a_file_that_is_not_there():
    with pytest.raises(SystemExit) as error:
        main(["/not/here.py"])
    assert error.value.code == 2


def test_one_line_says_why_stages_were_skipped(script, capsys):
    main([script(GOOD), "--no-measure"])
    printed = capsys.readouterr().out
    assert "skipped   ttir, ttgir, llir, ptx: " in printed
    assert printed.count("without this stage") == 1


def test_a_file_with_a_byte_order_mark(script, capsys):
    assert main([script("\ufeff" + GOOD), "--no-measure", "--stage", "dynamo"]) == 0
