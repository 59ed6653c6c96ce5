"""`holdfast serve` in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HOLDFAST = Path(sys.executable).with_name("holdfast")


@contextmanager
def server(
    folder: Path, *options: str, env: Mapping[str, str] | None = None
) -> Generator[tuple[subprocess.Popen[str], Any]]:
    """The process, with `env` besides what is set here, and what it said when it was there."""
    command = [HOLDFAST, "serve", "--port", "0", *options]
    with subprocess.Popen(
        command, cwd=folder, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        try:
            yield running, json.loads(running.stdout.readline())
        finally:
            if running.poll() is None:
                running.terminate()
            running.wait(60)
