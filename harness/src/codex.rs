//! Codex.

use crate::{
    Directory, EditTool, EditedPaths, EntryValue, Format, Frame, GuardedTools, Harness, Hint, Hold, HookEvent,
    HookFile, HookTrust, Hooks, Keys, McpConfig, Refuse, ScreenFacts, Session, SessionServer, Speech, TokenFrom,
    Variables,
};

pub(crate) static HARNESS: Harness = Harness {
    name: "codex",
    title: "Codex",
    program: "codex",
    package: "@openai/codex",
    tested_version: "0.166.0",
    mcp_client_prefix: "codex",
    variables: Variables {
        markers: &["CODEX_THREAD_ID", "CODEX_SESSION_ID", "CODEX_CI"],
        inherited: &["CODEX_MANAGED_BY_NPM"],
        pid: None,
        reach_other_harnesses: false,
    },
    session: Session::Id { variables: &["CODEX_SESSION_ID", "CODEX_THREAD_ID"] },
    // Codex clears the environment of its MCP servers and names the session with each call. A subagent is another thread of
    // the session that it works for.
    mcp_session_keys: &["sessionId", "threadId"],
    mcp_tool_use_key: None,
    session_files: None,
    // All threads of a home run in one process, unless it was started by `codex exec`.
    server: Some(SessionServer {
        argument: "app-server",
        socket: "app-server-control/app-server-control.sock",
        terminal_commands: &["resume", "fork"],
        other_arguments: &["exec", "e", "review", "mcp-server", "app-server", "--remote", "daemon_auto_start"],
    }),
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
    hooks: Hooks::File(HookFile {
        dir: Directory { variable: Some("CODEX_HOME"), in_home: ".codex", subdirectory: "" },
        name: "hooks.json",
        timeout: 5,
        names_commands: false,
        trust: Some(HookTrust {
            dir: Directory { variable: Some("CODEX_HOME"), in_home: ".codex", subdirectory: "" },
            name: "config.toml",
            choice: "\"Trust all and continue\", or \"Review hooks\" to see each of them first",
        }),
        events: &[
            HookEvent::with_context("SessionStart", "session_started"),
            HookEvent::with_context("UserPromptSubmit", "prompt"),
            HookEvent::with_context("PreToolUse", "tool_started"),
            HookEvent::new("PermissionRequest", "permission_asked"),
            HookEvent::with_context("PostToolUse", "tool_ended"),
            HookEvent::that_holds("Stop", "turn_ended"),
            // Codex gives these two a second at most.
            HookEvent::within("Interrupt", "interrupted", 1),
            HookEvent::within("SessionEnd", "session_ended", 1),
        ],
    }),
    speech: Speech { max_chars: 10_000, hold: Hold::Decision("block"), refuse: Refuse::Permission },
    tools: GuardedTools {
        edits: &[EditTool { name: "apply_patch", paths: EditedPaths::Patch(&["command", "input", "patch"]) }],
        // Whatever the tool is called for the model. A patch that is applied in a shell comes here too.
        shell: ("Bash", "command"),
    },
    screen: Some(ScreenFacts {
        prompt: "› ",
        text_column: 2,
        frame: Frame::BlankLines,
        // A draft may begin with a blank line, which has none.
        hint: Hint::AlwaysDim,
        shows_cursor: true,
        paste_tokens: &["[Pasted Content ", "[Image #"],
        pasted: &["[Pasted Content {chars} chars]"],
        token_from: TokenFrom { newlines: None, chars: 1001 },
        questions: &["Would you like to "],
        keys: Keys { erase: &["C-u", "BSpace"], break_turn: "Escape", takes_bursts: true },
    }),
};
