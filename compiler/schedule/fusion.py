"""Legality of fusion, as named refusals, and the rounds in which the best legal pairs are fused; worth is judged in ``choices.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from compiler.ir import Buffer, Graph, Load, Ref, Store
from compiler.options import Policy
from compiler.schedule.choices import LIMITS, PREFERENCES, Candidate, FusionScore, score_fusion
from compiler.schedule.groups import Alignment, Group, alignments, group_of
from compiler.schedule.order import Ranks
from compiler.trace import Decision, Scalar

ROUNDS = 10
NEIGHBOURS = 16  # pairs further apart than this among the users of one buffer are not considered
VISITS = 2_000  # groups looked at to prove that a fusion closes no cycle
LOST = "A better pair took one of them in this round; what came of it is judged in the next."
RECORDED = 20_000  # decisions kept for the trace


UNRECORDED = Decision(
    subject="further pairs",
    verdict="noted",
    rule="too_many_to_list",
    reason="The graph has more pairs than are listed here. Those left out were judged by the same rules.",
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two groups in the order in which they run. ``spaces`` are common spaces up to the first that is ``legal``; none is sought in vain."""

    first: Group
    second: Group
    cycle: bool
    device: bool
    spaces: tuple[Alignment, ...] = ()
    legal: Alignment | None = None


def library_call(pair: Pair) -> bool:
    """One of them is a call of a library, whose inside cannot be changed."""
    return pair.first.extern is not None or pair.second.extern is not None


def different_device(pair: Pair) -> bool:
    """They run on different devices."""
    return not pair.device


def different_iteration_space(pair: Pair) -> bool:
    """Their loops cannot be split and reordered into common ones: the numbers of iterations differ, or do not divide each other."""
    return not pair.spaces


def another_iteration_reads(pair: Pair) -> bool:
    """One reads elements that the other writes in a different iteration, so that they must be finished before it starts."""
    return pair.legal is None


def writes_over(pair: Pair) -> bool:
    """One writes over elements that the other writes or reads, in whichever iteration: all of the one must be done before the other."""
    first, second = pair.first, pair.second
    touched = first.overwrites & (second.reads | second.writes) | second.overwrites & (first.reads | first.writes)
    return bool(touched)


def writes_in_order(pair: Pair) -> bool:
    """One writes to computed places, of which the last write stays: its loops keep their order, and nothing else runs in them."""
    return pair.first.writes_in_order or pair.second.writes_in_order


def closes_a_cycle(pair: Pair) -> bool:
    """A third step needs the result of one and is needed by the other: fused, they would wait for each other."""
    return pair.cycle


REFUSALS: tuple[Callable[[Pair], bool], ...] = (
    library_call,
    different_device,
    writes_over,
    writes_in_order,
    closes_a_cycle,
    different_iteration_space,
    another_iteration_reads,
)


