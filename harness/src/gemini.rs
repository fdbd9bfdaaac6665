//! Gemini CLI.

use crate::{Directory, EntryValue, Format, Harness, McpConfig, Session, Variables};

pub(crate) static HARNESS: Harness = Harness {
    name: "gemini",
    title: "Gemini CLI",
    program: "gemini",
    package: "@google/gemini-cli",
    mcp_client_prefix: "gemini",
    variables: Variables {
        markers: &["GEMINI_CLI", "GEMINI_SESSION_ID"],
        inherited: &[],
        pid: None,
        reach_other_harnesses: false,
    },
    // Only hooks see GEMINI_SESSION_ID.
    session: Session::Process,
    mcp_session_key: None,
    session_files: None,
    config_dir: Directory { variable: None, in_home: ".gemini", subdirectory: "" },
    skill_dir: Directory { variable: None, in_home: ".agents/skills", subdirectory: "" },
    mcp: McpConfig {
        dir: Directory { variable: None, in_home: ".gemini", subdirectory: "" },
        files: &["settings.json"],
        format: Format::Json,
        section: "mcpServers",
        entry: &[("command", EntryValue::Program), ("args", EntryValue::Arguments)],
    },
};
