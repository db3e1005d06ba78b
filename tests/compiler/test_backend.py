"""``torch.compile(model, backend="fuselab")`` works anywhere: found by its name, training as eager does, with options of its own."""

import copy

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed


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
    assert told["libraries"] == {"oneMKL": 1}
    assert told["fallbacks"] == {"aten.linalg_matrix_exp.default": 1}
    assert "No lowering rule" in told["reasons"]["aten.linalg_matrix_exp.default"]


def test_an_unknown_option_is_named():
    with pytest.raises(BackendCompilerFailed, match="unknown option 'fast'"):
        torch.compile(lambda x: x + 1, backend="fuselab", options={"fast": True})(torch.ones(3))
