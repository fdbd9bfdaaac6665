//! The paths of the data and config directories and of the files in them, and the check that a directory is private. Client
//! and daemon must come to the same paths.
//!
//! The socket's path follows from the data directory and the uid alone, so that a cron job, an ssh session and a
//! desktop terminal all meet the same daemon.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use directories::BaseDirs;
use sha2::{Digest, Sha256};

use crate::{Error, ErrorCode};

/// A socket address holds this many bytes of path, less the closing NUL.
const SOCKET_PATH_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The name of our directory inside the platform's data and config directories.
const APPLICATION: &str = "talking-stick";

/// The file in the data directory that holds all rooms.
const DATABASE: &str = "rooms.sqlite";

/// The file in the config directory that holds the settings.
const CONFIG: &str = "config.toml";

/// The environment, read once when the process starts and passed down.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: Arc<BTreeMap<OsString, OsString>>,
}

impl Environment {
    pub fn of_this_process() -> Self {
        Self { variables: Arc::new(std::env::vars_os().collect()) }
    }

    /// An environment of these variables alone.
    pub fn of<K: Into<OsString>, V: Into<OsString>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let variables = pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        Self { variables: Arc::new(variables) }
    }

    /// An empty variable counts as unset, as everywhere in the XDG rules.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|v| !v.is_empty())
    }

    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(OsStr::to_str)
    }

    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|v| v != "0")
    }

    /// The home directory: `$HOME`, else what the user database says.
    pub fn home(&self) -> Result<PathBuf, Error> {
        if let Some(home) = self.get("HOME") {
            return Ok(PathBuf::from(home));
        }
        match nix::unistd::User::from_uid(nix::unistd::getuid()) {
            Ok(Some(user)) => Ok(user.dir),
            _ => Err(Error::new(
                ErrorCode::StorageUnavailable,
                "no home directory: HOME is not set and the user has none",
            )
            .hint("set HOME, or TALKING_STICK_DATA_DIR to a private directory")),
        }
    }
}

/// Every file the daemon and its clients share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    pub data_dir: PathBuf,
    pub config_dir: PathBuf,
    pub socket: PathBuf,
}

impl Paths {
    /// Resolves all paths for this environment. Nothing is created.
    pub fn resolve(env: &Environment) -> Result<Self, Error> {
        let data_dir = match (env.get("TALKING_STICK_DATA_DIR"), env.get("XDG_DATA_HOME")) {
            (Some(dir), _) => PathBuf::from(dir),
            (None, Some(dir)) => Path::new(dir).join(APPLICATION),
            (None, None) => {
                choose_dir(&env.home()?, ".local/share", platform_dir(BaseDirs::data_dir).as_deref(), DATABASE)
            }
        };
        let config_dir = match (env.get("TALKING_STICK_CONFIG_DIR"), env.get("XDG_CONFIG_HOME")) {
            (Some(dir), _) => PathBuf::from(dir),
            (None, Some(dir)) => Path::new(dir).join(APPLICATION),
            (None, None) => choose_dir(&env.home()?, ".config", platform_dir(BaseDirs::config_dir).as_deref(), CONFIG),
        };
        let data_dir = absolute(&data_dir)?;
        let socket = match env.get("TALKING_STICK_SOCKET") {
            Some(path) => explicit_socket(Path::new(path))?,
            None => default_socket(&data_dir),
        };
        Ok(Self { config_dir: absolute(&config_dir)?, data_dir, socket })
    }

    /// The file a running daemon keeps locked for as long as it lives.
    pub fn lock(&self) -> PathBuf {
        self.data_dir.join("ttd.lock")
    }

    /// The file a client locks while it starts the daemon.
    pub fn start_lock(&self) -> PathBuf {
        self.data_dir.join("start.lock")
    }

    pub fn log(&self) -> PathBuf {
        self.data_dir.join("ttd.log")
    }

    pub fn database(&self) -> PathBuf {
        self.data_dir.join(DATABASE)
    }

    pub fn socket_dir(&self) -> &Path {
        self.socket.parent().unwrap_or(Path::new("/"))
    }
}

