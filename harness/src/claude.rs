//! Claude Code.

use crate::{Directory, EntryValue, Format, Harness, McpConfig, Session, SessionFiles, Variables};

const CONFIG_DIR: Option<&str> = Some("CLAUDE_CONFIG_DIR");

pub(crate) static HARNESS: Harness = Harness {
    name: "claude",
    title: "Claude Code",
    program: "claude",
    package: "@anthropic-ai/claude-code",
    mcp_client_prefix: "claude",
    variables: Variables {
        markers: &["CLAUDECODE"],
        inherited: &[],
        pid: Some("CLAUDE_PID"),
        reach_other_harnesses: true,
    },
    session: Session::Id { variables: &["CLAUDE_CODE_SESSION_ID"] },
    mcp_session_key: None,
    // One process can resume another session; the environment of an MCP server names the one it was started in.
    session_files: Some(SessionFiles { dir: "sessions", session_id_key: "sessionId", process_start_key: "procStart" }),
    config_dir: Directory { variable: CONFIG_DIR, in_home: ".claude", subdirectory: "" },
    skill_dir: Directory { variable: CONFIG_DIR, in_home: ".claude", subdirectory: "skills" },
    mcp: McpConfig {
        // Beside `.claude`, but inside the directory that the variable names.
        dir: Directory { variable: CONFIG_DIR, in_home: "", subdirectory: "" },
        files: &[".claude.json"],
        format: Format::Json,
        section: "mcpServers",
        entry: &[
            ("type", EntryValue::Text("stdio")),
            ("command", EntryValue::Program),
            ("args", EntryValue::Arguments),
        ],
    },
};
