"""Removes each guard and each invariant of each machine, one at a time, and runs that machine's own tests.

A mutant that no test notices is a guard or an invariant that nothing holds. `make mutants` prints every survivor and
fails when fewer than 95 % are caught. Survivors that are known, with the reason, are in `SURVIVORS`.

Everything runs in this process: a mutant is a copy of the machine put in the place of the original, and pytest is
run again on modules that are imported already.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.machines import Machine
from holdfast.machines.registry import MACHINES

ROOT = Path(__file__).resolve().parent.parent
NEEDED = 0.95

SURVIVORS: dict[str, str] = {}
"""Mutant → why no test can tell it from the original."""


def main() -> int:
    """Try every mutant."""
    wanted = sys.argv[1:] or list(MACHINES)
    caught, survived = 0, []
    for name in wanted:
        machine = MACHINES[name]
        if not passes(name):
            print(f"{name}: its tests fail without a mutation")
            return 1
        for label, mutant in mutants(machine):
            with replaced(machine, mutant):
                if passes(name):
                    survived.append(f"{name}: {label}")
                else:
                    caught += 1
    for one in survived:
        print(f"survived  {one}  {SURVIVORS.get(one, '')}")
    total = caught + len(survived)
    print(f"{caught} of {total} mutants caught ({caught / total:.1%})")
    unexplained = [one for one in survived if one not in SURVIVORS]
    return 1 if caught / total < NEEDED or unexplained else 0


def mutants(machine: Machine[Any]) -> Iterator[tuple[str, Machine[Any]]]:
    """Every machine that lacks one guard of one row, or one invariant."""
    for at, row in enumerate(machine.rows):
        for name, _ in row.guards:
            less = tuple(guard for guard in row.guards if guard[0] != name)
            rows = list(machine.rows)
            rows[at] = dataclasses.replace(row, guards=less)
            label = f"row {at + 1} ({row.input.__name__}) without `{name}`"
            yield label, dataclasses.replace(machine, rows=tuple(rows))
    for name in machine.invariants:
        rest = {one: holds for one, holds in machine.invariants.items() if one != name}
        yield f"without the invariant `{name}`", dataclasses.replace(machine, invariants=rest)


@contextlib.contextmanager
def replaced(machine: Machine[Any], mutant: Machine[Any]) -> Iterator[None]:
    """Put the mutant wherever the machine is known, and the machine back afterwards."""
    slots = dict(machine.__dict__)
    machine.__dict__.update(mutant.__dict__)
    try:
        yield
    finally:
        machine.__dict__.clear()
        machine.__dict__.update(slots)


def passes(name: str) -> bool:
    """Whether the machine's own tests, and the generic ones for it, pass."""
    own = MACHINES[name].__dict__.get("tests") or f"tests/machines/{test_file(name)}"
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(ROOT / own)]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return pytest.main(arguments) == 0


def test_file(name: str) -> str:
    """The test file of a machine: named after the module that defines it."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__name__", "")
        if path.startswith("holdfast.machines.") and MACHINES[name] in vars(module).values():
            short = path.rpartition(".")[2]
            if short not in ("registry", "kernel"):
                return f"test_{short}.py"
    raise SystemExit(f"no module defines the machine {name}")


if __name__ == "__main__":
    sys.exit(main())