/// A directory of the platform, relative to home so that it can be used with another home than this process has. None where
/// the platform follows the XDG rules, which are in [`Paths::resolve`].
fn platform_dir(dir: fn(&BaseDirs) -> &Path) -> Option<PathBuf> {
    let directories = BaseDirs::new().filter(|_| cfg!(target_os = "macos"))?;
    dir(&directories).strip_prefix(directories.home_dir()).map(Path::to_owned).ok()
}

/// Our directory in the place that the platform has for it, if there is such a place. The XDG directory, which earlier
/// versions used everywhere, is chosen only if it alone has the file: the choice does not change once the file is there.
fn choose_dir(home: &Path, xdg: &str, platform: Option<&Path>, file: &str) -> PathBuf {
    let xdg = home.join(xdg).join(APPLICATION);
    match platform.map(|platform| home.join(platform).join(APPLICATION)) {
        Some(platform) if platform.join(file).exists() || !xdg.join(file).exists() => platform,
        _ => xdg,
    }
}

/// Absolute, with the symlinks above it resolved so that two spellings of one directory give one socket, before it
/// exists as well as after. The last component stays as it is: a symlink there is refused later, not followed.
fn absolute(path: &Path) -> Result<PathBuf, Error> {
    let path = std::path::absolute(path).map_err(|e| {
        Error::new(ErrorCode::StorageUnavailable, format!("{} is not a usable path: {e}", path.display()))
    })?;
    let mut above = path.ancestors().skip(1);
    let resolved = above.find_map(|dir| Some(dir.canonicalize().ok()?.join(path.strip_prefix(dir).ok()?)));
    Ok(resolved.unwrap_or(path))
}

fn explicit_socket(path: &Path) -> Result<PathBuf, Error> {
    let path = absolute(path)?;
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_MAX {
        return Err(Error::new(
            ErrorCode::InvalidInput,
            format!("TALKING_STICK_SOCKET is {bytes} bytes long; a socket address holds {SOCKET_PATH_MAX}"),
        )
        .hint("choose a shorter path, or unset TALKING_STICK_SOCKET"));
    }
    Ok(path)
}

fn default_socket(data_dir: &Path) -> PathBuf {
    let beside = data_dir.join("ttd.sock");
    if beside.as_os_str().len() <= SOCKET_PATH_MAX {
        return beside;
    }
    let uid = nix::unistd::getuid();
    let hash = short_hash([data_dir.as_os_str().as_bytes()]);
    // `/tmp` and not `$TMPDIR`: the latter differs between a terminal, a cron job and a sandbox of the same user.
    PathBuf::from(format!("/tmp/talking-stick-{uid}-{hash}")).join("ttd.sock")
}

/// Eight hex digits over the parts, each closed so that no two lists run together.
pub fn short_hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
        hasher.update([0]);
    }
    hasher.finalize().iter().take(4).map(|b| format!("{b:02x}")).collect()
}

/// Refuses a directory that someone else could have put there or can write to: a symlink, another owner, or any
/// permission for group and others. A directory that is not there is `Ok(false)`.
pub fn is_private_dir(dir: &Path) -> Result<bool, Error> {
    let shown = dir.display();
    let refuse = |what: String, hint: String| {
        Err(Error::new(ErrorCode::StorageUnavailable, what).hint(hint).detail("path", shown.to_string()))
    };
    let meta = match std::fs::symlink_metadata(dir) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => {
            let hint = "set TALKING_STICK_DATA_DIR to a directory of yours, below directories you may enter";
            return refuse(format!("cannot look at {shown}: {e}"), hint.into());
        }
    };
    let uid = nix::unistd::getuid();
    if meta.file_type().is_symlink() {
        return refuse(
            format!("{shown} is a symlink, which someone else could redirect"),
            format!(
                "replace it by a directory, or set TALKING_STICK_DATA_DIR to where it points: readlink -f '{shown}'"
            ),
        );
    }
    if !meta.is_dir() {
        return refuse(format!("{shown} is not a directory"), format!("move it away: mv '{shown}' '{shown}.old'"));
    }
    if meta.uid() != uid.as_raw() {
        return refuse(
            format!("{shown} belongs to uid {}, not to uid {uid}", meta.uid()),
            "leave it alone, and set TALKING_STICK_DATA_DIR to a directory of yours".into(),
        );
    }
    if meta.mode() & 0o1000 != 0 {
        // Everybody's directory, such as /tmp: making it private would be worse than refusing it.
        return refuse(
            format!("{shown} is shared by everyone on this machine"),
            "use a directory of your own inside it, made with: mkdir -m 700".into(),
        );
    }
    if meta.mode() & 0o077 != 0 {
        // Only a directory that is ours alone is to be closed: a home directory, say, may have to stay open to others.
        let is_ours = dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("talking-stick"));
        return refuse(
            format!("{shown} is open to other users (mode {:04o})", meta.mode() & 0o7777),
            match is_ours {
                true => format!("make it private: chmod 700 '{shown}'"),
                false => format!(
                    "leave it as it is, and use a directory inside it: mkdir -m 700 '{}'",
                    dir.join("talking-stick").display()
                ),
            },
        );
    }
    Ok(true)
}

