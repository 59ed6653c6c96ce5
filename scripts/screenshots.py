"""Pictures of every page of the console: light and dark, desktop and phone, with a day at a shop on them.

    python scripts/screenshots.py [FOLDER] [--only inbox,charts]

`make screenshots` writes them to `screenshots/`. Look at them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.console.browser import DESKTOP, PHONE, Chromium, chromium  # noqa: E402
from tests.console.stage import Stage, staged  # noqa: E402
from tests.console.story import STORY, WEATHER, Story, tell  # noqa: E402

SIZES = {"desktop": DESKTOP, "phone": PHONE}


def main() -> None:
    """Take them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "screenshots")
    parser.add_argument("--only", default="", help="names of pages, with commas between them")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "weather.py").write_text(WEATHER)
        with staged(Path(place), settings=STORY) as stage, chromium() as browser:
            story = tell(stage)
            wanted = {name for name in given.only.split(",") if name}
            if wanted:
                story = Story({name: story.pages[name] for name in wanted})
            for device in SIZES:
                for dark in (False, True):
                    take(stage, browser, story, given.folder, device, dark)
    print(f"{len(list(given.folder.glob('*.png')))} pictures in {given.folder}")


def take(
    stage: Stage, browser: Chromium, story: Story, folder: Path, device: str, dark: bool
) -> None:
    """All pages at one device in one light."""
    light = "dark" if dark else "light"
    phone = device == "phone"
    with browser.visit(
        stage.url, size=SIZES[device], dark=dark, touch=phone, scale=2 if phone else 1
    ) as visit:
        visit.allow("401")  # before somebody is let in
        page = visit.page()
        page.goto(f"{stage.url}/")
        page.screenshot(path=folder / f"sign-in-{device}-{light}.png", full_page=True)
        page.goto(stage.enter())
        page.wait_for_url(f"{stage.url}/")
        for name, path in story.pages.items():
            page.goto(f"{stage.url}{path}")
            page.screenshot(path=folder / f"{name}-{device}-{light}.png", full_page=True)


if __name__ == "__main__":
    main()
