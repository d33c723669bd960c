"""A wrong case with as few records as it needs to be wrong.

Start reading at ``reduced``.
"""

from __future__ import annotations

from tests.stream.differential import data
from tests.stream.differential.run import Laboratory, Outcome, dataset_of

TRIES = 80


def reduced(lab: Laboratory, outcome: Outcome) -> str:
    """What the case says without all that can be left out, and the records that cannot."""
    made = data.relations(dataset_of(outcome.number))
    every = [r.offset for relation in made for r in relation.records if not r.last]
    gone: frozenset[int] = frozenset()
    size, tries = max(1, len(every) // 2), 0
    while size and tries < TRIES:
        left = [o for o in every if o not in gone]
        for start in range(0, len(left), size):
            more = gone | set(left[start : start + size])
            tries += 1
            found = lab.run(outcome.number, outcome.case, more)
            if found.wrong:
                outcome, gone = found, more
            if tries >= TRIES:
                break
        size //= 2
    lines = [
        f"  {relation.name} batch {n}: partition {r.partition} offset {r.offset} time {r.time - data.BASE}"
        f"{' late' * r.late} {relation.message(r)}"
        for relation in made for n, batch in enumerate(relation.batches) for r in batch
        if r.offset not in gone and not r.last
    ]  # fmt: skip
    return "\n".join([f"with {len(lines)} records, after {tries} tries: {outcome.wrong}", *lines])
