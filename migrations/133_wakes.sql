-- On whose account a message may wake its recipient: 'agent', 'person' or 'answer'; NULL for one that wakes nobody. So what wakes is
-- found however much else waits.
ALTER TABLE deliveries ADD COLUMN wakes TEXT;

UPDATE deliveries SET wakes = (
    SELECT CASE
        WHEN json_extract(e.payload_json, '$.notice') IS NOT NULL THEN NULL
        WHEN (SELECT json_extract(q.payload_json, '$.expects_reply') FROM room_events q
              WHERE q.event_seq = json_extract(e.payload_json, '$.reply_to')) THEN 'answer'
        WHEN json_extract(e.payload_json, '$.from_person') THEN 'person'
        WHEN json_extract(e.payload_json, '$.reminder_id') IS NOT NULL AND e.from_agent_id LIKE 'human:%' THEN 'person'
        WHEN e.to_agent_id IS NOT NULL THEN 'agent'
    END FROM room_events e WHERE e.event_seq = deliveries.event_seq
) WHERE state = 'pending';

CREATE INDEX deliveries_waking_idx ON deliveries (room_id, recipient_agent_id, wakes, event_seq)
    WHERE state = 'pending' AND wakes IS NOT NULL;

-- From now on it counts the hand-overs of which nothing showed that they arrived.
UPDATE deliveries SET attempts = 0 WHERE state = 'pending';
