"""Every example in the documentation runs.

The blocks of one document run in order and share a working directory and a `HOLDFAST_HOME`, as they
do for a reader who follows along. ```` ```python ```` blocks are programs. In ```` ```sh ```` and
```` ```console ```` blocks a line that starts with `$ ` is a command; the lines below it, if any, must
appear in its output in this order, with `...` for any text. A comment right above a block changes this:

    <!-- not run: why -->     skip it
    <!-- exit: 1 -->          the program, or the block's last command, ends with this code
    <!-- file: agent.py -->   save the block under this name; a later command uses it
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for path in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/**/*.md")]
    if path.exists()
)

FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,})(?P<language>\w*)")
DIRECTIVE = re.compile(r"<!-- (?P<key>not run|exit|file): (?P<value>.+?) -->")
SHELL = {"sh", "console", "bash", "shell"}


@dataclass
class Block:
    """A fenced block, the line it starts at, and the comment above it."""

    line: int
    language: str
    lines: list[str]
    key: str = ""
    value: str = ""

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def exit_code(self) -> int:
        return int(self.value) if self.key == "exit" else 0


@dataclass
class Command:
    """What follows a `$ `, and the lines that its output must show."""

    line: str
    expected: list[str] = field(default_factory=list[str])


def blocks(text: str) -> Iterator[Block]:
    lines = iter(enumerate(text.splitlines(), start=1))
    above = ""
    for number, line in lines:
        if fence := FENCE.match(line):
            body: list[str] = []
            for _, inner in lines:
                if inner.strip() == fence["ticks"]:
                    break
                body.append(inner.removeprefix(fence["indent"]))
            directive = DIRECTIVE.fullmatch(above)
            key, value = directive.groups() if directive else ("", "")
            yield Block(number, fence["language"], body, key, value)
            above = ""
        elif line.strip():
            above = line.strip()


def commands(block: Block) -> list[Command]:
    found: list[Command] = []
    for line in block.lines:
        if line.startswith("$ "):
            found.append(Command(line[2:]))
        elif found and not found[-1].expected and found[-1].line.endswith("\\"):
            found[-1].line += "\n" + line.removeprefix("> ")
        elif found and line.strip():
            found[-1].expected.append(line.rstrip())
    return found


def missing_line(expected: list[str], output: str) -> str | None:
    """The first expected line that the output does not show after the ones before it."""
    rest = iter(output.splitlines())
    for line in expected:
        pattern = re.compile(re.escape(line.strip()).replace(r"\.\.\.", ".*"))
        if line.strip() != "..." and not any(pattern.fullmatch(shown.strip()) for shown in rest):
            return line
    return None


def run(arguments: list[str], cwd: Path) -> tuple[int, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        arguments,
        cwd=cwd,
        env=os.environ | {"PATH": path, "NO_COLOR": "1", "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout


def run_shell(block: Block, cwd: Path) -> str | None:
    todo = commands(block)
    if not todo:
        return "no line starts with `$ `: nothing would run"
    for command in todo:
        wanted = block.exit_code if command is todo[-1] else 0
        code, output = run(["sh", "-c", command.line], cwd)
        if code != wanted:
            return f"$ {command.line}\nexit code {code}, not {wanted}\n{output}"
        if line := missing_line(command.expected, output):
            return f"$ {command.line}\ndid not print `{line}` there, but\n{output}"
    return None


def run_block(block: Block, cwd: Path) -> str | None:
    """Run one block; return what went wrong."""
    if block.key == "not run":
        return None
    if block.key == "file":
        (cwd / block.value).parent.mkdir(parents=True, exist_ok=True)
        (cwd / block.value).write_text(block.text)
        return None
    if block.language in SHELL:
        return run_shell(block, cwd)
    if block.language == "python":
        code, output = run([sys.executable, "-c", block.text], cwd)
        if code != block.exit_code:
            return f"exit code {code}, not {block.exit_code}\n{output}"
    return None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_document(document: Path, tmp_path: Path):
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    for block in blocks(document.read_text()):
        if problem := run_block(block, cwd):
            pytest.fail(f"{document.relative_to(ROOT)}:{block.line}: {problem}", pytrace=False)


# --- the runner itself ---


def problem_of(text: str, cwd: Path) -> str | None:
    return next(filter(None, (run_block(block, cwd) for block in blocks(text))), None)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n```",
        "```json\nnot run\n```",
        "<!-- not run: it never ends -->\n```sh\n$ sleep 999\n```",
        "<!-- exit: 3 -->\n```sh\n$ true\n$ exit 3\n```",
        "<!-- exit: 1 -->\n\n```python\nraise SystemExit(1)\n```",
        "```console\n$ echo one; echo two 2 three; echo four\none\ntwo ... three\n$ echo five\n```",
        "```console\n$ echo one; echo two\n...\ntwo\n```",
        "```sh\n$ echo one \\\n    two\none two\n```",
        "<!-- file: a.py -->\n```python\nprint('hello')\n```\nthen\n```sh\n$ python a.py\nhello\n```",
        "- a list\n\n  ```python\n  if True:\n      print(1)\n  ```",
    ],
)
def test_runner_accepts(text: str, tmp_path: Path):
    assert problem_of(text, tmp_path) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```python\n1 / 0\n```", "ZeroDivisionError"),
        ("```sh\n$ false\n$ true\n```", "exit code 1, not 0"),
        ("```sh\nholdfast demo\n```", "nothing would run"),
        ("```sh\n$ echo one; echo two\ntwo\none\n```", "did not print `one`"),
        ("```sh\n$ echo one\no\n```", "did not print `o`"),
        ("<!-- exit: 3 -->\ntext between\n```sh\n$ exit 3\n```", "exit code 3, not 0"),
    ],
)
def test_runner_rejects(text: str, problem: str, tmp_path: Path):
    assert problem in (problem_of(text, tmp_path) or "")
