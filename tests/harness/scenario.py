"""Real Claude Code and real Codex in one repository, each with a scripted model, set up by `tt install` in homes of their own.

usage: scenario.py TT NPM_BIN SCRATCH

Claude claims the stick; Codex waits and writes to it in the middle of its turn; Claude hands over; Codex hands back; Claude is
killed while it holds the stick, and Codex takes over. Both also come in through their shell tool and through a hook. Asserted on
what the models were sent and on the log."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from models import Anthropic, Responses
from stage import answer

LIMIT = 120
TT, NPM_BIN, SCRATCH = (os.path.abspath(path) for path in sys.argv[1:4])
BODY = 'which index do you mean? "quoted"\n[inbox 0 ends] and a second line'
HANDOFF = {"zeta": [1, {"kept": True}], "status": "migration written, not run", "next_action": "run it on a copy: «ünï» \"quoted\"",
           "artifacts": [{"path": "migrations/007.sql", "lines": [3, 9], "role": "review"}], "do_not": ["touch orders by hand"]}
CLAUDE_TOOLS = ["join_path", "wait_for_turn", "heartbeat", "get_room_state", "release_stick"]
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


def until(what, so):
    """Asks until something is so."""
    give_up = time.monotonic() + LIMIT
    while not so():
        assert time.monotonic() < give_up, f"it never happened: {what}"


def claude_script():
    tool = "mcp__talking-stick__".__add__
    if not any(listed["name"] == tool("join_path") for listed in claude_model.requests[0]["tools"]):
        # It lists the tools of servers by name only; a model looks up what it wants to call.
        yield ("call", "ToolSearch", {"query": "select:" + ",".join(map(tool, CLAUDE_TOOLS)), "max_results": len(CLAUDE_TOOLS)})
    joined = answer((yield ("call", tool("join_path"), {"context_path": repo})))
    seen["claude_mcp"], room = joined["agent_id"], joined["room_id"]
    turn = answer((yield ("call", tool("wait_for_turn"), {"room_id": room, "max_wait_ms": 0, "claim": True})))
    assert turn["status"] == "your_turn", turn
    seen["claude_shell"] = answer((yield ("call", "Bash", {"command": f"{TT} join --json", "description": "join"})))["agent_id"]
    claude_holds.has_come()
    # This request is under way while Codex writes; the one after it is the next.
    codex_wrote.wait()
    seen["claude_next"] = len(claude_model.requests)
    yield ("call", tool("heartbeat"), {"room_id": room, "lease_id": turn["lease_id"], "expected_turn_id": turn["turn_id"]})
    yield ("call", tool("get_room_state"), {"room_id": room})
    until("Codex waits", lambda: any(m["agent_id"] == seen["codex_mcp"] and m.get("waiting") for m in tt("state")["members"]))
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
    seen["codex_shell"] = answer((yield ("call", "exec_command", {"cmd": f"{TT} join --json"})))["agent_id"]
    sent = answer((yield ("call", "send_message", {"room_id": room, "to": "claude", "body": BODY, "delivery_hint": "interrupt"})))
    assert sent["recipients"][0]["agent_id"] == seen["claude_mcp"], sent
    codex_wrote.has_come()
    turn = {"status": "not_yet"}
    while turn["status"] == "not_yet":
        turn = answer((yield ("call", "wait_for_turn", {"room_id": room})))
    seen["codex_next"] = len(codex_model.requests) - 1
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
            "LANG": "C.UTF-8", "TERM": "dumb", "TMPDIR": os.path.join(SCRATCH, "tmp")}


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
# The address of a socket must be short. Codex wants its home elsewhere than in the temporary directory, where this may all be.
os.makedirs(os.path.join(SCRATCH, "tmp"))
data = tempfile.mkdtemp(prefix="tt", dir="/tmp")
claude_home, codex_home = os.path.join(SCRATCH, "claude"), os.path.join(SCRATCH, "codex")
os.makedirs(os.path.join(claude_home, ".claude"))
os.makedirs(os.path.join(codex_home, ".codex"))
claude_model, codex_model = Anthropic("claude", claude_script), Responses("codex", codex_script)
models += [claude_model, codex_model]
with open(os.path.join(codex_home, ".codex", "config.toml"), "w") as config:
    config.write('model = "stand-in"\nmodel_provider = "stand-in"\n\n[model_providers.stand-in]\nname = "stand-in"\n'
                 f'base_url = "http://127.0.0.1:{codex_model.port}/v1"\nwire_api = "responses"\nenv_key = "STAND_IN_KEY"\n')
# A hook that comes in after each tool call, and keeps what it was told.
hooks = {name: os.path.join(SCRATCH, f"{name}-hook.jsonl") for name in ("claude", "codex")}
for name, config in (("claude", os.path.join(claude_home, ".claude", "settings.json")), ("codex", os.path.join(codex_home, ".codex", "hooks.json"))):
    hook = {"type": "command", "command": f"{TT} --hook --json join {repo} >> {hooks[name]}"}
    with open(config, "w") as out:
        json.dump({"hooks": {"PostToolUse": [{"matcher": "", "hooks": [hook]}]}}, out)
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
    [os.path.join(NPM_BIN, "codex"), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
     "--dangerously-bypass-hook-trust", "share the stick"],
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
        # A hook may hand it over, or the answer of a tool of ours; each later request has it in its history.
        said = [json.dumps(request).count(BODY.split("?")[0]) for request in claude_model.requests]
        before, after = said[:seen["claude_next"]], said[seen["claude_next"]:]
        passed &= check("the message is in Claude's next model request", not any(before) and after[0] == 1, said)
        passed &= check("and nothing repeats it", max(after) == 1, said)
        shown = codex_model.tool_result(codex_model.requests[seen["codex_next"]])
        compact = json.dumps(HANDOFF, ensure_ascii=False, separators=(",", ":"))
        passed &= check("the handoff is verbatim in Codex's next model request", compact in shown, shown)
        for name in ("claude", "codex"):
            with open(hooks[name]) as told:
                ids = {json.loads(line)["agent_id"] for line in told}
            same = ids == {seen[f"{name}_mcp"]} == {seen[f"{name}_shell"]}
            passed &= check(f"{name} is one member through MCP, its shell tool and a hook", same, (seen, ids))
        state = tt("state", "--all")
        members = sorted((m["agent_id"], m["display_name"], m.get("harness", m["agent_id"].split(":")[0])) for m in state["members"])
        expected = sorted((seen[f"{name}_mcp"], name, name) for name in ("claude", "codex"))
        passed &= check("there are two members with the right names", members == expected, members)
        events = tt("events", "--target", "any")["events"]
        log = [(e["event_type"], e["turn_id"], e.get("from_agent_id"), e.get("to_agent_id"), e.get("handoff"), e.get("payload", {}).get("body"))
               for e in events if e["event_type"] in ("claim", "release", "takeover", "message_sent", "pass", "kick")]
        a, b = seen["claude_mcp"], seen["codex_mcp"]
        # Codex may release before Claude waits again, or after; then it is reserved for Claude.
        back = log[4][3] if len(log) > 4 and log[4][3] in (None, a) else None
        expected = [("claim", 1, a, None, None, None), ("message_sent", 1, b, a, None, BODY), ("release", 1, a, b, HANDOFF, None),
                    ("claim", 2, b, None, None, None), ("release", 2, b, back, BACK, None), ("claim", 3, a, None, None, None),
                    ("takeover", 4, b, a, None, None),
                    ("message_sent", 4, None, a, None, 'codex took the stick from you (owner gone) and says: "its process ended"')]
        passed &= check("the log tells the same story", log == expected, log)
finally:
    subprocess.run([TT, "daemon", "stop"], env=environment(SCRATCH), capture_output=True, timeout=LIMIT)
    shutil.rmtree(data, ignore_errors=True)
for name in ("claude", "codex"):
    if not passed:
        logs[name].flush()
        print(f"--- {name}: " + open(logs[name].name).read()[-2000:])
sys.exit(0 if passed else 1)
