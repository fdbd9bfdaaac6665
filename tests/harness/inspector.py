"""Every tool, called through the command line of the MCP Inspector: each call is a client and a server of its own.

usage: inspector.py TT NPM_BIN WORKSPACE
"""
import json
import os
import subprocess
import sys

TT, NPM_BIN, WORKSPACE = (os.path.abspath(path) for path in sys.argv[1:4])
LIMIT = 60
# What the Inspector ends with when a tool's answer is a refusal.
REFUSED = 5
HANDOFF = {"status": "done", "next_action": "nothing"}


def inspector(*args, agent="inspector:one"):
    environment = {"HOME": os.environ["HOME"], "PATH": f"{NPM_BIN}:{os.environ['PATH']}"}
    return subprocess.run(
        [os.path.join(NPM_BIN, "mcp-inspector"), "--cli", "--format", "json", "-e", f"TT_HARNESS_AGENT_ID={agent}",
         "-e", f"HOME={os.environ['HOME']}", TT, "mcp", *args],
        env=environment, cwd=WORKSPACE, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)


def call(name, refused=None, agent="inspector:one", era="legacy", **arguments):
    called.add(name)
    done = inspector("--protocol-era", era, "--method", "tools/call", "--tool-name", name,
                     "--tool-args-json", json.dumps(arguments), agent=agent)
    assert done.returncode == (REFUSED if refused else 0), (name, done)
    result = json.loads(done.stdout.splitlines()[0])["result"]
    assert bool(result.get("isError")) == (refused is not None), (name, result)
    answer = result["structuredContent"]
    if refused:
        assert answer["error"] == refused and answer["hint"], (name, answer)
    return answer


called = set()
listed = inspector("--method", "tools/list", "--strict")
assert listed.returncode == 0 and "Warning" not in listed.stderr, listed
tools = {tool["name"] for tool in json.loads(listed.stdout.splitlines()[0])["result"]["tools"]}
assert len(tools) == 17, tools

joined = call("join_path", context_path=WORKSPACE)
room, me = joined["room_id"], joined["agent_id"]
# The newest revision of the protocol has no handshake; the client tells who it is with each call.
assert any(row["room_id"] in (room, "here") for row in call("list_rooms", era="modern")["rooms"])
turn = call("wait_for_turn", room_id=room, max_wait_ms=0, claim=True)
assert turn["status"] == "your_turn", turn
held = dict(room_id=room, lease_id=turn["lease_id"], expected_turn_id=turn["turn_id"])
assert call("heartbeat", **held)["status"] == "ok"
note = call("add_note", room_id=room, body="look at this")
assert len(call("list_notes", room_id=room)["notes"]) == 1
call("resolve_note", room_id=room, note_id=note["note_id"])
other = call("join_path", context_path=WORKSPACE, agent="inspector:two")["agent_id"]
call("send_message", room_id=room, body="hello", to_agent_id=other)
state = call("get_room_state", room_id=room, agent="inspector:two")
assert [message["body"] for message in state["inbox"]["messages"]] == ["hello"], state
call("release_stick", refused="invalid_handoff", **held, handoff={"status": " ", "next_action": "x"})
call("pass_stick", **held, to_agent_id=other, handoff=HANDOFF)
theirs = call("wait_for_turn", room_id=room, agent="inspector:two")
assert (theirs["status"], theirs["handoff"]) == ("your_turn", HANDOFF), theirs
# A refusal by a tool that has an output schema is shown as it is.
call("takeover_stick", refused="takeover_not_available", room_id=room, expected_turn_id=theirs["turn_id"], reason="-")
turn = call("takeover_stick", room_id=room, expected_turn_id=theirs["turn_id"], reason="asked to", operator_override=True)
held = dict(room_id=room, lease_id=turn["lease_id"], expected_turn_id=turn["turn_id"])
assert call("release_stick", **held, handoff=HANDOFF)["status"] == "released"
events = call("get_room_events", room_id=room, event_type=["pass", "takeover", "release"])["events"]
assert [event["event_type"] for event in events] == ["pass", "takeover", "release"], events
assert call("wait_for_events", room_id=room, target_agent_id="any", max_wait_ms=0)["events"] == []
asked = call("send_message", room_id=room, body="why?", to_agent_id=me, agent="inspector:two")
assert call("reply", room_id=room, event_seq=asked["event_seq"], body="so")["recipients"][0]["agent_id"] == other
assert call("kick_member", room_id=room, target_agent_id=other, force=True)["kicked_agent_id"] == other
assert call("leave_room", room_id=room)["status"] == "left"
assert called == tools, called ^ tools
print(f"ok      every one of {len(tools)} tools called through the MCP Inspector")
