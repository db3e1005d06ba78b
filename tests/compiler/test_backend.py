"""``torch.compile(model, backend="fuselab")`` works anywhere: found by its name, training as eager does, with options of its own."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.exc import BackendCompilerFailed
from torch.utils._pytree import tree_leaves


def model():
    torch.manual_seed(0)
    layers = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)
    return torch.nn.Sequential(*layers)


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


@pytest.mark.parametrize("options", [{}, {"policy": "none"}, {"policy": "max", "check": True}])
def test_trains_as_eager(options):
    eager, x = model(), torch.randn(8, 16)
    ours = copy.deepcopy(eager)
    eager(x).square().mean().backward()
    torch.compile(ours, backend="fuselab", options=options)(x).square().mean().backward()
    for one, two in zip(eager.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)


def test_stats_count_loops_libraries_and_fallbacks():
    from compiler import backend
    from compiler.stats import TALLY

    TALLY.clear()
    torch.compile(lambda x: torch.linalg.matrix_exp((x @ x).relu() + 1), backend="fuselab")(torch.eye(4))
    told = backend.stats()
    assert told["graphs"] == 1
    assert told["native"] == 2
    assert told["kernels"] == 1
    assert told["libraries"] == {"oneMKL": 1}
    assert told["fallbacks"] == {"aten.linalg_matrix_exp.default": 1}
    assert "No lowering rule" in told["reasons"]["aten.linalg_matrix_exp.default"]


def test_an_unknown_option_is_named():
    with pytest.raises(BackendCompilerFailed, match="unknown option 'fast'"):
        torch.compile(lambda x: x + 1, backend="fuselab", options={"fast": True})(torch.ones(3))


def test_a_library_may_leave_out_results_that_nobody_reads():
    """The kernel of a whole LSTM gives no workspace in inference, though its description says that there is one."""
    network, x = torch.nn.LSTM(6, 5, batch_first=True), torch.randn(2, 3, 6)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        torch.testing.assert_close(torch.compile(network, backend="fuselab")(x)[0], network(x)[0])


ROWS = torch.randn(6, 10)
NATIVE = {
    "a slice with a step is written": lambda x: torch.slice_scatter(x, x[:, :3] * 2, 1, 1, 9, 3),
    "views of equal steps": lambda x: ((x + 1)[None] * 2, (x + 1)[None][:, None] * 3, (x + 1)[None][:, :, :4].transpose(1, 2) * 4),
    "a product is added in place": lambda x: x.mul(2).addcmul_(x, x, value=0.5),
    "memory is not initialised": lambda x: torch.empty_permuted((6, 10), (1, 0)).copy_(x) * 2,
}


@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (4, 6), (4, 2)], ids=str)
def test_the_gradient_of_an_adaptive_average_becomes_loops(sizes):
    from compiler.stats import TALLY

    TALLY.clear()
    x, weights = torch.randn(2, 3, 4, 6, requires_grad=True), torch.randn(2, 3, *sizes)
    results = []
    for function in (F.adaptive_avg_pool2d, torch.compile(F.adaptive_avg_pool2d, backend="fuselab")):
        results.append(torch.autograd.grad((function(x * 2, sizes) * weights).sum(), x)[0])
    torch.testing.assert_close(results[1], results[0])
    assert not TALLY.report()["fallbacks"]


@pytest.mark.parametrize("function", NATIVE.values(), ids=NATIVE)
def test_becomes_loops_only(function):
    from compiler.stats import TALLY

    TALLY.clear()
    for one, two in zip(tree_leaves(torch.compile(function, backend="fuselab")(ROWS)), tree_leaves(function(ROWS)), strict=True):
        torch.testing.assert_close(one, two)
    assert TALLY.report()["native"]
    assert not TALLY.report()["fallbacks"]
