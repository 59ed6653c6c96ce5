"""Who may touch the world, checked on the syntax tree. Who may import whom is `make lint`'s."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent

# The packages that may open files, sockets and processes. All others ask the gate.
MAY_TOUCH_THE_WORLD = (
    "capabilities/builtin",
    "capabilities/load.py",
    "capabilities/openapi/document.py",
    "capabilities/mcp",
    "cli",
    "gate/_hook_command.py",
    "gate/_hook_http.py",
    "gate/dispatch_command.py",
    "journal",
    "leases",
    "models/catalog.py",
    "resources/parsers/pdf.py",
    "runtime",
    "server",
    "shell/confine",
    "shell/languages",
    "testing",
)

# Modules and functions through which the world is reached; a name stands for all below it.
WORLD = {
    "aiohttp",
    "anyio.Path",
    "anyio.connect_tcp",
    "anyio.connect_unix",
    "anyio.create_tcp_listener",
    "anyio.create_unix_listener",
    "anyio.open_file",
    "anyio.open_process",
    "anyio.run_process",
    "asyncio.create_subprocess_exec",
    "asyncio.create_subprocess_shell",
    "asyncio.open_connection",
    "asyncio.start_server",
    "ctypes",
    "ftplib",
    "http.client",
    "http.server",
    "httpcore",
    "httpx",
    "io.FileIO",
    "io.open",
    "mmap",
    "multiprocessing",
    "open",
    "pty",
    "requests",
    "shutil",
    "smtplib",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "tempfile",
    "urllib.request",
    "webbrowser",
    "websockets",
} | {
    f"os.{name}"
    for name in (
        "chmod chown execl execle execlp execv execve execvp fork forkpty kill link listdir makedirs"
        " mkdir open pipe popen posix_spawn posix_spawnp read remove removedirs rename replace rmdir"
        " scandir spawnl spawnv startfile stat symlink system truncate unlink walk write"
    ).split()
}

# Methods of `pathlib.Path` that do the same; looked for only where it is imported, and without
# those that have a harmless namesake (`str.replace`).
PATH_METHODS = set(
    "chmod exists glob hardlink_to is_dir is_file iterdir mkdir open read_bytes read_text rename"
    " rglob rmdir stat symlink_to touch unlink write_bytes write_text".split()
)

# What makes a lifecycle depend on more than its arguments.
IMPURE = {"asyncio", "os", "random", "secrets", "threading", "time", "uuid"}

# What the lowest layers may use beside the standard library.
VALIDATION = {"annotated_types", "holdfast", "pydantic", "pydantic_core", "typing_extensions"}

# The implementations behind a seam: `runtime/wiring.py` picks them, the rest of `runtime` gets them.
CONCRETE = re.compile(
    r"apsw|pydantic_monty|holdfast\.journal\._?(sqlite|postgres|memory)"
    r"|holdfast\.shell\.(languages\._?(python|typescript)|confine\._?(bubblewrap|none))",
    re.IGNORECASE,
)


def modules(*packages: str) -> list[Path]:
    """Every module of these packages; a name that ends in `.py` is one module."""
    return sorted(
        path
        for package in packages
        for path in (
            [ROOT / package] if package.endswith(".py") else (ROOT / package).rglob("*.py")
        )
    )


def imports(tree: ast.AST) -> dict[str, str]:
    """What each imported name stands for: `from os import open as o` gives `{"o": "os.open"}`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


class Use(NamedTuple):
    path: Path
    name: str

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


def imported(*packages: str) -> list[Use]:
    return [
        Use(path.relative_to(ROOT), name)
        for path in modules(*packages)
        for name in imports(ast.parse(path.read_text())).values()
    ]


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute chain; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (value := dotted(node.value)):
        return f"{value}.{node.attr}"
    return ""


def is_within(name: str, group: set[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:length]) in group for length in range(1, len(parts) + 1))


def uses_of_the_world(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of everything in `source` that reaches files, sockets or processes."""
    tree = ast.parse(source)
    names = imports(tree)
    has_paths = not {"pathlib", "pathlib.Path"}.isdisjoint(names.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            first, _, rest = dotted(node.func).partition(".")
            found = [f"{names.get(first, first)}.{rest}".rstrip(".")]
            if (
                has_paths
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in PATH_METHODS
            ):
                yield node.lineno, f"Path.{node.func.attr}"
        else:
            continue
        for name in found:
            if is_within(name, WORLD):
                yield node.lineno, name


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import socket", "socket"),
        ("from urllib import request", "urllib.request"),
        ("import urllib.request as r", "urllib.request"),
        ("open('x')", "open"),
        ("import os as o\no.unlink('x')", "os.unlink"),
        ("from os import unlink as u", "os.unlink"),
        ("import anyio\nasync def f(): await anyio.open_process('x')", "anyio.open_process"),
        ("from pathlib import Path\nPath('x').read_text()", "Path.read_text"),
    ],
)
def test_the_check_sees(source: str, name: str):
    assert name in [found for _, found in uses_of_the_world(source)]


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ.get('x')",
        "'open socket subprocess'",
        "journal.open('x')",
        "from holdfast import runtime\nruntime.open()",
        "files.read_text('x')",
        "from pathlib import PurePosixPath\nPurePosixPath('x').name",
    ],
)
def test_the_check_lets_pass(source: str):
    assert not list(uses_of_the_world(source))


def test_only_named_packages_touch_the_world():
    allowed = set(modules(*MAY_TOUCH_THE_WORLD))
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in modules(".")
        if path not in allowed
        for line, name in uses_of_the_world(path.read_text())
    ]
    assert found == []


def test_contracts_and_machines_use_only_the_validation_library():
    allowed = sys.stdlib_module_names | VALIDATION
    assert [use for use in imported("contracts", "machines") if use.top not in allowed] == []


def test_machines_depend_on_nothing_but_their_arguments():
    assert [use for use in imported("machines") if use.top in IMPURE] == []


def test_only_wiring_picks_implementations():
    found = [use for use in imported("runtime") if CONCRETE.match(use.name)]
    assert [use for use in found if use.path != Path("runtime/wiring.py")] == []
