"""Hostile code in a box: it gets nothing of the host, harms nobody, and validating it runs none of it."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from holdfast.contracts import RunStatus, SessionLimits
from holdfast.shell.languages.python import PythonBox, PythonBoxes

LIMITS = SessionLimits(cpu_ms=500, wall_ms=1500)
SECRET = "s3cret-of-the-host"


@pytest.fixture(scope="module")
async def boxes() -> AsyncGenerator[PythonBoxes]:
    os.environ["HOLDFAST_TEST_SECRET"] = SECRET
    async with PythonBoxes(jail="required") as opened:
        yield opened
    del os.environ["HOLDFAST_TEST_SECRET"]


@pytest.fixture
async def box(boxes: PythonBoxes) -> AsyncGenerator[PythonBox]:
    one = await boxes.open(LIMITS)
    yield one
    await one.close()


def tool(text: str = "") -> str:
    """A host function with something to hide."""
    return text


tool.secret = SECRET  # pyright: ignore[reportFunctionMemberAccess]

REFLECTION = [
    "().__class__.__bases__[0].__subclasses__()",
    "(1).__class__.__mro__",
    "''.__class__.__base__.__subclasses__()",
    "[c for c in object.__subclasses__()]",
    "type.__subclasses__(type)",
    "print.__self__.__import__('os')",
    "len.__globals__",
    "(lambda: 0).__globals__",
    "(lambda: 0).__code__",
    "(lambda: 0).__closure__",
    "def f(): pass\nf.__code__.co_consts",
    "def f(): pass\nf.__globals__['__builtins__']",
    "async def f(): pass\nf().cr_frame.f_back",
    "try:\n  1/0\nexcept ZeroDivisionError as e:\n  e.__traceback__.tb_frame.f_back.f_globals",
    "(x for x in [1]).gi_frame.f_back",
    "__builtins__",
    "__loader__",
    "globals()",
    "vars()",
    "dir()",
    "import sys\nsys.modules",
    "import sys\nsys._getframe()",
    "'{0.__class__.__init__.__globals__}'.format(1)",
    "f'{().__class__.__bases__}'",
    "class A:\n  pass\nA.__init__.__globals__",
    "class A:\n  pass\nA().__class__.__base__.__subclasses__()",
    "getattr((), '__class__').__bases__",
    "getattr(getattr('', '__cl' + 'ass__'), '__mro__')",
    "import functools\nfunctools.partial(print).func.__self__.eval('1')",
    "import collections\ncollections.namedtuple('A', 'x')(1).__class__.__module__.__class__",
    "tool.__globals__",
    "tool.__code__",
    "tool.__closure__",
    "tool.secret",
    "tool.__self__",
    "tool.func",
    "tool.args",
    "tool.__wrapped__",
    "tool.__reduce__()",
    "import copy\ncopy.copy(tool).__globals__",
]

IMPORTS = [
    f"import {name}"
    for name in (
        "subprocess socket ctypes ssl http.client urllib.request multiprocessing threading signal"
        " resource shutil tempfile importlib builtins gc inspect code pickle marshal mmap fcntl pty"
        " posix _io io _posixsubprocess _ctypes asyncio.subprocess os.subprocess holdfast"
        " pydantic_monty sqlite3 webbrowser runpy pkgutil zipimport faulthandler"
    ).split()
] + [
    "__import__('os')",
    "import os\nos.system('id')",
    "import os\nos.popen('id')",
    "import os\nos.fork()",
    "import os\nos.execv('/bin/sh', [])",
    "import os\nos.kill(1, 9)",
    "import os\nos._exit(1)",
    "from os import system",
    "import os\nos.environ['HOLDFAST_TEST_SECRET']",
    "import os\nos.getenv('HOLDFAST_TEST_SECRET')",
    "import asyncio\nasyncio.create_subprocess_exec('id')",
    "import asyncio\nasyncio.open_connection('127.0.0.1', 80)",
    "import sys\nsys.exit()",
    "import sys\nsys.stdin.read()",
    "breakpoint()",
    "input()",
    "compile('1', '', 'eval')",
]

FILES = [
    template.format(path)
    for path in (
        "/etc/passwd",
        "/proc/self/environ",
        "../../etc/passwd",
        "/dev/tcp",
        "x\\x00y",
        "//etc//passwd",
    )
    for template in (
        "open('{}').read()",
        "import pathlib\npathlib.Path('{}').read_text()",
        "import os\nos.stat('{}')",
        "import pathlib\npathlib.Path('{}').exists()",
    )
] + [
    "open('/tmp/holdfast-escape', 'w').write('x')",
    "import pathlib\npathlib.Path('/tmp/holdfast-escape').write_text('x')",
    "import pathlib\npathlib.Path('/tmp/holdfast-escape').symlink_to('/etc/passwd')",
    "import os\nos.listdir('/')",
    "import os\nlist(os.walk('/'))",
    "import os\nos.mkdir('/tmp/holdfast-escape')",
    "import os\nos.chdir('/etc')\nopen('passwd')",
    "import pathlib\nlist(pathlib.Path('/').iterdir())",
    "import pathlib\nlist(pathlib.Path('/').glob('*'))",
]

EXHAUSTION = {
    "infinite loop": "while True: pass",
    "loop in finally": "try:\n  1/0\nfinally:\n  while True: pass",
    "giant list": "x = [0] * 10**10",
    "giant string": "x = 'a' * 10**10",
    "giant power": "x = 9 ** 9 ** 9",
    "giant shift": "x = 1 << 10**12",
    "doubling": "x = 'a'\nwhile True: x += x",
    "squaring": "x = 10\nwhile True: x *= x",
    "format width": "x = f'{1:>9999999999}'",
    "deep recursion": "def f(): f()\nf()",
    "mutual recursion": "def f(): g()\ndef g(): f()\nf()",
    "deep repr": "x = []\nfor _ in range(10**5): x = [x]\nrepr(x)\nwhile True: pass",
    "deep compare": "x = []\ny = []\nfor _ in range(10**5):\n  x = [x]\n  y = [y]\nx == y\nwhile True: pass",
    "regular expression": "import re\nfor n in range(10**6): re.match('(a|a)*b', 'a' * 5000)",
    "nested quantifiers": "import re\nwhile True: re.match('(a+)+$', 'a' * 30 + 'b')",
    "backreference": "import re\nwhile True: re.match(r'(.*)(.*)(.*)\\1\\2\\3x', 'a' * 50)",
    "json depth": "import json\njson.loads('[' * 10**6)\nwhile True: pass",
    "permutations": "import itertools\nlist(itertools.permutations(range(20)))",
    "factorial": "import math\nwhile True: math.factorial(100000)",
    "sorting": "while True: sorted(range(10**6), key=lambda n: -n)",
    "stdout flood": "while True: print('x' * 10000)",
    "one huge line": "print('x' * (50 << 20))",
    "call storm": "while True:\n  try: tool()\n  except BaseException: pass",
    "clock storm": "import time\nwhile True:\n  try: time.time()\n  except BaseException: pass",
    "name storm": "while True:\n  try: nothing\n  except NameError: pass",
    "hash collisions": "x = {i * (2**61 - 1): i for i in range(10**5)}\nwhile True: pass",
    "closures": "f = lambda: 0\nwhile True: f = (lambda g: lambda: g())(f)",
    "exceptions": "e = None\nwhile True:\n  try: raise ValueError('x' * 1000)\n  except ValueError as x: e = [e, x]",
    "huge result": "result = 'x' * (200 << 20)",
    "huge exception": "raise ValueError('x' * (200 << 20))",
}


async def attempt(box: PythonBox, code: str) -> str:
    """Run it; everything it got back, as text."""
    ran = await box.run(code, inputs={}, limits=LIMITS, names={"tool": tool})
    return f"{ran.value!r} {ran.stdout} {ran.stderr} {ran.error}"


@pytest.mark.parametrize("code", REFLECTION)
async def test_reflection_leads_nowhere(box: PythonBox, code: str):
    ran = await box.run(code, inputs={}, limits=LIMITS, names={"tool": tool})
    assert ran.error is not None, ran.value
    assert ran.error.code in ("RUNTIME_ERROR", "RESULT_NOT_SERIALIZABLE")
    assert SECRET not in f"{ran.stdout}{ran.stderr}{ran.error}"
    assert "/work/" not in ran.stderr


@pytest.mark.parametrize("code", IMPORTS)
async def test_nothing_can_be_imported_that_reaches_out(box: PythonBox, code: str):
    ran = await box.run(code, inputs={}, limits=LIMITS, names={})
    assert ran.error is not None, ran.value
    assert ran.status in (
        RunStatus.VALIDATION_ERROR,
        RunStatus.RUNTIME_ERROR,
        RunStatus.PERMISSION_DENIED,
    )
    assert SECRET not in f"{ran.stdout}{ran.stderr}{ran.error}"


@pytest.mark.parametrize("code", FILES)
async def test_no_file_is_read_or_written(box: PythonBox, code: str):
    ran = await box.run(code, inputs={}, limits=LIMITS, names={})
    # Some functions of Python take a refusal for "nothing there".
    assert ran.error is not None or ran.value in (False, [])
    assert "root:" not in f"{ran.stdout}{ran.stderr}{ran.error}"
    assert not Path("/tmp/holdfast-escape").exists()  # noqa: ASYNC240 - looking takes no time


@pytest.mark.parametrize("code", EXHAUSTION.values(), ids=EXHAUSTION)
async def test_exhaustion_ends_and_harms_nobody(boxes: PythonBoxes, box: PythonBox, code: str):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    other = await boxes.open(LIMITS)
    started = time.perf_counter()
    ran = await box.run(code, inputs={}, limits=LIMITS, names={"tool": tool})
    assert time.perf_counter() - started < 4
    assert ran.error is not None, str(ran.value)[:100]
    assert ran.metrics.memory_peak_bytes < 400 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10
    # The neighbour notices nothing.
    calm = await other.run("1 + 1", inputs={}, limits=LIMITS, names={})
    assert calm.value == 2
    await other.close()


@pytest.mark.parametrize("code", EXHAUSTION.values(), ids=EXHAUSTION)
async def test_exhaustion_can_be_cancelled(box: PythonBox, code: str):
    with anyio.move_on_after(0.05):
        await box.run(code, inputs={}, limits=LIMITS, names={"tool": tool})
    with anyio.fail_after(3):
        await box.close()


@pytest.mark.parametrize(
    "code", [*REFLECTION, *IMPORTS, *FILES, *EXHAUSTION.values()], ids=lambda code: code[:40]
)
async def test_validating_runs_nothing(boxes: PythonBoxes, code: str):
    with anyio.fail_after(3):
        found = await boxes.validate(code)
    assert [one.code for one in found] in ([], ["UNSUPPORTED_FEATURE"], ["SYNTAX_ERROR"])


async def test_sessions_do_not_see_each_other(boxes: PythonBoxes):
    first, second = await boxes.open(LIMITS), await boxes.open(LIMITS)
    await first.run("mine = 'x1y2z3'", inputs={"given": "g4h5"}, limits=LIMITS, names={})
    for code in ("mine", "given", "locals()", "result = str(locals())"):
        assert "x1y2z3" not in await attempt(second, code)
        assert "g4h5" not in await attempt(second, code)
    await first.close()
    # Nor does one that comes after it.
    third = await boxes.open(LIMITS)
    assert "x1y2z3" not in await attempt(third, "str(locals())")
    await second.close()
    await third.close()


async def test_a_worker_serves_one_session(boxes: PythonBoxes):
    seen: list[int | None] = []
    for _ in range(5):
        box = await boxes.open(LIMITS)
        seen.append(box._live.session.worker_pid)
        await box.close()
    assert len(set(seen)) == 5


async def test_control_characters_in_inputs_stay_data(box: PythonBox):
    for text in (
        "\x00\x1b[2J",
        "'; import os #",
        "\u202e\u2066",
        "a\r\nb",
        "{tool.secret}",
        "%(x)s",
    ):
        ran = await box.run("given", inputs={"given": text}, limits=LIMITS, names={"tool": tool})
        assert ran.value == text


async def test_a_tools_error_text_arrives_intact(box: PythonBox):
    said = 'could not reach "db": 50% {of} \\n <tries> \u00e9\u202e failed'

    def failing() -> None:
        raise ValueError(said)

    names = {"failing": failing}
    code = "try:\n  failing()\nexcept ValueError as e:\n  said = str(e)\nsaid"
    assert (await box.run(code, inputs={}, limits=LIMITS, names=names)).value == said
    ran = await box.run("failing()", inputs={}, limits=LIMITS, names=names)
    assert ran.error is not None
    assert ran.error.message == said
    assert ran.calls[0].error is not None
    assert ran.calls[0].error.message == said


async def test_our_own_names_are_no_way_in(box: PythonBox):
    """The code may spoil what we keep in its box, and harms only its own result."""
    spoils = [
        "locals = 1\nif True: result = 2",
        "__holdfast_set = []\nif True: result = 2",
        "__holdfast_far = 1\n__holdfast_was = 2\n__holdfast_json = 3\nresult = range(3)",
        "def locals(): raise ValueError('x')\nif True: result = 3",
        "import json\njson.dumps = None\nresult = 'range(0, 1)'",
        "str = type = len = None\nresult = range(3)",
    ]
    for code in spoils:
        await box.run(code, inputs={}, limits=LIMITS, names={})
        ran = await box.run("result = 5", inputs={}, limits=LIMITS, names={})
        assert (ran.value, ran.error) == (5, None)
