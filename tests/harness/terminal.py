"""An idle agent is reached through its terminal: real Claude Code and Codex sit at their prompts in tmux, with scripted models,
and a message is typed into their composers, where their harness offers nothing else. It is in the next model request, once; a draft of a
person is left alone, and so is a question; whoever types while a block is typed loses nothing, and nothing of it is sent.

usage: terminal.py TT NPM_BIN SCRATCH [claude] [codex] [gemini]

Everything is set up by `tt install`. It prints what each harness did in each state. Every wait has a limit, and every process is ended."""
import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

from models import ObedientAnthropic, ObedientGemini, ObedientResponses
from stage import LIMIT, answer, check, failures, prompt, run_tmux, type_until_done, until

TT, NPM_BIN, SCRATCH = (os.path.abspath(path) for path in sys.argv[1:4])
# Gemini CLI only where that is switched on again, in `takes_bursts`.
WANTED = sys.argv[4:] or ["claude", "codex"]
KEY = "sk-stand-in-00000000000000000000"
# One line, quotes, wide characters, and a backslash at the end.
DRAFT = 'half "typed" 日本語 \\'
WORDS = "what I was about to say"
# When a person begins to type, in seconds after the block was seen or the message was sent.
MOMENTS = [0.0, 0.15, 0.3, 0.45, 0.6, 0.8]


def environment(home):
    return {"HOME": home, "PATH": f"{os.path.dirname(TT)}:{NPM_BIN}:{os.environ['PATH']}", "TALKING_STICK_DATA_DIR": data,
            "TALKING_STICK_WAYS": "tool_response,hook,terminal", "LANG": "C.UTF-8", "TERM": "xterm-256color", "TMPDIR": os.path.join(SCRATCH, "tmp")}


