"""The real program in processes of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def holdfast(tmp_path: Path) -> Callable[..., Done]:
    """Runs `holdfast` in a home that is fresh for the test."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    environment = {**kept, "HOLDFAST_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}

    def run(*arguments: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments],
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=100,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode())

    return run
