-- A person is one member on many terminals. Each row is a terminal that was open when the person last opened one, named by the
-- process that leads its session. Agents have no rows here: their process is in room_members.
CREATE TABLE member_terminals (
    room_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    host_id TEXT NOT NULL,
    pid INTEGER NOT NULL,
    process_started_at TEXT NOT NULL,
    PRIMARY KEY (room_id, agent_id, host_id, pid, process_started_at)
) WITHOUT ROWID;

CREATE INDEX member_terminals_process_idx ON member_terminals (pid);

INSERT INTO member_terminals (room_id, agent_id, host_id, pid, process_started_at)
    SELECT room_id, agent_id, coalesce(host_id, ''), pid, coalesce(process_started_at, '') FROM room_members
    WHERE found_by = 'user' AND pid IS NOT NULL;

-- A person is never gone, only away: messages wait for it.
UPDATE room_members SET status = 'away' WHERE status = 'gone' AND found_by = 'user';

-- Who kicked a member, and why. It is told when it calls again.
ALTER TABLE room_members ADD COLUMN removed_by TEXT;
ALTER TABLE room_members ADD COLUMN removed_reason TEXT;