def tt(*args, home=None):
    done = subprocess.run([TT, "--json", *args], env=environment(home or SCRATCH), cwd=repo, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done
    return json.loads(done.stdout.splitlines()[0]) if done.stdout else {}


def known(agent):
    return next((s for s in tt("sessions", "--all")["sessions"] if s["agent_id"] == agent), {})


class Terminal:
    """A harness in a tmux window of its own, to which a person may be attached."""

    def __init__(self, name, model, command, env, ready, settle):
        self.name, self.model = name, model
        exported = " ".join(f"{key}={value!r}" for key, value in env.items())
        started = f'env -i TMUX="$TMUX" {exported} {command}; sleep 600'
        run_tmux(tmux_socket, "new-session", "-d", "-s", name, "-x", "150", "-y", "50", "-c", repo, started)
        until(f"{name} is ready", lambda: ready in self.screen(), 240)
        time.sleep(settle)

    def screen(self):
        return run_tmux(tmux_socket, "capture-pane", "-p", "-t", self.name)

    def keys(self, *keys):
        run_tmux(tmux_socket, "send-keys", "-t", self.name, *keys)

    def type(self, text):
        run_tmux(tmux_socket, "set-buffer", "-b", self.name, text)
        run_tmux(tmux_socket, "paste-buffer", "-p", "-d", "-b", self.name, "-t", self.name)
        time.sleep(0.9)
        self.keys("Enter")

    def ask(self, marker, *calls):
        done = lambda: self.model.shown.get(marker)
        type_until_done(f"{self.name} does {calls}", lambda: self.type(prompt(marker, *calls)), done, f"#{marker}", self.screen)
        return done()

    def take_out(self, text):
        """Takes out what is in the composer. Programs handle keys one after another, so that letters tell that they have handled those before."""
        self.keys("End", *["BSpace"] * (len(text) + 5))
        until("the draft is taken out", lambda: text not in self.screen())


class Person:
    """Somebody who is attached to a window and types there."""

    def __init__(self, name):
        pid, self.keyboard = pty.fork()
        if pid == 0:
            os.environ.update(TERM="xterm-256color", LANG="C.UTF-8")
            os.environ.pop("TMUX", None)
            os.execvp("tmux", ["tmux", "-u", "-S", tmux_socket, "attach", "-t", name])
        self.pid, self.name = pid, name
        fcntl.ioctl(self.keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        threading.Thread(target=self.read, daemon=True).start()
        until("somebody is attached", lambda: run_tmux(tmux_socket, "list-clients", "-t", name))

    def read(self):
        try:
            while os.read(self.keyboard, 65536):
                pass
        except OSError:
            pass  # the terminal was closed

    def type(self, text):
        for letter in text:
            os.write(self.keyboard, letter.encode())
            time.sleep(0.07)

    def leave(self):
        run_tmux(tmux_socket, "detach-client", "-s", self.name)
        os.waitpid(self.pid, 0)
        os.close(self.keyboard)


def claude():
    home = os.path.join(SCRATCH, "claude")
    os.makedirs(os.path.join(home, ".claude"))
    model = ObedientAnthropic("claude")
    with open(os.path.join(home, ".claude.json"), "w") as config:
        json.dump({"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
                   "projects": {repo: {"hasTrustDialogAccepted": True, "allowedTools": []}}}, config)
    tt("install", "claude", home=home)
    env = {**environment(home), "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}", "ANTHROPIC_API_KEY": KEY,
           "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    command = f"{NPM_BIN}/claude --permission-mode default --allowedTools Bash"
    shell = lambda command: ("Bash", {"command": command, "description": "work"})
    question = (("Write", {"file_path": os.path.join(repo, "asked"), "content": "x"}), "Do you want to")
    return Terminal("claude", model, command, env, "❯", 4), shell(f"{TT} --json join"), question, shell


def codex():
    home = os.path.join(SCRATCH, "codex")
    os.makedirs(os.path.join(home, ".codex"))
    model = ObedientResponses("codex")
    with open(os.path.join(home, ".codex", "config.toml"), "w") as config:
        config.write('model = "stand-in"\nmodel_provider = "stand-in"\ncheck_for_update_on_startup = false\n'
                     '\n[model_providers.stand-in]\nname = "stand-in"\n'
                     f'base_url = "http://127.0.0.1:{model.port}/v1"\nwire_api = "responses"\nenv_key = "STAND_IN_KEY"\n\n'
                     f'[projects."{repo}"]\ntrust_level = "trusted"\n')
    tt("install", "codex", "--trust-hooks", home=home)
    env = {**environment(home), "STAND_IN_KEY": "none"}
    ask = {"cmd": "echo asked", "sandbox_permissions": "require_escalated", "justification": "to see it"}
    shell = lambda command: ("exec_command", {"cmd": command})
    # Which terminal shows which thread of a shared process, nothing tells.
    terminal = Terminal("codex", model, f"{NPM_BIN}/codex --disable daemon_auto_start", env, "Ask Codex", 6)
    return terminal, ("join_path", {"context_path": repo}), (("exec_command", ask), "Would you like to run"), shell


def gemini():
    home = os.path.join(SCRATCH, "gemini")
    os.makedirs(os.path.join(home, ".gemini"))
    model = ObedientGemini("gemini")
    with open(os.path.join(home, ".gemini", "settings.json"), "w") as config:
        json.dump({"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
                   "general": {"enableAutoUpdate": False, "disableAutoUpdate": True, "disableUpdateNag": True},
                   "privacy": {"usageStatisticsEnabled": False}, "ui": {"hideTips": True}, "ide": {"enabled": False, "hasSeenNudge": True}}, config)
    tt("install", "gemini", home=home)
    env = {**environment(home), "GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.port}", "GEMINI_MODEL": "gemini-2.5-pro"}
    shell = lambda command: ("run_shell_command", {"command": command})
    question = (shell("touch asked"), "Allow once")
    return Terminal("gemini", model, f"{NPM_BIN}/gemini", env, "Type your message", 2), ("join_path", {"context_path": repo}), question, shell


def count(model, words):
    """How often a request of the conversation has these words, at most."""
    requests = [json.dumps(request, ensure_ascii=False) for request in model.requests if request.get("tools")]
    return max((request.count(words) for request in requests), default=0)


def idle(agent):
    until(f"{agent} is idle", lambda: known(agent).get("status") == "idle")


def delivered(seq):
    status = tt("msg", "status", str(seq))
    assert status.get("recipients"), status
    return status["recipients"][0]


def waits(seq):
    return delivered(seq).get("waits", {}).get("because")


def confirmed(seq):
    until("it is confirmed", lambda: delivered(seq)["state"] == "delivered")
    return delivered(seq).get("surface")


def reaches(name, make):
    terminal, join, (call, question), shell = make()
    model = terminal.model
    with Allowing(terminal, question):
        me = answer(terminal.ask(f"{name}-join", join)[0])["agent_id"]
    idle(me)
    row = {}

    began = time.monotonic()
    seq = tt("msg", "send", me, f"wake-{name}")["event_seq"]
    until("the message is in a model request", lambda: count(model, f"wake-{name}"))
    row["idle"] = f"{time.monotonic() - began:.1f} s"
    check(f"{name}: a message wakes it, {row['idle']} after `tt msg send` was started", True)
    check(f"{name}: through its terminal", confirmed(seq) == "terminal", delivered(seq))
    idle(me)

    # Long enough that the harness shows something that stands for it.
    seq = tt("msg", "send", me, f"long-{name} " + "and so on " * 150)["event_seq"]
    until("the long message is in a model request", lambda: count(model, f"long-{name}"))
    check(f"{name}: a long message reaches it", confirmed(seq) == "terminal", delivered(seq))
    idle(me)

    # Somebody looks at the scrollback.
    run_tmux(tmux_socket, "copy-mode", "-t", name)
    seq = tt("msg", "send", me, f"copy-{name}")["event_seq"]
    until("the message is in a model request", lambda: count(model, f"copy-{name}"))
    check(f"{name}: copy mode is left", confirmed(seq) == "terminal", delivered(seq))
    row["copy mode"] = "typed"
    idle(me)

    # A person has typed something.
    terminal.keys("-l", DRAFT)
    until("the draft is shown", lambda: DRAFT in terminal.screen())
    seq = tt("msg", "send", me, f"draft-{name}")["event_seq"]
    until("it waits because somebody types", lambda: waits(seq) == "draft")
    time.sleep(6)
    composer = [line for line in terminal.screen().splitlines() if DRAFT in line]
    alone = len(composer) == 1 and count(model, f"draft-{name}") == 0 and count(model, DRAFT) == 0
    check(f"{name}: a draft is left alone while it is there, and the message waits and says why", alone and waits(seq) == "draft", terminal.screen())
    row["draft"] = "waits: draft"
    terminal.take_out(DRAFT)
    until("it comes when the composer is empty", lambda: count(model, f"draft-{name}"))
    confirmed(seq)
    idle(me)

    # A question to the user is open.
    terminal.type(prompt(f"{name}-asks", call))
    until("it asks", lambda: question in terminal.screen())
    until("that is known", lambda: known(me).get("status") == "asking")
    seq = tt("msg", "send", me, f"asked-{name}")["event_seq"]
    row["question"] = f"waits: {waits(seq)}"
    check(f"{name}: while it asks its user, the message waits and says why", waits(seq) == "asking", delivered(seq))
    time.sleep(6)
    check(f"{name}: and nothing is typed", count(model, f"asked-{name}") == 0 and question in terminal.screen(), terminal.screen())
    terminal.keys("Enter")
    until("it comes after the answer", lambda: count(model, f"asked-{name}"))
    confirmed(seq)
    idle(me)

    # It works.
    with Allowing(terminal, question):
        terminal.type(prompt(f"{name}-works", shell("sleep 6"), shell("echo worked")))
        until("it works", lambda: known(me).get("status") == "busy")
        seq = tt("msg", "send", me, f"busy-{name}")["event_seq"]
        until("the message is in a model request", lambda: count(model, f"busy-{name}"))
        row["working"] = confirmed(seq)
        check(f"{name}: while it works, the message comes with its next tool", row["working"] in ("hook", "tool_response"), row["working"])
        until("the turn ends", lambda: model.shown.get(f"{name}-works"))
    idle(me)

    # A person interrupts. Gemini CLI does not tell that its user has answered or broken off before the tool has ended, so that it
    # counts as asking until its next prompt, and the message waits.
    if name != "gemini":
        with Allowing(terminal, question):
            terminal.type(prompt(f"{name}-long", shell("sleep 75")))
            until("it works", lambda: "sleep 75" in commands())
        seq = tt("msg", "send", me, f"break-{name}", "--interrupt")["event_seq"]
        # Long before the command ends. A command of Codex goes on in the background, so that its hook may be first.
        until("the message is in a model request", lambda: count(model, f"break-{name}"), 40)
        row["interrupt"] = confirmed(seq)
        expected = ("terminal", "hook") if name == "codex" else ("terminal",)
        check(f"{name}: a person's interrupt reaches it in the middle of a turn", row["interrupt"] in expected, delivered(seq))
        check(f"{name}: and is there once", count(model, f"break-{name}") == 1, count(model, f"break-{name}"))
        idle(me)

    sent = 0
    for moment in MOMENTS:
        sent += meets(name, terminal, me, moment)
    row["typing"] = f"{sent} of {len(MOMENTS)} sent at once"
    check(f"{name}: who types meanwhile loses no character, and nothing of it is sent", True)

    for words in (f"wake-{name}", f"long-{name}", f"copy-{name}", f"draft-{name}", f"asked-{name}", f"busy-{name}"):
        check(f"{name}: {words} is there once", count(model, words) == 1, count(model, words))
    run_tmux(tmux_socket, "kill-session", "-t", name)
    return row


def commands():
    """The command lines of all processes that run from here."""
    listed = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True).stdout
    return [line.strip() for line in listed.splitlines()]


class Allowing:
    """Says yes to what a harness asks its user, for a while."""

    def __init__(self, terminal, question):
        self.terminal, self.question, self.ended = terminal, question, threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=self.answer)
        self.thread.start()

    def answer(self):
        while not self.ended.wait(1):
            if self.question in self.terminal.screen():
                self.terminal.keys("Enter")

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def meets(name, terminal, me, moment):
    """A person begins to type while a block is typed. Returns whether that was sent first."""
    person = Person(name)
    seq = None
    try:
        time.sleep(5)  # it has been quiet since
        seq = tt("msg", "send", me, f"meets-{name}-{moment}-")["event_seq"]
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up and f"event_seq\":{seq}" not in terminal.screen() and "[Pasted" not in terminal.screen():
            time.sleep(0.02)
        time.sleep(moment)
        person.type(WORDS)
        shown = lambda: sum(WORDS in line for line in terminal.screen().splitlines())
        until("what was typed is shown", shown)
        until("nothing of the block is in the composer", lambda: delivered(seq)["state"] == "delivered" or waits(seq) == "draft", 60)
        at_once = delivered(seq)["state"] == "delivered"
        time.sleep(1)
        lines = [line.strip(" ❯›>│┃\u00a0") for line in terminal.screen().splitlines() if WORDS in line]
        assert lines == [WORDS], (moment, at_once, terminal.screen())
        assert count(terminal.model, WORDS) == 0, (moment, "it was sent")
        terminal.take_out(WORDS)
    finally:
        person.leave()
    until("the message arrives", lambda: count(terminal.model, f"meets-{name}-{moment}-"))
    confirmed(seq)
    idle(me)
    assert count(terminal.model, f"meets-{name}-{moment}-") == 1
    return at_once


shutil.rmtree(SCRATCH, ignore_errors=True)
repo = os.path.join(SCRATCH, "repo")
os.makedirs(repo)
subprocess.run(["git", "init", "-q", "-b", "main", repo], check=True)
os.makedirs(os.path.join(SCRATCH, "tmp"))
# The address of a socket must be short.
data = tempfile.mkdtemp(prefix="tt", dir="/tmp")
tmux_socket = os.path.join(data, "tmux")
rows = {}
try:
    tt("join")
    for make in (claude, codex, gemini):
        name = make.__name__
        if name in WANTED:
            try:
                rows[name] = reaches(name, make)
            except (AssertionError, subprocess.TimeoutExpired, KeyError) as e:
                check(f"{name} plays to its end", False, repr(e))
                print(run_tmux(tmux_socket, "capture-pane", "-p", "-t", name))
                print(json.dumps(tt("sessions", "--all")))
                print(json.dumps(tt("inbox", "--all")))
    for name, row in rows.items():
        print(f"{name:8}" + "".join(f"  {state}: {what}" for state, what in row.items()))
finally:
    subprocess.run(["tmux", "-S", tmux_socket, "kill-server"], capture_output=True)
    subprocess.run([TT, "daemon", "stop"], env=environment(SCRATCH), capture_output=True, timeout=LIMIT)
    for log in ("hooks.log", "ttd.log"):
        path = os.path.join(data, log)
        if failures and os.path.exists(path):
            print(f"== {log}")
            print(open(path).read()[-3000:])
    shutil.rmtree(data, ignore_errors=True)
sys.exit(1 if failures else 0)
