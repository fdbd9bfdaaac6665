"""Every tool, called through the official Python SDK.

usage: sdk_client.py TT WORKSPACE
"""
import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

TOOLS = """list_rooms join_path leave_room kick_member wait_for_turn heartbeat release_stick pass_stick takeover_stick
get_room_state get_room_events add_note list_notes resolve_note send_message wait_for_events""".split()


async def main(tt, workspace):
    server = StdioServerParameters(command=tt, args=["mcp"], cwd=workspace)
    async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        listed = [tool.name for tool in (await session.list_tools()).tools]
        assert sorted(listed) == sorted(TOOLS), listed
        called = set()

        def fields(result):
            # Older releases of the SDK spell it in camel case only.
            return getattr(result, "structuredContent", None) or getattr(result, "structured_content", None)

        def failed(result):
            return bool(getattr(result, "isError", None) or getattr(result, "is_error", None))

        async def call(name, refused=None, **arguments):
            called.add(name)
            result = await session.call_tool(name, arguments)
            answer = fields(result)
            assert failed(result) == (refused is not None), (name, answer)
            assert json.loads(result.content[0].text)
            if refused:
                assert answer["error"] == refused and answer["hint"], (name, answer)
            return answer

        joined = await call("join_path", context_path=workspace, display_name="sdk")
        room, me = joined["room_id"], joined["agent_id"]
        assert any(row["room_id"] == room for row in (await call("list_rooms"))["rooms"])
        turn = await call("wait_for_turn", room_id=room, max_wait_ms=0, claim=True)
        assert turn["status"] == "your_turn", turn
        held = dict(room_id=room, lease_id=turn["lease_id"], expected_turn_id=turn["turn_id"])
        assert (await call("heartbeat", **held))["status"] == "ok"
        note = await call("add_note", room_id=room, body="look at this")
        assert len((await call("list_notes", room_id=room))["notes"]) == 1
        await call("resolve_note", room_id=room, note_id=note["note_id"])
        assert (await call("send_message", room_id=room, body="hello", to="room"))["event_seq"] > 0
        handoff = {"status": "done", "next_action": "nothing"}
        await call("pass_stick", refused="unknown_target", **held, to_agent_id="nobody:1", handoff=handoff)
        await call("release_stick", refused="invalid_handoff", **held, handoff={"status": " ", "next_action": "x"})
        assert (await call("release_stick", **held, handoff=handoff))["status"] == "released"
        state = await call("get_room_state", room_id=room)
        assert state["pending_handoff"] == handoff, state
        await call("takeover_stick", refused="takeover_not_available", room_id=room,
                   expected_turn_id=turn["turn_id"], reason="no reason")
        await call("kick_member", refused="cannot_kick_self", room_id=room, target_agent_id=me)
        seen = (await call("get_room_events", room_id=room))["events"]
        assert {"claim", "release", "message_sent"} <= {event["event_type"] for event in seen}
        waited = await call("wait_for_events", room_id=room, target_agent_id="any", max_wait_ms=0)
        assert waited["events"] == []
        await call("heartbeat", refused="invalid_input", room_id=room, nonsense=1)
        assert (await call("leave_room", room_id=room))["status"] == "room_deleted"
        assert called == set(TOOLS), set(TOOLS) - called
    print(f"every one of {len(TOOLS)} tools called through the Python SDK")


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 60))
