"""`holdfast serve` in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HOLDFAST = Path(sys.executable).with_name("holdfast")


@contextmanager
def server(folder: Path, *options: str) -> Generator[tuple[subprocess.Popen[str], Any]]:
    """The process, and what it said when it was there."""
    command = [HOLDFAST, "serve", "--port", "0", *options]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield running, json.loads(running.stdout.readline())
        finally:
            if running.poll() is None:
                running.terminate()
            running.wait(30)
