"""Takes the picture of Dagster's lineage in docs/how-to/dagster.md, from a running `dagster dev`, in a real browser.

pip install playwright; apt-get install chromium
dagster dev -f pipelines/ecommerce/orchestration/dagster_definitions.py     # and materialize everything there
python scripts/screenshot_dagster.py http://127.0.0.1:3000 docs/dagster-lineage.png
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

GROUPS = ("sources", "bronze", "silver", "gold")
#: What a browser remembers of a user: a narrow navigation, and assets with their checks, state and kinds.
REMEMBERED = {
    "large-screen-nav-open": "false",
    "dagster-nav-collapsed": "true",
    "asset-node-facets": json.dumps(["checks", "status", "kind-tag"]),
}
#: In pixels: around the graph; the navigation, the controls and the header that it must not go under.
MARGIN, LEFT, RIGHT, TOP = 24, 70, 60, 110
BOUNDS = """(() => {
  const boxes = [...document.querySelectorAll("svg foreignObject")].map(node => node.getBoundingClientRect());
  const edges = (side, pick) => pick(...boxes.filter(box => box.height).map(box => box[side]));
  return [edges("left", Math.min), edges("top", Math.min), edges("right", Math.max), edges("bottom", Math.max)];
})()"""
SETTLED = 5000  # milliseconds until a layout stands still


def main(server: str, picture: Path) -> None:
    """Opens the lineage with all groups unfolded, makes room for all of it, and moves it there."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1770, "height": 1560}, device_scale_factor=1.15)
        greeting = page.get_by_text("Join the Dagster community")
        page.add_locator_handler(greeting, lambda: page.get_by_role("button", name="Skip").click())
        page.add_init_script(f"Object.entries({json.dumps(REMEMBERED)}).forEach(e => localStorage.setItem(...e))")
        page.goto(f"{server}/asset-groups?expanded={','.join(f'global@global:{group}' for group in GROUPS)}")
        page.get_by_text("daily_metrics").last.wait_for(state="attached")
        page.locator("[aria-label=panel_show_right]").click()
        page.wait_for_timeout(SETTLED)
        left, top, right, bottom = page.evaluate(BOUNDS)
        width, height = LEFT + right - left + RIGHT + 2 * MARGIN, TOP + bottom - top + 2 * MARGIN
        page.set_viewport_size({"width": round(width), "height": round(height)})
        page.wait_for_timeout(SETTLED)
        left, top, *_ = page.evaluate(BOUNDS)
        _drag(page, (width * 0.85, height * 0.75), LEFT + MARGIN - left, TOP + MARGIN - top)
        page.screenshot(path=picture)
        browser.close()


def _drag(page: Page, empty: tuple[float, float], right: float, down: float) -> None:
    """Moves the graph by a place where nothing is."""
    page.mouse.move(*empty)
    page.mouse.down()
    page.mouse.move(empty[0] + right, empty[1] + down, steps=10)
    page.mouse.up()
    page.wait_for_timeout(SETTLED)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
