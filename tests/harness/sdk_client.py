"""Every tool, called through the official Python SDK, which also holds each answer to the schema the server gave for it.

usage: sdk_client.py TT WORKSPACE
"""
import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

TOOLS = """list_rooms join_path leave_room kick_member wait_for_turn heartbeat release_stick pass_stick takeover_stick
get_room_state get_room_events add_note list_notes resolve_note send_message reply wait_for_events""".split()
WITH_OUTPUT_SCHEMA = {"join_path", "wait_for_turn", "takeover_stick"}
HANDOFF = {"status": "done", "next_action": "nothing"}


class Member:
    """One session of the server, as a member of its own."""

    def __init__(self, session):
        self.session, self.called = session, set()

    async def call(self, name, refused=None, progress=None, **arguments):
        self.called.add(name)
        result = await self.session.call_tool(name, arguments, progress_callback=progress)
        answer = result.structured_content
        assert result.is_error == (refused is not None), (name, answer)
        shown = json.loads(result.content[0].text)
        assert shown == {key: value for key, value in answer.items() if key != "inbox"}, (name, shown, answer)
        if refused:
            assert answer["error"] == refused and answer["message"] and answer["hint"], (name, answer)
        return answer


def server(tt, workspace, agent):
    return stdio_client(StdioServerParameters(command=tt, args=["mcp"], cwd=workspace, env={"TT_HARNESS_AGENT_ID": agent}))


async def every_tool(one, two, workspace):
    joined = await one.call("join_path", context_path=workspace, display_name="one")
    room, me = joined["room_id"], joined["agent_id"]
    assert me == "sdk:one", joined
    assert any(row["room_id"] in (room, "here") for row in (await one.call("list_rooms"))["rooms"])
    turn = await one.call("wait_for_turn", room_id=room, max_wait_ms=0, claim=True)
    assert turn["status"] == "your_turn", turn
    held = dict(room_id=room, lease_id=turn["lease_id"], expected_turn_id=turn["turn_id"])
    assert (await one.call("heartbeat", **held))["status"] == "ok"
    note = await one.call("add_note", room_id=room, body="look at this")
    assert len((await one.call("list_notes", room_id=room))["notes"]) == 1
    assert (await one.call("resolve_note", room_id=room, note_id=note["note_id"]))["resolved_by_agent_id"] == me

    other = (await two.call("join_path", context_path=workspace, display_name="two"))["agent_id"]
    sent = await one.call("send_message", room_id=room, body="hello", to="two")
    assert [recipient["agent_id"] for recipient in sent["recipients"]] == [other], sent
    state = await two.call("get_room_state", room_id=room)
    assert [message["body"] for message in state["inbox"]["messages"]] == ["hello"], state
    assert "inbox" not in await two.call("get_room_state", room_id=room)
    # A refusal brings messages, too.
    await one.call("send_message", room_id=room, body="again", to_agent_id=other)
    refusal = await two.call("heartbeat", refused="stale_lease", room_id=room, lease_id="x", expected_turn_id=turn["turn_id"])
    assert [message["body"] for message in refusal["inbox"]["messages"]] == ["again"], refusal

    await one.call("pass_stick", refused="unknown_target", **held, to_agent_id="nobody:1", handoff=HANDOFF)
    await one.call("release_stick", refused="invalid_handoff", **held, handoff={"status": " ", "next_action": "x"})
    assert (await one.call("pass_stick", **held, to_agent_id=other, handoff=HANDOFF))["reserved_for"] == other
    theirs = await two.call("wait_for_turn", room_id=room)
    assert (theirs["status"], theirs["handoff"]) == ("your_turn", HANDOFF), theirs
    await one.call("heartbeat", refused="turn_mismatch", **held)
    await one.call("takeover_stick", refused="takeover_not_available", room_id=room, expected_turn_id=theirs["turn_id"], reason="-")
    turn = await one.call("takeover_stick", room_id=room, expected_turn_id=theirs["turn_id"], reason="asked to", operator_override=True)
    assert (turn["status"], turn["revoked_agent_id"]) == ("your_turn", other), turn
    held = dict(room_id=room, lease_id=turn["lease_id"], expected_turn_id=turn["turn_id"])

    await waits(one, two, room, other)

    asked = await two.call("send_message", room_id=room, body="why?", to_agent_id=me, expects_reply=True)
    answer = await one.call("reply", room_id=room, event_seq=asked["event_seq"], body="so")
    assert [recipient["agent_id"] for recipient in answer["recipients"]] == [other], answer
    assert (await one.call("release_stick", **held, handoff=HANDOFF))["status"] == "released"
    seen = (await one.call("get_room_events", room_id=room, event_type=["claim", "pass", "takeover", "release"]))["events"]
    assert [event["event_type"] for event in seen] == ["claim", "pass", "claim", "takeover", "release"], seen
    waited = await one.call("wait_for_events", room_id=room, target_agent_id="any", max_wait_ms=0)
    assert waited["events"] == []
    await one.call("heartbeat", refused="invalid_input", room_id=room, nonsense=1)
    await one.call("no_such_tool", refused="invalid_input")
    await one.call("kick_member", refused="cannot_kick_self", room_id=room, target_agent_id=me)
    assert (await one.call("kick_member", room_id=room, target_agent_id=other, force=True))["kicked_agent_id"] == other
    assert (await one.call("leave_room", room_id=room))["status"] == "left"
    one.called.discard("no_such_tool")
    assert one.called == set(TOOLS), set(TOOLS) ^ one.called


async def waits(one, two, room, other):
    """A wait says that it goes on, and one that is given up leaves nothing behind."""

    async def is_waiting(wanted):
        while True:
            members = (await one.call("get_room_state", room_id=room))["members"]
            if next(member for member in members if member["agent_id"] == other).get("waiting", False) == wanted:
                return

    heard = asyncio.Event()

    async def progress(done, total, message):
        assert 0 <= done <= total and message, (done, total, message)
        heard.set()

    # Longer than the time between two signs of life, so that it hears more than the first.
    waiting = asyncio.create_task(two.call("wait_for_turn", room_id=room, include_events=False, progress=progress))
    for _ in range(2):
        await heard.wait()
        heard.clear()
    await is_waiting(True)
    waiting.cancel()
    try:
        await waiting
        raise AssertionError("it was not cancelled")
    except asyncio.CancelledError:
        pass
    await is_waiting(False)
    again = await two.call("wait_for_turn", room_id=room, max_wait_ms=1, include_events=False)
    assert again["status"] == "not_yet", again


async def main(tt, workspace):
    async with server(tt, workspace, "sdk:one") as first, server(tt, workspace, "sdk:two") as second:
        async with ClientSession(*first) as one, ClientSession(*second) as two:
            for session in (one, two):
                assert (await session.initialize()).server_info.name == "talking-stick"
            listed = (await one.list_tools()).tools
            assert sorted(tool.name for tool in listed) == sorted(TOOLS), listed
            assert all(tool.description and tool.input_schema["type"] == "object" for tool in listed), listed
            assert {tool.name for tool in listed if tool.output_schema} == WITH_OUTPUT_SCHEMA, listed
            await two.list_tools()
            await every_tool(Member(one), Member(two), workspace)
    print(f"ok      every one of {len(TOOLS)} tools called through the Python SDK")


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 60))
