"""PyTorch's OpInfo database through this compiler, forward and backward: each op and dtype in its own process, every result against eager.

python -m bench.opinfo --every 8 --dtypes float32,int64         what failed, and a table of samples by dtype and status
python -m bench.opinfo --shard 0/4 --out part0.json             a quarter of the ops; --merge part*.json puts parts together
python -m bench.opinfo --merge part0.json --ops-table           for each op: native loops, library calls, fallbacks and their reasons

It needs ``expecttest``. With ``--device cuda`` all ops share a process, which starts anew after a fault of the GPU; this takes ``--out``.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bench.opinfo_samples import NO_REFERENCE, SEVERITY, Verdict, op_key, try_op

DTYPES = "float32,float16,bfloat16,int64,bool"
WRONG = SEVERITY[SEVERITY.index("refused") :]


def chosen_ops(names: str, every: int, shard: str) -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = set(filter(None, names.split(",")))
    ops = {op_key(op): op for op in op_db if op_key(op) not in NO_REFERENCE and (not wanted or {op_key(op), op.name} & wanted)}
    part, parts = map(int, shard.split("/"))
    return dict(list(ops.items())[::every][part::parts])


def apart(op: Any, dtype: torch.dtype, given: argparse.Namespace) -> Verdict:  # noqa: ANN401  # an OpInfo
    """The verdict of a forked process, which may crash or hang."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        sender.send(try_op(op, dtype, given.samples, given.gradients, given.device))

    process = context.Process(target=child)
    process.start()
    sender.close()
    missing = Verdict(op_key(op), str(dtype).removeprefix("torch."))
    try:
        if not receiver.poll(given.timeout):
            process.kill()
            missing.status, missing.samples = "timeout", {"timeout": 1}
            return missing
        verdict: Verdict = receiver.recv()
        return verdict
    except EOFError:
        process.join()
        missing.status, missing.samples, missing.reasons = "crash", {"crash": 1}, [f"exit status {process.exitcode}"]
        return missing
    finally:
        process.join()


def here(op: Any, dtype: torch.dtype, given: argparse.Namespace) -> Verdict:  # noqa: ANN401  # an OpInfo
    """The verdict of this process, which a device's context forbids to fork."""
    try:
        return try_op(op, dtype, given.samples, given.gradients, given.device)
    except Exception as error:  # the samples themselves may not be had
        return Verdict(op_key(op), str(dtype).removeprefix("torch."), "error", {"error": 1}, [str(error)[:1000]])


def report(verdicts: list[Verdict], ops_table: bool) -> None:
    """What went wrong, the table of samples, and what became of each op."""
    for verdict in verdicts:
        if verdict.status in WRONG:
            last = (verdict.reasons or [""])[0].strip().splitlines()[-1:]
            print(f"{verdict.status:8} {verdict.op} {verdict.dtype} {verdict.samples}: {''.join(last)[:220]}")
    print("\n| dtype | ops | " + " | ".join(SEVERITY) + " | right of those that ran |")
    print("| --- |" + " ---: |" * (len(SEVERITY) + 2))
    for dtype in dict.fromkeys(verdict.dtype for verdict in verdicts):
        mine = [verdict for verdict in verdicts if verdict.dtype == dtype]
        counts = collections.Counter[str]()
        for verdict in mine:
            counts.update(verdict.samples)
        right = counts["pass"] + counts["pass_float64"]
        ran = right + sum(counts[status] for status in WRONG)
        ops = sum(any(status != "skipped" for status in verdict.samples) for verdict in mine)
        print(f"| {dtype} | {ops} | " + " | ".join(str(counts[status]) for status in SEVERITY) + f" | {right / max(ran, 1):.2%} |")
    if not ops_table:
        return
    print("\n| op | native nests | library calls | fallbacks |\n| --- | ---: | --- | --- |")
    for op in dict.fromkeys(verdict.op for verdict in verdicts):
        mine = [verdict for verdict in verdicts if verdict.op == op]
        libraries, fallbacks = collections.Counter[str](), collections.Counter[str]()
        for verdict in mine:
            libraries.update(verdict.libraries)
            fallbacks.update(verdict.fallbacks)
        words = [", ".join(f"{name} {count}" for name, count in counter.most_common()) for counter in (libraries, fallbacks)]
        print(f"| {op} | {sum(verdict.native for verdict in mine)} | {words[0]} | {words[1]} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="names, with commas between them; default: all")
    parser.add_argument("--every", type=int, default=1, help="only each such op")
    parser.add_argument("--shard", default="0/1", help="which part of how many")
    parser.add_argument("--dtypes", default=DTYPES)
    parser.add_argument("--samples", type=int, default=8, help="at most so many for each op and dtype")
    parser.add_argument("--no-gradients", dest="gradients", action="store_false", help="only forward")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--timeout", type=float, default=240, help="seconds for each op and dtype")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no op is begun after so many")
    parser.add_argument("--out", type=Path, help="a JSON file for all verdicts")
    parser.add_argument("--resume", action="store_true", help="go on after what --out has")
    parser.add_argument("--merge", type=Path, nargs="+", help="only report what these files say, the latest verdict of each op and dtype")
    parser.add_argument("--ops-table", action="store_true")
    given = parser.parse_args()
    verdicts: list[Verdict] = []
    if given.merge:
        rows = [Verdict(**row) for path in given.merge for row in json.loads(path.read_text())]
        return report(list({(row.op, row.dtype): row for row in rows}.values()), given.ops_table)
    begun = time.monotonic()
    if given.resume:
        verdicts = [Verdict(**row) for row in json.loads(given.out.read_text())]
    known = {(verdict.op, verdict.dtype) for verdict in verdicts}
    for name, op in chosen_ops(given.ops, given.every, given.shard).items():
        for dtype in given.dtypes.split(","):
            if (name, dtype) in known:
                continue
            if time.monotonic() - begun > given.seconds:
                print(f"stopped before {name} {dtype}")
                break
            verdicts.append((apart if given.device == "cpu" else here)(op, getattr(torch, dtype), given))
            if verdicts[-1].status in WRONG:
                print(f"{verdicts[-1].status} {name} {dtype}", flush=True)
            if given.out:
                given.out.write_text(json.dumps([asdict(verdict) for verdict in verdicts]))
            if given.device == "cuda" and any("CUDA error" in reason for reason in verdicts[-1].reasons):
                left = ["--seconds", str(given.seconds - (time.monotonic() - begun))]
                os.execv(sys.executable, [sys.executable, "-m", "bench.opinfo", *sys.argv[1:], *left, "--resume"])
    report(verdicts, given.ops_table)
    return None


if __name__ == "__main__":
    main()
