"""Records screens of the real programs in a terminal, in every state in which a message could arrive. The recordings are test data for
`harness/src/screen.rs`: run this again after a new version of a harness, and look at the diff.

usage: record_screens.py NPM_BIN SCRATCH OUT [HARNESS...]

A recording has one line (cursor and whether it is shown, size, whether tmux is in a mode of its own), and then the screen with its colours. The home is
`~` on every screen, so that no name of the machine is in a recording."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from models import ObedientAnthropic, ObedientChat, ObedientGemini, ObedientResponses
from stage import LIMIT, prompt, run_tmux, until

NPM_BIN, SCRATCH, OUT = (os.path.abspath(path) for path in sys.argv[1:4])
WANTED = sys.argv[4:] or ["claude", "codex", "gemini", "opencode"]
KEY = "sk-stand-in-00000000000000000000"
ONE_LINE = 'fix the "parser" first'
MANY_LINES = 'first line\n  second "line"\n\nthe fourth ends with \\'
WIDE = "日本語 ünï 👍 e\u0301 wide \\"
LONG = "\n".join(f"line {n} of a long text that somebody pasted" for n in range(40))
WRAPPED = "one line that is so long that no composer shows it without wrapping it, " * 4


class Held:
    """A model that does not answer a prompt that says #hold until it is let go."""

    def __init__(self, name):
        self.let_go = threading.Event()
        super().__init__(name)

    def respond(self, path, request):
        kinds = [text for kind, text in self.entries(request) if kind == "user"]
        if request.get("tools") and kinds and "#hold" in kinds[-1]:
            self.let_go.wait(120)
        return super().respond(path, request)


class Claude(Held, ObedientAnthropic):
    pass


class Codex(Held, ObedientResponses):
    pass


class Gemini(Held, ObedientGemini):
    pass


class OpenCode(Held, ObedientChat):
    pass


class Stage:
    """One program in a terminal."""

    def __init__(self, name, command, env, ready, size=(110, 36)):
        self.name, self.recorded = name, None
        exported = " ".join(f"{key}={value!r}" for key, value in {**env, "HOME": home, "LANG": "C.UTF-8", "TERM": "xterm-256color",
                            "PATH": f"{NPM_BIN}:{os.environ['PATH']}", "COLORTERM": "truecolor"}.items())
        run_tmux(socket, "new-session", "-d", "-s", name, "-x", str(size[0]), "-y", str(size[1]), "-c", repo, f"env -i {exported} {command}; sleep 600")
        until(f"{name} is ready", lambda: ready in self.text(), 240)
        self.until_it_takes_input()

    def until_it_takes_input(self):
        """What is typed before a program is ready may be lost."""
        give_up = time.monotonic() + LIMIT
        while "readyword" not in self.text():
            assert time.monotonic() < give_up, f"{self.name} takes no input"
            self.type("readyword")
        self.empty_composer()

    def tmux(self, *args):
        return run_tmux(socket, *args)

    def text(self):
        return self.tmux("capture-pane", "-p", "-t", self.name)

    def keys(self, *keys):
        self.tmux("send-keys", "-t", self.name, *keys)
        time.sleep(0.7)

    def type(self, text):
        self.tmux("send-keys", "-l", "-t", self.name, text)
        time.sleep(1)

    def paste(self, text):
        self.tmux("set-buffer", "-b", "b", text)
        self.tmux("paste-buffer", "-p", "-d", "-b", "b", "-t", self.name)
        time.sleep(1.5)

    def submit(self, text):
        self.paste(text)
        self.keys("Enter")

    def still(self):
        """The screen once it has not changed for a second, or moves for ever."""
        last, since = None, time.monotonic()
        end = since + 8
        while time.monotonic() < end:
            now = self.tmux("capture-pane", "-p", "-e", "-t", self.name)
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > 1:
                break
            time.sleep(0.1)
        return last

    def looks(self):
        return self.tmux("capture-pane", "-p", "-e", "-t", self.name), self.tmux("display-message", "-p", "-t", self.name, "#{cursor_x},#{cursor_y},#{pane_in_mode}")

    def record(self, state, still=True):
        until(f"{self.name} shows something new for {state}", lambda: self.looks() != self.recorded)
        screen = self.still() if still else self.tmux("capture-pane", "-p", "-e", "-t", self.name)
        x, y, width, height, mode, shown = self.tmux("display-message", "-p", "-t", self.name,
            "#{cursor_x} #{cursor_y} #{pane_width} #{pane_height} #{pane_in_mode} #{cursor_flag}").split()
        for name in (home, SCRATCH, os.path.dirname(home)):
            screen = screen.replace(name, "~")
        head = f"cursor {x},{y} shown {shown} size {width},{height} mode {mode}"
        os.makedirs(os.path.join(OUT, self.name), exist_ok=True)
        with open(os.path.join(OUT, self.name, state + ".screen"), "w") as out:
            out.write(head + "\n" + screen)
        self.recorded = self.looks()
        print(f"{self.name}/{state}", flush=True)

    def empty_composer(self):
        """Takes out what is in the composer. Programs handle keys one after another, so letters that are shown tell that they have
        handled those before it."""
        self.keys(*["C-u", "BSpace"] * 12)
        self.type("zQz")
        until("the keys were handled", lambda: "zQz" in self.text())
        self.keys("BSpace", "BSpace", "BSpace")
        until("the letters are gone", lambda: "zQz" not in self.text())
        self.recorded = self.looks()

    def close(self):
        self.tmux("kill-session", "-t", self.name)