def dependences_match(first: Group, second: Group, space: Alignment) -> bool:
    """Whether whatever the second group reads of the first's results, it reads in the iteration that writes it."""
    for name in first.writes & second.reads:
        written = [line for line in first.accesses[name] if isinstance(line, Store)]
        if len(written) > 1:
            return False
        place = written[0].offset, space.strides_first(written[0].strides)
        for line in second.accesses[name]:
            if isinstance(line, Load) and (line.indirect or (line.offset, space.strides_second(line.strides)) != place):
                return False
    return True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ``can_fuse`` says of a pair: the rule that refused it, or the space on which they may be fused, in the order in which they
    run.
    """

    rule: str
    reason: str
    score: FusionScore | None = None
    space: Alignment | None = None
    swapped: bool = False


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
    ranks: Ranks = field(default_factory=Ranks)
    verdicts: dict[tuple[int, int], Verdict] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        return self.graph.buffers

    def before(self, group: Group) -> set[int]:
        """The groups whose results this one needs."""
        if group.extern is not None:
            return {self.owner[needed] for needed in self.needs[group.first]}
        return {self.owner[needed] for member in group.members for needed in self.needs[member.position]} - {group.id}

    def reaches(self, start: set[int], goal: int) -> bool:
        """Whether ``goal`` is among the groups in ``start`` and those they need, directly or not. Undecided after many steps: yes."""
        stack, seen = list(start), set(start)
        while stack:
            current = stack.pop()
            if current == goal or len(seen) > VISITS:
                return True
            if self.ranks.may_need(current, goal):
                fresh = self.before(self.groups[current]) - seen
                seen |= fresh
                stack += fresh
        return False

    def closes_cycle(self, first: Group, second: Group) -> bool:
        """Whether a third group needs one of the two and is needed by the other."""
        if self.reaches(self.before(second) - {first.id}, first.id):
            return True
        return self.reaches(self.before(first) - {second.id}, second.id)


def candidate_pairs(rounds: Rounds) -> Iterator[tuple[Group, Group]]:
    """Pairs of groups that touch a common buffer, each once, in the order of lowering."""
    users: dict[str, list[Group]] = {}
    for group in sorted(rounds.groups.values(), key=lambda group: group.first):
        for name in sorted(group.reads | group.writes):
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
    swapped = other.id in rounds.before(one)
    first, second = (other, one) if swapped else (one, other)
    depends = first.id in rounds.before(second)
    library = first.extern is not None or second.extern is not None
    pair = Pair(first, second, not library and rounds.closes_cycle(first, second), _device(rounds, first) == _device(rounds, second))
    if not (library or pair.cycle):
        pair = with_spaces(pair)
    for refusal in REFUSALS:
        if refusal(pair):
            return Verdict(refusal.__name__, refusal.__doc__ or "")
    space = pair.legal
    assert space is not None
    score = score_fusion(first, second, space, rounds.buffers, rounds.readers)
    candidate = Candidate(first, second, depends, score, LIMITS[rounds.policy])
    for preference in PREFERENCES:
        if preference(candidate):
            return Verdict(preference.__name__, preference.__doc__ or "", score)
    return Verdict("fused", "The best pair left in this round.", score, space, swapped)


def with_spaces(pair: Pair) -> Pair:
    """The pair with the common spaces that were tried until one was legal."""
    tried: list[Alignment] = []
    for space in alignments(pair.first, pair.second):
        tried.append(space)
        if dependences_match(pair.first, pair.second, space):
            return replace(pair, spaces=tuple(tried), legal=space)
    return replace(pair, spaces=tuple(tried))


def _device(rounds: Rounds, group: Group) -> str:
    return rounds.buffers[min(group.writes or group.reads)].device  # an assertion writes nothing


def fuse(graph: Graph, policy: Policy) -> tuple[tuple[Group, ...], tuple[Decision, ...]]:
    """Groups of nests in the order of lowering, and every decision of every round."""
    rounds = start(graph, policy)
    if policy != "none":
        for number in range(1, ROUNDS + 1):
            if not run_round(rounds, number):
                break
    else:
        for one, other in candidate_pairs(rounds):
            record(rounds, 1, one, other, "refused", Verdict("policy_none", "The policy is to fuse nothing."))
    decisions = [*rounds.decisions, UNRECORDED] if len(rounds.decisions) >= RECORDED else rounds.decisions
    return tuple(sorted(rounds.groups.values(), key=lambda group: group.first)), tuple(decisions)


def start(graph: Graph, policy: Policy) -> Rounds:
    groups = {position: group_of(step, position) for position, step in enumerate(graph.steps)}
    writers: dict[str, list[int]] = {}
    needs: list[frozenset[int]] = []
    readers: dict[str, int] = {}
    for position, group in groups.items():
        needs.append(frozenset(writer for name in group.reads for writer in writers.get(name, ())))
        for name in group.reads:
            readers[name] = readers.get(name, 0) + 1
        for name in group.writes:
            writers.setdefault(name, []).append(position)
    for output in graph.outputs:
        if isinstance(output, Ref):
            readers[output.buffer] = readers.get(output.buffer, 0) + 1
    return Rounds(graph, policy, groups, list(range(len(groups))), needs, readers, len(groups))


def run_round(rounds: Rounds, number: int) -> bool:
    """Judge every pair, then fuse the best first; a pair one of whose groups is gone waits for the next round. Whether any fused."""
    rounds.ranks = Ranks.of({group.id: rounds.before(group) for group in rounds.groups.values()})
    legal: list[tuple[Group, Group, Verdict]] = []
    for one, other in candidate_pairs(rounds):
        verdict = rounds.verdicts.get((one.id, other.id))
        if verdict is None:
            verdict = rounds.verdicts[one.id, other.id] = can_fuse(rounds, one, other)
        if verdict.space is None:
            record(rounds, number, one, other, "refused", verdict)
        else:
            legal.append((one, other, verdict))
    fused_any = False
    for one, other, verdict in sorted(legal, key=_Best, reverse=True):
        if one.id not in rounds.groups or other.id not in rounds.groups:
            record(rounds, number, one, other, "lost", replace(verdict, rule="lost", reason=LOST))
        elif rounds.closes_cycle(one, other):
            refusal = replace(verdict, rule=closes_a_cycle.__name__, reason=closes_a_cycle.__doc__ or "", space=None)
            rounds.verdicts[one.id, other.id] = refusal
            record(rounds, number, one, other, "refused", refusal)
        else:
            record(rounds, number, one, other, "fused", verdict)
            fuse_pair(rounds, one, other, verdict)
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


def fuse_pair(rounds: Rounds, one: Group, other: Group, verdict: Verdict) -> None:
    """Put one group in the place of two."""
    first, second = (other, one) if verdict.swapped else (one, other)
    space = verdict.space
    assert space is not None
    members = space.members(first, second)
    bounds = min(one.first, other.first), max(one.last, other.last)
    group = Group(rounds.next_id, members, space.loops, space.reduction, None, *bounds)
    rounds.next_id += 1
    del rounds.groups[one.id], rounds.groups[other.id]
    rounds.groups[group.id] = group
    rounds.ranks.merge(one.id, other.id, group.id)
    for name in one.reads & other.reads:
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
