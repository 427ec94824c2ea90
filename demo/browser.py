"""A browser without a window."""

import shutil
from contextlib import contextmanager

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip


@contextmanager
def open_browser():
    """A headless Chromium, of the system or Playwright's own.

    Raises:
        RuntimeError: there is none; the message says how to get one.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise RuntimeError("Playwright is not installed; run: pip install playwright") from error
    with sync_playwright() as playwright:
        own = next(filter(None, map(shutil.which, BROWSERS)), None)
        try:
            browser = playwright.chromium.launch(executable_path=own, args=list(QUIET))
        except Error as error:
            raise RuntimeError(
                "there is no Chromium; run: apt-get install chromium, or playwright install chromium"
            ) from error
        yield browser
        browser.close()
