"""A Chromium without a window, driven by the DevTools protocol over a pipe, which needs no library and no port.

The browser reads commands from its descriptor 3 and writes answers and events to 4, each a JSON document that ends with a
zero byte (``--remote-debugging-pipe``; https://chromedevtools.github.io/devtools-protocol/).
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
MISSING = "no Chromium is installed; on Debian: apt-get install chromium-headless-shell"
TIMEOUT_S = 60.0

_FLAGS = (
    "--headless", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--no-proxy-server",
    "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip


class BrowserError(Exception):
    """The browser is missing, ended, does not answer or refuses a command."""


def find_browser() -> str | None:
    """Path of the first of :data:`PROGRAMS` that is installed."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class HeadlessBrowser:
    """One process of it, with an empty profile in a folder."""

    def __init__(self, folder: Path) -> None:
        """Start it.

        Raises:
            BrowserError: none is installed.
        """
        program = find_browser()
        if program is None:
            raise BrowserError(MISSING)
        commands, self._write = _pipe()
        self._read, answers = _pipe()
        # As root it would refuse to run with its sandbox; it opens our own page alone.
        argv = [program, *_FLAGS, f"--user-data-dir={folder}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]

        def place_pipes() -> None:
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(3, 4),
            preexec_fn=place_pipes,  # noqa: PLW1509 - it takes no lock that a thread may hold
            start_new_session=True,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._buffer, self._number = b"", 0
        self.events: list[Any] = []
        """All that came, oldest first."""

    def close(self) -> None:
        """End it, and all its processes."""
        with suppress(BrowserError, OSError):
            self.command("Browser.close", timeout_s=2.0)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def new_tab(self, width: int = 1280, height: int = 800, beside: BrowserTab | None = None) -> BrowserTab:
        """An empty tab, of which events are told; with the cookies of another one, or with none yet."""
        context = beside.context if beside else self.command("Target.createBrowserContext")["browserContextId"]
        asked = {"url": "about:blank", "width": width, "height": height, "browserContextId": context}
        target = self.command("Target.createTarget", asked)
        attached = self.command("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        tab = BrowserTab(self, attached["sessionId"], context)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.command(f"{domain}.enable")
        return tab

    def command(
        self, method: str, parameters: Any = None, session: str = "", timeout_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """Send a command and wait for its result.

        Raises:
            BrowserError: it is refused, or not answered in time.
        """
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters or {}} | (
            {"sessionId": session} if session else {}
        )
        try:
            os.write(self._write, json.dumps(message).encode() + b"\0")
        except OSError as error:
            raise BrowserError(f"the browser has ended ({error.strerror})") from error
        until_s = time.monotonic() + timeout_s
        while (answer := self._next(until_s)) is not None:
            if answer.get("id") != number:
                self.events.append(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']['message']}")
            else:
                return dict(answer["result"])
        raise BrowserError(f"{method}: no answer within {timeout_s:g} s")

    def _next(self, until_s: float) -> Any:
        """The next message; ``None``: there was none in time."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(until_s - time.monotonic(), 0.0))
            if not ready:
                return None
            part = os.read(self._read, 1 << 20)
            if not part:
                raise BrowserError("the browser has ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


class BrowserTab:
    """One tab."""

    def __init__(self, browser: HeadlessBrowser, session: str, context: str) -> None:
        self._browser, self._session, self.context = browser, session, context

    def command(self, method: str, parameters: Any = None) -> dict[str, Any]:
        """A command for this tab."""
        return self._browser.command(method, parameters, self._session)

    def open(self, url: str) -> None:
        """Go there, as if somebody typed it."""
        self.command("Page.navigate", {"url": url})

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page; for what is shown, not for what the page does itself.

        Raises:
            BrowserError: it raises.
        """
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.command("Runtime.evaluate", asked)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression: str, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until an expression is true.

        Raises:
            BrowserError: it never was.
        """
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            with suppress(BrowserError):  # a page that is being left has no context
                if self.evaluate(expression):
                    return
            time.sleep(0.02)
        text = self.evaluate("document.body.innerText")
        raise BrowserError(f"{expression} was not true within {timeout_s:g} s; the page says {text[:500]!r}")

    def picture(self, file: Path, width: int, height: int) -> None:
        """What is seen, as PNG."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", metrics)
        self.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        file.write_bytes(base64.b64decode(self.command("Page.captureScreenshot", {"format": "png"})["data"]))

    def faults(self) -> list[str]:
        """Errors of scripts, what the policy refused, and dialogs, so far."""
        self.evaluate("0")  # what came before is read
        found = []
        for event in self._of_tab():
            method, told = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"].get("exception", told["exceptionDetails"])))
            elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
                found.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
            elif method == "Page.javascriptDialogOpening":
                found.append(f"dialog: {told['message']}")
        return found

    def requested(self) -> Sequence[str]:
        """Every address that was asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self._of_tab()
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def _of_tab(self) -> list[Any]:
        return [event for event in self._browser.events if event.get("sessionId") == self._session]


def _pipe() -> tuple[int, int]:
    """Both ends, with numbers that are in nobody's way."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
