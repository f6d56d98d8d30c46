"""The proof of the whole specification, timed: every obligation, any size, under several seeds.

    python bench/proof.py [--jobs N] [--seeds N] [--cores] [--cvc5] [--mutants] [--slowest N]

Prints the counts of obligations by outcome, wall and CPU seconds (this process and its workers), the slowest obligations, and,
where asked, which claims each proof needs (`--cores`), whether cvc5 agrees (`--cvc5`), and how fast the changed actions of each
mutant break an induction step (`--mutants`).
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from vllm_lifecycle.spec.check.induction import Answer, Proof, prove, prove_actions
from vllm_lifecycle.spec.check.induction.second import second_opinion
from vllm_lifecycle.spec.check.verdict import EXIT_CODES, Outcome


def cpu_seconds() -> float:
    """CPU seconds of this process and of the workers that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in usages)


def show(proof: Proof, slowest: int) -> None:
    """Counts, open claims and slow obligations."""
    print(proof)
    for verdict in proof.verdicts:
        if verdict.outcome is not Outcome.HOLDS:
            print(f"  {verdict.outcome.value}: {verdict.claim}: {verdict.reason}")
    print(f"  {sum(v.outcome is Outcome.HOLDS for v in proof.verdicts)} of {len(proof.verdicts)} claims hold")
    for result in sorted(proof.results, key=lambda r: -r.seconds)[:slowest]:
        print(f"  {result.seconds:6.2f} s  {result.obligation.name}")


def mutants() -> None:
    """How long the changed actions of each mutant take to be refuted by some claim."""
    from vllm_lifecycle.spec.lifecycles.system import SYSTEM
    from vllm_lifecycle.spec.mutants import MUTANTS

    times: list[tuple[float, str]] = []
    survivors: list[str] = []
    for name, mutant in MUTANTS.items():
        if SYSTEM.claim(mutant.breaks).kind == "progress":
            continue
        began = time.perf_counter()
        proof = prove_actions(mutant.machine(), [a.name for a in mutant.actions])
        times.append((time.perf_counter() - began, name))
        if not any(r.status is Answer.FAILED for r in proof.results):
            survivors.append(name)
    slowest, name = max(times)
    total = sum(seconds for seconds, _ in times)
    print(
        f"mutants: {len(times) - len(survivors)} of {len(times)} break an induction step, {total:.1f} s in all, ",
        end="",
    )
    print(f"slowest {slowest:.1f} s ({name}){'; not: ' + ', '.join(survivors) if survivors else ''}")


def main() -> int:
    """Run and print; the exit code is that of the proof."""
    # Spawned workers import this file again; the specification comes to them as data.
    from vllm_lifecycle.spec.lifecycles.system import SYSTEM
    from vllm_lifecycle.spec.properties.ranks import RANKINGS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--slowest", type=int, default=8)
    parser.add_argument("--cores", action="store_true")
    parser.add_argument("--cvc5", action="store_true")
    parser.add_argument("--mutants", action="store_true")
    given = parser.parse_args()
    cpu, wall = cpu_seconds(), time.perf_counter()
    proof = prove(SYSTEM, tuple(range(given.seeds)), jobs=given.jobs, cores=given.cores, rankings=RANKINGS)
    show(proof, given.slowest)
    print(f"  {time.perf_counter() - wall:.1f} s wall, {cpu_seconds() - cpu:.1f} s CPU, {given.jobs} jobs")
    if given.cores:
        for name, claims in proof.uses.items():
            print(f"{name}: {', '.join(claims) or 'nothing'}")
    if given.cvc5:
        print(second_opinion(proof))
    if given.mutants:
        mutants()
    return EXIT_CODES[proof.outcome]


if __name__ == "__main__":
    sys.exit(main())
