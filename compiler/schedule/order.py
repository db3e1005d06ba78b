"""Topological order of groups: to run them, and to know quickly that one cannot need another."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field


def topological(needs: Mapping[int, set[int]], position: Mapping[int, int]) -> list[int]:
    """The keys of ``needs``, each after those it needs; among free ones the lowest position first. Shorter if there is a cycle."""
    needed_by: dict[int, list[int]] = {}
    for key, wanted in needs.items():
        for other in wanted:
            needed_by.setdefault(other, []).append(key)
    waiting = {key: len(wanted) for key, wanted in needs.items()}
    ready = [(position[key], key) for key in needs if not waiting[key]]
    heapq.heapify(ready)
    ordered: list[int] = []
    while ready:
        _, key = heapq.heappop(ready)
        ordered.append(key)
        for other in needed_by.get(key, ()):
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, (position[other], other))
    return ordered


@dataclass(slots=True)
class Ranks:
    """Places in a topological order taken before a round. A group fused in the round spans the places of its parts.

    Whoever walks from a group to what it needs goes down in rank, except through a group fused in this round, which may be entered at its
    low end and left from its high end. Spans that overlap are kept as one, so that one search says how high a walk may come.
    """

    low: dict[int, int] = field(default_factory=dict)
    high: dict[int, int] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    @staticmethod
    def of(needs: Mapping[int, set[int]]) -> Ranks:
        order = {key: rank for rank, key in enumerate(topological(needs, {key: key for key in needs}))}
        return Ranks(dict(order), dict(order))

    def merge(self, one: int, other: int, fused: int) -> None:
        self.low[fused] = low = min(self.low[one], self.low[other])
        self.high[fused] = high = max(self.high[one], self.high[other])
        first = bisect_right(self.ends, low)
        after = bisect_left(self.starts, high)
        self.starts[first:after] = [min([low, *self.starts[first:after]])]
        self.ends[first:after] = [max([high, *self.ends[first:after]])]

    def may_need(self, group: int, goal: int) -> bool:
        """False if no chain of needs can lead from ``group`` to ``goal``."""
        top = self.high[group]
        below = bisect_left(self.starts, top) - 1
        if below >= 0:
            top = max(top, self.ends[below])
        return top > self.low[goal]
