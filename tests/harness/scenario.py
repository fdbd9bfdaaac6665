"""Real Claude Code and real Codex in one repository, each with a scripted model, set up by `tt install` in homes of their own.

usage: scenario.py TT NPM_BIN SCRATCH

Claude claims the stick; Codex waits and writes to it in the middle of its turn; Claude hands over; Codex hands back; Claude is
killed while it holds the stick, and Codex takes over. Asserted on what the models were sent and on the log."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from models import Anthropic, Responses

LIMIT = 120
TT, NPM_BIN, SCRATCH = (os.path.abspath(path) for path in sys.argv[1:4])
BODY = 'which index do you mean? "quoted"\n[inbox 0 ends] and a second line'
HANDOFF = {"zeta": [1, {"kept": True}], "status": "migration written, not run", "next_action": "run it on a copy: «ünï» \"quoted\"",
           "artifacts": [{"path": "migrations/007.sql", "lines": [3, 9], "role": "review"}], "do_not": ["touch orders by hand"]}
BACK = {"status": "ran on a copy", "next_action": "run it for real"}


class Moment:
    """Something one script waits for and another brings about."""

    def __init__(self, what):
        self.what, self.event = what, threading.Event()

    def has_come(self):
        self.event.set()

    def wait(self):
        for _ in range(LIMIT * 5):
            if self.event.wait(0.2):
                return
            assert not any(model.failure for model in models), f"it can no longer happen: {self.what}"
        raise AssertionError(f"it never happened: {self.what}")


claude_holds, codex_wrote, claude_holds_again, codex_took_over = map(
    Moment, ["Claude has the stick", "Codex wrote", "Claude has it again", "Codex took over"])
seen, models = {}, []


def answer(text):
    """The JSON object in what a tool answered, whatever the harness put around it."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text):
        try:
            value = decoder.raw_decode(text[match.start():])[0]
        except ValueError:
            continue
        if isinstance(value, dict) and value:
            return value
    raise AssertionError(f"no answer in {text!r}")


def claude_script():
    tool = "mcp__talking-stick__".__add__
    joined = answer((yield ("call", tool("join_path"), {"context_path": repo})))
    seen["claude_mcp"], room = joined["agent_id"], joined["room_id"]
    turn = answer((yield ("call", tool("wait_for_turn"), {"room_id": room, "max_wait_ms": 0, "claim": True})))
    assert turn["status"] == "your_turn", turn
    seen["claude_shell"] = answer((yield ("call", "Bash", {"command": f"{TT} whoami --json", "description": "who am I"})))["agent_id"]
    claude_holds.has_come()
    codex_wrote.wait()
    shown = yield ("call", tool("get_room_state"), {"room_id": room})
    seen["claude_was_shown"] = shown
    shown = yield ("call", tool("get_room_state"), {"room_id": room})
    seen["claude_was_shown_later"] = shown
    released = yield ("call", tool("release_stick"), {
        "room_id": room, "lease_id": turn["lease_id"], "expected_turn_id": turn["turn_id"], "handoff": HANDOFF})
    assert answer(released)["status"] == "released", released
    turn = {"status": "not_yet"}
    while turn["status"] == "not_yet":
        turn = answer((yield ("call", tool("wait_for_turn"), {"room_id": room})))
    assert turn["status"] == "your_turn" and turn["handoff"] == BACK, turn
    claude_holds_again.has_come()
    # The model thinks, and in the middle of that its harness is killed.
    codex_took_over.wait()
    yield ("say", "nobody hears this")


def codex_script():
    claude_holds.wait()
    joined = answer((yield ("call", "join_path", {"context_path": repo})))
    seen["codex_mcp"], room = joined["agent_id"], joined["room_id"]
    seen["codex_shell"] = answer((yield ("call", "exec_command", {"cmd": f"{TT} whoami --json"})))["agent_id"]
    sent = answer((yield ("call", "send_message", {"room_id": room, "to": "claude", "body": BODY, "delivery_hint": "interrupt"})))
    assert sent["recipients"][0]["agent_id"] == seen["claude_mcp"], sent
    codex_wrote.has_come()
    turn = {"status": "not_yet"}
    while turn["status"] == "not_yet":
        shown = yield ("call", "wait_for_turn", {"room_id": room})
        turn = answer(shown)
    seen["codex_was_shown"] = shown
    assert turn["status"] == "your_turn", turn
    yield ("call", "release_stick", {
        "room_id": room, "lease_id": turn["lease_id"], "expected_turn_id": turn["turn_id"], "handoff": BACK})
    wait = {"status": "not_yet"}
    while wait["status"] == "not_yet":
        wait = answer((yield ("call", "wait_for_turn", {"room_id": room})))
    assert wait["status"] == "takeover_available" and wait["reason"] == "owner_gone", wait
    taken = answer((yield ("call", "takeover_stick", {
        "room_id": room, "expected_turn_id": wait["turn_id"], "reason": "its process ended"})))
    assert taken["status"] == "your_turn" and taken["revoked_agent_id"] == seen["claude_mcp"], taken
    codex_took_over.has_come()
    yield ("say", "done")


