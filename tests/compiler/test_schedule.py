"""What the scheduler says of itself: a list of decisions that was cut short is not shown as if it were whole.

And its shortcut: ranks never deny that one group needs another.
"""

import random

import pytest
import torch

from compiler.lowering import lower
from compiler.options import Options
from compiler.schedule import fusion, schedule
from compiler.schedule.order import Ranks
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


def reachable(needs, start):
    found, stack = set(), list(needs[start])
    while stack:
        current = stack.pop()
        if current not in found:
            found.add(current)
            stack += needs[current]
    return found


@pytest.mark.parametrize("seed", range(60))
def test_ranks_deny_no_need(seed):
    """A random graph without cycles, pairs of which are fused where that closes none; each time, all pairs by a plain search."""
    rng = random.Random(seed)
    count = rng.randint(2, 24)
    needs = {key: {other for other in range(key) if rng.random() < rng.choice((0.05, 0.15))} for key in range(count)}
    ranks = Ranks.of(needs)
    denied = asked = 0
    for fused in range(count, 2 * count):
        for group in needs:
            deep = reachable(needs, group)
            for goal in needs.keys() - {group}:
                asked += 1
                denied += not ranks.may_need(group, goal)
                assert goal not in deep or ranks.may_need(group, goal)
        through = {key: {other for near in needs[key] for other in reachable(needs, near)} for key in needs}
        legal = [
            (one, other) for one in needs for other in needs if one < other and one not in through[other] and other not in through[one]
        ]
        if not legal:
            break
        one, other = rng.choice(legal)
        ranks.merge(one, other, fused)
        merged = (needs.pop(one) | needs.pop(other)) - {one, other}
        needs = {key: {fused if near in (one, other) else near for near in wanted} for key, wanted in needs.items()}
        needs[fused] = merged
    assert denied or asked < 10
