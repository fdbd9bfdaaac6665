//! Codex.

use crate::{Directory, EntryValue, Format, Harness, McpConfig, Session, Variables};

pub(crate) static HARNESS: Harness = Harness {
    name: "codex",
    title: "Codex",
    program: "codex",
    package: "@openai/codex",
    mcp_client_prefix: "codex",
    variables: Variables {
        markers: &["CODEX_THREAD_ID", "CODEX_SESSION_ID", "CODEX_CI"],
        inherited: &["CODEX_MANAGED_BY_NPM"],
        pid: None,
        reach_other_harnesses: false,
    },
    session: Session::Id { variables: &["CODEX_THREAD_ID", "CODEX_SESSION_ID"] },
    // Codex clears the environment of its MCP servers and names the thread with each call.
    mcp_session_key: Some("threadId"),
    session_files: None,
    config_dir: Directory { variable: Some("CODEX_HOME"), in_home: ".codex", subdirectory: "" },
    skill_dir: Directory { variable: None, in_home: ".agents/skills", subdirectory: "" },
    mcp: McpConfig {
        dir: Directory { variable: Some("CODEX_HOME"), in_home: ".codex", subdirectory: "" },
        files: &["config.toml"],
        format: Format::Toml,
        section: "mcp_servers",
        entry: &[
            ("command", EntryValue::Program),
            ("args", EntryValue::Arguments),
            ("env_vars", EntryValue::ForwardedVariables),
        ],
    },
};
