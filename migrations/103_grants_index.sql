-- Of all events only grants are looked up by turn. The index of 0.1.x over every event made each message dearer to append.
DROP INDEX IF EXISTS room_events_room_turn_idx;
CREATE INDEX room_events_grants_idx ON room_events (room_id, turn_id) WHERE event_type IN ('claim', 'takeover');
