//! Our line in the hooks of a git repository: what a hook file looks like with it, and without. The hook that was there keeps its
//! arguments, its standard input, its exit status and, if it is a shell script, its name.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tt_proto::paths::{SHARED_DIR_MODE, make_dirs};
use tt_proto::{Error, ErrorCode};

/// The hooks that the guard has a line in, and what they are about.
pub(crate) const HOOKS: &[(&str, &str)] = &[("pre-commit", "commit"), ("pre-push", "push")];

/// Ends our line.
const MARK: &str = "# Talking Stick: tt guard uninstall removes this line";

/// The end of the name of a hook that is no shell script, while ours is in its place.
const ASIDE: &str = ".before-talking-stick";

/// The shells in whose scripts our line can stand.
const SHELLS: &[&str] = &["sh", "bash", "dash", "ksh", "zsh", "ash"];

/// How far a script is searched for a line that hands it to another program.
const MAX_HEAD_LINES: usize = 10;

/// What became of one hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    Installed,
    /// Our line is in the script that was there.
    Added,
    /// The program that was there runs after ours.
    Chained,
    Removed,
    Unchanged,
}

/// The directory of a repository's hooks, as git finds it: `core.hooksPath` and worktrees count.
pub(crate) fn directory(workspace: &Path) -> Result<PathBuf, Error> {
    let failed =
        |why: &str| Error::new(ErrorCode::InvalidInput, format!("{} has no git hooks: {why}", workspace.display()));
    let mut git = Command::new("git");
    git.arg("-C").arg(workspace).args(["rev-parse", "--git-path", "hooks"]).stdin(Stdio::null());
    let done = git.output().map_err(|e| failed(&format!("git cannot be run: {e}")).hint("install git"))?;
    if !done.status.success() {
        return Err(failed(String::from_utf8_lossy(&done.stderr).trim()).hint("run it in a git repository"));
    }
    Ok(workspace.join(OsString::from_vec(done.stdout.trim_ascii_end().to_vec())))
}

/// Puts our line into all hooks, or into none: every one is looked at before the first is changed, and if one cannot be changed, those
/// before it are put back. Returns what became of each.
pub(crate) fn install(hooks: &Path, tt: &Path) -> Result<Vec<(PathBuf, Changed)>, Error> {
    let planned = HOOKS.iter().map(|hook| Plan::of(hooks, *hook, tt)).collect::<Result<Vec<Plan>, Error>>()?;
    make_dirs(hooks, SHARED_DIR_MODE).map_err(|e| failed(hooks, &e))?;
    for (done, plan) in planned.iter().enumerate() {
        if let Err(e) = plan.carry_out() {
            planned[..done].iter().for_each(Plan::undo);
            return Err(e);
        }
    }
    Ok(planned.into_iter().map(|plan| (plan.path, plan.change)).collect())
}

/// What installing comes to for one hook.
struct Plan {
    path: PathBuf,
    change: Changed,
    /// The text that it gets.
    text: Vec<u8>,
    /// The script that was there, and its mode.
    before: Option<(Vec<u8>, u32)>,
}

impl Plan {
    fn of(hooks: &Path, (hook, action): (&str, &str), tt: &Path) -> Result<Self, Error> {
        let path = hooks.join(hook);
        let line = line(tt, action);
        let Some(found) = Found::at(&path)? else {
            let text = format!("#!/bin/sh\n{line}").into_bytes();
            return Ok(Self { path, change: Changed::Installed, text, before: None });
        };
        if let Some(script) = found.script {
            let without = without_line(&script).unwrap_or_else(|| script.clone());
            let text = with_line(&without, &line);
            let change = if text == script { Changed::Unchanged } else { Changed::Added };
            return Ok(Self { path, change, text, before: Some((script, found.mode)) });
        }
        if found.is_link {
            let why = format!("{} is a link, and what it leads to may go by its own name", path.display());
            let hint = format!("let what runs it also run: {}", line.trim_end().trim_end_matches(MARK).trim_end());
            return Err(Error::new(ErrorCode::InvalidInput, why).hint(hint));
        }
        let aside = aside(&path);
        if fs::symlink_metadata(&aside).is_ok() {
            let why = format!("{} is in the way", aside.display());
            return Err(Error::new(ErrorCode::InvalidInput, why).hint("move it away, and try again"));
        }
        // Ours calls it by its new name, from wherever git runs it.
        let next =
            format!("\nnext=\"$(dirname -- \"$0\")/{hook}{ASIDE}\"\n[ ! -x \"$next\" ] || exec \"$next\" \"$@\"\n");
        let text = format!("#!/bin/sh\n{}{next}", line.trim_end()).into_bytes();
        Ok(Self { path, change: Changed::Chained, text, before: None })
    }

