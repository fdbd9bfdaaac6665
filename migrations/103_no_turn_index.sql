-- No query looks events up by turn; the index of 0.1.x only made every event dearer to append.
DROP INDEX IF EXISTS room_events_room_turn_idx;
