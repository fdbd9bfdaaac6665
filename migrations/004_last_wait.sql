ALTER TABLE room_members ADD COLUMN last_wait_at TEXT;
