-- What a write answered, in short: the ids it made and what cannot be read again from the room. `request_hash` tells a repeated
-- request from another one under the same key. `kept_at` is in milliseconds on the clock of leases, which nobody can set.
CREATE TABLE short_answers (
    idempotency_key TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    -- Absent in rows of earlier versions, which did not look at the request.
    request_hash TEXT,
    answer_json TEXT NOT NULL,
    kept_at INTEGER NOT NULL,
    PRIMARY KEY (idempotency_key, agent_id)
) WITHOUT ROWID;

INSERT INTO short_answers (idempotency_key, agent_id, answer_json, kept_at)
    SELECT idempotency_key, agent_id, answer_json, coalesce(CAST(strftime('%s', created_at) AS INTEGER), 0) * 1000
    FROM idempotency_keys;

DROP TABLE idempotency_keys;
ALTER TABLE short_answers RENAME TO idempotency_keys;
CREATE INDEX idempotency_keys_kept_idx ON idempotency_keys (kept_at);

-- Who sent an open message, so that a reader who wants one member's messages passes over no others.
ALTER TABLE deliveries ADD COLUMN from_agent_id TEXT;
UPDATE deliveries SET from_agent_id = (SELECT from_agent_id FROM room_events e WHERE e.event_seq = deliveries.event_seq)
    WHERE state = 'pending';
CREATE INDEX deliveries_open_from_idx ON deliveries (room_id, recipient_agent_id, from_agent_id, event_seq)
    WHERE state = 'pending';
