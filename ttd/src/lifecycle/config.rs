//! `config.toml` in the config directory, and the environment on top of it.

use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;
use tt_proto::filesystem::read_file;
use tt_proto::paths::{Environment, Paths};
use tt_proto::policy::{Policy, PolicyOverrides};
use tt_proto::{Error, ErrorCode};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Names as in `docs/protocol.md`, values as people write them: `claim_ttl = "20m"`.
    #[serde(default)]
    policy: std::collections::BTreeMap<String, String>,
}

/// The policy: the defaults, overridden by the file, overridden by `TALKING_STICK_<NAME>`.
pub fn policy(paths: &Paths, env: &Environment) -> Result<Policy, Error> {
    let mut overrides = PolicyOverrides::default();
    let path = paths.config_dir.join("config.toml");
    for (key, value) in read(&path)?.policy {
        overrides.set(&key, &value).map_err(|e| e.detail("path", path.display().to_string()))?;
    }
    for key in PolicyOverrides::KEYS {
        let variable = format!("TALKING_STICK_{}", key.to_uppercase());
        if let Some(value) = env.get_str(&variable) {
            overrides.set(key, value).map_err(|e| e.detail("variable", variable))?;
        }
    }
    Ok(overrides.over(&Policy::default()))
}

fn read(path: &Path) -> Result<File, Error> {
    let text = match read_file(path) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| unreadable(path, "it is not UTF-8"))?,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(File::default()),
        Err(e) => return Err(unreadable(path, &e.to_string())),
    };
    toml::from_str(&text).map_err(|e| unreadable(path, e.message()))
}

fn unreadable(path: &Path, why: &str) -> Error {
    Error::new(ErrorCode::InvalidInput, format!("cannot read {}: {why}", path.display()))
        .hint("correct the file, or move it away")
        .detail("path", path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn with(text: &str, env: &[(&str, &str)]) -> Result<Policy, Error> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.toml"), text).unwrap();
        let paths = Paths { data_dir: "/d".into(), config_dir: dir.path().into(), socket: "/d/s".into() };
        policy(&paths, &Environment::of(env.iter().copied()))
    }

    #[test]
    fn the_environment_goes_over_the_file_and_the_file_over_the_defaults() {
        let text = "[policy]\nclaim_ttl = \"5m\"\nwaiter_grace = \"2s\"\n";
        let policy = with(text, &[("TALKING_STICK_WAITER_GRACE", "3s")]).unwrap();
        assert_eq!(policy.claim_ttl, Duration::from_secs(300));
        assert_eq!(policy.waiter_grace, Duration::from_secs(3));
        assert_eq!(policy.presence_ttl, Policy::default().presence_ttl);
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (text, says) in [
            ("[policy]\nclaim_tll = \"5m\"", "claim_tll"),
            ("[policy]\nclaim_ttl = \"soon\"", "soon"),
            ("[policy]\nguard = \"perhaps\"", "perhaps"),
            ("[polic]\n", "polic"),
            ("policy = ", "config.toml"),
        ] {
            let error = with(text, &[]).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidInput);
            assert!(error.message.contains(says), "{}", error.message);
        }
        assert!(with("", &[("TALKING_STICK_CLAIM_TTL", "x")]).is_err());
        assert!(with("", &[("TALKING_STICK_MAX_WAKES", "often")]).is_err());
        assert_eq!(with("[policy]\nmax_wakes = \"3\"", &[]).unwrap().max_wakes, 3);
    }

    #[test]
    fn a_pipe_or_a_device_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = read(&file).unwrap_err();
        assert!(error.code == ErrorCode::InvalidInput && error.message.contains("a pipe"), "{error:?}");
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert!(read(&file).unwrap_err().message.contains("a device"));
    }
}
