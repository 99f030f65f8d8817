#!/usr/bin/env python3
"""Drives the live page of `sluice serve` in a headless Chromium, by keyboard and mouse, and checks what is to be seen.

    tests/cli/live_page.py --sluice build/sluice [--shots FOLDER]

Exit status: 0; 1 when something is wrong; 77 where there is no Chromium. With --shots it leaves pictures of the page: light,
dark, of a phone, of the demonstration, and of a replay.
"""

import argparse
import atexit
import base64
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script> & <b>bold</b>"


def fail(what):
    print(f"live_page: {what}", file=sys.stderr)
    sys.exit(1)


def check(right, what):
    if not right:
        fail(what)


class Browser:
    """A Chromium that is spoken to by its DevTools protocol over a pair of pipes."""

    def __init__(self, program, folder):
        to_it, self.to_it = os.pipe()
        self.from_it, from_it = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--mute-audio",
                 "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
                 "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_it} 4>&{from_it}', "bash", program, *flags], pass_fds=(to_it, from_it),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(self.process.kill)
        os.close(to_it)
        os.close(from_it)
        self.number, self.unread, self.answers, self.events = 0, b"", {}, []

    def read(self, until):
        left = until - time.monotonic()
        if left <= 0 or not select.select([self.from_it], [], [], left)[0]:
            return False
        piece = os.read(self.from_it, 1 << 20)
        check(piece, "the browser has ended")
        *whole, self.unread = (self.unread + piece).split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message)
        return True

    def ask(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.to_it, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 60
        while self.number not in self.answers:
            check(self.read(until), f"the browser does not answer {method}")
        answer = self.answers.pop(self.number)
        check("error" not in answer, f"{method}: {answer.get('error')}")
        return answer["result"]

    def close(self):
        self.process.terminate()
        self.process.wait()


class Page:
    def __init__(self, browser, url=None, target=None):
        self.browser = browser
        target = target or browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        if url:
            self.look()
            self.ask("Page.navigate", url=url)
            self.wait("document.readyState === 'complete'", "the page does not load")

    def ask(self, method, **parameters):
        return self.browser.ask(method, self.session, **parameters)

    def look(self, width=1360, height=900, dark=False, phone=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def run(self, script):
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        check("exceptionDetails" not in answer, f"{script}: {answer.get('exceptionDetails')}")
        return answer["result"].get("value")

    def wait(self, condition, otherwise, patience=60):
        until = time.monotonic() + patience
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > until:
                fail(f"{otherwise}: {self.run('document.body.innerText')[:1500]}")
            time.sleep(0.1)

    def press(self, key, code=None, text=None, modifiers=0):
        known = {"Enter": (13, "\r"), "Escape": (27, None), "Tab": (9, None), " ": (32, " "), "ArrowLeft": (37, None)}
        number, said = known.get(key, (ord(key[0].upper()), text or key))
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=code or {" ": "Space"}.get(key, key), windowsVirtualKeyCode=number,
                     modifiers=modifiers, **({"text": said} if said and kind == "keyDown" else {}))

    def type(self, text):
        self.ask("Input.insertText", text=text)

    def focus(self):
        return self.run("document.activeElement.id || document.activeElement.tagName")

    def shot(self, folder, name):
        if not folder:
            return
        whole = self.run("({width: innerWidth, height: Math.max(innerHeight, document.documentElement.scrollHeight)})")
        picture = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                           clip={"x": 0, "y": 0, "width": whole["width"], "height": min(whole["height"], 4000), "scale": 1})
        with open(os.path.join(folder, name + ".png"), "wb") as file:
            file.write(base64.b64decode(picture["data"]))

    def complaints(self, own):
        """What the console says against the page, and requests to elsewhere. 401 is how a server says that it wants its key."""
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"].get("exception", {}).get("description", str(params)))
            if method == "Log.entryAdded" and params["entry"]["level"] == "error" and "401" not in params["entry"]["text"]:
                found.append(params["entry"]["text"])
            if method == "Network.requestWillBeSent" and not params["request"]["url"].startswith((own, "data:", "blob:", "about:")):
                found.append("a request to " + params["request"]["url"])
        return found


