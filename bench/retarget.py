"""Inductor's code for GPUs that are not here: a table of programs and targets, and a comparison with the code that it writes on the GPU.

python -m bench.retarget                      what each program gives for each target, down to SASS
python -m bench.retarget --real OUT.json      on a machine with a GPU: the output code that Inductor writes there
python -m bench.retarget --retargeted OUT.json [--target sm_90]     the same without the GPU, which is hidden
python -m bench.retarget --compare REAL.json RETARGETED.json
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.retarget_programs import LARGE
from tests.compiler.observe.fidelity_programs import PROGRAMS

ALL = {**PROGRAMS, **LARGE}
GPU_TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "gfx942")
Codes = dict[str, list[str]]


def run_program(source: str) -> str:
    """Runs the script as ``__main__``; the message of what it raised, "" if it ended."""
    import torch

    torch._dynamo.reset()
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(source, "program.py", "exec"), {"__name__": "__main__"})
    except Exception as error:  # whatever a compiler raises belongs into the table
        return f"{type(error).__name__}: {error}"[:2_000] + "\n" + traceback.format_exc()[-6_000:]
    return ""


def collect(names: list[str], compile_fx: Callable[..., Any] | None) -> dict[str, Any]:
    """The output code of every graph of every program; ``compile_fx`` stands in for Inductor's."""
    import torch
    from torch._functorch import config as functorch
    from torch._inductor import compile_fx as module
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    codes: list[str] = []
    result: dict[str, Any] = {}
    with (
        config.patch(fx_graph_cache=False, compile_threads=1),
        functorch.patch(enable_autograd_cache=False),
        patch.object(GraphLowering, "save_output_code", staticmethod(codes.append)),
        patch.object(module, "compile_fx", compile_fx or module.compile_fx),
    ):
        for name in names:
            codes.clear()
            start = time.time()
            error = run_program(ALL[name])
            result[name] = {"codes": list(codes), "error": error, "seconds": round(time.time() - start, 2)}
            print(f"{name:28} {len(codes)} graphs {result[name]['seconds']:6.2f} s {error.splitlines()[0] if error else ''}", flush=True)
    result["versions"] = {"torch": torch.__version__}
    return result


