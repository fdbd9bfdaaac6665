use super::json::tests::PARSED_BYTES;
use super::*;

fn codex() -> &'static Harness {
    tt_harness::by_name("codex").unwrap()
}

#[test]
fn what_an_older_version_installed_is_neither_kept_aside_nor_kept() {
    let home = tempfile::tempdir().unwrap();
    let env = Environment::of([("HOME", home.path().as_os_str())]);
    let places = Places::of(&env, Wanted { hooks: true, trust: false }).unwrap();
    std::fs::create_dir(home.path().join(".codex")).unwrap();
    let skill = places.skill(codex());
    std::fs::create_dir_all(skill.parent().unwrap()).unwrap();
    let older = OwnFile::older_skill("description: an older version\n---\n");
    let install = || places.apply(&mut places.install(&[codex()]).unwrap()).unwrap();
    let uninstall = || places.apply(&mut places.uninstall(&[codex()]).unwrap()).unwrap();
    std::fs::write(&skill, &older).unwrap();
    uninstall();
    assert!(!home.path().join(".agents").exists(), "without a newer version in between");
    std::fs::create_dir_all(skill.parent().unwrap()).unwrap();
    std::fs::write(&skill, &older).unwrap();
    install();
    assert_eq!(std::fs::read_to_string(&skill).unwrap(), OwnFile::skill(&places.program).text());
    uninstall();
    assert!(!home.path().join(".agents").exists(), "and with one");
    // A skill that the user edited is kept.
    let edited = older.replace("an older", "my own");
    std::fs::create_dir_all(skill.parent().unwrap()).unwrap();
    std::fs::write(&skill, &edited).unwrap();
    uninstall();
    assert_eq!(std::fs::read_to_string(&skill).unwrap(), edited);
    install();
    uninstall();
    assert_eq!(std::fs::read_to_string(&skill).unwrap(), edited);
}

/// A harness or a person may write to a file between our reading it and changing it.
#[test]
fn what_somebody_else_wrote_meanwhile_stays() {
    let home = tempfile::tempdir().unwrap();
    let env = Environment::of([("HOME", home.path().as_os_str())]);
    let places = Places::of(&env, Wanted { hooks: true, trust: false }).unwrap();
    let config = home.path().join(".codex/config.toml");
    std::fs::create_dir(home.path().join(".codex")).unwrap();
    let read = || std::fs::read_to_string(&config).unwrap();
    let beside = || std::fs::read_dir(home.path().join(".codex")).unwrap().count();
    for at_first in [Some("a = 0\n"), None] {
        match at_first {
            Some(text) => std::fs::write(&config, text).unwrap(),
            None => std::fs::remove_file(&config).unwrap(),
        }
        let mut planned = places.install(&[codex()]).unwrap();
        // It writes several times, once without finishing: between each plan and the write that was planned.
        let mut writes = ["a = 1\n", "a = ", "a = 2\n"].iter();
        let harness_writes = || writes.by_ref().take(1).for_each(|text| std::fs::write(&config, text).unwrap());
        places.apply_one(&mut planned[0], harness_writes).unwrap_or_else(|e| panic!("{e:?}"));
        assert!(read().starts_with("a = 2\n") && read().contains("talking-stick"), "{}", read());
        assert_eq!(file::backup_of(&config).unwrap().as_deref(), Some("a = 2\n"));
        let mut planned = places.uninstall(&[codex()]).unwrap();
        let mut writes = [read() + "# mine\n"].into_iter();
        let harness_writes = || writes.by_ref().for_each(|text| std::fs::write(&config, text).unwrap());
        places.apply_one(&mut planned[0], harness_writes).unwrap();
        assert_eq!(read().replace("# mine\n", "").trim_end(), "a = 2");
        assert!(read().contains("# mine"), "{}", read());
        assert_eq!(beside(), 1, "nothing of ours is left beside it");
    }
}