def common(stage, model, clear, tool, question, working):
    """The states that every harness has. `clear` empties the composer."""
    stage.recorded = None
    stage.record("empty")
    for state, text, way in (("draft_one_line", ONE_LINE, stage.type), ("draft_many_lines", MANY_LINES, stage.paste), ("draft_wide", WIDE, stage.type),
                             ("draft_pasted_token", LONG, stage.paste), ("draft_wrapped", WRAPPED, stage.type), ("draft_one_space", " ", stage.type),
                             ("draft_backslash", "ends with \\", stage.type), ("menu", "/", stage.type), ("draft_at", "@", stage.type),
                             ("shell_mode", "!", stage.type), ("shell_mode_draft", "!ls", stage.type)):
        way(text)
        stage.record(state)
        clear(stage)
    # The cursor at the beginning of a draft.
    stage.type(ONE_LINE)
    stage.keys("Home")
    stage.record("draft_cursor_at_start")
    stage.keys("End")
    clear(stage)
    stage.recorded = None
    stage.record("empty_after_clearing")
    stage.submit("#hold think")
    until("it works", lambda: working in stage.text())
    stage.record("working", still=False)
    stage.type(ONE_LINE)
    stage.record("working_with_draft", still=False)
    stage.keys(*["BSpace"] * (len(ONE_LINE) + 2))
    stage.keys("Escape")
    if stage.name == "opencode":
        stage.keys("Escape")
    time.sleep(2)
    stage.record("after_escape")
    model.let_go.set()
    clear(stage)
    stage.recorded = None
    stage.record("after_escape_cleared")
    stage.submit(prompt("one", tool("echo worked")))
    if question:
        until("it asks", lambda: question in stage.text())
        stage.record("question")
        stage.keys("Enter")
    until("the turn ends", lambda: "one" in model.shown)
    time.sleep(2)
    stage.record("after_a_turn")
    stage.tmux("copy-mode", "-t", stage.name)
    stage.keys("Up")
    stage.record("copy_mode")
    stage.tmux("send-keys", "-X", "-t", stage.name, "cancel")
    stage.tmux("resize-window", "-t", stage.name, "-x", "60", "-y", "20")
    time.sleep(2)
    stage.record("narrow_empty")
    stage.type(WRAPPED)
    stage.record("narrow_draft")
    clear(stage)
    stage.tmux("resize-window", "-t", stage.name, "-x", "110", "-y", "36")
    time.sleep(2)


def claude():
    model = Claude("claude")
    os.makedirs(os.path.join(home, ".claude"))
    with open(os.path.join(home, ".claude.json"), "w") as config:
        json.dump({"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
                   "projects": {repo: {"hasTrustDialogAccepted": True, "allowedTools": []}}}, config)
    env = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}", "ANTHROPIC_API_KEY": KEY, "DISABLE_AUTOUPDATER": "1",
           "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    stage = Stage("claude", f"{NPM_BIN}/claude --permission-mode default", env, "❯")

    def clear(stage):
        stage.keys("Escape") if "shell mode" in stage.text() else None
        stage.empty_composer()

    common(stage, model, clear, lambda c: ("Bash", {"command": f"touch x; {c}", "description": "work"}), "Do you want to", "esc to interrupt")
    stage.submit("/model")
    time.sleep(1)
    stage.record("dialog_model")
    stage.keys("Escape")
    stage.keys("C-o")
    stage.record("transcript_view")
    stage.keys("C-o")
    stage.keys("C-r")
    stage.record("history_search")
    stage.keys("Escape")
    stage.close()


