"""Fail on modules that grew too long; name long modules and functions so that a review sees them."""

import ast
import sys
from pathlib import Path

MODULE_WANTED, MODULE_LIMIT, FUNCTION_WANTED = 400, 800, 60


def long_functions(tree: ast.Module) -> list[tuple[str, int, int]]:
    """Return name, line and length of every function longer than wanted."""
    found: list[tuple[str, int, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_WANTED:
                found.append((node.name, node.lineno, length))
    return found


def main() -> int:
    """Print the notes and errors of all modules under `src`; return 1 if there is an error."""
    root = Path(__file__).parent.parent
    failed = False
    for path in sorted((root / "src").rglob("*.py")):
        source, name = path.read_text(), path.relative_to(root)
        lines = source.count("\n")
        if lines > MODULE_LIMIT:
            failed = True
            print(f"{name}: error: {lines} lines, at most {MODULE_LIMIT}: split it")
        elif lines > MODULE_WANTED:
            print(f"{name}: note: {lines} lines, wanted {MODULE_WANTED}")
        for function, line, length in long_functions(ast.parse(source)):
            print(f"{name}:{line}: note: `{function}` has {length} lines, wanted {FUNCTION_WANTED}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
