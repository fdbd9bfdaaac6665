-- What the holder of the stick changed in its turn, as an object with by_guard (whether the guard gave it the stick), files, more, and
-- commit (the process of git for whose commit it was taken). NULL while nothing is known.
ALTER TABLE path_rooms ADD COLUMN edits_json TEXT;
