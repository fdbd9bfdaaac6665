//! OpenCode.

use crate::{
    Directory, EditTool, EditedPaths, EntryValue, Format, GuardedTools, Harness, Hold, Hooks, McpConfig, PluginFile,
    Refuse, Session, Speech, Variables,
};

pub(crate) static HARNESS: Harness = Harness {
    name: "opencode",
    title: "OpenCode",
    program: "opencode",
    package: "opencode-ai",
    tested_version: "1.18.33",
    mcp_client_prefix: "opencode",
    variables: Variables {
        markers: &["OPENCODE"],
        inherited: &[],
        pid: Some("OPENCODE_PID"),
        reach_other_harnesses: false,
    },
    session: Session::Process,
    mcp_session_keys: &[],
    mcp_tool_use_key: None,
    session_files: None,
    server: None,
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
    hooks: Hooks::Plugin(PluginFile {
        dir: Directory { variable: Some("XDG_CONFIG_HOME"), in_home: ".config", subdirectory: "opencode/plugins" },
        name: "talking-stick.js",
        text: include_str!("../plugins/opencode.js"),
    }),
    speech: Speech { max_chars: 10_000, hold: Hold::Decision("block"), refuse: Refuse::Plugin },
    tools: GuardedTools {
        edits: &[
            EditTool { name: "edit", paths: EditedPaths::Key("filePath") },
            EditTool { name: "write", paths: EditedPaths::Key("filePath") },
            EditTool { name: "multiedit", paths: EditedPaths::Key("filePath") },
            EditTool { name: "patch", paths: EditedPaths::Patch(&["patchText"]) },
            EditTool { name: "apply_patch", paths: EditedPaths::Patch(&["patchText"]) },
        ],
        shell: ("bash", "command"),
    },
    screen: None,
};
