//! OpenCode.

use crate::{Directory, EntryValue, Format, Harness, McpConfig, Session, Variables};

pub(crate) static HARNESS: Harness = Harness {
    name: "opencode",
    title: "OpenCode",
    program: "opencode",
    package: "opencode-ai",
    mcp_client_prefix: "opencode",
    variables: Variables {
        markers: &["OPENCODE"],
        inherited: &[],
        pid: Some("OPENCODE_PID"),
        reach_other_harnesses: false,
    },
    session: Session::Process,
    mcp_session_key: None,
    session_files: None,
    config_dir: Directory { variable: Some("XDG_CONFIG_HOME"), in_home: ".config", subdirectory: "opencode" },
    skill_dir: Directory { variable: None, in_home: ".agents/skills", subdirectory: "" },
    mcp: McpConfig {
        dir: Directory { variable: Some("XDG_CONFIG_HOME"), in_home: ".config", subdirectory: "opencode" },
        files: &["opencode.jsonc", "opencode.json"],
        format: Format::Json,
        section: "mcp",
        entry: &[
            ("type", EntryValue::Text("local")),
            ("command", EntryValue::CommandLine),
            ("enabled", EntryValue::Bool(true)),
        ],
    },
};