class Server:
    def __init__(self, sluice, *options):
        self.process = subprocess.Popen([sluice, "serve", "--port", "0", *options], stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # where something fails before close()
        line = self.process.stdout.readline()
        found = re.search(r"http://[\d.:]+", line)
        check(found, f"sluice serve says {line!r}")
        self.url = found.group(0)

    def close(self):
        self.process.send_signal(signal.SIGINT)
        check(self.process.wait(30) == 0, "the server has not ended well")


def has_no_sideways_scroll(page, where):
    wide = page.run("document.documentElement.scrollWidth - innerWidth")
    check(wide <= 0, f"{where}: {wide} pixels are beyond the right edge")


# How many pixels of a canvas have a colour of the theme.
PIXELS = """(id, name) => {
  const canvas = document.getElementById(id), hex = theme[name].flat;
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
  let n = 0;
  for (let i = 0; i < data.length; i += 4) n += data[i] === r && data[i + 1] === g && data[i + 2] === b;
  return n;
}"""


def tab_to(page, wanted):
    for _ in range(20):
        if page.focus() == wanted:
            return
        page.press("Tab")
    fail(f"no Tab leads to {wanted}")


def converse(page, shots):
    """Asks by keyboard alone, sees the answer come, and the pipeline that makes it."""
    page.wait("document.querySelectorAll('#method option').length > 2", "the methods are not offered")
    page.run("document.getElementById('most').value = '40'")
    tab_to(page, "message")
    page.type("Count from one to twenty. " + HOSTILE)
    page.press("Enter")
    page.wait("document.querySelector('.answer .text span')", "no answer appears")
    page.wait("flow.lanes.every((lane, i) => i >= flow.about.stages || lane.length > 0)", "no boxes are told of")
    page.wait(f"({PIXELS})('flow', 'accepted') > 20", "no accepted boxes are drawn")
    page.shot(shots, "light-under-way")
    page.wait("document.querySelector('.answer .facts li')", "the answer does not end", patience=100)
    check(page.run("document.querySelectorAll('#turns img, #turns script, #turns b b').length") == 0, "text became markup")
    check(page.run("document.querySelector('.user').textContent").endswith(HOSTILE), "the message is not shown as it is")
    check(page.run("document.title") == "Sluice", "markup of a message was run")
    check(page.run("flow.came.some(({text}) => text.trim())"), "the pipeline does not know one's own words")
    check("tokens/s" in page.run("document.querySelector('.answer .rate').textContent"), "no tokens/s")
    check(page.focus() == "message", f"after an answer the focus is at {page.focus()}")
    page.wait("figures.charts.rate.samples.length > 3", "no figures come")


def compare(page, shots):
    page.run("document.getElementById('beside').value = 'ar'; document.getElementById('beside').dispatchEvent(new Event('change'))")
    page.run("document.getElementById('method').value = 'surge'; document.getElementById('method').dispatchEvent(new Event('change'))")
    page.run("document.getElementById('most').value = '30'")
    page.type("Write the numbers from 1 to 15, one a line.")
    page.press("Enter")
    page.wait("document.querySelector('.verdict')", "two answers are not compared", patience=150)
    verdict = page.run("document.querySelector('.verdict').textContent")
    check("The text is the same" in verdict and "times as fast" in verdict, f"the verdict: {verdict}")
    check(page.run("document.querySelectorAll('.answers.two .answer').length") == 2, "there are not two answers")
    page.shot(shots, "light")
    page.run("document.getElementById('beside').value = ''")


def stop(page):
    page.run("document.getElementById('most').value = '2000'; document.getElementById('message').focus()")
    page.type("Tell a very long story about the sea.")
    page.press("Enter")
    page.wait("[...document.querySelectorAll('.answer')].at(-1).querySelectorAll('.text span').length > 3", "no answer begins")
    page.press("Escape")
    page.wait("[...document.querySelectorAll('.answer')].at(-1).textContent.includes('stopped')", "Escape does not stop")
    page.wait("!document.getElementById('send').hidden", "nothing can be sent after a stop")


def hold(page):
    page.run("document.getElementById('flow').focus()")
    page.press(" ")
    check(page.run("flow.heldAt !== null"), "Space does not hold the pipeline")
    held = page.run("flow.heldAt")
    page.press("ArrowLeft")
    check(page.run("flow.heldAt") < held, "the arrow does not move it")
    page.press(" ")
    check(page.run("flow.heldAt === null"), "Space does not let it go")


def replay(page, browser, url, shots):
    tell = {target["targetId"] for target in browser.ask("Target.getTargets")["targetInfos"]}
    page.run("document.getElementById('replay').scrollIntoView()")
    box = page.run("(({x, y, width, height}) => ({x: x + width / 2, y: y + height / 2}))(document.getElementById('replay').getBoundingClientRect())")
    for kind in ("mousePressed", "mouseReleased"):
        page.ask("Input.dispatchMouseEvent", type=kind, x=box["x"], y=box["y"], button="left", clickCount=1)
    until = time.monotonic() + 20
    new = []
    while time.monotonic() < until and not any(t["url"].startswith("blob:") for t in new):
        time.sleep(0.2)
        new = [t for t in browser.ask("Target.getTargets")["targetInfos"] if t["targetId"] not in tell and t["type"] == "page"]
    check(any(t["url"].startswith("blob:") for t in new), f"no replay opens: {new}")
    timeline = Page(browser, target=new[0]["targetId"])
    timeline.look()
    timeline.wait("document.title.includes('Sluice timeline') && document.querySelectorAll('#facts dd').length > 3", "the replay draws nothing")
    time.sleep(0.5)
    timeline.shot(shots, "replay")
    check(not timeline.complaints(url), f"the replay: {timeline.complaints(url)}")


def with_key(browser, sluice, options):
    server = Server(sluice, *options, "--api-key", "a-key-of-ours")
    page = Page(browser, server.url + "/")
    page.wait("!document.getElementById('key-form').hidden", "the key is not asked for")
    check(page.focus() == "key", "the key's field has not the focus")
    for given, right in (("wrong", False), ("a-key-of-ours", True)):
        page.type(given)
        page.press("Enter")
        if right:
            page.wait("document.querySelectorAll('#method option').length > 2", "the key does not open the server")
        else:
            page.wait("document.getElementById('key-label').textContent.includes('does not take')", "a wrong key is not told")
    check(page.run("document.getElementById('key-form').hidden"), "the key is still asked for")
    check(not page.complaints(server.url), f"with a key: {page.complaints(server.url)}")
    server.close()


def demonstrate(browser, sluice, shots):
    server = Server(sluice, "--demo")
    page = Page(browser, server.url + "/")
    page.wait("document.querySelectorAll('.run .text span').length > 8", "the stored runs do not play")
    time.sleep(3)
    for dark in (False, True):
        page.look(dark=dark)
        time.sleep(0.3)
        page.shot(shots, "demo-dark" if dark else "demo-light")
    page.press(" ")
    check(page.run("document.getElementById('pause').textContent") == "Go on", "Space does not hold the demonstration")
    page.look(width=360, height=740, phone=True)
    page.shot(shots, "demo-phone")
    has_no_sideways_scroll(page, "the demonstration on a phone")
    check(not page.complaints(server.url), f"the demonstration: {page.complaints(server.url)}")
    server.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--shots")
    args = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program:
        print("live_page: skipped: there is no chromium")
        return SKIPPED
    if args.shots:
        os.makedirs(args.shots, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        profile = os.path.join(folder, "slow.json")  # so that boxes are to be seen, and an answer can be stopped
        with open(profile, "w", encoding="utf-8") as file:
            file.write('{"stage": {"points": [[1, 0.012], [256, 0.013]]}}')
        options = ["--stages", "4", "--profile", profile, "--threads", "1"]
        server = Server(args.sluice, *options)
        browser = Browser(program, os.path.join(folder, "browser"))
        try:
            page = Page(browser, server.url + "/")
            converse(page, args.shots)
            compare(page, args.shots)
            hold(page)
            has_no_sideways_scroll(page, "on a desk")
            page.look(dark=True)
            time.sleep(0.3)
            page.shot(args.shots, "dark")
            page.look(width=360, height=740, phone=True)
            time.sleep(0.5)
            has_no_sideways_scroll(page, "on a phone")
            page.shot(args.shots, "phone")
            page.look()
            stop(page)
            replay(page, browser, server.url, args.shots)
            check(not page.complaints(server.url), f"the page: {page.complaints(server.url)}")
            with_key(browser, args.sluice, options)
            demonstrate(browser, args.sluice, args.shots)
        finally:
            browser.close()
        server.close()
    print("live_page: all is as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
