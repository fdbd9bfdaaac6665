-- What talking-stick 0.1.x leaves behind: two rooms, one of them held by a process that is long gone.
PRAGMA journal_mode = WAL;
CREATE TABLE schema_migrations (id INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL);
CREATE TABLE path_rooms (
  room_id TEXT PRIMARY KEY, canonical_path TEXT NOT NULL UNIQUE, sequence_index INTEGER NOT NULL DEFAULT 0, owner TEXT,
  reserved_for TEXT, pending_handoff_event_seq INTEGER, turn_id INTEGER NOT NULL DEFAULT 0, lease_id TEXT, lease_expires_at TEXT,
  claim_expires_at TEXT, state TEXT NOT NULL, updated_at TEXT NOT NULL
);
CREATE INDEX path_rooms_canonical_path_idx ON path_rooms (canonical_path);
CREATE TABLE room_members (
  room_id TEXT NOT NULL REFERENCES path_rooms (room_id) ON DELETE CASCADE, agent_id TEXT NOT NULL, ordinal INTEGER NOT NULL,
  joined_at TEXT NOT NULL, last_seen_at TEXT NOT NULL, status TEXT NOT NULL, PRIMARY KEY (room_id, agent_id)
);
CREATE TABLE room_events (
  event_seq INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL UNIQUE,
  room_id TEXT NOT NULL REFERENCES path_rooms (room_id) ON DELETE CASCADE, turn_id INTEGER, event_type TEXT NOT NULL,
  from_agent_id TEXT, to_agent_id TEXT, handoff_json TEXT, reason TEXT, created_at TEXT NOT NULL
);
CREATE INDEX room_events_room_seq_idx ON room_events (room_id, event_seq);
CREATE INDEX room_events_room_turn_idx ON room_events (room_id, turn_id);
ALTER TABLE room_members ADD COLUMN host_id TEXT;
ALTER TABLE room_members ADD COLUMN pid INTEGER;
ALTER TABLE room_members ADD COLUMN process_started_at TEXT;
ALTER TABLE room_members ADD COLUMN session_kind TEXT NOT NULL DEFAULT 'harness_cli';
ALTER TABLE room_members ADD COLUMN display_name TEXT;
CREATE TABLE notes (
  note_id TEXT PRIMARY KEY, room_id TEXT NOT NULL REFERENCES path_rooms (room_id) ON DELETE CASCADE, turn_id INTEGER,
  author_agent_id TEXT NOT NULL, body TEXT NOT NULL, created_at TEXT NOT NULL, resolved_at TEXT, resolved_by_agent_id TEXT
);
CREATE INDEX notes_by_room_created ON notes (room_id, created_at, note_id);
ALTER TABLE room_members ADD COLUMN last_wait_at TEXT;
INSERT INTO schema_migrations VALUES
  (1, 'initial', '2026-03-01T08:00:00.000Z'), (2, 'member_process', '2026-03-01T08:00:00.000Z'),
  (3, 'notes', '2026-03-20T08:00:00.000Z'), (4, 'last_wait_at', '2026-04-02T08:00:00.000Z');
INSERT INTO path_rooms VALUES
  ('0a0f7f3e-3c52-4a7e-9f1e-0f4f0a7b1c01', '/srv/shop', 1, 'claude:11aa22bb', NULL, NULL, 7, 'f1c1f8b0-6c2a-4d6e-8a53-2f6d2b7c9e10',
   '2026-04-03T10:45:00.000Z', NULL, 'owned', '2026-04-03T10:00:00.000Z'),
  ('0a0f7f3e-3c52-4a7e-9f1e-0f4f0a7b1c02', '/srv/blog', 0, NULL, NULL, 4, 2, NULL, NULL, NULL, 'idle', '2026-04-02T09:00:00.000Z');
INSERT INTO room_members VALUES
  ('0a0f7f3e-3c52-4a7e-9f1e-0f4f0a7b1c01', 'claude:11aa22bb', 0, '2026-04-03T09:00:00.000Z', '2026-04-03T10:00:00.000Z', 'active',
   'old-host', 4194303, '2026-04-03T08:59:00.000Z', 'harness_cli', 'claude', '2026-04-03T09:59:00.000Z'),
  ('0a0f7f3e-3c52-4a7e-9f1e-0f4f0a7b1c01', 'codex:5c11d1e8', 1, '2026-04-03T09:01:00.000Z', '2026-04-03T09:58:00.000Z', 'active',
   'old-host', 4194302, '2026-04-03T09:00:30.000Z', 'harness_cli', NULL, NULL),
  ('0a0f7f3e-3c52-4a7e-9f1e-0f4f0a7b1c02', 'human:alice', 0, '2026-04-02T08:30:00.000Z', '2026-04-02T09:00:00.000Z', 'left',
   NULL, NULL, NULL, 'harness_cli', 'alice', NULL);
INSERT INTO room_events VALUES
  (1, 'e0000000-0000-4000-8000-000000000001', '0a0f7f3e-3c52-4a7e-9f1e-0f4f0a7b1c02', 1, 'claim', 'human:alice', NULL, NULL, 'open_claim', '2026-04-02T08:31:00.000Z'),
  (2, 'e0000000-0000-4000-8000-000000000002', '0a0f7f3e-3c52-4a7e-9f1e-0f4f0a7b1c02', 1, 'release', 'human:alice', NULL,
   '{"status":"draft done","next_action":"review it"}', NULL, '2026-04-02T08:40:00.000Z'),
  (3, 'e0000000-0000-4000-8000-000000000003', '0a0f7f3e-3c52-4a7e-9f1e-0f4f0a7b1c02', 2, 'claim', 'human:alice', NULL, NULL, 'open_claim', '2026-04-02T08:41:00.000Z'),
  (4, 'e0000000-0000-4000-8000-000000000004', '0a0f7f3e-3c52-4a7e-9f1e-0f4f0a7b1c02', 2, 'release', 'human:alice', NULL,
   '{"status":"reviewed","next_action":"publish","artifacts":[{"path":"post.md","lines":[1,9],"role":"output"}]}', NULL, '2026-04-02T09:00:00.000Z'),
  (5, 'e0000000-0000-4000-8000-000000000005', '0a0f7f3e-3c52-4a7e-9f1e-0f4f0a7b1c01', 7, 'claim', 'claude:11aa22bb', NULL, NULL, 'open_claim', '2026-04-03T10:00:00.000Z');
INSERT INTO notes VALUES
  ('d0000000-0000-4000-8000-000000000001', '0a0f7f3e-3c52-4a7e-9f1e-0f4f0a7b1c01', 7, 'codex:5c11d1e8', 'the cart rounds twice', '2026-04-03T10:01:00.000Z', NULL, NULL),
  ('d0000000-0000-4000-8000-000000000002', '0a0f7f3e-3c52-4a7e-9f1e-0f4f0a7b1c01', NULL, 'claude:11aa22bb', 'seen', '2026-04-03T10:02:00.000Z',
   '2026-04-03T10:03:00.000Z', 'codex:5c11d1e8');
