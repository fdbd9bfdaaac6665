-- One row for each message and recipient. A surface (a stream, a wait, a tool response, a hook, a terminal, a native inbox)
-- that has handed the message over moves it from pending to delivered, once. What a surface has taken but not yet shown is
-- held in memory, so that a daemon or a surface that dies gives it back.
CREATE TABLE deliveries (
    event_seq INTEGER NOT NULL,
    recipient_agent_id TEXT NOT NULL,
    room_id TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending',
    surface TEXT,
    delivered_at TEXT,
    expires_at TEXT,
    remind_at TEXT,
    PRIMARY KEY (event_seq, recipient_agent_id)
) WITHOUT ROWID;

CREATE INDEX deliveries_inbox_idx ON deliveries (room_id, recipient_agent_id, event_seq) WHERE state = 'pending';
