"""Real Gemini CLI and real OpenCode, which tell their session to hooks and plugins alone: they are one member through MCP, their shell
tool and their hooks, also when they are resumed in another process, and one whose terminal was closed does not stay alive.

usage: gemini_opencode.py TT NPM_BIN SCRATCH [gemini] [opencode]

Everything is set up by `tt install`, with a scripted model on loopback. Every wait has a limit, and every process is ended."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from models import ObedientChat, ObedientGemini
from stage import LIMIT, answer, check, failures, prompt, run_tmux, type_until_done, until

TT, NPM_BIN, SCRATCH = (os.path.abspath(path) for path in sys.argv[1:4])
WANTED = sys.argv[4:] or ["gemini", "opencode"]
LETTER = "for the one that goes on with this conversation"
running = []


def environment(home):
    return {"HOME": home, "PATH": f"{os.path.dirname(TT)}:{NPM_BIN}:{os.environ['PATH']}", "TALKING_STICK_DATA_DIR": data,
            "LANG": "C.UTF-8", "TERM": "xterm-256color", "TMPDIR": os.path.join(SCRATCH, "tmp")}


def tt(*args, home=None):
    done = subprocess.run([TT, "--json", *args], env=environment(home or SCRATCH), cwd=repo, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done
    return json.loads(done.stdout.splitlines()[0]) if done.stdout else {}


def known(agent):
    return next((s for s in tt("sessions", "--all")["sessions"] if s["agent_id"] == agent), {})


def members(harness):
    return [m["agent_id"] for m in tt("state", "--all")["members"] if m["agent_id"].startswith(f"{harness}:")]


def run(name, command, env, model, *calls):
    """Runs a program without a terminal to its end, with these calls as the prompt, and returns what each was answered."""
    log, asked = (os.path.join(SCRATCH, f"{name}.{kind}") for kind in ("log", "prompt"))
    with open(asked, "w") as out:
        out.write(prompt(name, *calls))
    with open(asked) as stdin, open(log, "w") as out:
        process = subprocess.Popen(command, env=env, cwd=repo, stdin=stdin, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    running.append(process)
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        pass
    shown = model.shown.get(name)
    assert shown and len(shown) == len(calls) and process.poll() == 0, (process.poll(), shown, model.failure, open(log).read()[-2000:])
    return shown


def play(name, command, resume, env, model, shell):
    """One run, and another one that resumes its conversation in a new process."""
    join = ("join_path", {"context_path": repo})
    shown = run(f"{name}-1", command, env, model, join, shell("join"))
    in_mcp, in_shell = (answer(text)["agent_id"] for text in shown)
    check(f"{name} is one member through MCP and its shell tool", in_mcp == in_shell, shown)
    session = known(in_mcp)
    said = [e["says"] for e in session.get("evidence", []) if e["source"] == "hook"]
    check("and its hooks report the same session", bool(said), tt("sessions", "--all"))
    until(f"{name} is gone", lambda: known(in_mcp).get("liveness") == "gone")
    check("it is gone when its process ended", True)
    tt("msg", "send", in_mcp, LETTER)
    shown = run(f"{name}-2", [*command, *resume, session["session_id"]], env, model, join, shell("whoami"), ("get_room_state", {"room_id": "here"}))
    again = [answer(text)["agent_id"] for text in shown[:2]]
    check(f"{name}, resumed in another process, is the same member", again == [in_mcp] * 2, (in_mcp, shown, tt("sessions", "--all")))
    # By a hook, or with the answer of a tool of ours.
    check("and finds its inbox", any(LETTER in json.dumps(request) for request in model.requests), shown)
    check("nobody else was there", members(name) == [in_mcp], members(name))
    return in_mcp


def beside(name, command, env, model, shell, me):
    """A run without a terminal that resumes the conversation of a living session."""
    living = known(me)
    shown = run(f"{name}-beside", [*command, living["session_id"]], env, model, shell("whoami"))
    check(f"a run of {name} beside a living session is its member", answer(shown[0])["agent_id"] == me, (me, shown))
    now = known(me)
    same = all(now.get(key) == living.get(key) for key in ("session_id", "pid", "liveness"))
    check("the living session keeps its process, and lives", same and now.get("liveness") == "alive", (living, tt("sessions", "--all")))


def in_terminal(name, command, env, ready, other_conversation, model, shell, me, headless):
    """Another one, in a terminal: another run resumes its conversation beside it, it goes on to another conversation, and then its
    terminal is closed."""
    if not shutil.which("tmux"):
        print(f"tmux is not installed; {name} in a terminal was not run")
        return
    # The shell of the window leads the terminal's session, as a person's does.
    exported = " ".join(f"{key}={value!r}" for key, value in env.items())
    run_tmux(os.path.join(data, "tmux"), "new-session", "-d", "-s", name, "-x", "150", "-y", "50", "-c", repo, f"env -i {exported} {command}; sleep 600")
    screen = lambda: run_tmux(os.path.join(data, "tmux"), "capture-pane", "-p", "-t", name)

    def type_text(text):
        run_tmux(os.path.join(data, "tmux"), "set-buffer", "-b", name, text)
        run_tmux(os.path.join(data, "tmux"), "paste-buffer", "-p", "-d", "-b", name, "-t", name)
        time.sleep(1)
        run_tmux(os.path.join(data, "tmux"), "send-keys", "-t", name, "Enter")

    def ask(text, done):
        type_until_done(f"{name} does {text}", lambda: type_text(text), done, text.splitlines()[0], screen)
        return done()

    until(f"{name} is ready", lambda: ready in screen())
    time.sleep(1)
    other = answer(ask(prompt(f"{name}-3", shell("join")), lambda: model.shown.get(f"{name}-3"))[0])["agent_id"]
    session = known(other)
    check(f"{name} in a terminal is another member, and alive", other != me and session.get("liveness") == "alive", session)
    beside(name, headless, env, model, shell, other)
    ask(other_conversation, lambda: other_conversation not in screen())
    time.sleep(2)
    shown = ask(prompt(f"{name}-4", shell("whoami")), lambda: model.shown.get(f"{name}-4"))
    check(f"after {other_conversation} it is the same member", answer(shown[0])["agent_id"] == other, (other, shown))
    check("and no ghost is left", sorted(members(name)) == sorted([me, other]), members(name))
    now = known(other)
    check("in another conversation", now["session_id"] != session["session_id"], now)
    run_tmux(os.path.join(data, "tmux"), "kill-session", "-t", name)
    began = time.monotonic()
    of_it = lambda: next(s for s in tt("sessions", "--all")["sessions"] if s["session_id"] == now["session_id"])
    ended = until(f"{name} is not alive", lambda: of_it() if of_it()["liveness"] != "alive" else None)
    print(f"        its terminal was closed, and {time.monotonic() - began:.1f} s later it is {ended['liveness']}: {ended['because']}", flush=True)
    check("one whose terminal was closed does not stay alive", True)


def gemini():
    home = os.path.join(SCRATCH, "gemini")
    os.makedirs(os.path.join(home, ".gemini"))
    model = ObedientGemini("gemini")
    with open(os.path.join(home, ".gemini", "settings.json"), "w") as config:
        json.dump({"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
                   "general": {"enableAutoUpdate": False, "disableAutoUpdate": True, "disableUpdateNag": True},
                   "privacy": {"usageStatisticsEnabled": False}, "ide": {"enabled": False, "hasSeenNudge": True}}, config)
    tt("install", "gemini", home=home)
    env = {**environment(home), "GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.port}", "GEMINI_MODEL": "gemini-2.5-pro"}
    shell = lambda command: ("run_shell_command", {"command": f"{TT} --json {command}"})
    me = play("gemini", [f"{NPM_BIN}/gemini", "--approval-mode", "yolo"], ["--resume"], env, model, shell)
    peek = tt("peek", me, "--lines", "3")
    check("its transcript is shown", any("done" in line["text"] for line in peek["lines"]), peek)
    in_terminal("gemini", f"{NPM_BIN}/gemini --approval-mode yolo", env, "Type your message", "/clear", model, shell, me,
                [f"{NPM_BIN}/gemini", "--approval-mode", "yolo", "--resume"])


def opencode():
    home = os.path.join(SCRATCH, "opencode")
    config_dir = os.path.join(home, ".config", "opencode")
    os.makedirs(config_dir)
    model = ObedientChat("opencode")
    with open(os.path.join(config_dir, "opencode.json"), "w") as config:
        json.dump({"autoupdate": False, "share": "disabled", "model": "stand-in/m", "small_model": "stand-in/m", "provider": {"stand-in": {
            "npm": "@ai-sdk/openai-compatible", "name": "stand-in", "options": {"baseURL": f"http://127.0.0.1:{model.port}/v1", "apiKey": "none"},
            "models": {"m": {"name": "m", "limit": {"context": 100000, "output": 8000}}}}}}, config)
    tt("install", "opencode", home=home)
    env = {**environment(home), "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
    shell = lambda command: ("bash", {"command": f"{TT} --json {command}", "description": "tt"})
    me = play("opencode", [f"{NPM_BIN}/opencode", "run"], ["--session"], env, model, shell)
    in_terminal("opencode", f"{NPM_BIN}/opencode", env, "Ask anything", "/new", model, shell, me, [f"{NPM_BIN}/opencode", "run", "--session"])


shutil.rmtree(SCRATCH, ignore_errors=True)
repo = os.path.join(SCRATCH, "repo")
os.makedirs(os.path.join(repo, ".git"))
os.makedirs(os.path.join(SCRATCH, "tmp"))
# The address of a socket must be short.
data = tempfile.mkdtemp(prefix="tt", dir="/tmp")
try:
    for harness in (gemini, opencode):
        if harness.__name__ in WANTED:
            try:
                harness()
            except (AssertionError, subprocess.TimeoutExpired, KeyError) as e:
                check(f"{harness.__name__} plays to its end", False, repr(e))
finally:
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(["tmux", "-S", os.path.join(data, "tmux"), "kill-server"], capture_output=True)
    subprocess.run([TT, "daemon", "stop"], env=environment(SCRATCH), capture_output=True, timeout=LIMIT)
    if failures and os.path.exists(os.path.join(data, "hooks.log")):
        print(open(os.path.join(data, "hooks.log")).read()[-2000:])
    shutil.rmtree(data, ignore_errors=True)
sys.exit(1 if failures else 0)
