"""The guard with real Claude Code, Codex, Gemini CLI and OpenCode, whose models are scripted: an edit in the turn of another member is
refused before the file changes, with the reason in the next model request; after `tt wait` the same edit goes through; with the stick free
the first edit takes it, and it is free again after the turn, with the file named.

Claude and Codex share a repository and refuse each other; the other two meet a member that is played by `tt`. All of them run at once.

usage: guarding.py TT NPM_BIN SCRATCH [duet] [gemini] [opencode]

Everything is set up by `tt install`. Every wait has a limit, and every process is ended."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from models import ObedientAnthropic, ObedientChat, ObedientGemini, ObedientResponses
from stage import LIMIT, check, failures, prompt, until

TT, NPM_BIN, SCRATCH = (os.path.abspath(path) for path in sys.argv[1:4])
WANTED = sys.argv[4:] or ["duet", "gemini", "opencode"]
# OpenCode installs what plugins need before its first session.
START = 240
REFUSED = "Not changed: in this workspace it is not your turn."
TAKEN = "it is yours now"
running = []


def environment(home):
    return {"HOME": home, "PATH": f"{os.path.dirname(TT)}:{NPM_BIN}:{os.environ['PATH']}", "TALKING_STICK_DATA_DIR": data,
            "TALKING_STICK_WAITER_GRACE": "0s", "LANG": "C.UTF-8", "TERM": "xterm-256color", "TMPDIR": os.path.join(SCRATCH, "tmp")}


def tt(repo, *args, home=None, agent=None):
    env = environment(home or SCRATCH)
    if agent:
        env["TT_HARNESS_AGENT_ID"] = agent
    done = subprocess.run([TT, "--json", *args], env=env, cwd=repo, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done
    return json.loads(done.stdout.splitlines()[0]) if done.stdout else {}


def claude(home):
    model = ObedientAnthropic("claude")
    env = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}", "ANTHROPIC_API_KEY": "none", "DISABLE_AUTOUPDATER": "1",
           "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    os.makedirs(os.path.join(home, ".claude"))
    command = [f"{NPM_BIN}/claude", "-p", "--allowedTools", "Bash,Read,Edit,Write"]
    return model, command, env, lambda c: ("Bash", {"command": c, "description": "work", "timeout": 60000})


def codex(home):
    model = ObedientResponses("codex")
    os.makedirs(os.path.join(home, ".codex"))
    with open(os.path.join(home, ".codex", "config.toml"), "w") as config:
        config.write('model = "stand-in"\nmodel_provider = "stand-in"\n\n[model_providers.stand-in]\nname = "stand-in"\n'
                     f'base_url = "http://127.0.0.1:{model.port}/v1"\nwire_api = "responses"\nenv_key = "STAND_IN_KEY"\n')
    command = [f"{NPM_BIN}/codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
               "--dangerously-bypass-hook-trust", "-"]
    # Codex hands a command that runs for longer than this to the background.
    return model, command, {"STAND_IN_KEY": "none"}, lambda c: ("exec_command", {"cmd": c, "yield_time_ms": 30000})


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


def workspace(name):
    repo = os.path.join(SCRATCH, f"{name}-repo")
    os.makedirs(os.path.join(repo, ".git"))
    with open(os.path.join(repo, "there.txt"), "w") as out:
        out.write("before\n")
    return repo


class Player:
    """One real harness with its own home, which does the calls of one prompt."""

    def __init__(self, make, repo):
        self.name, self.repo = make.__name__, repo
        home = os.path.join(SCRATCH, self.name)
        os.makedirs(home)
        self.model, self.command, env, self.shell = make(home)
        self.env = {**environment(home), **env}
        tt(repo, "install", self.name, home=home)

    def begin(self, *calls):
        asked, self.log = (os.path.join(SCRATCH, f"{self.name}.{kind}") for kind in ("prompt", "log"))
        with open(asked, "w") as out:
            out.write(prompt(self.name, *calls))
        with open(asked) as stdin, open(self.log, "w") as out:
            self.process = subprocess.Popen(self.command, env=self.env, cwd=self.repo, stdin=stdin, stdout=out, stderr=subprocess.STDOUT,
                                            start_new_session=True)
        running.append(self.process)

    def end(self):
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            pass
        with open(os.path.join(SCRATCH, f"{self.name}-requests.json"), "w") as out:
            json.dump(self.model.requests, out, indent=1)
        check(f"{self.name} ends by itself", self.process.poll() == 0, (self.process.poll(), open(self.log).read()[-1500:]))
        return self.model.shown.get(self.name) or []

    def requests(self):
        """The text of each request of the work."""
        texts = (json.dumps(request, ensure_ascii=False) for request in self.model.requests)
        return [text for text in texts if f"#{self.name}" in text]


def wait_for(*files):
    """A command that waits for files, and for less than a command may take in any harness."""
    return f"timeout 25 sh -c 'until test -e {' -a -e '.join(files)}; do sleep 0.1; done'"


def patch(path, text):
    return f"apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: {path}\n+{text}\n*** End Patch\nEOF"


def free_again(name, repo, path):
    """The stick is free after the turn, and the handoff names the file."""
    state = until(f"{name}: the stick is free", lambda: (lambda s: s if s["room"].get("owner") is None else None)(tt(repo, "state")))
    handoff = state.get("pending_handoff") or {}
    named = [artifact["path"] for artifact in handoff.get("artifacts", [])]
    check(f"{name}: the first edit took the free stick, and it is free after the turn with the file named",
          handoff.get("automatic") is True and path in named, state)


def duet():
    repo = workspace("duet")
    at = lambda name: os.path.join(repo, name)
    mark = lambda name: os.path.join(SCRATCH, f"duet-{name}")
    exists = lambda name: os.path.exists(at(name))
    tt(repo, "join", agent="codex:witness")
    one, two = Player(claude, repo), Player(codex, repo)
    do, run = one.shell, two.shell
    edit = ("Edit", {"file_path": at("there.txt"), "old_string": "before", "new_string": "after"})
    write = ("Write", {"file_path": at("new.txt"), "content": "from claude"})
    seen = f"cp {at('there.txt')} {mark('seen')}; ls {repo} > {mark('listed')}; touch {mark('claude-refused')}"
    two.begin(run(f"{TT} --json try && touch {mark('codex-holds')}"), run(wait_for(mark("claude-refused"))),
              run(f"{TT} --json release --status s --next-action n; {wait_for(mark('claude-holds'))}"), run(patch("patched.txt", "refused")),
              run(f"ls {repo} > {mark('listed-by-codex')}; touch {mark('codex-refused')}; {TT} --json wait --timeout 20s"),
              run(patch("patched.txt", "allowed")), run(f"{TT} --json release --status s --next-action n; touch {mark('codex-done')}"),
              run(wait_for(mark("claude-ended"))), run(patch("last.txt", "guarded")), run("echo on"))
    one.begin(do(wait_for(mark("codex-holds"))), ("Read", {"file_path": at("there.txt")}), edit, write, do(seen),
              do(f"{TT} --json wait --timeout 40s && touch {mark('claude-holds')}"), edit, write, do(wait_for(mark("codex-refused"))),
              do(f"{TT} --json release --status s --next-action n"), do(wait_for(mark("codex-done"))),
              ("Write", {"file_path": at("guarded.txt"), "content": "x"}), do("echo on"))
    shown = one.end()
    check("claude did everything", len(shown) == 13, shown)
    if len(shown) == 13:
        # The results are in the requests that follow them; each request has them all up to then.
        requests = one.requests()
        check("claude: Edit is refused, and the reason is in its next request", REFUSED in shown[2] and "holds the stick" in shown[2], shown[2])
        first = next((i for i, text in enumerate(requests) if REFUSED in text), None)
        check("claude: it is not in a request before", first is not None and "toolu_" in requests[first] and REFUSED not in requests[first - 1], first)
        check("claude: and so is Write", REFUSED in shown[3], shown[3])
        check("claude: before a file has changed",
              open(mark("seen")).read() == "before\n" and "new.txt" not in open(mark("listed")).read(), open(mark("listed")).read())
        check("claude: after tt wait the same edits go through",
              open(at("there.txt")).read() == "after\n" and open(at("new.txt")).read() == "from claude", shown[6:8])
        check("claude: it is told that it was given the free stick, once", requests[-1].count(TAKEN) == 1, requests[-1][-3000:])
        free_again("claude", repo, "guarded.txt")
    open(mark("claude-ended"), "w").close()
    shown = two.end()
    check("codex did everything", len(shown) == 10, shown)
    if len(shown) == 10:
        check("codex: apply_patch is refused, and the reason is in its next request", REFUSED in shown[3] and "holds the stick" in shown[3], shown[3])
        check("codex: before a file has changed", "patched.txt" not in open(mark("listed-by-codex")).read(), open(mark("listed-by-codex")).read())
        check("codex: after tt wait the same patch goes through", exists("patched.txt") and open(at("patched.txt")).read() == "allowed\n", shown[5])
        check("codex: it is told that it was given the free stick, once", two.requests()[-1].count(TAKEN) == 1, two.requests()[-1][-3000:])
        free_again("codex", repo, "last.txt")


def alone(make, write):
    """A harness that meets a member which `tt` plays."""
    name, repo = make.__name__, workspace(make.__name__)
    at = lambda file: os.path.join(repo, file)
    mark = lambda what: os.path.join(SCRATCH, f"{name}-{what}")
    tt(repo, "join", agent="claude:holder")
    tt(repo, "try", agent="claude:holder")
    player = Player(make, repo)
    shell = player.shell
    player.begin(shell(f"{TT} --json join"), write(at("new.txt")), shell(f"ls {repo} > {mark('listed')}; {TT} --json wait --timeout 60s"),
                 write(at("new.txt")), shell(f"{TT} --json release --status s --next-action n"), write(at("guarded.txt")), shell("echo on"))
    until(f"{name} was refused", lambda: os.path.exists(mark("listed")) or player.process.poll() is not None, START)
    until(f"{name} waits", lambda: any(m.get("waiting") for m in tt(repo, "state")["members"]))
    tt(repo, "release", "--status", "s", "--next-action", "n", agent="claude:holder")
    shown = player.end()
    check(f"{name} did everything", len(shown) == 7, (shown, open(player.log).read()[-2000:]))
    if len(shown) == 7:
        check(f"{name}: the edit is refused, and the reason is in its next request", REFUSED in shown[1] and "holds the stick" in shown[1], shown[1])
        check(f"{name}: before a file has changed", "new.txt" not in open(mark("listed")).read(), open(mark("listed")).read())
        check(f"{name}: after tt wait the same edit goes through", os.path.exists(at("new.txt")), shown[3])
        check(f"{name}: it is told that it was given the free stick", TAKEN in player.requests()[-1], player.requests()[-1][-3000:])
        free_again(name, repo, "guarded.txt")


def guarded(name, play):
    try:
        play()
    except (AssertionError, subprocess.TimeoutExpired, KeyError, OSError) as e:
        check(f"{name} plays to its end", False, repr(e))


shutil.rmtree(SCRATCH, ignore_errors=True)
os.makedirs(os.path.join(SCRATCH, "tmp"))
# The address of a socket must be short.
data = tempfile.mkdtemp(prefix="tt", dir="/tmp")
plays = {
    "duet": duet,
    "gemini": lambda: alone(gemini, lambda path: ("write_file", {"file_path": path, "content": "x"})),
    "opencode": lambda: alone(opencode, lambda path: ("write", {"filePath": path, "content": "x"})),
}
try:
    tt(SCRATCH, "daemon", "start")
    threads = [threading.Thread(target=guarded, args=(name, plays[name])) for name in WANTED]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
finally:
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run([TT, "daemon", "stop"], env=environment(SCRATCH), capture_output=True, timeout=LIMIT)
    if failures and os.path.exists(os.path.join(data, "hooks.log")):
        print(open(os.path.join(data, "hooks.log")).read()[-2000:])
    shutil.rmtree(data, ignore_errors=True)
sys.exit(1 if failures else 0)
