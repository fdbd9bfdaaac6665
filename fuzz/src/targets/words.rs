//! Single words that people and programs write: durations, paths, times, ids, artifacts, policies.

use std::os::unix::ffi::OsStrExt;

use tt_proto::paths::{Environment, Paths};
use tt_proto::policy::PolicyOverrides;
use tt_proto::time::parse_duration;
use tt_proto::{AgentId, WallTime};

use crate::{Random, Target, Verdict, ensure, generate};

pub(super) struct Words;

impl Target for Words {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let number = |random: &mut Random| (random.number() >> random.below(64)).to_string();
        let text = match random.below(5) {
            0 => {
                let units = ["ms", "s", "m", "h", "d", "", "y", "M"];
                (0..=random.below(3)).map(|_| number(random) + random.pick(&units)).collect()
            }
            1 => format!(
                "{}:{}-{}={}",
                generate::text(random),
                number(random),
                number(random),
                random.pick(&["edit", "x", ""])
            ),
            2 => format!(
                "20{:02}-{:02}-{:02}T{}:00:00Z",
                random.below(100),
                random.below(15),
                random.below(40),
                random.below(30)
            ),
            3 => format!("/{}/{}", generate::text(random), "d".repeat(random.length(200))),
            _ => generate::text(random),
        };
        text.into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let path = std::ffi::OsStr::from_bytes(input);
        for variable in ["TALKING_STICK_DATA_DIR", "TALKING_STICK_SOCKET", "XDG_DATA_HOME", "HOME"] {
            if input.contains(&0) {
                break;
            }
            let env = Environment::of([("HOME", "/nonexistent".as_ref()), (variable, path)]);
            if let Ok(paths) = Paths::resolve(&env) {
                ensure!(paths.socket.as_os_str().len() < 108, "{} is too long for a socket", paths.socket.display());
                ensure!(paths.data_dir.is_absolute(), "{} depends on the directory", paths.data_dir.display());
            }
        }
        let Ok(text) = std::str::from_utf8(input) else { return Ok(Verdict::Refused) };
        let duration = parse_duration(text);
        if let Some(duration) = duration {
            ensure!(duration.is_zero() || !text.contains('-'), "{text:?} is {duration:?}");
        }
        for key in PolicyOverrides::KEYS {
            let set = PolicyOverrides::default().set(key, text);
            let expected = match *key {
                "max_batch" | "max_wakes" | "ways" => continue,
                "agents_may_break" => matches!(text, "yes" | "true" | "no" | "false"),
                "guard" => matches!(text, "off" | "advise" | "enforce"),
                _ => duration.is_some(),
            };
            ensure!(set.is_ok() == expected, "{key} = {text:?}");
        }
        let agent = AgentId::parse(text);
        if let Ok(agent) = &agent {
            ensure!(tt_proto::escape::is_harmless(agent.as_str()), "something hides in the id {:?}", agent.as_str());
        }
        let artifact = tt_client::fuzz::artifact(text);
        if let Ok(artifact) = &artifact {
            ensure!(!artifact.path.is_empty(), "an artifact without a path");
        }
        let time = WallTime::parse(text);
        let understood = duration.is_some() || agent.is_ok() || artifact.is_ok() || time.is_some();
        Ok(if understood { Verdict::Accepted } else { Verdict::Refused })
    }
}
