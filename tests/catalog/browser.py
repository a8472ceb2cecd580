"""Chromium without a window, which does what it is told over its pipe (Chrome DevTools Protocol)."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

# Key of a keyboard -> what its event has besides.
KEYS = {
    "Tab": {"windowsVirtualKeyCode": 9},
    "Enter": {"windowsVirtualKeyCode": 13, "text": "\r"},
    "ArrowRight": {"windowsVirtualKeyCode": 39},
}


class Browser:
    """One page of a browser. said: what its console had to say, refusals of a policy among it."""

    def __init__(self, to: IO[bytes], answers: IO[bytes]) -> None:
        self._to, self._answers, self._number, self._session, self._loaded = to, answers, 0, "", 0
        self.said: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for each in ("Page", "Runtime", "Log"):
            self.call(f"{each}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What a command answers."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        self._to.write(json.dumps(command | ({"sessionId": self._session} if self._session else {})).encode() + b"\0")
        self._to.flush()
        number = self._number
        found = self._until(lambda each: each.get("id") == number)
        assert "error" not in found, (method, found["error"])
        return dict(found["result"])

    def _until(self, is_it: Any) -> dict[str, Any]:
        for message in self._messages():
            self._loaded += message.get("method") == "Page.loadEventFired"
            if message.get("method") in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                self.said.append(json.dumps(message["params"]))
            if is_it(message):
                return message
        raise AssertionError("the browser has ended")

    def _messages(self) -> Iterator[dict[str, Any]]:
        data = bytearray()
        while byte := self._answers.read(1):
            if byte != b"\0":
                data += byte
                continue
            yield json.loads(data)
            data.clear()

    def open(self, url: str) -> None:
        """Show a page, and wait until it is there."""
        with self.loading():
            self.call("Page.navigate", url=url)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Wait until what is done within has loaded a page."""
        before = self._loaded
        yield
        if self._loaded == before:
            self._until(lambda _: self._loaded > before)

    def show(self, width: int, *, is_dark: bool = False) -> None:
        """As a screen of this width shows it, such as a telephone's, which may be dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])

    def press(self, key: str, *, is_back: bool = False) -> None:
        """is_back: with the shift key, so that a tab goes back."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=8 * is_back, **KEYS[key])

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is, which the page itself may not run."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))


@contextmanager
def browser(chromium: str, folder: Path) -> Iterator[Browser]:
    """A browser that has just been started, with nothing from elsewhere."""
    (theirs, to), (answers, theirs_too) = os.pipe(), os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    options += ["--remote-debugging-pipe", f"--user-data-dir={folder}/profile"]
    started = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{theirs_too}', "bash", chromium, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(theirs, theirs_too),
        env={**os.environ, "HOME": str(folder)},
    )
    os.close(theirs)
    os.close(theirs_too)
    with open(to, "wb") as commands, open(answers, "rb") as found:
        try:
            yield Browser(commands, found)
        finally:
            started.terminate()
            started.wait(30)
