CREATE TABLE path_rooms (
    room_id TEXT PRIMARY KEY,
    canonical_path TEXT NOT NULL UNIQUE,
    sequence_index INTEGER NOT NULL DEFAULT 0,
    owner TEXT,
    reserved_for TEXT,
    pending_handoff_event_seq INTEGER,
    turn_id INTEGER NOT NULL DEFAULT 0,
    lease_id TEXT,
    lease_expires_at TEXT,
    claim_expires_at TEXT,
    state TEXT NOT NULL,
    updated_at TEXT NOT NULL
);

CREATE INDEX path_rooms_canonical_path_idx ON path_rooms (canonical_path);

CREATE TABLE room_members (
    room_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    joined_at TEXT NOT NULL,
    last_seen_at TEXT NOT NULL,
    status TEXT NOT NULL,
    PRIMARY KEY (room_id, agent_id),
    FOREIGN KEY (room_id) REFERENCES path_rooms (room_id) ON DELETE CASCADE
);

CREATE TABLE room_events (
    event_seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL UNIQUE,
    room_id TEXT NOT NULL,
    turn_id INTEGER,
    event_type TEXT NOT NULL,
    from_agent_id TEXT,
    to_agent_id TEXT,
    handoff_json TEXT,
    reason TEXT,
    created_at TEXT NOT NULL,
    FOREIGN KEY (room_id) REFERENCES path_rooms (room_id) ON DELETE CASCADE
);

CREATE INDEX room_events_room_seq_idx ON room_events (room_id, event_seq);
CREATE INDEX room_events_room_turn_idx ON room_events (room_id, turn_id);
