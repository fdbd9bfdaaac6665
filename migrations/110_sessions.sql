-- The sessions of harnesses, so that a daemon that is started again knows which member each conversation is. What a session
-- does at this moment is not stored.
CREATE TABLE sessions (
    harness TEXT NOT NULL,
    session_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    -- Processes that are in this session and in no other: a list of objects with host_id, pid and process_started_at.
    processes_json TEXT NOT NULL,
    -- The process that runs this session and others, as such an object.
    server_json TEXT,
    cwd TEXT,
    transcript_path TEXT,
    -- These times are of the clock that measures leases.
    opened_at TEXT NOT NULL,
    ended_at TEXT,
    -- When its process went on to another conversation, and which one took its agent id over.
    left_at TEXT,
    followed_by TEXT,
    -- The conversation whose agent id it took over without having been told so.
    guessed_from TEXT,
    -- Its terminal was closed, and its process runs on.
    orphaned INTEGER NOT NULL,
    -- Another session entered its process since, and both may be open.
    shares_process INTEGER NOT NULL,
    PRIMARY KEY (harness, session_id)
) WITHOUT ROWID;
