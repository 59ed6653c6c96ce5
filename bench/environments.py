"""The environments that the peers run in: one for each, from exact versions, made once and kept in `.bench`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "bench" / "locks"
CACHE = ROOT / ".bench"

_failed: dict[str, str] = {}
"""Environments that could not be made, and why: one attempt in a run is enough."""


class Unavailable(Exception):
    """An environment could not be made; says why in one line."""


def interpreter(name: str) -> Path:
    """The interpreter of the environment for `bench/locks/<name>.txt`, which is made or brought up to date first.

    Raises `Unavailable` when that does not work, for example without a network.
    """
    lock = LOCKS / f"{name}.txt"
    folder = CACHE / "venv" / name
    stamp, python = folder / ".lock", folder / "bin" / "python"
    if stamp.exists() and stamp.read_text() == lock.read_text():
        return python
    if name in _failed:
        raise Unavailable(_failed[name])
    print(f"     installing {name} into {folder.relative_to(ROOT)}", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A folder without its stamp is one whose installation was cut short.
    shutil.rmtree(folder, ignore_errors=True)
    for command in _commands(folder, python, lock):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            _failed[name] = last_line(done.stderr) or f"`{command[0]}` failed"
            raise Unavailable(_failed[name])
    stamp.write_text(lock.read_text())
    return python


def _commands(folder: Path, python: Path, lock: Path) -> list[list[str]]:
    uv = shutil.which("uv")
    if uv:
        return [
            [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(lock)],
        ]
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    return [[sys.executable, "-m", "venv", str(folder)], [*pip, "-r", str(lock)]]


def last_line(text: str) -> str:
    """The last line of what a program complained about: the error, in Python and in pip."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or [""])[-1]
