-- One row for each message and recipient, from the moment it is sent. `state` is pending, delivered, answered, expired or
-- withdrawn. What is open (pending) is found by the partial index; the table itself grows at its end, in the order of the
-- log.
CREATE TABLE all_deliveries (
    event_seq INTEGER NOT NULL,
    recipient_agent_id TEXT NOT NULL,
    room_id TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending',
    -- The surface that handed it over, and when (time of day).
    surface TEXT,
    delivered_at TEXT,
    -- How often a surface tried to hand it over outside a call of the recipient.
    attempts INTEGER NOT NULL DEFAULT 0,
    -- Milliseconds on the clock of deadlines.
    expires_at INTEGER,
    -- The event that answered it.
    answered_by INTEGER,
    PRIMARY KEY (event_seq, recipient_agent_id)
) WITHOUT ROWID;

INSERT INTO all_deliveries (event_seq, recipient_agent_id, room_id, state, surface, delivered_at)
    SELECT event_seq, recipient_agent_id, room_id, state, surface, delivered_at FROM (
        SELECT event_seq, recipient_agent_id, room_id, 'delivered' AS state, surface, delivered_at FROM deliveries
        UNION ALL
        -- A message that is in both was handed over.
        SELECT event_seq, recipient_agent_id, room_id, 'pending', NULL, NULL FROM inbox
        WHERE NOT EXISTS (SELECT 1 FROM deliveries d
                          WHERE d.event_seq = inbox.event_seq AND d.recipient_agent_id = inbox.recipient_agent_id)
    ) ORDER BY event_seq, recipient_agent_id;

DROP TABLE deliveries;
DROP TABLE inbox;
ALTER TABLE all_deliveries RENAME TO deliveries;

CREATE INDEX deliveries_open_idx ON deliveries (room_id, recipient_agent_id, event_seq) WHERE state = 'pending';
CREATE INDEX deliveries_expiring_idx ON deliveries (expires_at) WHERE state = 'pending' AND expires_at IS NOT NULL;

-- The clock of deadlines runs on while the machine is suspended; its offset is kept per boot like that of the clock of leases.
ALTER TABLE steady_clock ADD COLUMN deadline_offset_ms INTEGER;
