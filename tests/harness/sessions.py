"""Who is really there: sessions of real Claude Code in terminals, with hooks and a scripted model. `codex_sessions.py` has those of Codex.

usage: sessions.py TT NPM_BIN SCRATCH [claude] [plain]

Every wait has a limit, and every process is ended."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from models import ObedientAnthropic
from stage import LIMIT, answer, check, failures, prompt, run_tmux, type_until_done, until

KEY = "sk-stand-in-00000000000000000000"
TT, NPM_BIN, SCRATCH = (os.path.abspath(path) for path in sys.argv[1:4])
WANTED = sys.argv[4:] or ["claude", "plain"]
MCP = "mcp__talking-stick__"
LETTER = "for the main conversation"
prompts = 0


def environment(home):
    return {"HOME": home, "PATH": f"{os.path.dirname(TT)}:{NPM_BIN}:{os.environ['PATH']}", "TALKING_STICK_DATA_DIR": data,
            "LANG": "C.UTF-8", "TERM": "xterm-256color", "TMPDIR": os.path.join(SCRATCH, "tmp")}


def tt(*args, home=None):
    done = subprocess.run([TT, "--json", *args], env=environment(home or SCRATCH), cwd=repo, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done
    return json.loads(done.stdout.splitlines()[0]) if done.stdout else {}


def state():
    return tt("state", "--all")


def holder():
    return state()["room"].get("owner")


def members(harness):
    # The harness is left out where the id begins with it.
    return [m for m in state()["members"] if m["agent_id"].startswith(harness + ":") and m.get("status", "active") == "active"]


def known(agent):
    return next((s for s in tt("sessions", "--all")["sessions"] if s["agent_id"] == agent), {})


class Terminal:
    """A program in a tmux window of its own."""

    def __init__(self, name, model, command, env, ready, settle):
        self.name, self.model = name, model
        exported = " ".join(f"{key}={value!r}" for key, value in env.items())
        run_tmux(tmux_socket, "new-session", "-d", "-s", name, "-x", "150", "-y", "50", "-c", repo, f"env -i {exported} {command}; sleep 600")
        until(f"{name} is ready", lambda: ready in self.screen())
        time.sleep(settle)

    def screen(self):
        return run_tmux(tmux_socket, "capture-pane", "-p", "-t", self.name)

    def type(self, text):
        run_tmux(tmux_socket, "set-buffer", "-b", self.name, text)
        run_tmux(tmux_socket, "paste-buffer", "-p", "-d", "-b", self.name, "-t", self.name)
        time.sleep(0.7)
        run_tmux(tmux_socket, "send-keys", "-t", self.name, "Enter")

    def begin(self, *calls, done=None):
        """Gives a prompt with these calls, waits until they are done (or until what else is wanted), and returns the mark of the prompt."""
        global prompts
        prompts += 1
        marker = f"p{prompts}"
        done = done or (lambda: self.model.shown.get(marker))
        type_until_done(f"{self.name} does {calls}", lambda: self.type(prompt(marker, *calls)), done, f"#{marker}", self.screen)
        return marker

    def ask(self, *calls):
        """Gives a prompt with these calls, and returns what each was answered."""
        return self.model.shown[self.begin(*calls)]

    def pid(self):
        """The program itself, below the shell of its window."""
        shell = run_tmux(tmux_socket, "list-panes", "-t", self.name, "-F", "#{pane_pid}").strip()
        return int(subprocess.run(["ps", "-o", "pid=", "--ppid", shell], capture_output=True, text=True).stdout.split()[0])

    def close(self):
        """Closes the window, as a person does."""
        run_tmux(tmux_socket, "kill-session", "-t", self.name)


def resume(env, model, session_id, *calls):
    """Resumes a conversation in a headless run that makes these calls, and returns what each was answered."""
    global prompts
    prompts += 1
    marker = f"p{prompts}"
    done = subprocess.run([f"{NPM_BIN}/claude", "-p", prompt(marker, *calls), "--resume", session_id, "--allowedTools",
                           "Bash,ToolSearch,mcp__talking-stick"],
                          env=env, cwd=repo, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0 and model.shown.get(marker), (done, model.failure)
    return model.shown[marker]


def beside(env, model, me, when=""):
    """Resumes the conversation of a living session in a headless run."""
    living, held = known(me), holder()
    shown = answer(resume(env, model, living["session_id"], shell("whoami"))[0])
    check(f"{when}a headless run beside a living session is its member", shown["agent_id"] == me, shown)
    now = known(me)
    same = all(now.get(key) == living.get(key) for key in ("session_id", "pid", "liveness"))
    check(f"{when}the living session keeps its process", same, (living, tt("sessions", "--all")))
    check(f"{when}and the stick if it had it", holder() == held and now.get("liveness") == "alive", (state(), now))


def start_claude(name, *options):
    """Claude Code in a terminal, with our entries and these options of `tt install`. Returns also its environment."""
    home = os.path.join(SCRATCH, name)
    os.makedirs(os.path.join(home, ".claude"))
    model = ObedientAnthropic(name)
    with open(os.path.join(home, ".claude.json"), "w") as config:
        json.dump({"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
                   "projects": {repo: {"hasTrustDialogAccepted": True, "allowedTools": []}}}, config)
    tt("install", "claude", *options, home=home)
    env = {**environment(home), "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}", "ANTHROPIC_API_KEY": KEY,
           "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    allowed = "--permission-mode default --allowedTools Bash,Task,Agent,ToolSearch,mcp__talking-stick"
    return Terminal(name, model, f"{NPM_BIN}/claude {allowed}", env, "❯", 2), env


def shell(command):
    return ("Bash", {"command": f"{TT} --json {command}", "description": "tt"})


def claude_sessions():
    claude, env = start_claude("claude")
    model = claude.model
    look_up = ("ToolSearch", {"query": f"select:{MCP}join_path,{MCP}get_room_state", "max_results": 2})

    shown = claude.ask(look_up, (MCP + "join_path", {"context_path": repo}), shell("join"), shell("try"))
    joined, in_shell, turn = (answer(text) for text in shown[1:])
    me, room = joined["agent_id"], joined["room_id"]
    check("Claude is one member through MCP and its shell tool", me == in_shell["agent_id"], (joined, in_shell))
    said = {e["source"] for e in known(me).get("evidence", [])}
    check("and its hooks report the same session", "hook" in said, known(me))
    check("Claude holds the stick", turn["status"] == "your_turn" and holder() == me, (turn, state()))

    beside(env, model, me)
    old = known(me)["session_id"]
    claude.type("/clear")
    until("another session is known", lambda: known(me).get("session_id") not in (None, old))
    shown = claude.ask(shell("whoami"), shell("release --status s --next-action n"))
    check("after /clear it is the same member", answer(shown[0])["agent_id"] == me, shown[0])
    check("and its own release works", answer(shown[1]).get("status") == "released", shown[1])
    check("no ghost is left", [m["agent_id"] for m in members("claude")] == [me], members("claude"))

    # Its first command runs until the message was sent.
    works, sent = (os.path.join(SCRATCH, name) for name in ("subagent-works", "letter-sent"))
    work = {"command": f"touch {works}; timeout 60 sh -c 'until test -e {sent}; do sleep 0.1; done'; echo worked", "description": "work"}
    subagent = prompt("subagent", look_up, ("Bash", work), (MCP + "get_room_state", {"room_id": room}), shell("msg recv"),
                      shell("wait --park --timeout 1s; true"))
    task = next(tool["name"] for tool in model.requests[-1]["tools"] if tool["name"] in ("Task", "Agent"))
    asked = claude.begin((task, {"description": "look", "prompt": subagent, "subagent_type": "general-purpose"}),
                         done=lambda: os.path.exists(works))
    letter = tt("msg", "send", me, LETTER)["event_seq"]
    open(sent, "w").close()
    # It may run in the background.
    results = until("the subagent is done", lambda: model.shown.get("subagent"))
    until("the turn is over", lambda: model.shown.get(asked))
    check("a subagent called a tool of ours", '"members"' in results[2], results)
    # Read from the whole requests, where hooks speak as well.
    of_subagent = lambda request: any(kind == "user" and "#subagent" in text.splitlines() for kind, text in model.entries(request))
    subagents = [json.dumps(request) for request in model.requests if of_subagent(request)]
    check("a message that is sent while a subagent works is not handed to it",
          len(subagents) > 5 and not any(LETTER in request for request in subagents), (len(subagents), results))
    claude.ask(look_up, (MCP + "get_room_state", {"room_id": room}))
    # By a hook, or with the answer of a tool of ours.
    shown = [json.dumps(request).count(LETTER) for request in model.requests if not of_subagent(request)]
    check("it comes in the main conversation, once", shown[-1] == 1 and max(shown) == 1, shown)
    standing = tt("msg", "status", str(letter))["recipients"]
    check("and was delivered", [to["state"] for to in standing] == ["delivered"], standing)

    # Who released last lets the others go first, so a person takes it and passes it back.
    tt("try")
    tt("pass", me, "--status", "s", "--next-action", "n")
    turn = answer(claude.ask(shell("try"))[0])
    check("Claude holds the stick again", turn["status"] == "your_turn" and holder() == me, (turn, state()))
    beside(env, model, me, "after /clear, ")

    first = known(me)["session_id"]
    claude.type("/branch")
    until("the conversation that was left is gone", lambda: known(me).get("liveness") == "gone")
    branch = answer(claude.ask(shell("whoami"))[0])["agent_id"]
    check("/branch is another member", branch != me and known(branch).get("liveness") == "alive", (branch, tt("sessions", "--all")))
    claude.type(f"/resume {first}")
    until("the older conversation is open again", lambda: known(me).get("liveness") == "alive")
    shown = answer(claude.ask(shell("whoami"))[0])
    check("/resume of an older conversation is its member", shown["agent_id"] == me, shown)
    check("and the branch is gone", known(branch).get("liveness") == "gone", known(branch))
    check("and the stick is still its own", holder() == me, state())
    claude.close()
    gone = time.monotonic()
    until("Claude is gone", lambda: known(me).get("liveness") == "gone")
    check(f"a closed terminal frees it ({time.monotonic() - gone:.1f} s)", True)
    took = tt("take", "--reason", "its terminal was closed")
    check("and its stick", took["reason"] == "owner_gone", took)
    tt("release", "--status", "s", "--next-action", "n")
    shown = resume(env, model, first, look_up, (MCP + "join_path", {"context_path": repo}), shell("whoami"))
    again = [answer(text)["agent_id"] for text in shown[1:]]
    check("resumed in another process it is the same member, through MCP and shell", again == [me] * 2, (me, shown))
    said = {e["source"] for e in known(me).get("evidence", [])}
    check("and by its hooks", "hook" in said and {m["agent_id"] for m in members("claude")} <= {me, branch}, (known(me), members("claude")))


def claude_without_hooks():
    claude, env = start_claude("plain", "--no-hooks")
    joined, turn = (answer(text) for text in claude.ask(shell("join"), shell("try")))
    me = joined["agent_id"]
    check("without hooks, Claude holds the stick", turn["status"] == "your_turn" and holder() == me, (turn, state()))
    said = {e["source"] for e in known(me).get("evidence", [])}
    check("its session file tells, and no hook", "session_file" in said and "hook" not in said, known(me))
    old = known(me)["session_id"]
    claude.type("/clear")
    until("the session file told", lambda: known(me).get("session_id") not in (None, old))
    # Nothing tells the new conversation that it has the stick.
    until("the stick is free, without hooks", lambda: holder() is None)
    handoff = state()["pending_handoff"]
    check("with a handoff that says why", handoff.get("automatic") is True and "does not know of it" in handoff["status"], handoff)
    shown = claude.ask(shell("whoami"))
    check("after /clear it is the same member, without hooks", answer(shown[0])["agent_id"] == me, shown[0])
    living = [s["agent_id"] for s in tt("sessions")["sessions"] if s["harness"] == "claude" and s["liveness"] == "alive"]
    check("no ghost is left, without hooks", living == [me], tt("sessions", "--all"))
    beside(env, claude.model, me, "without hooks, ")
    now = known(me)["session_id"]
    claude.type(f"/resume {old}")
    until("the session file told of the older conversation", lambda: known(me).get("liveness") == "gone")
    other = answer(claude.ask(shell("whoami"))[0])["agent_id"]
    living = [s["agent_id"] for s in tt("sessions")["sessions"] if s["harness"] == "claude" and s["liveness"] == "alive"]
    check("/resume of a conversation that is known leaves no ghost either", living == [other] and other != me, (other, tt("sessions", "--all")))
    claude.close()
    until("it is gone", lambda: known(other).get("liveness") == "gone")
    shown = answer(resume(env, claude.model, now, shell("whoami"))[0])
    check("resumed in another process it is the same member, without hooks", shown["agent_id"] == me, (me, shown))


shutil.rmtree(SCRATCH, ignore_errors=True)
repo = os.path.join(SCRATCH, "repo")
os.makedirs(os.path.join(repo, ".git"))
os.makedirs(os.path.join(SCRATCH, "tmp"))
# The address of a socket must be short.
data = tempfile.mkdtemp(prefix="tt", dir="/tmp")
tmux_socket = os.path.join(data, "tmux")
try:
    for name, play in (("claude", claude_sessions), ("plain", claude_without_hooks)):
        if name in WANTED:
            try:
                play()
            except (AssertionError, subprocess.TimeoutExpired, KeyError) as e:
                check(f"{name} plays to its end", False, repr(e))
finally:
    subprocess.run(["tmux", "-S", tmux_socket, "kill-server"], capture_output=True)
    subprocess.run([TT, "daemon", "stop"], env=environment(SCRATCH), capture_output=True, timeout=LIMIT)
    if failures and os.path.exists(os.path.join(data, "hooks.log")):
        print(open(os.path.join(data, "hooks.log")).read()[-2000:])
    shutil.rmtree(data, ignore_errors=True)
sys.exit(1 if failures else 0)