    fn carry_out(&self) -> Result<(), Error> {
        let aside = aside(&self.path);
        match (self.change, &self.before) {
            (Changed::Unchanged, _) => Ok(()),
            (Changed::Chained, _) => {
                fs::rename(&self.path, &aside).map_err(|e| failed(&self.path, &e))?;
                write(&self.path, &self.text, 0o755, true).inspect_err(|_| drop(fs::rename(&aside, &self.path)))
            }
            (_, Some((_, mode))) => write(&self.path, &self.text, *mode, false),
            (_, None) => write(&self.path, &self.text, 0o755, true),
        }
    }

    /// Brings back what was there.
    fn undo(&self) {
        match (self.change, &self.before) {
            (Changed::Unchanged, _) => {}
            (Changed::Chained, _) => drop(fs::rename(aside(&self.path), &self.path)),
            (_, Some((script, mode))) => drop(write(&self.path, script, *mode, false)),
            (_, None) => drop(fs::remove_file(&self.path)),
        }
    }
}

/// Takes our line out of a hook. What was there before is there again, to the byte.
pub(crate) fn uninstall(hooks: &Path, hook: &str) -> Result<Changed, Error> {
    let path = hooks.join(hook);
    let Some(found) = Found::at(&path)? else { return Ok(Changed::Unchanged) };
    let Some((script, without)) = found.script.as_ref().and_then(|script| Some((script, without_line(script)?))) else {
        return Ok(Changed::Unchanged);
    };
    let aside = aside(&path);
    let is_chain = String::from_utf8_lossy(script).contains(&format!("{hook}{ASIDE}\""));
    if is_chain && fs::symlink_metadata(&aside).is_ok() {
        fs::rename(&aside, &path).map_err(|e| failed(&path, &e))?;
    } else if without == b"#!/bin/sh\n" || is_chain {
        fs::remove_file(&path).map_err(|e| failed(&path, &e))?;
    } else {
        write(&path, &without, found.mode, false)?;
    }
    Ok(Changed::Removed)
}

/// Whether our line is in a hook.
pub(crate) fn is_installed(hooks: &Path, hook: &str) -> bool {
    let found = Found::at(&hooks.join(hook)).ok().flatten();
    found.and_then(|found| found.script).is_some_and(|script| without_line(&script).is_some())
}

/// A hook that is there.
struct Found {
    mode: u32,
    is_link: bool,
    /// Its text, if our line can stand in it. A link is to a file that may be somebody else's.
    script: Option<Vec<u8>>,
}

impl Found {
    fn at(path: &Path) -> Result<Option<Self>, Error> {
        let meta = match fs::symlink_metadata(path) {
            Ok(meta) => meta,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(path, &e)),
        };
        if meta.is_dir() {
            return Err(Error::new(ErrorCode::InvalidInput, format!("{} is a directory", path.display())));
        }
        let mode = meta.permissions().mode() & 0o7777;
        let script = match meta.is_file() && mode & 0o111 != 0 {
            true => Some(fs::read(path).map_err(|e| failed(path, &e))?).filter(|text| is_shell_script(text)),
            false => None,
        };
        Ok(Some(Self { mode, is_link: meta.is_symlink(), script }))
    }
}

