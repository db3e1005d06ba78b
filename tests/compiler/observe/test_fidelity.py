"""What the trace says of Inductor equals what torch itself logs, for every program of ``fidelity_programs``.

Torch runs the programs in a process without our code (``bench.fidelity``), with TORCH_LOGS and TORCH_TRACE; another process observes them.
Neither compiles the generated C++, which nothing that is compared depends on.
"""

import functools
import re

import pytest

from bench.fidelity import Said, compared, differences, read_structured, read_torch, table, words
from tests.compiler.observe.fidelity_programs import PROGRAMS

EVERYDAY = (
    "mlp_trained", "break_at_item", "break_in_try", "automatic_dynamic", "recompiles_by_int", "buffers_mutated", "softmax_variants",
    "statistics", "cat", "dropout_trained", "adam_step", "options",
)  # fmt: skip
NOTHING_COMPILED = ("break_in_try", "break_in_loop")
"""Dynamo gives such a function up, and the trace is a problem that says why."""
EXPLAINED = {
    ("backward_not_run", "output code"): "torch has 1, the trace 2",
    ("backward_not_run", "groups"): "torch has 1, the trace 2",
    ("backward_not_run", "fusion log"): "^only the trace: ",
    ("backward_not_run", "pairs"): "torch has 3, the trace 5",
    ("backward_not_run", "refusals"): "^only the trace: ",
    ("backward_not_run", "scores"): "^only the trace: ",
}
"""A pattern of the difference for each program and aspect that may differ; docs/fidelity.md says why."""

pytestmark = pytest.mark.timeout(1500)  # the first test of a kind runs all of its programs


@functools.cache
def sides(everyday: bool) -> tuple[dict[str, Said], dict[str, Said]]:
    return compared({name: PROGRAMS[name] for name in PROGRAMS if (name in EVERYDAY) is everyday})


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in EVERYDAY else [pytest.mark.slow], id=name)
        for name in (*EVERYDAY, *sorted({*PROGRAMS} - {*EVERYDAY}))
    ],
)
def test_the_trace_says_what_torch_says(name):
    alone, observed = (side[name] for side in sides(name in EVERYDAY))
    assert bool(alone.codes) is (name not in NOTHING_COMPILED)
    assert not alone.failed
    found = differences(alone, observed)
    left = {aspect: text for aspect, text in found.items() if not re.search(EXPLAINED.get((name, aspect), r"(?!)"), text)}
    assert left == {}
    assert sum(alone.pairs) == 0 or alone.scores, "every possible fusion was scored"


def test_there_is_something_to_compare():
    """The reader of the logs is not blind: each kind of record was found where a program is made to cause it."""
    alone, _ = sides(True)
    assert alone["break_at_item"].breaks[0][0] == 5
    assert any("item" in part for part in alone["break_at_item"].breaks[0][1])
    assert len(alone["automatic_dynamic"].recompiles) == 1
    assert "size mismatch" in alone["automatic_dynamic"].recompiles[0][0]
    assert alone["statistics"].refusals
    assert alone["statistics"].scores
    assert sum(alone["statistics"].pairs) > 0
    assert any("_" in group for group in alone["statistics"].groups[0])
    assert len(alone["mlp_trained"].codes) == len(alone["mlp_trained"].traced) == 2


def test_a_difference_is_found():
    alone, observed = (side["statistics"] for side in sides(True))
    changed = Said(codes=[*observed.codes[:-1], observed.codes[-1] + "\nextra = 1"], lines=observed.lines[1:], pairs=observed.pairs)
    assert {"output code", "groups", "fusion log", "scores", "refusals"} <= set(differences(alone, changed))


def test_reasons_are_taken_apart():
    reason = "Unsupported call\n  Explanation: It cannot.\n  Hint: Do not.\n\n  Developer debug context: deep\n"
    assert words(reason) == ("Unsupported call", "It cannot", "Do not")


def test_records_are_taken_apart(tmp_path):
    logged = "noise\x1eprogram\x1fone\n\x1etorch._inductor.scheduler.__fusion\x1ffound 2 possible fusions\n\x1eend\x1fone\n"
    said = read_torch(logged, tmp_path)
    assert (said["one"].pairs, said["one"].lines) == ([2], ["found 2 possible fusions"])
    assert read_structured(tmp_path) == {}


def test_the_table_counts_what_is_equal_and_names_what_differs():
    alone, observed = sides(True)
    told = table(alone, observed)
    assert f"| recompiles_by_int | = {len(alone['recompiles_by_int'].codes)} |" in told
    assert f"{len(EVERYDAY)} of {len(EVERYDAY)} programs are equal in everything." in told
    changed = table(alone, {**observed, "recompiles_by_int": Said()})
    assert "| recompiles_by_int | **differs** |" in changed
    assert f"{len(EVERYDAY) - 1} of {len(EVERYDAY)} programs are equal in everything." in changed
    assert "- recompiles_by_int, output code: " in changed
