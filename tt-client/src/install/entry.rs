//! The entry of our MCP server in the configuration of a harness, in the form that the harness reads.

use serde_json::Value;
use toml_edit::{Array, Table};
use tt_harness::{AGENT_ID_VARIABLE, EntryValue, McpConfig};

/// The arguments with which `tt` serves MCP.
const ARGUMENTS: &[&str] = &["mcp"];

/// The variables that a server needs from a harness that passes on only those it is told to. Without them the server would
/// look for another daemon, or start one without the user's settings.
const FORWARDED_VARIABLES: &[&str] = &[
    "TALKING_STICK_DATA_DIR",
    "TALKING_STICK_SOCKET",
    "XDG_DATA_HOME",
    "TALKING_STICK_CONFIG_DIR",
    "XDG_CONFIG_HOME",
    "TALKING_STICK_DAEMON",
    "TALKING_STICK_IDLE_EXIT",
    "TT_NO_AUTOSTART",
    AGENT_ID_VARIABLE,
];

/// The entry as the text of a JSON object on one line.
pub(super) fn json(mcp: &McpConfig, program: &str) -> String {
    let fields: Vec<String> = mcp.entry.iter().map(|(key, value)| json_field(key, *value, program)).collect();
    format!("{{ {} }}", fields.join(", "))
}

fn json_field(key: &str, value: EntryValue, program: &str) -> String {
    let value = match value {
        EntryValue::Text(text) => Value::from(text).to_string(),
        EntryValue::Bool(value) => value.to_string(),
        EntryValue::Program => Value::from(program).to_string(),
        EntryValue::Arguments => json_list(ARGUMENTS),
        EntryValue::CommandLine => json_list(&command_line(program)),
        EntryValue::ForwardedVariables => json_list(FORWARDED_VARIABLES),
    };
    format!("{}: {value}", Value::from(key))
}

fn json_list(items: &[&str]) -> String {
    let items: Vec<String> = items.iter().map(|item| Value::from(*item).to_string()).collect();
    format!("[{}]", items.join(", "))
}

/// The entry as a TOML table.
pub(super) fn toml(mcp: &McpConfig, program: &str) -> Table {
    let mut table = Table::new();
    for (key, value) in mcp.entry {
        let list = |items: &[&str]| toml_edit::value(Array::from_iter(items.iter().copied()));
        let item = match *value {
            EntryValue::Text(text) => toml_edit::value(text),
            EntryValue::Bool(value) => toml_edit::value(value),
            EntryValue::Program => toml_edit::value(program),
            EntryValue::Arguments => list(ARGUMENTS),
            EntryValue::CommandLine => list(&command_line(program)),
            EntryValue::ForwardedVariables => list(FORWARDED_VARIABLES),
        };
        table.insert(key, item);
    }
    table
}

fn command_line(program: &str) -> Vec<&str> {
    [&[program], ARGUMENTS].concat()
}

/// The key under which the entry names the program: as its value, or as the first item of a list.
pub(super) fn program_key(mcp: &McpConfig) -> &'static str {
    let names_program = |value: EntryValue| matches!(value, EntryValue::Program | EntryValue::CommandLine);
    mcp.entry.iter().find(|(_, value)| names_program(*value)).map_or("command", |(key, _)| key)
}

/// Whether the value of a key may differ from one version of `tt` to the next.
pub(super) fn varies_by_version(mcp: &McpConfig, key: &str) -> bool {
    mcp.entry.contains(&(key, EntryValue::ForwardedVariables))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mcp(name: &str) -> &'static McpConfig {
        &tt_harness::by_name(name).unwrap().mcp
    }

    #[test]
    fn each_harness_has_the_entry_it_reads() {
        for (name, expected) in [
            ("claude", r#"{ "type": "stdio", "command": "/a \"b\"/tt", "args": ["mcp"] }"#),
            ("gemini", r#"{ "command": "/a \"b\"/tt", "args": ["mcp"] }"#),
            ("opencode", r#"{ "type": "local", "command": ["/a \"b\"/tt", "mcp"], "enabled": true }"#),
        ] {
            assert_eq!(json(mcp(name), r#"/a "b"/tt"#), expected);
        }
        let codex = toml(mcp("codex"), "/a/tt").to_string();
        assert!(codex.starts_with("command = \"/a/tt\"\nargs = [\"mcp\"]\nenv_vars = [\"TALKING_STICK_DATA_DIR\", "));
        assert!(varies_by_version(mcp("codex"), "env_vars") && !varies_by_version(mcp("codex"), "args"));
    }
}
