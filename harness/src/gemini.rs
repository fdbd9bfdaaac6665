//! Gemini CLI.

use crate::{
    Directory, EditTool, EditedPaths, EntryValue, Format, Frame, GuardedTools, Harness, Hint, Hold, HookEvent,
    HookFile, Hooks, Keys, McpConfig, Refuse, ScreenFacts, Session, Speech, TokenFrom, Variables,
};

pub(crate) static HARNESS: Harness = Harness {
    name: "gemini",
    title: "Gemini CLI",
    program: "gemini",
    package: "@google/gemini-cli",
    tested_version: "0.61.0",
    mcp_client_prefix: "gemini",
    variables: Variables {
        markers: &["GEMINI_CLI", "GEMINI_SESSION_ID"],
        inherited: &[],
        pid: None,
        reach_other_harnesses: false,
    },
    // Only hooks see GEMINI_SESSION_ID.
    session: Session::Process,
    mcp_session_keys: &[],
    mcp_tool_use_key: None,
    session_files: None,
    server: None,
    config_dir: Directory { variable: None, in_home: ".gemini", subdirectory: "" },
    skill_dir: Directory { variable: None, in_home: ".agents/skills", subdirectory: "" },
    mcp: McpConfig {
        dir: Directory { variable: None, in_home: ".gemini", subdirectory: "" },
        files: &["settings.json"],
        format: Format::Json,
        section: "mcpServers",
        entry: &[("command", EntryValue::Program), ("args", EntryValue::Arguments)],
    },
    hooks: Hooks::File(HookFile {
        dir: Directory { variable: None, in_home: ".gemini", subdirectory: "" },
        name: "settings.json",
        // In milliseconds.
        timeout: 5000,
        names_commands: true,
        trust: None,
        events: &[
            HookEvent::with_context("SessionStart", "session_started"),
            HookEvent::with_context("BeforeAgent", "prompt"),
            HookEvent::new("BeforeTool", "tool_started"),
            HookEvent::with_context("AfterTool", "tool_ended"),
            HookEvent::that_holds("AfterAgent", "turn_ended"),
            HookEvent::new("Notification", "permission_asked"),
            HookEvent::new("SessionEnd", "session_ended"),
        ],
    }),
    speech: Speech { max_chars: 10_000, hold: Hold::Decision("deny"), refuse: Refuse::Decision("deny") },
    tools: GuardedTools {
        edits: &[
            EditTool { name: "replace", paths: EditedPaths::Key("file_path") },
            EditTool { name: "write_file", paths: EditedPaths::Key("file_path") },
        ],
        shell: ("run_shell_command", "command"),
    },
    screen: Some(ScreenFacts {
        prompt: " > ",
        text_column: 3,
        frame: Frame::Rules('▄', '▀'),
        hint: Hint::Text("Type your message"),
        shows_cursor: false,
        paste_tokens: &["[Pasted Text: ", "[Image "],
        pasted: &["[Pasted Text: {lines} lines]", "[Pasted Text: {chars} chars]"],
        token_from: TokenFrom { newlines: Some(5), chars: 501 },
        questions: &["Allow execution of", "Apply this change?", "Allow once", "Action Required"],
        keys: Keys { erase: &["C-u", "BSpace"], break_turn: "Escape", takes_bursts: false },
    }),
};