fn is_shell_script(text: &[u8]) -> bool {
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(command) = std::str::from_utf8(first).ok().and_then(|first| first.strip_prefix("#!")) else {
        return false;
    };
    let mut words = command.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
    let program = words.next().unwrap_or_default();
    let program =
        if program == "env" { words.find(|word| !word.starts_with('-')).unwrap_or_default() } else { program };
    SHELLS.contains(&program) && !first.ends_with(b"\r") && !runs_itself_otherwise(text)
}

/// Whether a shell script hands itself to another program, which reads all of its lines.
fn runs_itself_otherwise(text: &[u8]) -> bool {
    let lines = text.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
    lines.take(MAX_HEAD_LINES).any(|line| line.contains("exec") && line.contains("$0"))
}

/// Our line. Only the status 1 is a refusal: a `tt` that is gone, or is another version, stops nobody.
fn line(tt: &Path, action: &str) -> String {
    let tt = tt.to_string_lossy().replace('\'', r"'\''");
    format!("'{tt}' guard check {action} \"$PPID\" </dev/null || [ $? -ne 1 ] || exit 1 {MARK}\n")
}

/// A script with our line as its second.
fn with_line(script: &[u8], line: &str) -> Vec<u8> {
    match script.iter().position(|byte| *byte == b'\n') {
        Some(end) => [&script[..=end], line.as_bytes(), &script[end + 1..]].concat(),
        // It has one line, without an end.
        None => [script, b"\n", line.trim_end().as_bytes()].concat(),
    }
}

/// A script without our line; none if it is not there.
fn without_line(script: &[u8]) -> Option<Vec<u8>> {
    let mut at = 0;
    for line in script.split_inclusive(|byte| *byte == b'\n') {
        let end = at + line.len();
        if line.trim_ascii_end().ends_with(MARK.as_bytes()) {
            // One that ends without an end of line was put behind a script that had none.
            let begin = if line.ends_with(b"\n") { at } else { at.saturating_sub(1) };
            return Some([&script[..begin], &script[end..]].concat());
        }
        at = end;
    }
    None
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ASIDE);
    name.into()
}

/// Replaces a file in one step, so that git never runs half of it.
fn write(path: &Path, text: &[u8], mode: u32, is_new: bool) -> Result<(), Error> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".tt-{}", std::process::id()));
    let temporary = PathBuf::from(name);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary).map_err(|e| failed(path, &e))?;
    let mut written = || {
        file.write_all(text)?;
        // A new one is as private as the user wants it; a script keeps the mode it had.
        if !is_new {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        fs::rename(&temporary, path)
    };
    written().map_err(|e| {
        let _ = fs::remove_file(&temporary);
        failed(path, &e)
    })
}

