"""Whole models, compiled, are as near to float64 as eager PyTorch is: results, loss, gradients, updated parameters, buffers.

``python -m bench.models`` tries all of them; here is a selection that takes a minute.
"""

import copy

import pytest
import torch

from compiler import backend
from compiler.stats import TALLY
from tests.compiler.models import ZOO
from tests.compiler.models.check import Difference, built, check, compare, loss_of

EVERYDAY = ("decoder", "experts", "gcn", "dlrm", "pointnet", "adamw", "vae", "waves", "bert")
SLOW = ("lstm", "unet", "discriminator", "llama", "mixtral", "vit", "resnet18")
LEFT_TO_PYTORCH = {
    "experts": {"aten._assert_async.msg"},
    "dlrm": {"aten._embedding_bag.default", "aten._embedding_bag_backward.default"},
    "lstm": {"aten.mkldnn_rnn_layer.default"},
}
"""The ops of each model for which there are no loops; those on complex numbers come from Fourier transforms."""


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    TALLY.clear()


def there(name):
    model = ZOO[name]
    if model.missing():
        pytest.skip(model.missing())
    return model


def ours(called):
    return torch.compile(called, backend=backend, dynamic=False)


@pytest.mark.parametrize("name", [*EVERYDAY, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_is_as_near_to_float64_as_eager(name):
    model = there(name)
    found = check(model, ours)
    assert [one for one in found if not one.right] == []
    assert {one.name.partition("/")[0] for one in found} >= {"result", "loss", "gradient", "parameter"}
    told = TALLY.report()
    assert told["graphs"] >= 3
    if name not in ("waves", "mixtral"):
        assert set(told["fallbacks"]) == LEFT_TO_PYTORCH.get(name, set()), told["reasons"]


def test_dropout_draws_the_same_numbers_from_the_same_seed():
    """The masks are not eager's, but each seed has its own, forward and backward agree on them, and none draws nothing."""
    model = there("bert")
    module, inputs = built(model)
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5

    def trained(seed):
        one = copy.deepcopy(module).train()
        torch.manual_seed(seed)
        loss = loss_of(ours(one)(**inputs))
        loss.backward()
        return [loss.detach(), *(value.grad for value in one.parameters() if value.grad is not None)]

    first, again, other = trained(1), trained(1), trained(2)
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert first[0] != other[0]
    assert all(value.isfinite().all() for value in first)


@pytest.mark.parametrize("change", [lambda x: x + 1e-3, lambda x: x * float("nan"), lambda x: x.double(), lambda x: x[:1]])
def test_what_is_wrong_is_found(change):
    exact = torch.linspace(0, 1, 7, dtype=torch.float64).sin()
    eager = torch.linspace(0, 1, 7).sin()
    (found,) = compare({"result/0": change(eager)}, {"result/0": eager}, {"result/0": exact})
    assert not found.right
    assert compare({"result/0": eager}, {"result/0": eager}, {"result/0": exact})[0].right
    assert not compare({}, {"result/0": eager}, {"result/0": exact})[0].right
    assert Difference("result/0", 0.0, 0.0, 0.0).right
