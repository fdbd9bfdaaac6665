-- How urgent a message is, so that an inbox can be read in that order; NULL is normal. What is urgent has an index of its
-- own, which an ordinary message does not touch.
ALTER TABLE deliveries ADD COLUMN delivery_hint TEXT;

UPDATE deliveries SET delivery_hint = (
    SELECT nullif(json_extract(payload_json, '$.delivery_hint'), 'normal') FROM room_events
    WHERE room_events.event_seq = deliveries.event_seq
) WHERE state = 'pending';

CREATE INDEX deliveries_urgent_idx ON deliveries (room_id, recipient_agent_id, event_seq)
    WHERE state = 'pending' AND delivery_hint IS NOT NULL;

-- The words of every event, by its number, and its room as one word. It holds no text of its own, and is filled behind the
-- answers, up to the number in event_index.
CREATE VIRTUAL TABLE event_words USING fts5(room, words, content = '', contentless_delete = 1,
    tokenize = 'unicode61 remove_diacritics 0');

CREATE TABLE event_index (indexed_event_seq INTEGER NOT NULL);
INSERT INTO event_index VALUES (0);
