"""What the scheduler says of itself: a list of decisions that was cut short is not shown as if it were whole."""

import torch

from compiler.lowering import lower
from compiler.options import Options
from compiler.schedule import fusion, schedule
from compiler.target import find_target
from tests.compiler.programs import PROGRAMS, Program, parts_of


def rules(part):
    cpu = find_target("cpu")
    return [decision.rule for decision in schedule(lower(part.gm, {}, cpu, retarget=False).graph, Options(), cpu)[1]]


def test_a_list_that_was_cut_short_says_so(monkeypatch):
    (program,) = (program for program in PROGRAMS if program.name == "softmax")
    part = parts_of(program)[0]
    whole = rules(part)
    assert "too_many_to_list" not in whole
    monkeypatch.setattr(fusion, "RECORDED", 3)
    assert rules(part) == [*whole[:3], "too_many_to_list"]


def test_what_another_iteration_writes_is_not_fused():
    mirrored = Program("mirrored", lambda: (lambda x: (y := x * 2) + y.t(), (torch.randn(5, 5),)))
    part = parts_of(mirrored)[0]
    cpu = find_target("cpu")
    scheduled, decisions = schedule(lower(part.gm, {}, cpu, retarget=False).graph, Options(policy="max"), cpu)
    assert {(decision.verdict, decision.rule) for decision in decisions} == {("refused", "another_iteration_reads")}
    assert len(scheduled.steps) == 2