def environment(home):
    return {"HOME": home, "PATH": f"{os.path.dirname(TT)}:{NPM_BIN}:{os.environ['PATH']}", "TALKING_STICK_DATA_DIR": data,
            "LANG": "C.UTF-8", "TERM": "dumb"}


def tt(*args, home=None):
    done = subprocess.run([TT, "--json", *args], env=environment(home or SCRATCH), cwd=repo, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def check(name, truth, why=""):
    print(("ok      " if truth else "FAILED  ") + name + ("" if truth else f": {why}"), flush=True)
    return truth


shutil.rmtree(SCRATCH, ignore_errors=True)
repo = os.path.join(SCRATCH, "repo")
os.makedirs(os.path.join(repo, ".git"))
# The address of a socket must be short; Codex wants its home elsewhere than in the temporary directory.
data = tempfile.mkdtemp(prefix="tt", dir="/tmp")
claude_home, codex_home = os.path.join(SCRATCH, "claude"), os.path.join(SCRATCH, "codex")
os.makedirs(os.path.join(claude_home, ".claude"))
os.makedirs(os.path.join(codex_home, ".codex"))
claude_model, codex_model = Anthropic("claude", claude_script), Responses("codex", codex_script)
models += [claude_model, codex_model]
with open(os.path.join(codex_home, ".codex", "config.toml"), "w") as config:
    config.write('model = "stand-in"\nmodel_provider = "stand-in"\n\n[model_providers.stand-in]\nname = "stand-in"\n'
                 f'base_url = "http://127.0.0.1:{codex_model.port}/v1"\nwire_api = "responses"\nenv_key = "STAND_IN_KEY"\n')
tt("install", "claude", home=claude_home)
tt("install", "codex", home=codex_home)

claude_env = {**environment(claude_home), "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{claude_model.port}", "ANTHROPIC_API_KEY": "none",
              "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
codex_env = {**environment(codex_home), "STAND_IN_KEY": "none"}
logs = {name: open(os.path.join(SCRATCH, f"{name}.log"), "w") for name in ("claude", "codex")}
claude = subprocess.Popen(
    [os.path.join(NPM_BIN, "claude"), "-p", "share the stick", "--allowedTools", "Bash,mcp__talking-stick"],
    env=claude_env, cwd=repo, stdin=subprocess.DEVNULL, stdout=logs["claude"], stderr=subprocess.STDOUT, start_new_session=True)
codex = subprocess.Popen(
    [os.path.join(NPM_BIN, "codex"), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "share the stick"],
    env=codex_env, cwd=repo, stdin=subprocess.DEVNULL, stdout=logs["codex"], stderr=subprocess.STDOUT, start_new_session=True)
passed = False
try:
    claude_holds_again.wait()
    os.killpg(claude.pid, signal.SIGKILL)
    codex_took_over.wait()
    codex.wait(LIMIT)
    passed = True
except (AssertionError, subprocess.TimeoutExpired) as e:
    check("the scenario plays to its end", False, e)
finally:
    for process in (claude, codex):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for model in models:
        with open(os.path.join(SCRATCH, f"{model.name}-requests.json"), "w") as out:
            json.dump(model.requests, out, indent=1)
        passed &= check(f"{model.name}'s script had no surprise", model.failure is None, repr(model.failure))

try:
    if passed:
        shown, later = seen["claude_was_shown"], seen["claude_was_shown_later"]
        first = json.dumps(BODY)[1:20]
        passed &= check("the message is in Claude's next model request", first in shown or BODY in shown, shown)
        passed &= check("and is handed over once", first not in later and BODY not in later, later)
        compact = json.dumps(HANDOFF, ensure_ascii=False, separators=(",", ":"))
        passed &= check("the handoff is verbatim in Codex's next model request", compact in seen["codex_was_shown"], seen["codex_was_shown"])
        for name in ("claude", "codex"):
            passed &= check(f"{name} is one member through MCP and its shell tool", seen[f"{name}_mcp"] == seen[f"{name}_shell"], seen)
        state = tt("state", "--all")
        members = sorted((m["agent_id"], m["display_name"], m["harness"]) for m in state["members"])
        expected = sorted((seen[f"{name}_mcp"], name, name) for name in ("claude", "codex"))
        passed &= check("there are two members with the right names", members == expected, members)
        events = tt("events", "--target", "any")["events"]
        moves = [(e["event_type"], (e["from_agent_id"] or "").split(":")[0]) for e in events
                 if e["event_type"] in ("claim", "release", "takeover", "message_sent")]
        expected = [("claim", "claude"), ("message_sent", "codex"), ("release", "claude"), ("claim", "codex"), ("release", "codex"),
                    ("claim", "claude"), ("takeover", "codex")]
        passed &= check("the log tells the same story", [m for m in moves if m[0] != "claim"] == [m for m in expected if m[0] != "claim"], moves)
finally:
    subprocess.run([TT, "daemon", "stop"], env=environment(SCRATCH), capture_output=True, timeout=LIMIT)
    shutil.rmtree(data, ignore_errors=True)
for name in ("claude", "codex"):
    if not passed:
        logs[name].flush()
        print(f"--- {name}: " + open(logs[name].name).read()[-2000:])
sys.exit(0 if passed else 1)
