"""Every overload of the table on operands of mixed dtypes and shapes: lowered, verified and interpreted, it gives eager's values and eager's dtype."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from compiler.interp import interpret
from compiler.ir import Nest
from compiler.lowering import lower
from compiler.ops import ATEN, Row
from compiler.target import find_target
from compiler.verify import verify
from tests.compiler.op_samples import sample

MIXES = [
    ("float32", "float32", "float32"), ("float64", "float32", "float64"), ("bfloat16", "bfloat16", "bfloat16"), ("int64", "int64", "int64"),
    ("uint8", "int32", "bool"), ("bool", "bool", "bool"), ("float32", "int64", "bool"), ("int64", "float64 0-d", "int64"),
    ("float16", "float64 0-d", "float32 0-d"),
]  # fmt: skip
NUMBERS = {"int": 2, "float": 0.75, "bool": True}
SPELLINGS = [(overload, row) for overload, rows in ATEN.items() for row in rows]


def comparable(row: Row, mix: tuple[str, ...], number: object) -> bool:
    """Whether eager's answer to this mix is one to be held to."""
    if row.name.endswith(("_backward", "_backward_of_result")) and len(set(mix)) > 1:
        return False  # autograd never asks for it, and eager's kernels disagree among themselves
    if row.name in ("fmod", "remainder", "floor_divide", "trunc_divide") and "float16" in mix[0]:
        return False  # eager rounds operands and quotient to 16 bits where we compute in float32, which moves the jumps
    if row.name == "pow" and mix[0] == "bool" and number is True:
        return False  # eager's kernel gives bool, its shape function int64
    return not (row.name == "addcmul" and "float" not in mix[0] and number == NUMBERS["float"])  # eager cuts 0.75 down to 0


def overload_of(name: str) -> torch._ops.OpOverload:
    _, packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def tensor(row: Row, operand: int, described: str) -> torch.Tensor:
    dtype = getattr(torch, described.split()[0])
    points = sample(row, "float64" if "float" in row.kinds else "int64")[operand][:24].to(torch.float64).nan_to_num(0.5)
    made = points.to(dtype)
    if dtype == torch.bool:
        made = points > points.median()
    return made[5].clone() if "0-d" in described else made.reshape(4, 6) if operand else made.reshape(6, 4).t()


def call(overload: str, row: Row, mix: tuple[str, ...], number: object) -> dict[str, object]:
    """Arguments by name: tensors of the mix's dtypes where the schema wants tensors, ``number`` where it wants a number."""
    arguments: dict[str, object] = dict(row.when)
    for parameter in overload_of(overload)._schema.arguments:
        wants_tensor = "Tensor" in str(parameter.type)
        if parameter.name in row.operands:
            operand = row.operands.index(parameter.name)
            arguments[parameter.name] = tensor(row, operand, mix[min(operand, 2)]) if wants_tensor else number
        elif parameter.name == "buffer":
            arguments["buffer"] = torch.exp(-arguments["self"].abs()) if mix[0] != "bool" else arguments["self"]
        elif parameter.name == "self":
            arguments["self"] = torch.rand(4, 6).to(getattr(torch, mix[0].split()[0]))
        elif parameter.name == "self_is_result":
            arguments[parameter.name] = False
    if row.name == "where":
        name = row.operands[0]
        arguments[name] = arguments[name] > 0
    return arguments


def lowered(overload: str, arguments: dict[str, object]):
    """The loop IR of a graph of that one call, and its tensors."""
    graph = torch.fx.Graph()
    tensors = []
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        nodes = {}
        for name, value in arguments.items():
            nodes[name] = value
            if isinstance(value, torch.Tensor):
                nodes[name] = graph.placeholder(f"{name}_")
                nodes[name].meta["val"] = mode.from_tensor(value)
                tensors.append(value)
        fakes = {name: node.meta["val"] if isinstance(node, torch.fx.Node) else node for name, node in nodes.items()}
        op = overload_of(overload)
        places = [parameter.name for parameter in op._schema.arguments if not parameter.kwarg_only]
        given = next((k for k, name in enumerate(places) if name not in nodes), len(places))
        arguments_, keywords = (
            tuple(nodes[name] for name in places[:given]),
            {name: node for name, node in nodes.items() if name not in places[:given]},
        )
        result = graph.call_function(op, arguments_, keywords)
        result.meta["val"] = op(**fakes)
        graph.output((result,))
    return lower(torch.fx.GraphModule({}, graph), {}, find_target("cpu"), retarget=False), tensors


@pytest.mark.parametrize(("overload", "row"), SPELLINGS, ids=lambda value: value.name if isinstance(value, Row) else value)
def test_a_lowered_op_promotes_as_eager_does(overload, row):
    nests = 0
    for mix in MIXES:
        for number in NUMBERS.values():
            if not comparable(row, mix, number):
                continue
            arguments = call(overload, row, mix, number)
            if number is not NUMBERS["int"] and all(
                isinstance(value, torch.Tensor) or name in row.when for name, value in arguments.items()
            ):
                continue  # no number among the arguments: tried already
            try:
                expected = overload_of(overload)(**arguments)
                made, tensors = lowered(overload, arguments)
            except (RuntimeError, NotImplementedError):  # eager refuses this mix of dtypes
                continue
            verify(made.graph)
            (actual,) = interpret(made.graph, tensors, made.constants)
            nests += not made.graph.steps or isinstance(made.graph.steps[0], Nest)  # no step: the result is its operand
            assert actual.dtype == expected.dtype, (mix, number)
            close = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(expected.dtype, 2e-5)
            torch.testing.assert_close(
                actual, expected, equal_nan=True, rtol=close, atol=close, msg=lambda text, case=(mix, number): f"{case}: {text}"
            )
    assert nests
