"""Legality of fusion, as named refusals, and the rounds in which the best legal pairs are fused; worth is judged in ``choices.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from compiler.ir import Buffer, Graph, Load, Ref, Store
from compiler.options import Policy
from compiler.schedule.choices import LIMITS, PREFERENCES, Candidate, FusionScore, score_fusion
from compiler.schedule.groups import Aligned, Group, alignments, group_of
from compiler.trace import Decision, Scalar

ROUNDS = 10
NEIGHBOURS = 16  # pairs further apart than this among the users of one buffer are not considered
VISITS = 2_000  # groups looked at to prove that a fusion closes no cycle
RECORDED = 20_000  # decisions kept for the trace


@dataclass(frozen=True, slots=True)
class Pair:
    """Two groups in the order in which they run, and what is known about them."""

    first: Group
    second: Group
    depends: bool
    aligned: tuple[Aligned, ...]
    cycle: bool
    device: bool


def library_call(pair: Pair) -> bool:
    """One of them is a call of a library, whose inside cannot be changed."""
    return pair.first.extern is not None or pair.second.extern is not None


def different_device(pair: Pair) -> bool:
    """They run on different devices."""
    return not pair.device


def different_iteration_space(pair: Pair) -> bool:
    """Their loops cannot be split and reordered into common ones: the numbers of iterations differ, or do not divide each other."""
    return not pair.aligned


def another_iteration_reads(pair: Pair) -> bool:
    """One reads elements that the other writes in a different iteration, so that they must be finished before it starts."""
    return not any(dependences_match(aligned) for aligned in pair.aligned)


def closes_a_cycle(pair: Pair) -> bool:
    """A third step needs the result of one and is needed by the other: fused, they would wait for each other."""
    return pair.cycle


REFUSALS: tuple[Callable[[Pair], bool], ...] = (
    library_call,
    different_device,
    different_iteration_space,
    another_iteration_reads,
    closes_a_cycle,
)


def dependences_match(aligned: Aligned) -> bool:
    """Whether whatever the second group reads of the first's results, it reads in the iteration that writes it."""
    stores: dict[str, list[Store]] = {}
    for line in aligned.first.accesses():
        if isinstance(line, Store):
            stores.setdefault(line.buffer, []).append(line)
    for line in aligned.second.accesses():
        if isinstance(line, Load) and line.buffer in stores:
            written = stores[line.buffer]
            if line.indirect or len(written) > 1:
                return False
            if (line.offset, line.strides) != (written[0].offset, written[0].strides):
                return False
    return True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ``can_fuse`` says of a pair: the rule that refused it, or the fused group."""

    rule: str
    reason: str
    score: FusionScore | None
    fused: Group | None


@dataclass(slots=True)
class Rounds:
    """The groups while they are being fused, and what was decided so far."""

    graph: Graph
    policy: Policy
    groups: dict[int, Group]
    owner: list[int]
    needs: list[frozenset[int]]
    readers: dict[str, int]
    next_id: int
    refused: dict[tuple[int, int], Verdict] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        return self.graph.buffers

    def before(self, group: Group) -> set[int]:
        """The groups whose results this one needs."""
        members = [member.position for member in group.members] or [group.first]
        return {self.owner[needed] for position in members for needed in self.needs[position]} - {group.id}

    def reaches(self, start: set[int], goal: int) -> bool:
        """Whether ``goal`` is among the groups needed, directly or not, by those in ``start``. Undecided after many steps: yes."""
        stack, seen = list(start), set(start)
        while stack:
            current = stack.pop()
            if current == goal or len(seen) > VISITS:
                return True
            for needed in self.before(self.groups[current]) - seen:
                seen.add(needed)
                stack.append(needed)
        return False


def candidate_pairs(rounds: Rounds) -> Iterator[tuple[Group, Group]]:
    """Pairs of groups that touch a common buffer, each once, in the order of lowering."""
    users: dict[str, list[Group]] = {}
    for group in sorted(rounds.groups.values(), key=lambda group: group.first):
        for name in sorted(group.reads() | group.writes()):
            users.setdefault(name, []).append(group)
    seen: set[tuple[int, int]] = set()
    for touching in users.values():
        for i, one in enumerate(touching):
            for other in touching[i + 1 : i + 1 + NEIGHBOURS]:
                key = one.id, other.id
                if key not in seen:
                    seen.add(key)
                    yield one, other


def can_fuse(rounds: Rounds, one: Group, other: Group) -> Verdict:
    """Whether two groups may become one kernel; the first refusal that applies says no, and legality is asked before preference."""
    before_one, before_other = rounds.before(one), rounds.before(other)
    if other.id in before_one:
        one, other, before_one, before_other = other, one, before_other, before_one
    depends = one.id in before_other
    library = one.extern is not None or other.extern is not None
    aligned = () if library else tuple(alignments(one, other))
    cycle = not library and (rounds.reaches(before_other - {one.id}, one.id) or rounds.reaches(before_one - {other.id}, other.id))
    pair = Pair(one, other, depends, aligned, cycle, library or _device(rounds, one) == _device(rounds, other))
    for refusal in REFUSALS:
        if refusal(pair):
            return Verdict(refusal.__name__, refusal.__doc__ or "", None, None)
    legal = next(item for item in aligned if dependences_match(item))
    score = score_fusion(legal.first, legal.second, rounds.buffers, rounds.readers)
    candidate = Candidate(legal.first, legal.second, depends, score, LIMITS[rounds.policy])
    for preference in PREFERENCES:
        if preference(candidate):
            return Verdict(preference.__name__, preference.__doc__ or "", score, None)
    members = tuple(sorted((*legal.first.members, *legal.second.members), key=lambda member: member.position))
    fused = replace(legal.first, members=members, first=min(one.first, other.first), last=max(one.last, other.last))
    return Verdict("fused", "The best pair left in this round.", score, fused)


def _device(rounds: Rounds, group: Group) -> str:
    return rounds.buffers[min(group.writes())].device


def fuse(graph: Graph, policy: Policy) -> tuple[tuple[Group, ...], tuple[Decision, ...]]:
    """Groups of nests in the order of lowering, and every decision of every round."""
    rounds = start(graph, policy)
    if policy != "none":
        for number in range(1, ROUNDS + 1):
            if not run_round(rounds, number):
                break
    else:
        for one, other in candidate_pairs(rounds):
            record(rounds, 1, one, other, "refused", Verdict("policy_none", "The policy is to fuse nothing.", None, None))
    return tuple(sorted(rounds.groups.values(), key=lambda group: group.first)), tuple(rounds.decisions)


def start(graph: Graph, policy: Policy) -> Rounds:
    groups = {position: group_of(step, position) for position, step in enumerate(graph.steps)}
    writers: dict[str, list[int]] = {}
    needs: list[frozenset[int]] = []
    readers: dict[str, int] = {}
    for position, group in groups.items():
        needs.append(frozenset(writer for name in group.reads() for writer in writers.get(name, ())))
        for name in group.reads():
            readers[name] = readers.get(name, 0) + 1
        for name in group.writes():
            writers.setdefault(name, []).append(position)
    for output in graph.outputs:
        if isinstance(output, Ref):
            readers[output.buffer] = readers.get(output.buffer, 0) + 1
    return Rounds(graph, policy, groups, list(range(len(groups))), needs, readers, len(groups))


def run_round(rounds: Rounds, number: int) -> bool:
    """Judge every pair, then fuse the best ones first; a pair whose groups have changed meanwhile waits for the next round. Whether any
    fused.
    """
    legal: list[tuple[Group, Group, Verdict]] = []
    for one, other in candidate_pairs(rounds):
        key = one.id, other.id
        verdict = rounds.refused.get(key) or can_fuse(rounds, one, other)
        if verdict.fused is None:
            rounds.refused[key] = verdict
            record(rounds, number, one, other, "refused", verdict)
        else:
            legal.append((one, other, verdict))
    fused_any = False
    remaining = sorted(legal, key=_Best, reverse=True)
    for one, other, verdict in remaining:
        if one.id not in rounds.groups or other.id not in rounds.groups:
            gone = Verdict(
                "lost", "A better pair took one of them in this round; what came of it is judged in the next.", verdict.score, None
            )
            record(rounds, number, one, other, "lost", gone)
            continue
        if fused_any:
            verdict = can_fuse(rounds, one, other)
        if verdict.fused is None:
            record(rounds, number, one, other, "refused", verdict)
            continue
        record(rounds, number, one, other, "fused", verdict)
        replace_pair(rounds, one, other, verdict.fused)
        fused_any = True
    return fused_any


class _Best:
    """Sort key: the score, and among equals the earlier pair."""

    __slots__ = ("order", "score")

    def __init__(self, item: tuple[Group, Group, Verdict]) -> None:
        score = item[2].score
        assert score is not None
        self.score, self.order = score, (-item[0].first, -item[1].first)

    def __lt__(self, other: _Best) -> bool:
        if self.score == other.score:
            return self.order < other.order
        return self.score < other.score


def replace_pair(rounds: Rounds, one: Group, other: Group, fused: Group) -> None:
    del rounds.groups[one.id], rounds.groups[other.id]
    group = replace(fused, id=rounds.next_id)
    rounds.next_id += 1
    rounds.groups[group.id] = group
    for name in one.reads() & other.reads():
        rounds.readers[name] -= 1
    for member in group.members:
        rounds.owner[member.position] = group.id


def record(rounds: Rounds, number: int, one: Group, other: Group, verdict: str, why: Verdict) -> None:
    if len(rounds.decisions) >= RECORDED:
        return
    numbers: dict[str, Scalar] = {"first": one.name[:300], "second": other.name[:300]}
    if why.score is not None:
        numbers |= {
            "saved_bytes": why.score.saved_bytes,
            "same_kind": why.score.same_kind,
            "shared_buffers": why.score.shared_buffers,
            "distance": -why.score.proximity,
            "nests": -why.score.compactness,
        }
    origins = tuple(sorted({_origin(one), _origin(other)}))
    subject = f"{one.name} | {other.name}"[:400]
    rounds.decisions.append(
        Decision(subject=subject, verdict=verdict, rule=why.rule, reason=why.reason, numbers=numbers, round=number, origins=origins)  # type: ignore[arg-type]
    )


def _origin(group: Group) -> int:
    return group.extern.origin if group.extern is not None else group.members[0].nest.origin
