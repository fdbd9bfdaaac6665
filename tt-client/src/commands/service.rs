//! `tt service install|uninstall`: systemd user units on Linux, a launchd agent on macOS.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tt_proto::escape::escape_text;
use tt_proto::paths::{SHARED_DIR_MODE, make_dirs};
use tt_proto::{Error, ErrorCode};

use crate::Context;
use crate::connect::{HttpClient, Settings, daemon_program, stop};
use crate::error::CommandError;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Let the system start the daemon, and restart it when it fails
    #[command(after_help = "Example:\n  tt service install")]
    Install,
    /// Remove the service; tt then starts the daemon itself again
    #[command(after_help = "Example:\n  tt service uninstall")]
    Uninstall,
}

/// A file of the service, with its content for this user.
struct Unit {
    path: PathBuf,
    content: String,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let settings = &context.settings;
    let (status, files) = match args {
        Args::Install => {
            let units = units(settings)?;
            // The service binds the same socket and takes the same lock.
            let running = HttpClient::connect(Settings { autostart: false, ..settings.clone() }).ok();
            stop(settings, running).map_err(CommandError::NoDaemon)?;
            for unit in &units {
                write(unit).map_err(cannot("write", &unit.path))?;
            }
            manage(platform::install(&units))?;
            ("installed", units)
        }
        Args::Uninstall => {
            let units: Vec<Unit> = units(settings)?.into_iter().filter(|unit| unit.path.exists()).collect();
            if !units.is_empty() {
                // Stopping a unit that is not loaded fails, which does not matter here.
                let _ = manage(platform::uninstall(&units));
            }
            for unit in &units {
                std::fs::remove_file(&unit.path).map_err(cannot("remove", &unit.path))?;
            }
            (if units.is_empty() { "not_installed" } else { "uninstalled" }, units)
        }
    };
    let paths: Vec<String> = files.iter().map(|unit| unit.path.display().to_string()).collect();
    let answer = json!({ "status": status, "files": paths });
    Ok(context.output().answer(&answer, |_, style| {
        let mut text = format!("service {}\n", status.replace('_', " "));
        paths.iter().for_each(|path| text.push_str(&style.dim(&format!("  {}\n", escape_text(path)))));
        text
    })?)
}

fn units(settings: &Settings) -> Result<Vec<Unit>, CommandError> {
    let program = daemon_program(settings).map_err(CommandError::Local)?;
    let home = settings.env.home().map_err(CommandError::Local)?;
    for path in [&program, &home, &settings.paths.data_dir, &settings.paths.socket] {
        fits_unit_file(path)?;
    }
    Ok(platform::units(settings, &program, &home))
}

/// Refuses a path that a unit file cannot hold: a line break in it would begin a setting of its own.
fn fits_unit_file(path: &Path) -> Result<(), CommandError> {
    if path.to_str().is_some_and(|text| !text.chars().any(char::is_control)) {
        return Ok(());
    }
    let message = format!("{} cannot be written into the file of a service", path.display());
    let error = Error::new(ErrorCode::InvalidInput, message)
        .hint("use a path of UTF-8 text without line breaks and other control characters; nothing was changed")
        .detail("path", path.display().to_string());
    Err(CommandError::Refused(error))
}

