//! Claude Code.

use crate::{
    Directory, EditTool, EditedPaths, EntryValue, Format, Frame, GuardedTools, Harness, Hint, Hold, HookEvent,
    HookFile, Hooks, Keys, McpConfig, Refuse, ScreenFacts, Session, SessionFiles, Speech, TokenFrom, Variables,
};

const CONFIG_DIR: Option<&str> = Some("CLAUDE_CONFIG_DIR");

pub(crate) static HARNESS: Harness = Harness {
    name: "claude",
    title: "Claude Code",
    program: "claude",
    package: "@anthropic-ai/claude-code",
    tested_version: "2.1.325",
    mcp_client_prefix: "claude",
    variables: Variables {
        markers: &["CLAUDECODE"],
        inherited: &[],
        pid: Some("CLAUDE_PID"),
        reach_other_harnesses: true,
    },
    session: Session::Id { variables: &["CLAUDE_CODE_SESSION_ID"] },
    mcp_session_keys: &[],
    mcp_tool_use_key: Some("claudecode/toolUseId"),
    // One process can resume another session; the environment of an MCP server names the one it was started in.
    session_files: Some(SessionFiles {
        dir: "sessions",
        session_id_key: "sessionId",
        process_start_key: "procStart",
        inbox_key: "messagingSocketPath",
        transcripts: "projects",
    }),
    server: None,
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
    hooks: Hooks::File(HookFile {
        dir: Directory { variable: CONFIG_DIR, in_home: ".claude", subdirectory: "" },
        name: "settings.json",
        timeout: 5,
        names_commands: false,
        trust: None,
        events: &[
            HookEvent::with_context("SessionStart", "session_started"),
            HookEvent::with_context("UserPromptSubmit", "prompt"),
            HookEvent::with_context("PreToolUse", "tool_started"),
            // Fires with the question; the notification comes seconds later.
            HookEvent::new("PermissionRequest", "permission_asked"),
            HookEvent::with_context("PostToolUse", "tool_ended"),
            // Also after a command that exits with another status than 0.
            HookEvent::with_context("PostToolUseFailure", "tool_ended"),
            HookEvent::new("SubagentStop", "subagent_ended"),
            HookEvent::that_holds("Stop", "turn_ended"),
            HookEvent::new("SessionEnd", "session_ended"),
        ],
    }),
    // More is replaced by a preview and the path of a file; a decision with a reason is shown to the model twice.
    speech: Speech { max_chars: 10_000, hold: Hold::Context, refuse: Refuse::Permission },
    tools: GuardedTools {
        edits: &[
            EditTool { name: "Edit", paths: EditedPaths::Key("file_path") },
            EditTool { name: "Write", paths: EditedPaths::Key("file_path") },
            EditTool { name: "MultiEdit", paths: EditedPaths::Key("file_path") },
            EditTool { name: "NotebookEdit", paths: EditedPaths::Key("notebook_path") },
        ],
        shell: ("Bash", "command"),
    },
    screen: Some(ScreenFacts {
        prompt: "❯ ",
        text_column: 2,
        frame: Frame::Rules('─', '─'),
        hint: Hint::Dim,
        shows_cursor: false,
        paste_tokens: &["[Pasted text #", "[Image #"],
        pasted: &["[Pasted text #{number} +{newlines} lines]"],
        token_from: TokenFrom { newlines: Some(3), chars: 801 },
        questions: &["Do you want to ", "Would you like to proceed?", "Enter to select"],
        keys: Keys { erase: &["C-u", "BSpace"], break_turn: "Escape", takes_bursts: true },
    }),
};
