"""Who is really there, with real Codex: terminals that share a process, terminals and headless runs that do not, `/new`, `/fork`, resume,
subagents, the sandbox, and the trust in hooks. The model is scripted.

usage: codex_sessions.py TT NPM_BIN SCRATCH [SCENARIO...]

Each scenario has a home, a model and a repository of its own. They run at the same time, because Codex keeps a thread for a minute after
its terminal ended: together they take less than three minutes. SCRATCH is not in the temporary directory, where Codex wants no home.
Every wait has a limit, and every process is ended."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from models import ObedientResponses
from stage import LIMIT, answer, failures, run_tmux, type_until_done, until

# Codex closes a thread a minute after its terminal ended; it is not declared gone before that.
CLOSING, CLOSING_LIMIT = 55, 120
TT, NPM_BIN, SCRATCH = (os.path.abspath(path) for path in sys.argv[1:4])
UNCONFINED = "--dangerously-bypass-approvals-and-sandbox"
printing = threading.Lock()


class Codex:
    """A home with Codex, a repository to work in, and a model that obeys the prompts."""

    def __init__(self, name):
        self.name, self.prompts, self.model = name, 0, ObedientResponses(name)
        self.home = os.path.join(SCRATCH, name)
        self.dir, self.repo = os.path.join(self.home, ".codex"), os.path.join(self.home, "repo")
        for directory in (self.dir, os.path.join(self.repo, ".git"), os.path.join(self.home, "tmp")):
            os.makedirs(directory)
        with open(os.path.join(self.dir, "config.toml"), "w") as config:
            config.write('model = "stand-in"\nmodel_provider = "stand-in"\n\n[model_providers.stand-in]\nname = "stand-in"\n'
                         f'base_url = "http://127.0.0.1:{self.model.port}/v1"\nwire_api = "responses"\nenv_key = "STAND_IN_KEY"\n\n'
                         f'[projects."{self.repo}"]\ntrust_level = "trusted"\n')
        self.env = {"HOME": self.home, "PATH": f"{os.path.dirname(TT)}:{NPM_BIN}:{os.environ['PATH']}", "STAND_IN_KEY": "none",
                    "TALKING_STICK_DATA_DIR": data, "LANG": "C.UTF-8", "TERM": "xterm-256color",
                    "TMPDIR": os.path.join(self.home, "tmp")}

    def check(self, what, truth, why=""):
        with printing:
            print(f"{'ok    ' if truth else 'FAILED'}  {self.name}: {what}{'' if truth else f': {why}'}", flush=True)
        if not truth:
            failures.append(what)

    def tt(self, *args):
        done = subprocess.run([TT, "--json", *args], env=self.env, cwd=self.repo, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, (args, done)
        return json.loads(done.stdout.splitlines()[0]) if done.stdout else {}

    def state(self):
        return self.tt("state", "--all")

    def holder(self):
        return self.state()["room"].get("owner")

    def members(self):
        return {member["agent_id"] for member in self.state()["members"] if member["agent_id"].startswith("codex:")}

    def session(self, agent):
        sessions = self.tt("sessions", "--all")["sessions"]
        return next((session for session in sessions if session["agent_id"] == agent), {})

    def lives(self, agent):
        return self.session(agent).get("liveness")

    def evidence(self, agent):
        return {sign["source"] for sign in self.session(agent).get("evidence", [])}

    def trusts_hooks(self):
        return next(check for check in self.tt("doctor")["checks"] if check["name"] == "codex")["status"] == "ok"

    def until_gone(self, agent, since, what, soon=False):
        """Waits until a member is gone, and checks that it was not gone before Codex closed its thread."""
        until(f"{what}: {agent} is gone", lambda: self.lives(agent) == "gone", CLOSING_LIMIT)
        took = time.monotonic() - since
        self.check(f"{what}: gone after {took:.1f} s", took < 5 if soon else CLOSING < took, self.session(agent))

    def check_takeover(self, terminal, agent):
        """The holder is gone: a member is told so when it waits, and takes the stick."""
        waited, took = map(answer, terminal.ask(CLAIM, ("takeover_stick", {"room_id": "here", "reason": "the holder is gone"})))
        self.check("who waits is told that the holder is gone", waited.get("reason") == "owner_gone", waited)
        self.check("and takes the stick", took["status"] == "your_turn" and self.holder() == agent, took)

    def check_free(self, why):
        """The holder is gone: a person takes the stick, which is refused as long as the holder may live, and gives it back."""
        took = self.tt("take", "--reason", why)
        self.check("its stick is free, because it is gone", (took["status"], took["reason"]) == ("your_turn", "owner_gone"), took)
        self.tt("release", "--status", "s", "--next-action", "n")

    def calls(self, calls):
        """A prompt with these calls, and the mark under which the model keeps what it is shown."""
        self.prompts += 1
        marker = f"p{self.prompts}"
        return marker, "\n".join([f"#{marker}", *(f"call {tool} {json.dumps(arguments)}" for tool, arguments in calls)])

    def shown(self, marker, what):
        until(what, lambda: marker in self.model.shown)
        return self.model.shown[marker]

    def start_exec(self, *arguments, calls):
        """Starts a headless run that makes these calls, and returns it with the mark of its prompt."""
        marker, prompt = self.calls(calls)
        run = subprocess.Popen([f"{NPM_BIN}/codex", "exec", *arguments, prompt], env=self.env, cwd=self.repo, start_new_session=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        running.append(run)
        return run, marker

    def exec(self, *arguments, calls):
        """A headless run that makes these calls, and what each was answered."""
        run, marker = self.start_exec(*arguments, calls=calls)
        assert run.wait(LIMIT) == 0, arguments
        return self.shown(marker, f"codex exec does {calls}")

    def end(self):
        """Ends the shared process and the one that keeps it up to date."""
        for name in ("daemon-updater.pid", "daemon.pid"):
            try:
                with open(os.path.join(self.dir, "app-server-daemon", name)) as file:
                    pid = json.load(file)["pid"]
                with open(f"/proc/{pid}/cmdline") as line:
                    if self.dir in line.read():
                        os.kill(pid, signal.SIGTERM)
            except (OSError, ValueError, KeyError):
                pass  # it never ran, or has ended


class Terminal:
    """Codex in a tmux window of its own."""

    def __init__(self, codex, name, arguments="", ready="Ask Codex", repo=None):
        self.codex, self.name, self.target = codex, f"{codex.name}-{name}", f"={codex.name}-{name}:"
        exported = " ".join(f"{key}={value!r}" for key, value in codex.env.items())
        command = f"env -i {exported} {NPM_BIN}/codex {arguments}; sleep 600"
        run_tmux(tmux_socket, "new-session", "-d", "-s", self.name, "-x", "150", "-y", "50", "-c", repo or codex.repo, command)
        self.until_shows(ready)

    def screen(self):
        return run_tmux(tmux_socket, "capture-pane", "-p", "-t", self.target)

    def until_shows(self, text):
        try:
            until(f"{self.name} shows {text!r}", lambda: text in self.screen())
        except AssertionError:
            print(self.screen())
            raise
        time.sleep(4)  # it takes no input before

    def command(self, text, agent):
        """Types a command of Codex, once the turn of its session has ended: it refuses them in the middle of one. Returns when."""
        until(f"{self.name} is idle", lambda: self.codex.session(agent).get("status") == "idle")
        refusals = lambda: self.screen().count("is disabled while a task is in progress")
        before, typed = refusals(), time.monotonic()
        self.type(text)
        time.sleep(4)  # it takes no input before
        if refusals() > before:
            typed = time.monotonic()
            self.type(text)
            time.sleep(4)
        return typed

    def press(self, *keys):
        for key in keys:
            run_tmux(tmux_socket, "send-keys", "-t", self.target, key)
            time.sleep(0.7)

    def type(self, text):
        run_tmux(tmux_socket, "set-buffer", "-b", self.name, text)
        run_tmux(tmux_socket, "paste-buffer", "-p", "-d", "-b", self.name, "-t", self.target)
        time.sleep(0.7)
        self.press("Enter")

    def ask(self, *calls):
        """Gives a prompt with these calls, and returns what each was answered."""
        marker, prompt = self.codex.calls(calls)
        done = lambda: self.codex.model.shown.get(marker)
        type_until_done(f"{self.name} does {calls}", lambda: self.type(prompt), done, f"#{marker}", self.screen)
        return done()

    def pid(self):
        """The program itself, below the shell of its window."""
        shell = run_tmux(tmux_socket, "list-panes", "-t", self.target, "-F", "#{pane_pid}").strip()
        return int(subprocess.run(["ps", "-o", "pid=", "--ppid", shell], capture_output=True, text=True).stdout.split()[0])

    def kill(self):
        os.kill(self.pid(), signal.SIGKILL)
        return time.monotonic()

    def quit(self):
        """Ends the program with its own command. Returns when."""
        ended = lambda file=f"/proc/{self.pid()}": not os.path.exists(file)
        type_until_done(f"{self.name} quits", lambda: self.type("/quit"), ended, "/quit", self.screen)
        return time.monotonic()

    def begin_new_thread(self, old, *calls):
        """Goes on to a new thread, and makes these calls there. Returns when it did, and what each was answered."""
        for _ in range(3):
            left = self.command("/new", old)
            shown = [answer(text) for text in self.ask(join(self.codex), *calls)]
            # What is typed while Codex draws its screen may be lost, and then nothing was new.
            if shown[0]["agent_id"] != old:
                break
        return left, shown

    def close(self):
        """Closes the window, as a person does."""
        run_tmux(tmux_socket, "kill-session", "-t", self.target)
        return time.monotonic()


def join(codex):
    return ("join_path", {"context_path": codex.repo})


def shell(command):
    return ("exec_command", {"cmd": f"{TT} --json {command}"})


CLAIM = ("wait_for_turn", {"room_id": "here", "max_wait_ms": 0, "claim": True})
LOOK = ("get_room_state", {"room_id": "here"})


def shared():
    """Terminals that share a process, with hooks, as Codex is set up by default."""
    codex = Codex("shared")
    try:
        codex.tt("install", "codex", "--trust-hooks")
        codex.check("the trust that --trust-hooks writes is what Codex wants", codex.trusts_hooks())
        first, second = Terminal(codex, "first"), Terminal(codex, "second")
        joined, sandboxed = first.ask(join(codex), shell("state"))
        a, b = answer(joined)["agent_id"], answer(second.ask(join(codex))[0])["agent_id"]
        codex.check("two terminals in one home are two members", a != b and codex.members() == {a, b}, (a, b, codex.state()))
        codex.check("a sandboxed tt says so, and what works", "a sandbox forbids" in sandboxed and "MCP tools" in sandboxed, sandboxed)
        for agent in (a, b):
            codex.check("hook and daemon tell of the member of the MCP calls", codex.evidence(agent) == {"hook", "harness_daemon"},
                        codex.session(agent))
        turn = answer(second.ask(CLAIM)[0])
        codex.check("the second holds the stick", turn["status"] == "your_turn" and codex.holder() == b, turn)

        agents = [("spawn_agent", {"task_name": f"look{n}", "message": codex.calls([join(codex), LOOK])[1]}) for n in (1, 2)]
        second.ask(*agents)
        for call in agents:
            shown = codex.shown(re.match(r"#(\w+)", call[1]["message"])[1], "a subagent is done")
            codex.check("a subagent is its session's member", answer(shown[0])["agent_id"] == b, shown)
        codex.check("and no member of its own", codex.members() == {a, b}, codex.state())

        # The one that started the shared process is killed. A third one, started after that, quits.
        killed = first.kill()
        third = Terminal(codex, "third")
        c = answer(third.ask(join(codex))[0])["agent_id"]
        quitted = third.quit()
        codex.until_gone(a, killed, "a killed terminal, which had started the shared process")
        codex.until_gone(c, quitted, "a terminal that quit")
        codex.check("the other keeps the stick", codex.holder() == b and codex.lives(b) == "alive", codex.session(b))
        codex.check("and works on", "members" in second.ask(LOOK)[0])
        closed = second.close()
        codex.until_gone(b, closed, "the holder, whose window was closed")
        codex.check_free("its window was closed")

        again = Terminal(codex, "again", f"resume {codex.session(b)['session_id']}")
        codex.check("resumed in another terminal it is the same member", answer(again.ask(join(codex))[0])["agent_id"] == b)
        codex.check("and lives", codex.lives(b) == "alive", codex.session(b))
    finally:
        codex.end()


def working():
    """A terminal that is killed in the middle of a turn, which Codex brings to its end without it."""
    codex = Codex("working")
    try:
        codex.tt("install", "codex", "--no-hooks")
        terminal = Terminal(codex, "only", UNCONFINED)
        joined, turn = map(answer, terminal.ask(join(codex), CLAIM))
        me = joined["agent_id"]
        codex.check("it holds the stick", turn["status"] == "your_turn" and codex.holder() == me, turn)
        begun, go_on = (os.path.join(codex.home, name) for name in ("begun", "go-on"))
        work = f"touch {begun}; timeout 8 sh -c 'until test -e {go_on}; do sleep 0.1; done'"
        marker, prompt = codex.calls([("exec_command", {"cmd": work})])
        type_until_done("it works", lambda: terminal.type(prompt), lambda: os.path.exists(begun), f"#{marker}", terminal.screen)
        terminal.kill()
        open(go_on, "w").close()
        codex.shown(marker, "the turn goes on to its end")
        ended = time.monotonic()
        codex.check("it lives and holds the stick until Codex closes it", codex.lives(me) == "alive" and codex.holder() == me, codex.session(me))
        codex.until_gone(me, ended, "a terminal that was killed in the middle of a turn, after the end of that turn")
        codex.check_free("it was killed")
    finally:
        codex.end()


def switched():
    """`/new`, without hooks and without the sandbox."""
    codex = Codex("switched")
    try:
        codex.tt("install", "codex", "--no-hooks")
        terminal = Terminal(codex, "new", UNCONFINED)
        joined, in_shell, turn = map(answer, terminal.ask(join(codex), shell("whoami"), CLAIM))
        old = joined["agent_id"]
        codex.check("MCP and shell are one member", in_shell["agent_id"] == old, in_shell)
        codex.check("it holds the stick", turn["status"] == "your_turn" and codex.holder() == old, turn)
        codex.check("its daemon alone tells", codex.evidence(old) == {"harness_daemon"}, codex.session(old))

        left, (joined, in_shell) = terminal.begin_new_thread(old, shell("whoami"))
        new = joined["agent_id"]
        codex.check("/new is another member", new != old and in_shell["agent_id"] == new, (old, new))
        codex.check("the old one is open until Codex closes it", codex.lives(old) == "alive", codex.session(old))
        codex.until_gone(old, left, "the thread before /new")
        codex.check_takeover(terminal, new)
        sent = codex.tt("msg", "send", "codex", "hello")
        codex.check("the name means the one that lives", [to["agent_id"] for to in sent["recipients"]] == [new], sent)
    finally:
        codex.end()


def forked():
    """`/fork`, with hooks."""
    codex = Codex("forked")
    try:
        codex.tt("install", "codex", "--trust-hooks")
        terminal = Terminal(codex, "fork")
        old, turn = map(answer, terminal.ask(join(codex), CLAIM))
        old = old["agent_id"]
        codex.check("it holds the stick", turn["status"] == "your_turn" and codex.holder() == old, turn)
        # Below a git repository it asks first.
        begun = lambda: any(text in terminal.screen() for text in ("Fork created", "Where should the fork"))
        type_until_done("the fork begins", lambda: terminal.command("/fork", old), begun, "/fork", terminal.screen)
        if "Where should the fork" in terminal.screen():
            terminal.press("Enter")
        terminal.until_shows("Fork created")
        fork = answer(terminal.ask(join(codex))[0])["agent_id"]
        codex.check("/fork is another member", fork != old and codex.members() == {old, fork}, fork)
        time.sleep(CLOSING + 10)
        # Its terminal can go back to it.
        codex.check("Codex keeps the thread that was forked open", codex.lives(old) == "alive" and codex.holder() == old, codex.session(old))
        closed = terminal.close()
        codex.until_gone(old, closed, "the thread that was forked, after its window was closed")
        codex.until_gone(fork, closed, "its fork")
        codex.check_free("its window was closed")
    finally:
        codex.end()


def headless():
    """`codex exec`, which has a process of its own, and hooks before and after they are trusted."""
    codex = Codex("headless")
    try:
        codex.tt("install", "codex")
        codex.check("hooks that nobody trusted are found", not codex.trusts_hooks())
        untrusted = answer(codex.exec(UNCONFINED, calls=[join(codex)])[0])["agent_id"]
        codex.check("and Codex runs none of them", "hook" not in codex.evidence(untrusted), codex.session(untrusted))
        codex.tt("install", "codex", "--trust-hooks")
        codex.check("with --trust-hooks they are trusted", codex.trusts_hooks())
        joined, in_shell = map(answer, codex.exec(UNCONFINED, calls=[join(codex), shell("whoami")]))
        a = joined["agent_id"]
        codex.check("Codex runs them", "hook" in codex.evidence(a), codex.session(a))
        codex.check("MCP, shell and hook are one member", in_shell["agent_id"] == a and codex.members() == {untrusted, a}, in_shell)
        until("the run is gone", lambda: codex.lives(a) == "gone")

        thread = codex.session(a)["session_id"]
        run, marker = codex.start_exec("resume", thread, UNCONFINED, calls=[join(codex), CLAIM, ("exec_command", {
            "cmd": f"sleep {LIMIT}", "yield_time_ms": LIMIT * 1000})])
        until("the resumed run holds the stick", lambda: codex.holder() == a)
        codex.check("resumed in another run it is the same member and lives", codex.lives(a) == "alive", codex.session(a))
        other, _ = codex.start_exec(UNCONFINED, calls=[join(codex), ("exec_command", {"cmd": f"sleep {LIMIT}", "yield_time_ms": LIMIT * 1000})])
        b = until("another one joined", lambda: codex.members() - {untrusted, a}).pop()
        os.killpg(other.pid, signal.SIGKILL)
        codex.until_gone(b, time.monotonic(), "a killed run", soon=True)
        codex.check("the other keeps the stick", codex.holder() == a and codex.lives(a) == "alive", codex.session(a))
        os.killpg(run.pid, signal.SIGKILL)
        codex.until_gone(a, time.monotonic(), "the killed holder", soon=True)
        codex.check_free("it was killed")

        terminal = Terminal(codex, "resumed", f"resume {thread} {UNCONFINED}")
        again, turn = map(answer, terminal.ask(join(codex), CLAIM))
        codex.check("resumed in a terminal it is the same member", again["agent_id"] == a, again)
        codex.check("and lives in the shared process", codex.lives(a) == "alive" and codex.holder() == a, codex.session(a))
    finally:
        codex.end()


def alone():
    """Terminals with a process each, and hooks that are trusted in the dialog of Codex."""
    codex = Codex("alone")
    try:
        codex.tt("install", "codex")
        first = Terminal(codex, "first", "--disable daemon_auto_start", ready="Hooks need review")
        first.press("Down", "Enter")
        first.until_shows("Ask Codex")
        codex.check("the dialog of Codex trusts what is expected of it", codex.trusts_hooks(), first.screen())
        second = Terminal(codex, "second", "--disable daemon_auto_start")
        a, b = (answer(terminal.ask(join(codex))[0])["agent_id"] for terminal in (first, second))
        codex.check("two terminals are two members", a != b and codex.members() == {a, b}, (a, b))
        codex.check("their hooks run, for the same members", codex.evidence(a) == codex.evidence(b) == {"hook"}, codex.session(a))
        turn = answer(second.ask(CLAIM)[0])
        codex.check("the second holds the stick", turn["status"] == "your_turn" and codex.holder() == b, turn)
        codex.until_gone(a, first.kill(), "a killed terminal", soon=True)
        codex.check("the other keeps the stick", codex.holder() == b and codex.lives(b) == "alive", codex.session(b))

        left, (joined,) = second.begin_new_thread(b)
        c = joined["agent_id"]
        codex.check("/new is another member", c not in (a, b) and codex.lives(c) == "alive", c)
        codex.check("the old thread is not alive", codex.lives(b) != "alive", codex.session(b))
        codex.until_gone(b, left, "the thread before /new")
        codex.check_takeover(second, c)
        codex.until_gone(c, second.quit(), "the holder, which quit", soon=True)
    finally:
        codex.end()


def play(scenario):
    try:
        scenario()
    except Exception as e:  # told at the end: it is not the main thread
        failures.append(scenario.__name__)
        with printing:
            print(f"FAILED  {scenario.__name__} plays to its end: {e!r}")
            traceback.print_exc(limit=-2, file=sys.stdout)


SCENARIOS = [shared, working, switched, forked, headless, alone]
wanted = [scenario for scenario in SCENARIOS if not sys.argv[4:] or scenario.__name__ in sys.argv[4:]]
shutil.rmtree(SCRATCH, ignore_errors=True)
# The address of a socket must be short.
data = tempfile.mkdtemp(prefix="tt", dir="/tmp")
tmux_socket = os.path.join(data, "tmux")
running = []
try:
    threads = [threading.Thread(target=play, args=(scenario,)) for scenario in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
finally:
    subprocess.run(["tmux", "-S", tmux_socket, "kill-server"], capture_output=True)
    for run in running:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    env = {"PATH": os.environ["PATH"], "HOME": SCRATCH, "TALKING_STICK_DATA_DIR": data}
    subprocess.run([TT, "daemon", "stop"], env=env, capture_output=True, timeout=LIMIT)
    shutil.rmtree(data, ignore_errors=True)
sys.exit(1 if failures else 0)
