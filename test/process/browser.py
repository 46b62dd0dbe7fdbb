# SPDX-License-Identifier: BSD-3-Clause
"""Headless Chromium, driven through a pair of pipes (its --remote-debugging-pipe), for tests of pages."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from process_support import patient

CHROMIUM = shutil.which("chromium")
WHY_NOT = "chromium is not installed (tool/setup.sh --long installs it)"


class Browser:
    """A context manager. `errors`: what the page has printed on the console as an error, thrown, or failed to load."""

    def __init__(self):
        self.errors, self.number, self.rest, self.events = [], 0, b"", []

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="paracel-browser-")
        to_read, self.to = os.pipe()
        self.source, from_write = os.pipe()

        def in_child():  # it reads from 3 and writes to 4
            read, write = os.dup(to_read), os.dup(from_write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
                 "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen([CHROMIUM, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=in_child, close_fds=False)
        os.close(to_read)
        os.close(from_write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.source)
        shutil.rmtree(self.profile, ignore_errors=True)

    def receive(self, end):
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.source], [], [], left)[0]:
                raise TimeoutError("chromium does not answer")
            data = os.read(self.source, 1 << 20)
            if not data:
                raise EOFError("chromium has ended")
            self.rest += data
        one, _, self.rest = self.rest.partition(b"\0")
        return json.loads(one)

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        end = time.monotonic() + patient(60)
        while True:
            message = self.receive(end)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.note(message)

    def note(self, message):
        kind, about = message.get("method"), message.get("params", {})
        self.events.append(kind)
        if kind == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.errors.append(str([a.get("value") for a in about["args"]]))
        elif kind == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"])[:500])
        elif kind == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(about["entry"]["text"])
        elif kind == "Network.requestWillBeSent" and not about["request"]["url"].startswith(("file:", "data:")):
            self.errors.append("it wants " + about["request"]["url"])

    def show(self, path, width=1280, dark=False, scripts=True, height=900):
        """Opens the page in a window of this width; below 600 a phone's."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
                  mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events = []
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        end = time.monotonic() + patient(60)
        while "Page.loadEventFired" not in self.events:
            self.note(self.receive(end))

    def value(self, script):
        """Of an expression in JavaScript. The inspector may run it even where a page's own scripts are disabled."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    def picture(self, path):
        """Of the whole page, as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        area = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=area)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def pdf(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))
