//! The TOML files of harnesses: an install and an uninstall give the file back to the byte, or the file is refused.

use tt_harness::Format;

use super::config_json::check_format;
use crate::{Random, Target, Verdict, generate};

pub(super) struct ConfigToml;

const LINES: &[&str] = &[
    "a = 1",
    "model = \"m\" # why",
    "b.c = 'x'",
    "[mcp_servers]",
    "[mcp_servers.other]",
    "command = \"x\"",
    "[mcp_servers.talking-stick]",
    "[mcp_servers.\"talking-stick\"]",
    "command = \"/bin/tt\"",
    "args = [\"mcp\"]",
    "mcp_servers.other.command = \"x\"",
    "mcp_servers = { other = { command = \"x\" } }",
    "mcp_servers = {}",
    "mcp_servers = 1",
    "[[mcp_servers]]",
    "[[list]]",
    "[projects.\"/p\"]",
    "trust_level = \"trusted\"",
    "# a comment",
    "",
    "  ",
    "[mcp_servers.talking-stick.env]",
    "X = \"1\"",
    "talking-stick = 1",
    "talking-stick = { command = 'x' }",
    "s = \"\"\"\n[mcp_servers.talking-stick]\n\"\"\"",
    "l = [\n  1, # one\n  2,\n]",
    "d = 1979-05-27T07:32:00Z",
    "\u{feff}",
    "[z]",
    "[z.y] # last",
    "env_vars = [\"A\"]",
    "mcp_servers.talking-stick.command = 'x'",
];

impl Target for ConfigToml {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let end = random.pick(&["\n", "\n", "\r\n"]);
        let mut file = String::new();
        for number in 0..random.length(12) {
            match random.below(12) {
                0 => file.push_str(&format!("key{number} = {}", generate::json_string(&generate::text(random)))),
                1 => file.push_str(&generate::text(random)),
                _ => file.push_str(random.pick(LINES)),
            }
            file.push_str(end);
        }
        if random.one_in(3) {
            file.truncate(file.trim_end().len());
        }
        file.into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        check_format(input, Format::Toml)
    }
}
