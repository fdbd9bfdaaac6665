-- What a sender wants of a message, and what became of that. A question is over when its sender was told that no answer is to be
-- expected any more; an answer may still come, and is late then.
ALTER TABLE deliveries ADD COLUMN expects_reply INTEGER NOT NULL DEFAULT 0;
-- The message it replies to; of a notice, the message it is about.
ALTER TABLE deliveries ADD COLUMN reply_to INTEGER;
ALTER TABLE deliveries ADD COLUMN notify_on_delivery INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN notify_after_ms INTEGER;
ALTER TABLE deliveries ADD COLUMN is_over INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN is_late INTEGER NOT NULL DEFAULT 0;
-- These are in milliseconds on the clock of deadlines: when the sender is told that there is no answer yet, and the next moment
-- at which something happens to this delivery by itself.
ALTER TABLE deliveries ADD COLUMN notify_at INTEGER;
ALTER TABLE deliveries ADD COLUMN due_at INTEGER;

UPDATE deliveries SET due_at = expires_at WHERE state = 'pending';
DROP INDEX deliveries_expiring_idx;
CREATE INDEX deliveries_due_idx ON deliveries (room_id, due_at) WHERE due_at IS NOT NULL;

CREATE TABLE reminders (
    reminder_id TEXT PRIMARY KEY,
    room_id TEXT NOT NULL,
    from_agent_id TEXT NOT NULL,
    to_agent_id TEXT NOT NULL,
    body TEXT NOT NULL,
    -- Milliseconds on the clock of deadlines.
    due_at INTEGER NOT NULL,
    every_ms INTEGER,
    -- How many times it is still sent.
    times INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX reminders_room_idx ON reminders (room_id, from_agent_id);

-- Nothing wakes this member until then, on the clock of deadlines.
ALTER TABLE room_members ADD COLUMN quiet_until INTEGER;
