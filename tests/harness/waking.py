"""An idle agent is reached: real Claude Code and real Codex sit at their prompts in tmux, with scripted models, and hear nothing until a
message wakes them by what their harness offers. It is in the next model request, once; a half-typed draft is untouched; nothing
is handed over while a question to the user is open; and two agents that answer each other come to rest.

usage: waking.py TT NPM_BIN SCRATCH [claude] [codex] [loop]

Everything is set up by `tt install`. Every wait has a limit, and every process is ended."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from models import ObedientAnthropic, ObedientResponses
from stage import LIMIT, answer, check, failures, prompt, run_tmux, type_until_done, until

TT, NPM_BIN, SCRATCH = (os.path.abspath(path) for path in sys.argv[1:4])
WANTED = sys.argv[4:] or ["claude", "codex", "loop"]
KEY = "sk-stand-in-00000000000000000000"
DRAFT = 'half "typed" 日本語'
# The most wakes by agents in an hour.
MAX_WAKES = 20


class Answering:
    """A model that answers every message it is shown with a message, while `answers` is set."""

    answers = False

    def next_step(self, shown):
        request = self.conversation.request
        if self.answers and request.get("tools"):
            said = list(self.entries(request))
            if said and said[-1][0] == "user" and "[inbox " in said[-1][1]:
                return self.reply()
        return super().next_step(shown)


class AnsweringClaude(Answering, ObedientAnthropic):
    def reply(self):
        return ("call", "Bash", {"command": f"{TT} --json msg send {self.partner} again", "description": "tt"})


class AnsweringCodex(Answering, ObedientResponses):
    def reply(self):
        return ("call", "send_message", {"room_id": "here", "to": self.partner, "body": "again"})


def environment(home):
    return {"HOME": home, "PATH": f"{os.path.dirname(TT)}:{NPM_BIN}:{os.environ['PATH']}", "TALKING_STICK_DATA_DIR": data,
            "LANG": "C.UTF-8", "TERM": "xterm-256color", "TMPDIR": os.path.join(SCRATCH, "tmp")}


def tt(*args, home=None):
    done = subprocess.run([TT, "--json", *args], env=environment(home or SCRATCH), cwd=repo, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done
    return json.loads(done.stdout.splitlines()[0]) if done.stdout else {}


def known(agent):
    return next((s for s in tt("sessions", "--all")["sessions"] if s["agent_id"] == agent), {})


class Terminal:
    """A harness in a tmux window of its own."""

    def __init__(self, name, model, command, env, ready, settle):
        self.name, self.model = name, model
        exported = " ".join(f"{key}={value!r}" for key, value in env.items())
        run_tmux(tmux_socket, "new-session", "-d", "-s", name, "-x", "150", "-y", "50", "-c", repo, f"env -i {exported} {command}; sleep 600")
        until(f"{name} is ready", lambda: ready in self.screen())
        time.sleep(settle)

    def screen(self):
        return run_tmux(tmux_socket, "capture-pane", "-p", "-t", self.name)

    def keys(self, *keys):
        run_tmux(tmux_socket, "send-keys", "-t", self.name, *keys)

    def type(self, text):
        run_tmux(tmux_socket, "set-buffer", "-b", self.name, text)
        run_tmux(tmux_socket, "paste-buffer", "-p", "-d", "-b", self.name, "-t", self.name)
        time.sleep(0.7)
        self.keys("Enter")

    def ask(self, marker, *calls):
        done = lambda: self.model.shown.get(marker)
        type_until_done(f"{self.name} does {calls}", lambda: self.type(prompt(marker, *calls)), done, f"#{marker}", self.screen)
        return done()

    def close(self):
        run_tmux(tmux_socket, "kill-session", "-t", self.name)


def claude():
    home = os.path.join(SCRATCH, "claude")
    os.makedirs(os.path.join(home, ".claude"))
    model = AnsweringClaude("claude")
    with open(os.path.join(home, ".claude.json"), "w") as config:
        json.dump({"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
                   "projects": {repo: {"hasTrustDialogAccepted": True, "allowedTools": []}}}, config)
    tt("install", "claude", home=home)
    env = {**environment(home), "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}", "ANTHROPIC_API_KEY": KEY,
           "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    command = f"{NPM_BIN}/claude --permission-mode default --allowedTools Bash"
    join = ("Bash", {"command": f"{TT} --json join", "description": "tt"})
    question = (("Write", {"file_path": os.path.join(repo, "asked"), "content": "x"}), "Do you want to")
    return Terminal("claude", model, command, env, "❯", 4), join, question


def codex():
    home = os.path.join(SCRATCH, "codex")
    os.makedirs(os.path.join(home, ".codex"))
    model = AnsweringCodex("codex")
    with open(os.path.join(home, ".codex", "config.toml"), "w") as config:
        config.write('model = "stand-in"\nmodel_provider = "stand-in"\ncheck_for_update_on_startup = false\n'
                     '\n[model_providers.stand-in]\nname = "stand-in"\n'
                     f'base_url = "http://127.0.0.1:{model.port}/v1"\nwire_api = "responses"\nenv_key = "STAND_IN_KEY"\n\n'
                     f'[projects."{repo}"]\ntrust_level = "trusted"\n')
    tt("install", "codex", "--trust-hooks", home=home)
    env = {**environment(home), "STAND_IN_KEY": "none"}
    # Its sandbox keeps the shell from our socket.
    join = ("join_path", {"context_path": repo})
    ask = {"cmd": "echo asked", "sandbox_permissions": "require_escalated", "justification": "to see it"}
    return Terminal("codex", model, f"{NPM_BIN}/codex", env, "Ask Codex", 6), join, (("exec_command", ask), "Would you like to run")


def count(model, words):
    """How often the last request of a conversation has these words."""
    requests = [json.dumps(request, ensure_ascii=False) for request in model.requests if request.get("tools")]
    return max((request.count(words) for request in requests), default=0)


def idle(agent):
    until(f"{agent} is idle", lambda: known(agent).get("status") == "idle")


def delivered(seq):
    return tt("msg", "status", str(seq))["recipients"][0]


def reaches(name, make):
    terminal, join, (call, question) = make()
    model = terminal.model
    me = answer(terminal.ask(f"{name}-join", join)[0])["agent_id"]
    idle(me)

    began = time.monotonic()
    sent = tt("msg", "send", me, f"wake-{name}")
    until("the message is in a model request", lambda: count(model, f"wake-{name}"))
    took = time.monotonic() - began
    check(f"{name}: a message wakes it, {took:.1f} s after `tt msg send` was started", True)
    until("it is confirmed", lambda: delivered(sent["event_seq"])["state"] == "delivered")
    status = delivered(sent["event_seq"])
    check(f"{name}: by what its harness offers", status.get("surface") == "native_inbox", status)
    idle(me)

    # A person types.
    terminal.keys("-l", DRAFT)
    until("the draft is shown", lambda: DRAFT in terminal.screen())
    seq = tt("msg", "send", me, f"draft-{name}")["event_seq"]
    until("the message is in a model request", lambda: count(model, f"draft-{name}"))
    until("it is confirmed", lambda: delivered(seq)["state"] == "delivered")
    idle(me)
    composer = [line for line in terminal.screen().splitlines() if DRAFT in line]
    check(f"{name}: a half-typed draft is untouched", len(composer) == 1, terminal.screen())
    check(f"{name}: and in no request", count(model, DRAFT) == 0, "")
    terminal.keys(*["BSpace"] * 40)
    until("the draft is taken out", lambda: DRAFT not in terminal.screen())

    # A question to the user is open.
    terminal.type(prompt(f"{name}-asks", call))
    until("it asks", lambda: question in terminal.screen())
    until("that is known", lambda: known(me).get("status") == "asking")
    seq = tt("msg", "send", me, f"asked-{name}")["event_seq"]
    waits = delivered(seq).get("waits", {})
    check(f"{name}: while it asks its user, the message waits and says why", waits.get("because") == "asking", waits)
    time.sleep(2)
    check(f"{name}: and is in no request", count(model, f"asked-{name}") == 0 and question in terminal.screen(), terminal.screen())
    terminal.keys("Enter")
    until("it comes after the answer", lambda: count(model, f"asked-{name}"))
    until("it is confirmed", lambda: delivered(seq)["state"] == "delivered")
    idle(me)

    for words in (f"wake-{name}", f"draft-{name}", f"asked-{name}"):
        check(f"{name}: {words} is there once", count(model, words) == 1, count(model, words))
    return terminal, me


def settle(first, second):
    """Two agents that answer every message with a message."""
    (one, a), (two, b) = first, second
    for terminal, partner in ((one, b), (two, a)):
        terminal.model.partner, terminal.model.answers = partner, True
    tt("msg", "send", a, "start")
    # Woken so often, one of them is left alone.
    waits = lambda: [d["recipient"].get("waits", {}).get("because") for who in (a, b) for d in tt("inbox", who)["deliveries"]]
    stopped = lambda: "woken_too_often" in waits()
    until("one of them was woken too often", stopped, LIMIT * 4)
    idle(a)
    idle(b)
    before = [len(one.model.requests), len(two.model.requests)]
    time.sleep(5)
    after = [len(one.model.requests), len(two.model.requests)]
    check("two agents that answer each other come to rest", before == after, (before, after))


shutil.rmtree(SCRATCH, ignore_errors=True)
repo = os.path.join(SCRATCH, "repo")
os.makedirs(repo)
subprocess.run(["git", "init", "-q", "-b", "main", repo], check=True)
os.makedirs(os.path.join(SCRATCH, "tmp"))
# The address of a socket must be short.
data = tempfile.mkdtemp(prefix="tt", dir="/tmp")
tmux_socket = os.path.join(data, "tmux")
try:
    tt("join")
    reached = []
    for name, make in (("claude", claude), ("codex", codex)):
        if name in WANTED or "loop" in WANTED:
            try:
                reached.append(reaches(name, make))
            except (AssertionError, subprocess.TimeoutExpired, KeyError) as e:
                check(f"{name} plays to its end", False, repr(e))
                print(run_tmux(tmux_socket, "capture-pane", "-p", "-t", name))
                print(json.dumps(tt("sessions", "--all")))
                print(json.dumps(tt("inbox", "--all")))
    if "loop" in WANTED and len(reached) == 2:
        try:
            settle(*reached)
        except (AssertionError, subprocess.TimeoutExpired, KeyError) as e:
            check("the loop plays to its end", False, repr(e))
finally:
    subprocess.run(["tmux", "-S", tmux_socket, "kill-server"], capture_output=True)
    for name in ("daemon-updater.pid", "daemon.pid"):
        try:
            with open(os.path.join(SCRATCH, "codex", ".codex", "app-server-daemon", name)) as file:
                pid = json.load(file)["pid"]
            with open(f"/proc/{pid}/cmdline") as line:
                if SCRATCH in line.read():
                    os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError, KeyError):
            pass  # it never ran, or has ended
    subprocess.run([TT, "daemon", "stop"], env=environment(SCRATCH), capture_output=True, timeout=LIMIT)
    for log in ("hooks.log", "ttd.log"):
        path = os.path.join(data, log)
        if failures and os.path.exists(path):
            print(f"== {log}")
            print(open(path).read()[-3000:])
    shutil.rmtree(data, ignore_errors=True)
sys.exit(1 if failures else 0)
