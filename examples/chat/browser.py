"""Opens the chat in headless Chromium, in four windows, while the relay and the service are killed. Its exit code says
whether each window showed its user's messages once, in order, and nothing else."""

import argparse
import signal
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from stage import PATIENCE, Stage, expect

# As root, and without questions to hosts of the internet.
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"]
CHROMIUM += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
SHOWN = "() => [...document.querySelectorAll('#messages li')].map((item) => item.dataset.id)"


class Window:
    """A window of its own, with its own cookies, as on a device of its own."""

    def __init__(self, browser: Browser, stage: Stage, user: str, project: str) -> None:
        self.stage, self.user, self.project = stage, user, project
        self.page: Page = browser.new_context().new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(f"{stage.service}/?user={user}&project={project}&session=s-1")
        self.wait_until_live()

    def wait_until_live(self) -> None:
        self.page.wait_for_function("() => document.querySelector('#state').textContent === 'live'")

    def say(self, text: str) -> None:
        self.page.fill(".say input", text)
        self.page.click(".say button")

    def wait_for(self, text: str) -> None:
        self.page.get_by_text(text, exact=True).wait_for()

    def judge(self) -> int:
        """What is shown is the user's own history: each message once, in order, and nothing of others."""
        shown = self.page.evaluate(SHOWN)
        expected = [message["id"] for message in self.stage.history("s-1", self.project, self.user)]
        expect(shown == expected, f"{self.user} in {self.project} sees {shown} instead of {expected}")
        expect(not self.errors, f"the page has no errors: {self.errors}")
        return len(shown)


def told(stage: Stage, browser: Browser, picture: Path | None) -> None:
    stage.send("s-1", "written before any window was opened")
    ada, again, elsewhere, bob = windows = [
        Window(browser, stage, user, project)
        for user, project in [("ada", "p-1"), ("ada", "p-1"), ("ada", "p-2"), ("bob", "p-1")]
    ]
    ada.wait_for("written before any window was opened")
    ada.say("hello from ada <b>&</b>")
    again.wait_for("hello from ada <b>&</b>")
    bob.say("hello from bob")
    bob.wait_for("hello from bob")
    elsewhere.say("hello from another project")
    elsewhere.wait_for("hello from another project")
    print("Messages appear in the windows of their user and project.")

    stage.kill("relay")
    for n in range(20):
        stage.send("s-1", f"without a relay {n}")
    stage.send("s-1", "to bob, without a relay", user="bob")
    stage.start_relay()
    for window in (ada, again):
        window.wait_for("without a relay 19")
    bob.wait_for("to bob, without a relay")
    print("The relay was killed. After its return, everything arrived.")

    stage.kill("service")
    stage.start_service()
    for n in range(20):
        stage.send("s-1", f"before the browser is back {n}")
    stage.kill("relay")
    stage.kill("service")
    stage.start_service()
    stage.send("s-1", "after both were killed")
    stage.start_relay()
    for window in (ada, again):
        window.wait_for("after both were killed")
    print("The service was killed, then both. The windows connected again by themselves.")

    # One after the other, so that their order is certain.
    for number, window in enumerate(windows):
        window.wait_until_live()
        window.say(f"the end {number}")
        window.wait_for(f"the end {number}")
    for window in (ada, again):
        window.wait_for("the end 0")
        window.wait_for("the end 1")
    counts = [window.judge() for window in windows]
    if picture:
        ada.page.screenshot(path=picture)
    print(f"{counts} messages in four windows: each once, in order, and none of another user or project.")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--pillarbox", default="pillarbox", help="the program")
    arguments.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    arguments.add_argument("--python", default=sys.executable, help="the Python with the service's packages")
    arguments.add_argument("--picture", type=Path, help="where to save what ada's window shows at the end")
    given = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with Stage(given.pillarbox, given.python) as stage, sync_playwright() as playwright:
        with playwright.chromium.launch(executable_path=given.chromium, args=CHROMIUM) as browser:
            told(stage, browser, given.picture)


if __name__ == "__main__":
    main()