#[test]
fn a_file_that_never_stays_the_same_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let env = Environment::of([("HOME", home.path().as_os_str())]);
    let places = Places::of(&env, Wanted { hooks: true, trust: false }).unwrap();
    let config = home.path().join(".codex/config.toml");
    std::fs::create_dir(home.path().join(".codex")).unwrap();
    std::fs::write(&config, "a = 0\n").unwrap();
    let mut count = 0;
    let mut planned = places.install(&[codex()]).unwrap();
    let error = places.apply_one(&mut planned[0], || {
        count += 1;
        std::fs::write(&config, format!("a = {count}\n")).unwrap();
    });
    assert!(error.unwrap_err().hint.contains("again"));
    assert_eq!(std::fs::read_to_string(&config).unwrap(), format!("a = {MAX_ATTEMPTS}\n"));
    assert_eq!(std::fs::read_dir(home.path().join(".codex")).unwrap().count(), 1, "nothing is kept aside");
}

/// How many times over the text of the files was parsed meanwhile.
fn readings<T>(files: &[PathBuf], work: impl FnOnce() -> T) -> (T, usize) {
    let bytes: usize = files.iter().map(|path| std::fs::read(path).unwrap().len()).sum();
    let before = PARSED_BYTES.get();
    let done = work();
    // Rounded: an edit makes a file a little larger.
    (done, (PARSED_BYTES.get() - before + bytes / 2) / bytes)
}

/// To parse a large file takes most of the time of an install, so it is not done again for every question and every edit.
#[test]
fn a_large_file_is_parsed_a_few_times_however_many_edits_it_needs() {
    let keys: String = (0..2000).map(|n| format!("  \"key {n}\": {{ \"command\": \"{n}\" }},\n")).collect();
    let hooks = r#"{ "hooks": [{ "type": "command", "command": "lint" }] }"#;
    let shapes = [
        format!("{{\n{keys}  \"last\": 1\n}}\n"),
        format!("{{\n{keys}  \"hooks\": {{\n    \"Stop\": [{hooks}]\n  }}\n}}\n"),
        format!("{{\n  \"mcpServers\": {{\n{keys}    \"last\": {{}}\n  }}\n}}\n"),
    ];
    for (harness, shape) in tt_harness::ALL.iter().flat_map(|harness| shapes.iter().map(move |shape| (harness, shape)))
    {
        let home = tempfile::tempdir().unwrap();
        let env = Environment::of([("HOME", home.path().as_os_str())]);
        let places = Places::of(&env, Wanted { hooks: true, trust: false }).unwrap();
        std::fs::create_dir_all(places.config_dir(harness)).unwrap();
        let mut files = places.config_files(harness);
        files.retain(|path| path.extension().is_none_or(|extension| extension != "toml"));
        for path in &files {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, shape).unwrap();
        }
        let (mut planned, install) = readings(&files, || places.install(&[harness]).unwrap());
        places.apply(&mut planned).unwrap();
        let (_, doctor) = readings(&files, || places.setup(harness).unwrap());
        let (mut planned, uninstall) = readings(&files, || places.uninstall(&[harness]).unwrap());
        // A file that was changed since the install is compared with more care.
        for path in &files {
            std::fs::write(path, std::fs::read_to_string(path).unwrap() + "\n").unwrap();
        }
        let (_, changed) = readings(&files, || places.uninstall(&[harness]).unwrap());
        for path in &files {
            std::fs::write(path, std::fs::read_to_string(path).unwrap().trim_end().to_owned() + "\n").unwrap();
        }
        let counts = format!("{}: {install}, {doctor}, {uninstall}, {changed}", harness.name);
        assert!(install <= 4 && doctor <= 3 && uninstall <= 8 && changed <= 15, "{counts}");
        places.apply(&mut planned).unwrap();
        for path in &files {
            assert_eq!(std::fs::read_to_string(path).unwrap(), *shape);
        }
    }
}
