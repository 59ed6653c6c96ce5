"""Full-text search over capabilities: their names, what they say of themselves, their parameters."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from difflib import get_close_matches
from math import log

from holdfast.capabilities._contract import parameters
from holdfast.contracts import Capability

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# How much a word weighs by where it stands.
_IN_NAME, _IN_TEXT, _IN_PARAMETER, _IN_PARAMETER_TEXT = 6, 2, 2, 1
# BM25 as usual: how fast repetition stops to count, and how much longer texts are discounted.
_K, _B = 1.2, 0.5
_PREFIX, _TYPO = 0.6, 0.4
_LEAST_PREFIX, _LEAST_TYPO = 2, 4
_CLOSE = 0.75


def words(text: str) -> list[str]:
    """The words of a text in lower case; `snake_case` and `camelCase` are taken apart."""
    return [word.casefold() for word in _WORD.findall(_CAMEL.sub(" ", text))]


class Index:
    """Capabilities, ready to be searched. The same query always gives the same order."""

    def __init__(self, capabilities: Sequence[Capability]) -> None:
        self._capabilities = sorted(capabilities, key=lambda one: one.name)
        self._counts = [_counted(one) for one in self._capabilities]
        self._lengths = [sum(one.values()) for one in self._counts]
        self._mean = sum(self._lengths) / len(self._lengths) if self._lengths else 1.0
        self._where: dict[str, list[int]] = {}
        for at, counts in enumerate(self._counts):
            for word in counts:
                self._where.setdefault(word, []).append(at)
        self._words = sorted(self._where)
        self._name_words = sorted({word for one in self._capabilities for word in words(one.name)})

    def search(self, query: str, *, limit: int = 20) -> list[Capability]:
        """Those that match at least one word, best first; all by name for a query without words."""
        wanted = list(dict.fromkeys(words(query)))
        if not wanted:
            return self._capabilities[: max(limit, 0)]
        scores: defaultdict[int, float] = defaultdict(float)
        for word in wanted:
            for at, score in self._scores(word).items():
                scores[at] += score
        exact = "_".join(wanted)
        for at, one in enumerate(self._capabilities):
            if "_".join(words(one.name)) == exact:
                scores[at] += 1000
        best = sorted(scores, key=lambda at: (-scores[at], self._capabilities[at].name))
        return [self._capabilities[at] for at in best[: max(limit, 0)]]

    def nearest(self, name: str) -> str | None:
        """The capability whose name is most like this one, if any is close."""
        near = get_close_matches(name, [one.name for one in self._capabilities], n=1)
        return near[0] if near else None

    def _scores(self, word: str) -> dict[int, float]:
        """How well each capability matches one word: exactly, as the start of a word, or as a slip in a name."""
        found: dict[int, float] = {}
        for match, weight in self._matches(word):
            for at in self._where[match]:
                score = weight * self._relevance(match, at)
                found[at] = max(found.get(at, 0.0), score)
        return found

    def _matches(self, word: str) -> list[tuple[str, float]]:
        found = [(word, 1.0)] if word in self._where else []
        if len(word) >= _LEAST_PREFIX:
            start = bisect_left(self._words, word)
            for other in self._words[start:]:
                if not other.startswith(word):
                    break
                if other != word:
                    found.append((other, _PREFIX))
        if not found and len(word) >= _LEAST_TYPO:
            near = get_close_matches(word, self._name_words, n=3, cutoff=_CLOSE)
            found = [(other, _TYPO) for other in near]
        return found

    def _relevance(self, word: str, at: int) -> float:
        having, all_ = len(self._where[word]), len(self._capabilities)
        rarity = log(1 + (all_ - having + 0.5) / (having + 0.5))
        count = self._counts[at][word]
        length = 1 - _B + _B * self._lengths[at] / self._mean
        return rarity * count * (_K + 1) / (count + _K * length)


def _counted(one: Capability) -> Counter[str]:
    found: Counter[str] = Counter()
    _add(found, one.name, _IN_NAME)
    _add(found, one.description, _IN_TEXT)
    for parameter in parameters(one):
        _add(found, parameter.name, _IN_PARAMETER)
        said = parameter.schema.get("description") if isinstance(parameter.schema, dict) else None
        if isinstance(said, str):
            _add(found, said, _IN_PARAMETER_TEXT)
    return found


def _add(found: Counter[str], text: str, weight: int) -> None:
    for word in words(text):
        found[word] += weight