fn write(unit: &Unit) -> std::io::Result<()> {
    if let Some(dir) = unit.path.parent() {
        make_dirs(dir, SHARED_DIR_MODE)?;
    }
    let mut file = std::fs::File::create(&unit.path)?;
    file.write_all(unit.content.as_bytes())?;
    // Whatever the umask: what is in it is run. A unit that is masked is a link to a device, which is left as it is.
    if file.metadata()?.is_file() {
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

fn cannot(what: &str, path: &Path) -> impl Fn(std::io::Error) -> CommandError {
    let shown = format!("cannot {what} {}", path.display());
    move |e| {
        CommandError::Local(
            Error::new(ErrorCode::StorageUnavailable, format!("{shown}: {e}")).hint("check its permissions"),
        )
    }
}

/// Runs commands of the service manager in order.
fn manage(commands: Vec<Vec<String>>) -> Result<(), CommandError> {
    for words in commands {
        let shown = words.join(" ");
        let failed = |why: String| {
            CommandError::Local(
                Error::new(ErrorCode::InvalidInput, format!("`{shown}` failed: {why}"))
                    .hint(format!("the files are in place; run `{shown}` where the service manager can be reached")),
            )
        };
        let output = Command::new(&words[0]).args(&words[1..]).output().map_err(|e| failed(e.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
    }
    Ok(())
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[cfg(not(target_os = "macos"))]
mod platform {
    use super::{Path, PathBuf, Settings, Unit, words};

    const SOCKET: &str = include_str!("../../systemd/ttd.socket");
    const SERVICE: &str = include_str!("../../systemd/ttd.service");

    pub(super) fn units(settings: &Settings, program: &Path, home: &Path) -> Vec<Unit> {
        let config = settings.env.get("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
        let dir = config.join("systemd/user");
        let socket = SOCKET.replace("%h/.local/share/talking-stick/ttd.sock", &escape(&settings.paths.socket));
        // Absolute paths: systemd runs the daemon in another directory.
        let (env, paths) = (&settings.env, &settings.paths);
        let own_data = env.get("TALKING_STICK_DATA_DIR").or(env.get("XDG_DATA_HOME")).map(|_| &paths.data_dir);
        let own_socket = env.get("TALKING_STICK_SOCKET").map(|_| &paths.socket);
        let environment: String = [("TALKING_STICK_DATA_DIR", own_data), ("TALKING_STICK_SOCKET", own_socket)]
            .into_iter()
            .filter_map(|(name, path)| Some(format!("Environment={}\n", quote(&format!("{name}={}", path?.display())))))
            .collect();
        let service = SERVICE
            .replace("%h/.cargo/bin/ttd", &quote(&program.display().to_string()))
            .replace("[Service]\n", &format!("[Service]\n{environment}"));
        vec![
            Unit { path: dir.join("ttd.socket"), content: socket },
            Unit { path: dir.join("ttd.service"), content: service },
        ]
    }

    /// A percent sign starts a specifier in a unit file.
    fn escape(path: &Path) -> String {
        path.display().to_string().replace('%', "%%")
    }

    /// A text as one quoted word of a unit file.
    fn quote(text: &str) -> String {
        format!("\"{}\"", text.replace('%', "%%").replace('\\', "\\\\").replace('"', "\\\""))
    }

    pub(super) fn install(_: &[Unit]) -> Vec<Vec<String>> {
        vec![words("systemctl --user daemon-reload"), words("systemctl --user enable --now ttd.socket")]
    }

    pub(super) fn uninstall(_: &[Unit]) -> Vec<Vec<String>> {
        vec![words("systemctl --user disable --now ttd.socket ttd.service"), words("systemctl --user daemon-reload")]
    }
}

#[cfg(target_os = "macos")]
mod platform {
    use super::{Path, Settings, Unit, words};

    const AGENT: &str = include_str!("../../launchd/dev.talking-stick.ttd.plist");
    const LABEL: &str = "dev.talking-stick.ttd";

    pub(super) fn units(settings: &Settings, program: &Path, home: &Path) -> Vec<Unit> {
        let content = AGENT
            .replace("/usr/local/bin/ttd", &escape(&program.display().to_string()))
            .replace("/usr/local/var/talking-stick", &escape(&settings.paths.data_dir.display().to_string()));
        vec![Unit { path: home.join(format!("Library/LaunchAgents/{LABEL}.plist")), content }]
    }

    fn escape(text: &str) -> String {
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    }

    fn domain() -> String {
        format!("gui/{}", nix::unistd::getuid())
    }

    pub(super) fn install(units: &[Unit]) -> Vec<Vec<String>> {
        let mut bootstrap = words(&format!("launchctl bootstrap {}", domain()));
        bootstrap.extend(units.iter().map(|unit| unit.path.display().to_string()));
        vec![bootstrap]
    }

    pub(super) fn uninstall(_: &[Unit]) -> Vec<Vec<String>> {
        vec![words(&format!("launchctl bootout {}/{LABEL}", domain()))]
    }
}