class _OnDevice(ast.NodeTransformer):
    """Names the GPU where a script makes a tensor: Dynamo does not heed the default device inside of what it compiles.

    With its number, as a tensor's own device has it: Inductor draws the seeds of random numbers apart for "cuda" and "cuda:0".
    """

    MAKERS = frozenset(("arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "randperm", "tensor", "zeros"))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        made = isinstance(function, ast.Attribute) and function.attr in self.MAKERS and ast.unparse(function.value) == "torch"
        if made and all(keyword.arg != "device" for keyword in node.keywords):
            node.keywords.append(ast.keyword("device", ast.Constant("cuda:0")))
        return node


def on_device(names: list[str]) -> dict[str, Any]:
    """What Inductor writes on the GPU of this machine."""
    import torch

    torch.set_default_device("cuda")
    for name in names:
        ALL[name] = ast.unparse(ast.fix_missing_locations(_OnDevice().visit(ast.parse(ALL[name]))))
    return collect(names, None)


def without_device(names: list[str], target: str) -> dict[str, Any]:
    """What Inductor writes for the target, and the decisions that it took unmeasured."""
    from torch._inductor import compile_fx as module

    from compiler.observe.absent_gpu import optimisers_as_on_gpu
    from compiler.observe.retarget import compile_retargeted
    from compiler.target import TARGETS

    original = module.compile_fx

    def compile_fx(gm: Any, inputs: Any, **given: Any) -> Any:  # noqa: ANN401  # in Inductor's place
        with patch.object(module, "compile_fx", original):
            return compile_retargeted(gm, inputs, TARGETS[target], **given)

    with optimisers_as_on_gpu():
        return collect(names, compile_fx)


def normal(code: str) -> str:
    """The code without what differs from process to process: paths, hashes of constants and of Triton's files, AOTAutograd's number."""
    code = re.sub(r"/\S*/torchinductor_\w+/\S*|/tmp/\S*", "PATH", code)
    code = re.sub(r"'backend_hash': '\w+'", "'backend_hash': HASH", code)
    code = re.sub(r"^# AOT ID: .*$", "# AOT ID", code, flags=re.MULTILINE)
    return re.sub(r"^(\w+ = None  # .*) -?[0-9a-f]+$", r"\1 HASH", code, flags=re.MULTILINE)


def parts(code: str) -> tuple[dict[str, str], str]:
    """The kernels by name, and the rest."""
    kernels = dict(re.findall(r"^(\w+) = async_compile\.\w+\('\w+', '''(.*?)'''", code, re.MULTILINE | re.DOTALL))
    return kernels, re.sub(r"^(\w+ = async_compile\.\w+\('\w+', ''').*?'''", r"\1'''", code, flags=re.MULTILINE | re.DOTALL)


def bare(text: str) -> str:
    """Without comments."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def difference(first: str, second: str) -> str:
    """The first place that differs: from a little before it, the one text above the other."""
    lines = zip([*first.splitlines(), ""], [*second.splitlines(), ""], strict=False)
    one, other = next((pair for pair in lines if pair[0] != pair[1]), ("shorter", "longer"))
    alike = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    place = max(alike - 40, 0)
    return f"{one[place : place + 200].strip()}\n        {other[place : place + 200].strip()}"


def paired(real: list[str], other: list[str]) -> tuple[list[tuple[str, str]], int]:
    """Each real code with the retargeted one of the same place, and how many retargeted ones are left over.

    The backward that a program never runs is compiled without the GPU only: retargeted codes may be skipped to find an identical one.
    """
    rest = list(other)
    pairs = []
    for left, code in enumerate(real):
        spare = len(rest) - (len(real) - left)
        place = next((at for at in range(max(spare, 0) + 1) if at < len(rest) and bare(rest[at]) == bare(code)), 0)
        pairs.append((code, rest[place] if rest else ""))
        del rest[: place + 1]
    return pairs, len(other) - len(real)


def compare(real: dict[str, Any], other: dict[str, Any]) -> None:
    """A line for each program: kernels and wrapper identical, or the first difference, the real text above the retargeted one."""
    names = [name for name in real if name != "versions" and name in other and real[name]["codes"]]
    same = 0
    for name in names:
        pairs, extra = paired(*([normal(code) for code in side[name]["codes"]] for side in (real, other)))
        equal = [a == b for a, b in pairs]
        plain = [(bare(a), bare(b)) for a, b in pairs]
        same += all(a == b for a, b in plain)
        kernels = [(parts(a)[0], parts(b)[0]) for a, b in plain]
        total = sum(len(a) for a, _ in kernels)
        matching = sum(b.get(key) == text for a, b in kernels for key, text in a.items())
        wrapper = all(parts(a)[1] == parts(b)[1] for a, b in plain)
        verdict = "identical" if all(equal) else "identical but for comments" if all(a == b for a, b in plain) else "DIFFERENT"
        more = f", {extra} more never run" if extra > 0 else ""
        print(f"{name:28} graphs {len(pairs)}{more}; kernels {matching} of {total}; wrapper {'same' if wrapper else 'differs'}; {verdict}")
        for side, found in (("real", real[name]), ("retargeted", other[name])):
            if found["error"]:
                print(f"    {side} raised {found['error'].splitlines()[0][:200]}")
        for a, b in plain:
            if a != b:
                print("        " + difference(a, b))
                break
    print(f"\n{same} of {len(names)} identical, kernels and wrapper (comments apart)")
    print("no code on the GPU: " + ", ".join(name for name in real if name != "versions" and not real[name]["codes"]))


def table(names: list[str], targets: list[str], out: Path | None) -> None:
    """What each program gives for each target."""
    from compiler.capture.inductor_kernels import assembled

    rows: dict[str, dict[str, Any]] = {}
    for target in targets:
        for name, found in without_device(names, target).items():
            if name == "versions":
                continue
            kernels, sass, reason = 0, 0, found["error"].splitlines()[0] if found["error"] else ""
            for code in found["codes"]:
                for kernel, levels, error in assembled(code, target):
                    kernels += 1
                    sass += any(level.stage == "sass" for level in levels)
                    reason = reason or (f"{kernel}: {error}" if error else "")
            rows.setdefault(name, {})[target] = {"graphs": len(found["codes"]), "kernels": kernels, "sass": sass, "reason": reason}
            print(f"{target:8} {name:28} graphs {len(found['codes'])}  kernels {kernels}  machine code {sass}  {reason[:160]}", flush=True)
    cells = [cell for row in rows.values() for cell in row.values()]
    whole = sum(cell["sass"] == cell["kernels"] and not cell["reason"] for cell in cells)
    print(
        f"\n{len(rows)} programs x {len(targets)} targets: {whole} of {len(cells)} gave "
        f"code and machine code of all kernels; kernels {sum(c['kernels'] for c in cells)}, machine code {sum(c['sass'] for c in cells)}"
    )
    if out:
        out.write_text(json.dumps(rows, indent=1))


def attention_choices() -> None:
    """On a GPU: the attention kernel that PyTorch chooses for many shapes, against the one that is chosen for the absent GPU."""
    import itertools

    import torch
    from torch.nn.attention import SDPBackend

    from compiler.observe.absent_attention import Attention
    from compiler.target import TARGETS

    capability = "".join(map(str, torch.cuda.get_device_capability()))
    names = {SDPBackend.CUDNN_ATTENTION: "cudnn", SDPBackend.FLASH_ATTENTION: "flash", SDPBackend.EFFICIENT_ATTENTION: "efficient"}
    asked = wrong = 0
    shapes = itertools.product((torch.bfloat16, torch.float16, torch.float32), (16, 36, 64, 128, 192, 256), (1, 64, 100), (False, True))
    for (dtype, head, length, causal), mask, dropout, train in itertools.product(shapes, (None, bool, 0), (0.0, 0.125, 0.1), (False, True)):
        if causal and mask is not None:
            continue
        q, k, v = (torch.randn(2, 4, length, head, dtype=dtype, device="cuda", requires_grad=train) for _ in range(3))
        bias = None if mask is None else torch.ones(length, length, dtype=torch.bool if mask is bool else dtype, device="cuda")
        real = names.get(SDPBackend(torch._fused_sdp_choice(q, k, v, bias, dropout, causal)), "math")
        ours = Attention(q, k, v, bias, dropout, causal, None, False, TARGETS[f"sm_{capability}"]).choice()
        asked += 1
        wrong += real != ours
        if real != ours and wrong < 25:
            print(
                f"    {dtype} head {head} length {length} causal {causal} mask {mask} dropout {dropout} train {train}: {real}, not {ours}"
            )
    print(f"attention: {asked - wrong} of {asked} choices as the device makes them; cuDNN {torch.backends.cudnn.version()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--retargeted", type=Path)
    parser.add_argument("--compare", type=Path, nargs=2)
    parser.add_argument("--choices", action="store_true", help="attention kernels, on a machine with a GPU")
    parser.add_argument("--target", action="append", choices=GPU_TARGETS)
    parser.add_argument("--out", type=Path, help="where the table goes as JSON")
    parser.add_argument("programs", nargs="*", help="names; all by default")
    given = parser.parse_args()
    names = given.programs or list(ALL)
    if given.compare:
        compare(*(json.loads(path.read_text()) for path in given.compare))
    elif given.choices:
        attention_choices()
    elif given.real:
        given.real.write_text(json.dumps(on_device(names)))
    elif given.retargeted:
        if os.environ.get("CUDA_VISIBLE_DEVICES") != "":  # hidden before torch is imported
            os.execve(sys.executable, [sys.executable, "-m", "bench.retarget", *sys.argv[1:]], {**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        given.retargeted.write_text(json.dumps(without_device(names, (given.target or ["sm_90"])[0])))
    else:
        table(names, given.target or list(GPU_TARGETS), given.out)


if __name__ == "__main__":
    main()
