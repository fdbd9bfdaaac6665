"""What hooks say to real Claude Code, Codex, Gemini CLI and OpenCode, whose models are scripted: a message that is sent while the agent
runs tools that are not ours is in the model request after the running tool, once, with our MCP server installed as well; one that is for
later comes at the end of the turn, which is held for it. After a compaction and after `/clear`, Claude's next request names the turn that
it holds; and a holder that stops while another member waits is asked once to release.

usage: speaking.py TT NPM_BIN SCRATCH [HARNESS...]

Everything is set up by `tt install`. Every wait has a limit, and every process is ended."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from models import ObedientAnthropic, ObedientChat, ObedientGemini, ObedientResponses
from stage import LIMIT, answer, check, failures, prompt, run_tmux, type_until_done, until

TT, NPM_BIN, SCRATCH = (os.path.abspath(path) for path in sys.argv[1:4])
WANTED = sys.argv[4:] or ["claude", "codex", "gemini", "opencode", "terminal"]
KEY = "sk-stand-in-00000000000000000000"
# OpenCode installs what plugins need before its first session.
START = 240
running = []


def environment(home):
    return {"HOME": home, "PATH": f"{os.path.dirname(TT)}:{NPM_BIN}:{os.environ['PATH']}", "TALKING_STICK_DATA_DIR": data,
            "LANG": "C.UTF-8", "TERM": "xterm-256color", "TMPDIR": os.path.join(SCRATCH, "tmp")}


def tt(*args, home=None):
    done = subprocess.run([TT, "--json", *args], env=environment(home or SCRATCH), cwd=repo, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done
    return json.loads(done.stdout.splitlines()[0]) if done.stdout else {}


def claude(home):
    model = ObedientAnthropic("claude")
    env = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}", "ANTHROPIC_API_KEY": "none", "DISABLE_AUTOUPDATER": "1",
           "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    os.makedirs(os.path.join(home, ".claude"))
    return model, [f"{NPM_BIN}/claude", "-p", "--allowedTools", "Bash"], env, lambda c: ("Bash", {"command": c, "description": "work"})


def codex(home):
    model = ObedientResponses("codex")
    os.makedirs(os.path.join(home, ".codex"))
    with open(os.path.join(home, ".codex", "config.toml"), "w") as config:
        config.write('model = "stand-in"\nmodel_provider = "stand-in"\n\n[model_providers.stand-in]\nname = "stand-in"\n'
                     f'base_url = "http://127.0.0.1:{model.port}/v1"\nwire_api = "responses"\nenv_key = "STAND_IN_KEY"\n')
    command = [f"{NPM_BIN}/codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
               "--dangerously-bypass-hook-trust", "-"]
    return model, command, {"STAND_IN_KEY": "none"}, lambda c: ("exec_command", {"cmd": c})


def gemini(home):
    model = ObedientGemini("gemini")
    os.makedirs(os.path.join(home, ".gemini"))
    with open(os.path.join(home, ".gemini", "settings.json"), "w") as config:
        json.dump({"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
                   "general": {"enableAutoUpdate": False, "disableAutoUpdate": True, "disableUpdateNag": True},
                   "privacy": {"usageStatisticsEnabled": False}, "ide": {"enabled": False, "hasSeenNudge": True}}, config)
    env = {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.port}", "GEMINI_MODEL": "gemini-2.5-pro"}
    return model, [f"{NPM_BIN}/gemini", "--approval-mode", "yolo"], env, lambda c: ("run_shell_command", {"command": c})


def opencode(home):
    model = ObedientChat("opencode")
    config_dir = os.path.join(home, ".config", "opencode")
    os.makedirs(config_dir)
    with open(os.path.join(config_dir, "opencode.json"), "w") as config:
        json.dump({"autoupdate": False, "share": "disabled", "model": "stand-in/m", "small_model": "stand-in/m", "provider": {"stand-in": {
            "npm": "@ai-sdk/openai-compatible", "name": "stand-in", "options": {"baseURL": f"http://127.0.0.1:{model.port}/v1", "apiKey": "none"},
            "models": {"m": {"name": "m", "limit": {"context": 100000, "output": 8000}}}}}}, config)
    env = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
    return model, [f"{NPM_BIN}/opencode", "run"], env, lambda c: ("bash", {"command": c, "description": "work"})


def play(name, make):
    home = os.path.join(SCRATCH, name)
    os.makedirs(home)
    model, command, env, shell = make(home)
    tt("install", name, home=home)
    # A tool that runs until the messages were sent. Codex hands a command that runs for 10 s to the background.
    started, sent = (os.path.join(SCRATCH, f"{name}-{what}") for what in ("started", "sent"))
    work = f"touch {started}; timeout 8 sh -c 'until test -e {sent}; do sleep 0.1; done'; echo worked-{name}"
    asked, log = (os.path.join(SCRATCH, f"{name}.{kind}") for kind in ("prompt", "log"))
    with open(asked, "w") as out:
        out.write(prompt(name, shell(f"{TT} --json join"), shell(work), shell(f"echo on-{name}"), shell(f"echo on-{name}")))
    with open(asked) as stdin, open(log, "w") as out:
        process = subprocess.Popen(command, env={**environment(home), **env}, cwd=repo, stdin=stdin, stdout=out, stderr=subprocess.STDOUT,
                                   start_new_session=True)
    running.append(process)
    try:
        until(f"{name} works", lambda: os.path.exists(started) or process.poll() is not None, START)
        me = next(m["agent_id"] for m in tt("state")["members"] if m["agent_id"].startswith(f"{name}:"))
        letters = {word: tt("msg", "send", me, f"{word}-{name}", *more)["event_seq"]
                   for word, more in (("now", ()), ("later", ("--when-idle",)))}
        with open(sent, "w"):
            pass
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            pass
        check(f"{name} ends by itself", process.poll() == 0, process.poll())
    finally:
        with open(os.path.join(SCRATCH, f"{name}-requests.json"), "w") as out:
            json.dump(model.requests, out, indent=1)
    # What the model was shown of each word, request by request; titles are asked for without the work.
    work_requests = [json.dumps(request, ensure_ascii=False) for request in model.requests if f"#{name}" in json.dumps(request)]
    shown = [(text.count(f"worked-{name}"), text.count(f"now-{name}"), text.count(f"later-{name}")) for text in work_requests]
    # The command itself has the word once.
    first = next((i for i, (worked, _, _) in enumerate(shown) if worked > shown[0][0]), None)
    check(f"{name}: the tool was running", first is not None, shown)
    if first is None:
        print(open(log).read()[-2000:])
        return
    check(f"{name}: the message is in no request before", all(now == 0 for _, now, _ in shown[:first]), shown)
    check(f"{name}: it is in the request after the running tool, once", shown[first][1] == 1, shown)
    check(f"{name}: and nothing says it again", all(now == 1 for _, now, _ in shown[first:]), shown)
    turn = [later for _, _, later in shown]
    standing = {word: tt("msg", "status", str(seq))["recipients"][0] for word, seq in letters.items()}
    by_hook = lambda word: (standing[word]["state"], standing[word].get("surface")) == ("delivered", "hook")
    check(f"{name}: it was delivered by a hook", by_hook("now"), standing)
    if name == "opencode":
        # Its run without a terminal ends with the turn.
        check(f"{name}: what is for later is not lost where the turn cannot be held", standing["later"]["state"] == "pending", standing)
    else:
        check(f"{name}: what is for later holds the end of the turn, once", turn[-1] == 1 and turn[-2] == 0 and by_hook("later"), shown)


def terminal():
    """Claude Code in a terminal, which compacts and clears its conversation while it holds the stick."""
    if not shutil.which("tmux"):
        print("tmux is not installed; Claude Code in a terminal was not run")
        return
    home, socket = os.path.join(SCRATCH, "terminal"), os.path.join(data, "tmux")
    os.makedirs(os.path.join(home, ".claude"))
    model = ObedientAnthropic("terminal")
    with open(os.path.join(home, ".claude.json"), "w") as config:
        json.dump({"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
                   "projects": {repo: {"hasTrustDialogAccepted": True, "allowedTools": []}}}, config)
    tt("install", "claude", home=home)
    env = {**environment(home), "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}", "ANTHROPIC_API_KEY": KEY,
           "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    exported = " ".join(f"{key}={value!r}" for key, value in env.items())
    run_tmux(socket, "new-session", "-d", "-s", "claude", "-x", "150", "-y", "50", "-c", repo,
             f"env -i {exported} {NPM_BIN}/claude --permission-mode default --allowedTools Bash; sleep 600")
    screen = lambda: run_tmux(socket, "capture-pane", "-p", "-t", "claude")
    until("Claude is ready", lambda: "❯" in screen())
    time.sleep(2)

    def type_text(text):
        run_tmux(socket, "set-buffer", "-b", "b", text)
        run_tmux(socket, "paste-buffer", "-p", "-d", "-b", "b", "-t", "claude")
        time.sleep(0.7)
        run_tmux(socket, "send-keys", "-t", "claude", "Enter")

    def ask(marker, *commands):
        """Gives a prompt with these commands of `tt`, and returns what each was answered and the request that has the last answer."""
        calls = [("Bash", {"command": f"{TT} --json {command}", "description": "tt"}) for command in commands]
        done = lambda: model.shown.get(marker)
        type_until_done(f"Claude does {commands}", lambda: type_text(prompt(marker, *calls)), done, f"#{marker}", screen)
        of_it = [json.dumps(request, ensure_ascii=False) for request in model.requests if f"#{marker}" in json.dumps(request)]
        return done(), of_it

    shown, _ = ask("t1", "join", "try")
    turn = answer(shown[1])
    check("Claude holds the stick", turn["status"] == "your_turn", turn)
    holds = f"You hold the stick (turn {turn['turn_id']}"
    known = lambda: next(s for s in tt("sessions")["sessions"] if s["harness"] == "claude" and s["liveness"] == "alive")
    session = known()["session_id"]
    before = len(model.requests)
    type_text("/compact")
    until("it compacts", lambda: "ompacted" in screen())
    time.sleep(2)
    _, requests = ask("t2", "whoami")
    check("after a compaction the next request names the turn it holds", holds in requests[0], (before, requests[0][-3000:]))
    type_text("/clear")
    until("another conversation is known", lambda: known()["session_id"] != session)
    _, requests = ask("t3", "whoami")
    check("and after /clear", holds in requests[0], requests[0][-3000:])
    # Longer than it takes until the stick of a conversation that was not told is free.
    time.sleep(4)
    check("and it keeps the stick", tt("state")["room"].get("owner") == known()["agent_id"], tt("state"))
    # A person waits for it, and the holder stops.
    waiting = subprocess.Popen([TT, "wait"], env=environment(SCRATCH), cwd=repo, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    running.append(waiting)
    until("a person waits", lambda: any(m.get("waiting") for m in tt("state")["members"]))
    ask("t4", "whoami")
    asked = "waits for it: release it"
    until("the holder that stops is asked to release", lambda: asked in json.dumps(model.requests[-1]))
    time.sleep(3)
    count = json.dumps(model.requests[-1]).count(asked)
    check("the holder that stops while another waits is asked once, and may then stop", count == 1 and known()["status"] == "idle", (count, known()))


shutil.rmtree(SCRATCH, ignore_errors=True)
repo = os.path.join(SCRATCH, "repo")
os.makedirs(os.path.join(repo, ".git"))
os.makedirs(os.path.join(SCRATCH, "tmp"))
# The address of a socket must be short.
data = tempfile.mkdtemp(prefix="tt", dir="/tmp")
try:
    tt("join")
    for make in (claude, codex, gemini, opencode):
        if make.__name__ in WANTED:
            try:
                play(make.__name__, make)
            except (AssertionError, subprocess.TimeoutExpired, KeyError, StopIteration) as e:
                check(f"{make.__name__} plays to its end", False, repr(e))
                print(open(os.path.join(SCRATCH, f"{make.__name__}.log")).read()[-2000:])
    if "terminal" in WANTED:
        try:
            terminal()
        except (AssertionError, subprocess.TimeoutExpired, KeyError, StopIteration) as e:
            check("Claude in a terminal plays to its end", False, repr(e))
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