def codex():
    model = Codex("codex")
    os.makedirs(os.path.join(home, ".codex"))
    with open(os.path.join(home, ".codex", "config.toml"), "w") as config:
        config.write('model = "stand-in"\nmodel_provider = "stand-in"\ncheck_for_update_on_startup = false\n\n[model_providers.stand-in]\nname = "stand-in"\n'
                     f'base_url = "http://127.0.0.1:{model.port}/v1"\nwire_api = "responses"\nenv_key = "STAND_IN_KEY"\n\n'
                     f'[projects."{repo}"]\ntrust_level = "trusted"\n')
    stage = Stage("codex", f"{NPM_BIN}/codex", {"STAND_IN_KEY": "none"}, "Ask Codex")

    def clear(stage):
        stage.empty_composer()

    ask = {"sandbox_permissions": "require_escalated", "justification": "to see it"}
    common(stage, model, clear, lambda c: ("exec_command", {"cmd": c, **ask}), "Would you like to run", "esc to interrupt")
    stage.submit("/model")
    time.sleep(1)
    stage.record("dialog_model")
    stage.close()


def gemini():
    model = Gemini("gemini")
    os.makedirs(os.path.join(home, ".gemini"))
    with open(os.path.join(home, ".gemini", "settings.json"), "w") as config:
        json.dump({"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
                   "general": {"enableAutoUpdate": False, "disableAutoUpdate": True, "disableUpdateNag": True},
                   "privacy": {"usageStatisticsEnabled": False}, "ui": {"hideTips": True}, "ide": {"enabled": False, "hasSeenNudge": True}}, config)
    env = {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.port}", "GEMINI_MODEL": "gemini-2.5-pro"}
    stage = Stage("gemini", f"{NPM_BIN}/gemini", env, "Type your message")

    def clear(stage):
        if "shell mode" in stage.text().lower():
            stage.keys("Escape")
        stage.empty_composer()

    common(stage, model, clear, lambda c: ("run_shell_command", {"command": f"touch x; {c}"}), "Allow once", "esc to cancel")
    stage.close()


def opencode():
    model = OpenCode("opencode")
    config_dir = os.path.join(home, ".config", "opencode")
    os.makedirs(config_dir)
    with open(os.path.join(config_dir, "opencode.json"), "w") as config:
        json.dump({"autoupdate": False, "share": "disabled", "permission": {"bash": "ask"}, "model": "stand-in/m", "small_model": "stand-in/m", "provider": {"stand-in": {
            "npm": "@ai-sdk/openai-compatible", "name": "stand-in", "options": {"baseURL": f"http://127.0.0.1:{model.port}/v1", "apiKey": "none"},
            "models": {"m": {"name": "m", "limit": {"context": 100000, "output": 8000}}}}}}, config)
    env = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
    stage = Stage("opencode", f"{NPM_BIN}/opencode", env, "Ask anything")

    def clear(stage):
        # Never Ctrl-C, which quits where the composer is empty.
        stage.empty_composer()

    common(stage, model, clear, lambda c: ("bash", {"command": c, "description": "work"}), "Permission required", "esc")
    stage.close()


base = tempfile.mkdtemp(prefix="tt", dir="/tmp")
socket = os.path.join(base, "tmux")
shutil.rmtree(SCRATCH, ignore_errors=True)
try:
    for make in (claude, codex, gemini, opencode):
        if make.__name__ in WANTED:
            # Codex refuses a home below the directory for temporary files.
            home = os.path.join(SCRATCH, make.__name__)
            repo = os.path.join(home, "project")
            os.makedirs(repo)
            subprocess.run(["git", "init", "-q", "-b", "main", repo], check=True)
            try:
                make()
            except (AssertionError, subprocess.TimeoutExpired) as failure:
                print(f"FAILED  {make.__name__}: {failure!r}")
                print(run_tmux(socket, "capture-pane", "-p", "-t", make.__name__))
finally:
    subprocess.run(["tmux", "-S", socket, "kill-server"], capture_output=True)
    for name in ("daemon-updater.pid", "daemon.pid"):
        try:
            with open(os.path.join(SCRATCH, "codex", ".codex", "app-server-daemon", name)) as file:
                pid = json.load(file)["pid"]
            with open(f"/proc/{pid}/cmdline") as line:
                if SCRATCH in line.read():
                    os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError, KeyError):
            pass  # it never ran, or has ended
    shutil.rmtree(base, ignore_errors=True)
