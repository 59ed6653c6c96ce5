"""Live many lives of an agent's run: cancelled, steered, approved, denied, killed and resumed, in any order.

    python scripts/agent_crash_lives.py --lives 1000

Each life (`tests/agent/lives.py`) is drawn by hypothesis: what the model says, and what happens at which moment. After
every death and at the end of each:

* the run ended in exactly one terminal status, and is told the same again;
* at every record the conversation is one that a provider takes, and every question was asked with the conversation that
  is folded from the records before it;
* nothing was done without an intent on record, nothing keyless twice, nothing that was not approved;
* the session is free, and the conversation goes on.

An invariant of the turn machine that does not hold raises where it is broken.
"""

import argparse
import json
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.agent.test_interleavings import lives


def main() -> None:
    """Live as told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lives", type=int, default=1000)
    parser.add_argument("--other", action="store_true", help="not the same lives as every time")
    options = parser.parse_args()
    settings.register_profile(
        "lives", derandomize=not options.other, deadline=None, database=None, print_blob=True
    )
    settings.load_profile("lives")
    found = lives(options.lives)
    print(json.dumps(dict(sorted(found.items()))))
    print(f"{found['lives']} lives, {found['deaths']} deaths: each ended once, and rightly")


if __name__ == "__main__":
    main()
