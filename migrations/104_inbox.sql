-- A message waits in the inbox of each recipient, in the order in which an inbox is read. Handing it over moves it to the
-- deliveries. Kept apart, so that a message costs one row in one tree, and what was delivered long ago is in nobody's way.
CREATE TABLE inbox (
    room_id TEXT NOT NULL,
    recipient_agent_id TEXT NOT NULL,
    event_seq INTEGER NOT NULL,
    PRIMARY KEY (room_id, recipient_agent_id, event_seq)
) WITHOUT ROWID;

INSERT INTO inbox SELECT room_id, recipient_agent_id, event_seq FROM deliveries WHERE state = 'pending';
DELETE FROM deliveries WHERE state = 'pending';

DROP INDEX deliveries_inbox_idx;
ALTER TABLE deliveries DROP COLUMN state;
ALTER TABLE deliveries DROP COLUMN expires_at;
ALTER TABLE deliveries DROP COLUMN remind_at;