fn failed(path: &Path, e: &std::io::Error) -> Error {
    Error::new(ErrorCode::InvalidInput, format!("{} cannot be changed: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(text: &[u8], mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pre-commit");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    /// What became of `pre-commit`. The other hook is taken out again.
    fn install_in(dir: &Path) -> Changed {
        let changed = install(dir, Path::new("/opt/it's/tt")).unwrap();
        uninstall(dir, "pre-push").unwrap();
        changed[0].1
    }

    #[test]
    fn every_hook_comes_back_to_the_byte() {
        let scripts: [(&[u8], u32, Changed); 9] = [
            (b"#!/bin/sh\n'''exec' /opt/python \"$0\" \"$@\"\n' '''\nprint()\n", 0o755, Changed::Chained),
            (b"#!/bin/sh\nexit 3\n", 0o755, Changed::Added),
            (b"#!/usr/bin/env -S bash -e\nset -u\n", 0o700, Changed::Added),
            (b"#!/bin/sh", 0o755, Changed::Added),
            (b"#!/bin/bash -e\nno end", 0o755, Changed::Added),
            (b"#!/bin/sh\n\xff\xfe\n", 0o755, Changed::Added),
            (b"#!/usr/bin/env python3\nprint()\n", 0o755, Changed::Chained),
            (b"\x7fELF\x00\n", 0o755, Changed::Chained),
            (b"#!/bin/sh\nexit 1\n", 0o644, Changed::Chained),
        ];
        for (text, mode, expected) in scripts {
            let (dir, path) = hook(text, mode);
            assert_eq!(install_in(dir.path()), expected, "{}", String::from_utf8_lossy(text));
            assert!(is_installed(dir.path(), "pre-commit"));
            let installed = fs::read(&path).unwrap();
            assert_eq!(install_in(dir.path()), Changed::Unchanged, "a second time");
            assert_eq!(fs::read(&path).unwrap(), installed);
            assert_eq!(uninstall(dir.path(), "pre-commit").unwrap(), Changed::Removed);
            assert_eq!(fs::read(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
            assert_eq!(uninstall(dir.path(), "pre-commit").unwrap(), Changed::Unchanged);
        }
    }

    #[test]
    fn a_hook_that_was_not_there_is_gone_again_and_a_link_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let hooks = dir.path().join("hooks");
        assert_eq!(install_in(&hooks), Changed::Installed);
        assert_eq!(uninstall(&hooks, "pre-commit").unwrap(), Changed::Removed);
        assert_eq!(fs::read_dir(&hooks).unwrap().count(), 0);
        let theirs = dir.path().join("theirs");
        fs::write(&theirs, "#!/bin/sh\n").unwrap();
        std::os::unix::fs::symlink("../theirs", hooks.join("pre-commit")).unwrap();
        let refused = install(&hooks, Path::new("/opt/tt")).unwrap_err();
        assert!(refused.hint.contains("'/opt/tt' guard check commit"), "{refused:?}");
        assert_eq!(fs::read(&theirs).unwrap(), b"#!/bin/sh\n");
        assert_eq!(uninstall(&hooks, "pre-commit").unwrap(), Changed::Unchanged);
        assert_eq!(fs::read_dir(&hooks).unwrap().count(), 1);
        assert_eq!(fs::read_link(hooks.join("pre-commit")).unwrap(), Path::new("../theirs"));
    }

    #[test]
    fn all_hooks_get_the_line_or_none() {
        type InTheWay = fn(&Path);
        let in_the_way: [InTheWay; 4] = [
            |push| std::os::unix::fs::symlink("../theirs", push).unwrap(),
            |push| fs::create_dir(push).unwrap(),
            |push| {
                fs::write(push, "no script").unwrap();
                fs::write(aside(push), "x").unwrap();
            },
            // It cannot be written, which shows only when the other hook is done.
            |push| fs::write(push.with_file_name(format!("pre-push.tt-{}", std::process::id())), "x").unwrap(),
        ];
        let commits: [Option<(&[u8], u32)>; 3] =
            [None, Some((b"#!/bin/sh\nexit 3\n", 0o700)), Some((b"#!/usr/bin/perl\n", 0o755))];
        for in_the_way in in_the_way {
            for commit in commits {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("pre-commit");
                if let Some((text, mode)) = commit {
                    fs::write(&path, text).unwrap();
                    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                }
                in_the_way(&dir.path().join("pre-push"));
                let count = || fs::read_dir(dir.path()).unwrap().count();
                let before = count();
                install(dir.path(), Path::new("/opt/tt")).unwrap_err();
                assert_eq!((fs::read(&path).ok().as_deref(), count()), (commit.map(|(text, _)| text), before));
                let mode = fs::metadata(&path).ok().map(|meta| meta.permissions().mode() & 0o7777);
                assert_eq!(mode, commit.map(|(_, mode)| mode));
            }
        }
    }

    #[test]
    fn what_was_added_since_stays() {
        let (dir, path) = hook(b"#!/bin/sh\nexit 3\n", 0o755);
        install_in(dir.path());
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"more\n");
        fs::write(&path, &text).unwrap();
        install(dir.path(), Path::new("/usr/bin/tt")).unwrap();
        let now = fs::read_to_string(&path).unwrap();
        assert!(now.contains("'/usr/bin/tt' guard check commit") && now.matches(MARK).count() == 1, "{now}");
        uninstall(dir.path(), "pre-commit").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"#!/bin/sh\nexit 3\nmore\n");
    }
}
