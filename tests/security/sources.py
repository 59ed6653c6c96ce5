"""Hostile code that is hostile by its length or depth: the host and the engine have to read it."""

from tests.security.support import Attempt

MIB = 1 << 20
_CHINESE = [chr(0x4E00 + n) for n in range(150)]
_LONG = "".join(_CHINESE) * 60


def _nested(head: str, depth: int) -> str:
    """Blocks in blocks."""
    return "".join(f"{' ' * n}{head}\n" for n in range(depth)) + " " * depth + "x = 1"


def _filled(line: str) -> str:
    """As many lines as code may have bytes."""
    return line * (MIB // len(line) - 1)


_MADE = {
    "many statements": _filled("x=1\n"),
    "many results": _filled("result=1\n"),
    "many conditional results": _filled("if 1: result=1\n"),
    "many calls": _filled("tool()\n"),
    "many unknown names": "".join(f"a{n}\n" for n in range(120_000)),
    "many functions, and one that is none": "".join(f"def nam{n}(): pass\n" for n in range(30_000))
    + "namx()",
    "many imports": _filled("import os\n"),
    "many imports of nothing": "".join(f"import m{n}\n" for n in range(60_000)),
    "many globals": "def f():\n global "
    + ",".join(f"a{n}" for n in range(120_000))
    + "\n result=1",
    "many functions that set the result": "def f():\n global result\n result=1\n" * 30_000,
    "many decorators": "@tool\n" * 170_000 + "def f(): pass",
    "many arguments": "f(" + "a," * 500_000 + ")",
    "many keywords": "f(" + "a=1," * 250_000 + ")",
    "many entries": "{" + "1:1," * 250_000 + "}",
    "many cases": "match 1:\n" + " case 1: pass\n" * 70_000,
    "many clauses": "[x " + "for x in [1] " * 75_000 + "]",
    "many comparisons": "1" + "<1" * 500_000,
    "many conjunctions": "1" + " and 1" * 170_000,
    "many fields": "f'" + "{1}" * 300_000 + "'",
    "many branches": "if 0: pass\n" + "elif 0: pass\n" * 70_000,
    "many terms": "+".join(["1"] * 400_000),
    "many attributes": "x" + ".a" * 500_000,
    "many calls of calls": "x" + "()" * 500_000,
    "many subscripts": "x" + "[0]" * 300_000,
    "many types": "x: int" + "|int" * 100_000 + "=1",
    "deep parentheses": "(" * 200_000 + "1" + ")" * 200_000,
    "deep brackets": "[" * 100_000 + "]" * 100_000,
    "brackets that never close": "[" * 1_000_000,
    "deep minus": "-" * 1_000_000 + "1",
    "deep not": "not " * 250_000 + "1",
    "deep lambda": "lambda:" * 100_000 + "1",
    "deep conditions": "1 if 1 else " * 87_000 + "1",
    "deep blocks": _nested("if 1:", 1000),
    "deep functions": _nested("def f():", 99),
    "deep tries": _nested("try:", 90),
    "deep types": "x: " + "list[" * 5000 + "int" + "]" * 5000,
    "deep walrus": "".join(f"(a{n}:=" for n in range(90)) + "1" + ")" * 90,
    "deep f-strings": "f'{" * 50 + "1" + "}'" * 50,
    "a long number": "x=" + "9" * 1_000_000,
    "a long number in hex": "x=0x" + "f" * 1_000_000,
    "a long exponent": "x=1e" + "9" * 1000,
    "a long text": "x='" + "a" * 1_000_000 + "'",
    "a long name": "a" * 1_000_000 + "=1",
    "a long name that grows when it is read": "\ufdfa" * 300_000 + "=1",
    "a long text that grows when it is read": "result='" + "\ufdfa" * 300_000 + "'",
    "a long module": "import " + "m" * 100_000,
    "a long attribute": "''." + "m" * 100_000,
    "a long unknown function": "a" * 100_000 + "()",
    "a long line and an error": "x='" + "a" * 500_000 + "'; 1/0",
    "names that are long and alike": f"{_LONG}x=1\n{_LONG}y()",
    "names that are long and alike, behind a condition": f"{_LONG}x=1\nif 1: {_LONG}y()",
    "names that are long and hard to compare": f"{_LONG}x=1\n{_LONG[::-1]}y()",
    "an input's name that is long": "def f(" + "a" * 100_000 + "): pass\nf()",
    "spaces": " " * 1_000_000,
    "new lines": "\n" * 1_000_000,
    "form feeds": "\f" * 1_000_000,
    "comments": "#\n" * 500_000,
    "lines that go on": "\\\n" * 500_000,
    "a NUL": "x=1\x00\ny=2",
    "a lone surrogate": "x='\udc80'",
    "longer than code may be": "#" * (MIB + 1),
}

_ENDS = {
    "many statements": ("MEMORY_EXCEEDED", "MEMORY_EXCEEDED"),
    "many results": ("MEMORY_EXCEEDED", "TIMEOUT_CPU"),
    "many conditional results": ("MEMORY_EXCEEDED", "TIMEOUT_CPU"),
    "many calls": ("MEMORY_EXCEEDED", "MEMORY_EXCEEDED"),
    "many unknown names": ("MEMORY_EXCEEDED", "MEMORY_EXCEEDED"),
    "many functions, and one that is none": ("MEMORY_EXCEEDED", "UNKNOWN_TOOL"),
    "many imports": ("MEMORY_EXCEEDED", "MEMORY_EXCEEDED"),
    "many imports of nothing": ("MEMORY_EXCEEDED", "TIMEOUT_CPU"),
    "many globals": ("MEMORY_EXCEEDED", "ok"),
    "many functions that set the result": ("MEMORY_EXCEEDED", "ok"),
    "many decorators": ("MEMORY_EXCEEDED", "SYNTAX_ERROR"),
    "many arguments": ("MEMORY_EXCEEDED", "MEMORY_EXCEEDED"),
    "many keywords": ("MEMORY_EXCEEDED", "SYNTAX_ERROR"),
    "many entries": ("MEMORY_EXCEEDED", "MEMORY_EXCEEDED"),
    "many cases": ("MEMORY_EXCEEDED", "SYNTAX_ERROR"),
    "many clauses": ("MEMORY_EXCEEDED", "SYNTAX_ERROR"),
    "many comparisons": ("MEMORY_EXCEEDED", "MEMORY_EXCEEDED"),
    "many conjunctions": ("MEMORY_EXCEEDED", "SYNTAX_ERROR"),
    "many fields": ("MEMORY_EXCEEDED", "MEMORY_EXCEEDED"),
    "many branches": ("MEMORY_EXCEEDED", "SYNTAX_ERROR"),
    "many terms": ("MEMORY_EXCEEDED", "INTERNAL_ERROR"),
    "many attributes": ("MEMORY_EXCEEDED", "INTERNAL_ERROR"),
    "many calls of calls": ("MEMORY_EXCEEDED", "INTERNAL_ERROR"),
    "many subscripts": ("MEMORY_EXCEEDED", "INTERNAL_ERROR"),
    "many types": ("MEMORY_EXCEEDED", "ok"),
    "deep parentheses": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "deep brackets": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "brackets that never close": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "deep minus": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "deep not": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "deep lambda": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "deep conditions": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "deep blocks": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "deep functions": ("TIMEOUT_CPU", "TIMEOUT_CPU"),
    "deep tries": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "deep types": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "deep walrus": ("ok", "ok"),
    "deep f-strings": ("ok", "ok"),
    "a long number": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "a long number in hex": ("ok", "ok"),
    "a long exponent": ("ok", "ok"),
    "a long text": ("ok", "ok"),
    "a long name": ("ok", "ok"),
    "a long name that grows when it is read": ("MEMORY_EXCEEDED", "SYNTAX_ERROR"),
    "a long text that grows when it is read": ("MEMORY_EXCEEDED", "ok"),
    "a long module": ("UNSUPPORTED_FEATURE", "UNSUPPORTED_FEATURE"),
    "a long attribute": ("RUNTIME_ERROR", "ok"),
    "a long unknown function": ("RUNTIME_ERROR", "UNKNOWN_TOOL"),
    "a long line and an error": ("RUNTIME_ERROR", "ok"),
    "names that are long and alike": ("UNKNOWN_TOOL", "UNKNOWN_TOOL"),
    "names that are long and alike, behind a condition": ("RUNTIME_ERROR", "UNKNOWN_TOOL"),
    "names that are long and hard to compare": ("UNKNOWN_TOOL", "UNKNOWN_TOOL"),
    "an input's name that is long": ("RUNTIME_ERROR", "TYPE_ERROR"),
    "spaces": ("ok", "ok"),
    "new lines": ("MEMORY_EXCEEDED", "ok"),
    "form feeds": ("ok", "ok"),
    "comments": ("MEMORY_EXCEEDED", "ok"),
    "lines that go on": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "a NUL": ("SYNTAX_ERROR", "SYNTAX_ERROR"),
    "a lone surrogate": ("INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    "longer than code may be": ("INVALID_ARGUMENT", "INVALID_ARGUMENT"),
}
"""Name → the codes of a run, and of a validation."""

SOURCES = [
    Attempt(f"source: {name}", code, *(frozenset(one.split()) for one in _ENDS[name]))
    for name, code in _MADE.items()
]
