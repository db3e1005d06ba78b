"""Samples are ordered and near the truth; comparing finds what differs, and nothing else."""

import time

import pytest
import torch

from compiler.runtime.compare import compare
from compiler.runtime.measure import Prepared, measure, summary


def test_percentiles():
    sample = summary([i * 1e-6 for i in range(101)])
    assert (sample.low_us, sample.median_us, sample.high_us, sample.repeats) == pytest.approx((10, 50, 90, 101))


def test_a_known_time():
    (sample,) = measure([lambda: time.sleep(0.004)], budget=0.05)
    assert 4_000 <= sample.median_us < 40_000
    assert sample.low_us <= sample.median_us <= sample.high_us


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_a_large_difference_is_found(dtype):
    eager = torch.linspace(1, 2, 50).to(dtype)
    wrong = eager.clone()
    wrong[7] *= 1.1
    assert compare("y", eager.clone(), eager).equal
    assert not compare("y", wrong, eager).equal


def test_special_values():
    eager = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0])
    assert compare("y", eager.clone(), eager).equal
    assert not compare("y", torch.tensor([0.0, float("inf"), -float("inf"), 0.0]), eager).equal
    assert not compare("y", torch.tensor([float("nan"), 1.0, -float("inf"), 0.0]), eager).equal


def test_shapes_dtypes_and_integers():
    assert not compare("y", torch.zeros(2), torch.zeros(3)).equal
    assert not compare("y", torch.zeros(2), torch.zeros(2).double()).equal
    assert not compare("y", torch.tensor([1, 2]), torch.tensor([1, 3])).equal
    assert compare("y", torch.zeros(0, 3), torch.zeros(0, 3)).equal


def test_rounding_that_the_reference_explains():
    eager, ours, exact = torch.tensor([1.0002]), torch.tensor([0.9999]), torch.tensor([1.0], dtype=torch.float64)
    assert compare("y", ours, eager, exact).equal
    assert not compare("y", ours, eager).equal


def test_a_preparation_is_not_timed():
    def prepare():
        time.sleep(0.01)
        return lambda: time.sleep(0.002)

    (sample,) = measure([Prepared(prepare)], budget=0.02)
    assert 2_000 <= sample.median_us < 10_000