/// The mode of a directory that only its owner may enter.
pub const PRIVATE_DIR_MODE: u32 = 0o700;

/// The mode of a directory that we make in a place that belongs to another program. Others may look, nobody else may write.
pub const SHARED_DIR_MODE: u32 = 0o755;

/// Makes a directory and those above it that are missing, with exactly this mode, whatever the umask is. A directory that is
/// there is left as it is.
pub fn make_dirs(dir: &Path, mode: u32) -> std::io::Result<()> {
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    if let Some(above) = dir.parent() {
        make_dirs(above, mode)?;
    }
    match std::fs::DirBuilder::new().mode(mode).create(dir) {
        // The umask can only have taken permissions away.
        Ok(()) => std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(e) => Err(e),
    }
}

/// Makes the directory, private from its first instant, or checks the one that is there.
pub fn ensure_private_dir(dir: &Path) -> Result<(), Error> {
    if is_private_dir(dir)? {
        return Ok(());
    }
    make_dirs(dir, PRIVATE_DIR_MODE).map_err(|e| {
        Error::new(ErrorCode::StorageUnavailable, format!("cannot create {}: {e}", dir.display()))
            .hint("set TALKING_STICK_DATA_DIR to a directory of yours, in a place where you can write")
            .detail("path", dir.display().to_string())
    })?;
    is_private_dir(dir).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(pairs: &[(&str, &str)]) -> Paths {
        Paths::resolve(&Environment::of(pairs.iter().copied())).unwrap()
    }

    #[test]
    fn the_data_directory_follows_the_first_variable_that_is_set() {
        let home = ("HOME", "/nonexistent/home");
        let platform = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".local/share" };
        let default = format!("/nonexistent/home/{platform}/talking-stick");
        let dir = |pairs: &[(&str, &str)]| resolve(pairs).data_dir.display().to_string();
        assert_eq!(dir(&[home]), default);
        assert_eq!(dir(&[home, ("XDG_DATA_HOME", "/x")]), "/x/talking-stick");
        assert_eq!(dir(&[home, ("XDG_DATA_HOME", "")]), default);
        assert_eq!(dir(&[home, ("XDG_DATA_HOME", "/x"), ("TALKING_STICK_DATA_DIR", "/d")]), "/d");
    }

    #[test]
    fn a_database_in_the_xdg_directory_is_kept_unless_the_platforms_own_has_one() {
        let home = tempfile::tempdir().unwrap();
        let macos = Path::new("Library/Application Support");
        let dir = |platform| choose_dir(home.path(), ".local/share", platform, DATABASE);
        let (xdg, platform) = (dir(None), home.path().join(macos).join("talking-stick"));
        assert_eq!(xdg, home.path().join(".local/share/talking-stick"));
        assert_eq!(dir(Some(macos)), platform);
        for made in [&xdg, &platform] {
            std::fs::create_dir_all(made).unwrap();
            assert_eq!(dir(Some(macos)), platform, "an empty directory decides nothing");
        }
        std::fs::write(xdg.join(DATABASE), "").unwrap();
        assert_eq!(dir(Some(macos)), xdg, "settings alone in the platform's directory do not hide the rooms");
        std::fs::write(platform.join(DATABASE), "").unwrap();
        assert_eq!(dir(Some(macos)), platform);
        std::fs::remove_file(xdg.join(DATABASE)).unwrap();
        assert_eq!(dir(Some(macos)), platform);
    }

    #[test]
    fn the_same_variables_lead_to_the_same_directories_in_a_program_and_in_a_library() {
        let process = Environment::of_this_process();
        let variables =
            ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "TALKING_STICK_DATA_DIR", "TALKING_STICK_CONFIG_DIR"];
        let given = Environment::of(variables.iter().filter_map(|name| Some((*name, process.get(name)?))));
        let (process, given) = (Paths::resolve(&process).unwrap(), Paths::resolve(&given).unwrap());
        assert_eq!((process.data_dir, process.config_dir), (given.data_dir, given.config_dir));
    }

    #[test]
    fn the_socket_depends_on_the_data_directory_and_on_nothing_ambient() {
        let base = [("HOME", "/nonexistent/home"), ("TALKING_STICK_DATA_DIR", "/d")];
        let plain = resolve(&base).socket;
        assert_eq!(plain, Path::new("/d/ttd.sock"));
        for ambient in [("XDG_RUNTIME_DIR", "/run/user/1"), ("TMPDIR", "/elsewhere"), ("SSH_CONNECTION", "x")] {
            assert_eq!(resolve(&[base[0], base[1], ambient]).socket, plain);
        }
    }

    #[test]
    fn a_long_data_directory_gets_a_short_socket_of_its_own() {
        let long = |tail: &str| format!("/{}/{tail}", "d".repeat(120));
        let socket = |dir: &str| resolve(&[("HOME", "/h"), ("TALKING_STICK_DATA_DIR", dir), ("TMPDIR", "/t")]).socket;
        let (a, b) = (socket(&long("a")), socket(&long("b")));
        assert!(a.as_os_str().len() <= SOCKET_PATH_MAX && a.starts_with("/tmp"), "{a:?}");
        assert_ne!(a, b);
        assert_eq!(a, socket(&long("a")));
    }

    #[test]
    fn a_directory_has_one_name_before_it_exists_and_after() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir(base.path().join("real")).unwrap();
        std::os::unix::fs::symlink(base.path().join("real"), base.path().join("link")).unwrap();
        let dir = base.path().join("link/not/yet/data");
        let env = [("HOME", "/h"), ("TALKING_STICK_DATA_DIR", dir.to_str().unwrap())];
        let before = resolve(&env);
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(resolve(&env), before);
        assert_eq!(before.data_dir, base.path().canonicalize().unwrap().join("real/not/yet/data"));
    }

    #[test]
    fn an_explicit_socket_that_cannot_be_bound_is_refused() {
        let long = format!("/{}", "s".repeat(120));
        let env = Environment::of([("HOME", "/h"), ("TALKING_STICK_SOCKET", &long)]);
        assert_eq!(Paths::resolve(&env).unwrap_err().code, ErrorCode::InvalidInput);
    }

    #[test]
    fn only_a_private_directory_of_ones_own_is_accepted() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("talking-stick");
        assert!(!is_private_dir(&dir).unwrap());
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert!(is_private_dir(&dir).unwrap());
        for mode in [0o710, 0o701, 0o755, 0o777] {
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(is_private_dir(&dir).unwrap_err().hint.contains("chmod 700"));
        }
        // A directory that holds other things too, such as a home directory, is not to be closed because of us.
        let theirs = base.path().join("home");
        make_dirs(&theirs, SHARED_DIR_MODE).unwrap();
        let open = is_private_dir(&theirs).unwrap_err();
        assert!(!open.hint.contains("chmod") && open.hint.contains("mkdir -m 700"), "{}", open.hint);
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o1777)).unwrap();
        let shared = is_private_dir(&dir).unwrap_err();
        assert!(!shared.hint.contains("chmod"), "nobody should be told to close /tmp: {}", shared.hint);
        let link = base.path().join("l");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(is_private_dir(&link).unwrap_err().message.contains("symlink"));
        std::fs::write(base.path().join("f"), "").unwrap();
        assert!(is_private_dir(&base.path().join("f")).unwrap_err().message.contains("not a directory"));
    }
}
