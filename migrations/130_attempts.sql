-- A hand-over that has begun and cannot be recalled: its tag, by which it is found again, its surface, and the time of day at which
-- it began. Set until it is known what became of it; such a delivery is held, also by a daemon that is started later.
ALTER TABLE deliveries ADD COLUMN attempt_tag TEXT;
ALTER TABLE deliveries ADD COLUMN attempt_surface TEXT;
ALTER TABLE deliveries ADD COLUMN attempt_at TEXT;

CREATE INDEX deliveries_attempts_idx ON deliveries (recipient_agent_id) WHERE attempt_tag IS NOT NULL;
