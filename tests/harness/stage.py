"""What the tests with real harnesses share: checks, waits with a limit, and what a tool answered."""
import json
import os
import re
import subprocess
import time

LIMIT = 90
failures = []


def check(name, truth, why=""):
    print(("ok      " if truth else "FAILED  ") + name + ("" if truth else f": {why}"), flush=True)
    if not truth:
        failures.append(name)


def until(what, so, limit=LIMIT):
    """Asks until something is so, and returns it."""
    give_up = time.monotonic() + limit
    while True:
        found = so()
        if found:
            return found
        assert time.monotonic() < give_up, f"it never happened: {what}"
        time.sleep(0.1)


def type_until_done(what, type_text, done, shown, screen):
    """Types something, and again if nothing of it is shown: what is typed while a program draws its screen anew may be lost."""
    type_text()
    try:
        until(what, done, LIMIT / 3)
    except AssertionError:
        if shown not in screen():
            type_text()
    try:
        until(what, done)
    except AssertionError:
        print(screen())
        raise


def answer(text):
    """The first JSON object in what a tool answered, whatever the harness put around it."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text):
        try:
            value = decoder.raw_decode(text[match.start():])[0]
        except ValueError:
            continue
        if isinstance(value, dict) and value:
            return value
    raise AssertionError(f"no answer in {text!r}")


def prompt(marker, *calls):
    """A prompt that makes a scripted model call these tools."""
    return "\n".join([f"#{marker}", *(f"call {tool} {json.dumps(arguments)}" for tool, arguments in calls)])


def run_tmux(socket, *args):
    done = subprocess.run(["tmux", "-S", socket, "-f", "/dev/null", *args], capture_output=True, text=True, timeout=LIMIT,
                          env={**os.environ, "LANG": "C.UTF-8"})
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout
