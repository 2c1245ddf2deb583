"""A headless Chromium for tests, driven through pipes by its own protocol (chromedevtools.github.io)."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.waiting import HANG_S

PROGRAM: Final = shutil.which("chromium")
OPTIONS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
# The least contrast of text and its ground in a page with charts, as WCAG defines it: 4.5 is required.
CONTRAST: Final = """(() => {
  const linear = each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4;
  const light = name => {
    const [r, g, b] = name.match(/[\\d.]+/g).map(each => linear(each / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  const body = light(getComputedStyle(document.body).backgroundColor);
  const card = light(getComputedStyle(document.querySelector("figure")).backgroundColor);
  const dim = light(getComputedStyle(document.querySelector("figure text")).fill);
  const text = light(getComputedStyle(document.body).color);
  return Math.min(ratio(text, body), ratio(text, card), ratio(dim, body), ratio(dim, card));
})()"""
TROUBLE: Final = (
    "Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Page.javascriptDialogOpening",
)  # fmt: skip
# Chromium reads commands from descriptor 3, and writes answers to 4.
WITH_PIPES: Final = 'exec "${@:3}" 3<&"$1" 4>&"$2"'


class Browser:
    """One tab of a browser with an empty profile."""

    def __init__(self, profile: Path) -> None:
        """Start it. `profile`: an empty directory."""
        assert PROGRAM, "run: apt-get install chromium"
        # Numbers above 4, because the shell makes descriptors 3 and 4 of them.
        reads, self._write = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in os.pipe())
        self._read, writes = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in os.pipe())
        command = [PROGRAM, *OPTIONS, f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", WITH_PIPES, "bash", str(reads), str(writes), *command],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile)},
        )
        os.close(reads)
        os.close(writes)
        self._number, self._rest, self._session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(
            self._write,
            json.dumps({**message, **({"sessionId": self._session} if self._session else {})}).encode() + b"\0",
        )
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        found: dict[str, Any] = answer["result"]
        return found

    def _next(self) -> dict[str, Any]:
        """Return the next message."""
        deadline = time.monotonic() + HANG_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            block = os.read(self._read, 1 << 20) if ready else b""
            assert block, "the browser does not answer"
            self._rest += block
        message, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, address: str) -> None:
        """Load a page to its end. The events are only those of this page."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        while not any(each.get("method") == "Page.loadEventFired" for each in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def click(self, x: float, y: float) -> None:
        """Click where a user sees this place of the window."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def click_on(self, selector: str) -> None:
        """Scroll to an element and click on its middle. Wide elements are clicked near their left end."""
        x, y = self.run(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();"
            f" return [r.x + Math.min(r.width, 200) / 2, r.y + r.height / 2]; }})(document.querySelector({selector!r}))"
        )
        self.click(x, y)

    def press(self, key: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def resize(self, width: int, height: int = 900, scheme: str = "light") -> None:
        """Show the page in a window of this size, with a light or a dark colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self) -> bytes:
        """Return a picture of the window, as WebP."""
        found = self.call("Page.captureScreenshot", format="webp", quality=60)
        return base64.b64decode(found["data"])

    def requested(self) -> list[str]:
        """Return the addresses that the page requested. Fail for an error, a message or a dialog of the page."""
        self.run("0")  # events of earlier commands arrive before this answer
        assert self._parameters(*TROUBLE) == []
        return [each["request"]["url"] for each in self._parameters("Network.requestWillBeSent")]

    def _parameters(self, *methods: str) -> list[dict[str, Any]]:
        """Return the parameters of the events with these names."""
        return [each["params"] for each in self.events if each.get("method") in methods]
