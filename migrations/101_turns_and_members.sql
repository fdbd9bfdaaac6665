-- What the rules need beyond 0.1.x: who gave the stick away and when, which handoff the turn came with, what a member is.
ALTER TABLE path_rooms ADD COLUMN released_by TEXT;
ALTER TABLE path_rooms ADD COLUMN released_at TEXT;
ALTER TABLE path_rooms ADD COLUMN reservation_expired INTEGER NOT NULL DEFAULT 0;
ALTER TABLE path_rooms ADD COLUMN current_handoff_event_seq INTEGER;
ALTER TABLE path_rooms ADD COLUMN policy_json TEXT;

ALTER TABLE room_members ADD COLUMN harness TEXT;
ALTER TABLE room_members ADD COLUMN session_id TEXT;
ALTER TABLE room_members ADD COLUMN found_by TEXT;
ALTER TABLE room_members ADD COLUMN last_held_turn INTEGER;

UPDATE room_members SET last_held_turn = (
    SELECT max(turn_id) FROM room_events
    WHERE room_events.room_id = room_members.room_id
      AND room_events.from_agent_id = room_members.agent_id
      AND event_type IN ('claim', 'takeover')
);

CREATE INDEX room_members_agent_idx ON room_members (agent_id);
CREATE INDEX room_members_process_idx ON room_members (pid) WHERE status = 'active';

-- What a write answered, so that a retry after a lost connection gets the same answer and changes nothing.
CREATE TABLE idempotency_keys (
    idempotency_key TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    answer_json TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (idempotency_key, agent_id)
) WITHOUT ROWID;

-- Where the daemon's steady clock stands against the monotonic clock of each boot.
CREATE TABLE steady_clock (
    boot_id TEXT PRIMARY KEY,
    offset_ms INTEGER NOT NULL
);
