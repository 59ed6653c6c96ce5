"""Tools and an agent that put hostile text wherever they can."""

from typing import Any

from corpus import HOSTILE, LONG

from holdfast import Agent, Context, capability
from holdfast.contracts.approval import Asks
from holdfast.gate.executor import NeedsAnswer, Question
from holdfast.testing import ScriptedModel, garble, say, together, write_code

EVERYTHING = "\n".join(HOSTILE)
FORM = {
    "type": "object",
    "title": EVERYTHING[:500],
    "properties": {
        f"f{number}": {"type": "string", "title": text, "description": text, "default": text}
        for number, text in enumerate(HOSTILE[:40])
    }
    | {'" id="pwned-field" x="': {"type": "string", "enum": HOSTILE[40:60]}},
}


@capability(side_effect="write", description=f"Order. {EVERYTHING}")
def order(items: dict[str, str], note: str = "") -> dict[str, str]:
    return items


@capability(side_effect="read")
def odd(text: str, context: Context) -> str:
    """Ask in these words."""
    if context.answers.get("odd") is None:
        raise NeedsAnswer(Question(Asks.INPUT, text, FORM, key="odd"))
    return text


@capability(side_effect="write", name="odd_sign_in")
def sign_in(context: Context) -> str:
    """Send somebody elsewhere."""
    where = 'https://elsewhere.example/?q="><script>window.__pwned=1</script>'
    raise NeedsAnswer(Question(Asks.SIGN_IN, EVERYTHING[:900], url=where, key="in"))


@capability(side_effect="write", timeout_ms=100)
async def vanish(items: list[str]) -> str:
    """Be in doubt about these."""
    import anyio

    await anyio.sleep_forever()
    return ""


@capability(side_effect="read")
def shriek(text: str) -> str:
    """Fail, with these words."""
    raise RuntimeError(text)


def _tool(number: int, text: str) -> Any:
    @capability(name=f"odd_{number}", description=text)
    def found(word: str = text) -> str:
        return text

    return found


(odd_0, odd_1, odd_2) = (_tool(number, text) for number, text in enumerate((EVERYTHING, *LONG[:2])))

villain = Agent(
    ScriptedModel(
        [
            together(
                say(EVERYTHING, thinking=EVERYTHING),
                write_code(
                    "print('<b id=pwned-out>')\nshriek('<img src=x onerror=window.__pwned=1>')"
                ),
            ),
            garble("run_code", EVERYTHING),
            together(say(LONG[0]), write_code("<script>window.__pwned=1</script>")),
            say(EVERYTHING),
        ]
    ),
    name="villain",
    instructions=EVERYTHING,
)
