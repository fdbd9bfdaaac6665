ALTER TABLE room_events ADD COLUMN payload_json TEXT;
