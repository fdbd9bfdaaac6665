//! Callers that mean harm or have lost their way: the daemon stays up, keeps answering others, and does not grow.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tt_tests::wire::{CONTINUATION, TEXT};
use tt_tests::{Home, LIMIT, NOBODY, Running, Wire, home, process, run};

const MIB: usize = 1024 * 1024;

/// Runs one of the tests below marked `ignore` as a program of another user.
fn as_nobody(home: &Home, test: &str) -> Command {
    let program = home.for_everyone(&std::env::current_exe().unwrap());
    let mut command = home.command(program);
    command.args(["--exact", test, "--ignored", "--nocapture"]).uid(NOBODY).gid(NOBODY);
    command
}

fn variable(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| panic!("{name} is for the test that runs this one"))
}

// Lifecycle line 3
#[test]
fn another_user_who_can_reach_the_socket_is_turned_away() {
    if !tt_tests::is_root() {
        return tt_tests::not_run("a process of another user is refused", "only root can be two users");
    }
    let home = home!();
    let pid = home.start();
    let socket = home.paths().socket;
    for dir in socket.ancestors().skip(1).take_while(|dir| dir.starts_with(home.path())) {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    run::finish(as_nobody(&home, "plays_an_intruder").env("SOCKET", &socket)).ok();
    std::fs::set_permissions(home.paths().data_dir, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(home.log().contains("refused a process of another user"), "{}", home.log());
    home.run(&["--no-autostart", "whoami"]).ok();
    assert_eq!(home.daemon(), Some(pid));
}

#[test]
#[ignore = "run by the test above, as another user"]
fn plays_an_intruder() {
    assert_eq!(nix::unistd::getuid().as_raw(), NOBODY);
    let mut wire = Wire::connect(Path::new(&variable("SOCKET")));
    wire.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(wire.rest(), b"");
}

// Lifecycle line 3
#[test]
fn a_socket_that_another_user_serves_is_told_nothing() {
    if !tt_tests::is_root() {
        return tt_tests::not_run("a daemon of another user is refused", "only root can be two users");
    }
    let home = home!();
    home.make_data_dir();
    let den = home.path().join("den");
    std::fs::create_dir(&den).unwrap();
    std::os::unix::fs::chown(&den, Some(NOBODY), Some(NOBODY)).unwrap();
    let ready = home.path().join("ready");
    nix::unistd::mkfifo(&ready, nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::chown(&ready, Some(NOBODY), None).unwrap();
    let impostor =
        Running::start(as_nobody(&home, "plays_an_impostor").env("SOCKET", den.join("s")).env("READY", &ready));
    tt_tests::within(LIMIT, move || std::fs::read(ready)).unwrap().unwrap();
    std::fs::rename(den.join("s"), home.paths().socket).unwrap();
    let error = home.run(&["--json", "whoami"]).refused(4);
    assert_eq!(error["error"], "daemon_unreachable");
    assert!(error["message"].as_str().unwrap().contains(&format!("uid {NOBODY}")), "{error}");
    impostor.finish().ok();
}

#[test]
#[ignore = "run by the test above, as another user"]
fn plays_an_impostor() {
    let listener = UnixListener::bind(variable("SOCKET")).unwrap();
    std::fs::write(variable("READY"), "").unwrap();
    let said = tt_tests::within(LIMIT, move || {
        let mut said = Vec::new();
        std::io::Read::read_to_end(&mut listener.accept().unwrap().0, &mut said).unwrap();
        said
    });
    assert_eq!(said.unwrap(), b"");
}

#[test]
fn garbage_of_every_kind_disturbs_nobody() {
    let home = home!();
    let pid = home.start();
    let socket = home.paths().socket;
    let noise: Vec<u8> = (0..65_536_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let pieces: [&[u8]; 10] = [
        b"",
        b"\0",
        b"\r\n\r\n\r\n\r\n",
        b"hello?\r\n\r\n",
        b"GET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n{",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &noise,
    ];
    let mut open = Vec::new();
    for piece in pieces {
        // Once with the connection kept open, once cut in the middle.
        let mut wire = Wire::connect(&socket);
        wire.send(piece);
        open.push(wire);
        Wire::connect(&socket).send(piece);
        let mut upgraded = Wire::upgraded(&socket);
        upgraded.send(piece);
        open.push(upgraded);
    }
    let mut headers = Wire::connect(&socket);
    headers.send(b"GET / HTTP/1.1\r\n");
    let header = format!("X-Long: {}\r\n", "y".repeat(1000));
    let endless = (0..100_000).all(|_| headers.send(header.as_bytes()));
    assert!(!endless, "a request line without end was read to its end");
    home.run(&["--no-autostart", "whoami"]).ok();
    assert_eq!(home.daemon(), Some(pid));
}

#[test]
fn half_a_frame_keeps_nobody_waiting() {
    let home = home!();
    let pid = home.start();
    let socket = home.paths().socket;
    let whole = [Wire::head(TEXT, true, 1000), vec![b'x'; 1000]].concat();
    let mut open = Vec::new();
    for cut in [1, 2, 3, 8, 500] {
        let mut wire = Wire::upgraded(&socket);
        wire.send(&whole[..cut]);
        open.push(wire);
        Wire::upgraded(&socket).send(&whole[..cut]);
    }
    home.run(&["--no-autostart", "whoami"]).ok();
    assert_eq!(home.daemon(), Some(pid));
    drop(open);
}

#[cfg(target_os = "linux")]
#[test]
fn a_message_of_a_hundred_megabytes_is_not_kept_in_memory() {
    let home = home!();
    let pid = home.start();
    let socket = home.paths().socket;
    let before = process::peak_memory(pid).unwrap();
    let megabyte = vec![b'x'; MIB];
    let mut senders = Vec::new();
    for last in [true, false] {
        let (socket, megabyte) = (socket.clone(), megabyte.clone());
        senders.push(std::thread::spawn(move || {
            let mut wire = Wire::upgraded(&socket);
            wire.send(&Wire::head(TEXT, last, 100 * MIB as u64));
            for _ in 0..100 {
                wire.send(&megabyte);
            }
        }));
    }
    // The same in a hundred frames of an honest size.
    senders.push(std::thread::spawn(move || {
        let mut wire = Wire::upgraded(&socket);
        let frame = |n: usize| Wire::head(if n == 0 { TEXT } else { CONTINUATION }, false, MIB as u64 / 2);
        for n in 0..200 {
            let _ = wire.send(&frame(n)) && wire.send(&megabyte[..MIB / 2]);
        }
    }));
    home.run(&["--no-autostart", "whoami"]).ok();
    for sender in senders {
        sender.join().unwrap();
    }
    home.run(&["--no-autostart", "whoami"]).ok();
    assert_eq!(home.daemon(), Some(pid));
    let grown = process::peak_memory(pid).unwrap() - before;
    assert!(grown < 32 * 1024, "grown by {grown} KiB");
}

#[test]
fn a_message_of_two_megabytes_is_too_large_whatever_it_says() {
    let home = home!();
    let pid = home.start();
    let mut wire = Wire::upgraded(&home.paths().socket);
    let large = json!({ "jsonrpc": "2.0", "id": 1, "method": "whoami", "params": { "x": "x".repeat(2 * MIB) } });
    wire.text(&large.to_string());
    let answer = wire.answer();
    assert!(answer.contains("too big"), "{answer}");
    home.run(&["--no-autostart", "whoami"]).ok();
    assert_eq!(home.daemon(), Some(pid));
}

#[test]
fn a_request_that_makes_no_sense_gets_an_answer_and_the_connection_goes_on() {
    let home = home!();
    home.start();
    let mut wire = Wire::upgraded(&home.paths().socket);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let call = |method: &str, params: serde_json::Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    };
    let long_id = "x".repeat(1000);
    let hello = |id: &str| {
        call(
            "hello",
            json!({ "hello": { "protocol": 1, "version": "0", "signals": { "env": {
        "TT_HARNESS_AGENT_ID": id } } } }),
        )
    };
    for (request, expected) in [
        ("{".to_owned(), "-32700"),
        ("{}".to_owned(), "error"),
        ("[]".to_owned(), "error"),
        (deep, "error"),
        (call("no_such_method", json!({})), "-32601"),
        (call("whoami", json!({})), "agent_id_required"),
        (call("hello", json!({})), "-32602"),
        (call("hello", json!({ "hello": { "protocol": "one" } })), "-32602"),
        (call("hello", json!({ "hello": { "protocol": 4_000_000_000_u32, "version": "9" } })), "protocol_mismatch"),
        (hello("two words"), "invalid_input"),
        (hello(&long_id), "invalid_input"),
        (hello("codex:one"), "codex:one"),
        (hello("codex:two"), "invalid_input"),
        (call("whoami", json!({ "explain": "perhaps" })), "-32602"),
        (call("whoami", json!({})), "codex:one"),
    ] {
        assert!(wire.text(&request));
        let answer = wire.answer();
        assert!(answer.contains(expected), "{} -> {answer}", request.chars().take(200).collect::<String>());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_caller_that_asks_and_never_listens_fills_no_memory() {
    let home = home!();
    let pid = home.start();
    let before = process::peak_memory(pid).unwrap();
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "daemon_status", "params": {} }).to_string();
    let frame = [Wire::head(TEXT, true, request.len() as u64), request.into_bytes()].concat();
    let batch = frame.repeat(1000);
    let mut wire = Wire::upgraded(&home.paths().socket);
    wire.impatient();
    // Until nothing more is taken, a thousand requests at a time, with somebody else served in between.
    let mut taken = 0;
    while wire.send(&batch) {
        taken += 1000;
        assert!(taken < 100_000, "{taken} requests were taken without one answer being read");
        home.run(&["--no-autostart", "whoami"]).ok();
    }
    // It turns round and listens: nothing of what was taken is lost.
    for _ in 0..taken {
        assert!(wire.answer().contains("running"));
    }
    let grown = process::peak_memory(pid).unwrap() - before;
    assert!(grown < 64 * 1024, "grown by {grown} KiB");
}

#[cfg(target_os = "linux")]
#[test]
fn a_caller_that_asks_faster_than_it_can_be_answered_is_slowed_down() {
    let home = home!();
    let pid = home.start();
    let before = process::peak_memory(pid).unwrap();
    let request =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "daemon_status", "params": { "x": "x".repeat(50_000) } });
    let request = request.to_string();
    let mut wire = Wire::upgraded(&home.paths().socket);
    let mut sender = wire.second();
    let sending = std::thread::spawn(move || (0..5000).all(|_| sender.text(&request)));
    for _ in 0..5000 {
        wire.answer();
    }
    assert!(sending.join().unwrap());
    let grown = process::peak_memory(pid).unwrap() - before;
    assert!(grown < 100 * 1024, "grown by {grown} KiB");
}

/// As many descriptors as this process may have.
fn raise_limit() -> usize {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    getrlimit(Resource::RLIMIT_NOFILE).unwrap().0.try_into().unwrap_or(usize::MAX)
}

#[cfg(target_os = "linux")]
#[test]
fn ten_thousand_idle_connections_keep_nobody_out() {
    let home = home!();
    let pid = home.start();
    let socket = home.paths().socket;
    // Where this process may not hold so many, it lets go of the oldest, which the daemon has closed long ago.
    let held = raise_limit().saturating_sub(1000).clamp(600, 10_000);
    let mut open = std::collections::VecDeque::new();
    for n in 0..10_000 {
        let mut wire = Wire::connect(&socket);
        match n % 4 {
            0 => {}
            1 => drop(wire.send(b"GET / HT")),
            2 => wire = upgrade_if_let(wire, &socket),
            _ => drop(wire.send(&[0x16, 0x03, 0x01])),
        }
        open.push_back(wire);
        if open.len() > held {
            open.pop_front();
        }
        if n % 2000 == 1999 {
            home.run(&["--no-autostart", "whoami"]).ok();
        }
    }
    let status = home.status();
    assert_eq!(status["pid"], pid);
    assert!(status["connections"].as_u64().unwrap() <= ttd::rpc::MAX_CONNECTIONS as u64, "{status}");
    let peak = process::peak_memory(pid).unwrap();
    assert!(peak < 128 * 1024, "{peak} KiB");
}

/// A WebSocket in place of a bare connection.
fn upgrade_if_let(bare: Wire, socket: &Path) -> Wire {
    drop(bare);
    Wire::upgraded(socket)
}

#[test]
fn a_thousand_members_that_only_listen_do_not_keep_newcomers_out() {
    let home = home!();
    home.start();
    let socket: PathBuf = home.paths().socket;
    raise_limit();
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "hello", "params": { "hello": {
        "protocol": 1, "version": "0.2.0" } } })
    .to_string();
    let mut open = Vec::new();
    for _ in 0..1000 {
        let mut wire = Wire::upgraded(&socket);
        wire.text(&hello);
        assert!(wire.answer().contains("agent_id"));
        open.push(wire);
    }
    let all: Vec<Running> = (0..10).map(|_| Running::start(&mut home.tt(&["--no-autostart", "whoami"]))).collect();
    for tt in all {
        tt.finish().ok();
    }
}

/// A call that stays under way, over HTTP.
fn long_call(socket: &Path, room: &str) -> Option<Wire> {
    let hello = json!({ "protocol": 1, "version": "0", "signals": { "env": { "TT_HARNESS_AGENT_ID": "crowd" } } });
    let call = |id, method: &str, params| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let body = json!([
        call(1, "hello", json!({ "hello": hello })),
        call(2, "wait_for_events", json!({ "room_id": room, "max_wait_ms": 60_000 })),
    ]);
    let body = body.to_string();
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let mut wire = Wire::try_connect(socket).ok()?;
    // What the daemon does not want to hear, it cuts off.
    wire.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    Some(wire)
}

#[cfg(target_os = "linux")]
#[test]
fn a_burst_of_connections_takes_no_descriptor_that_is_needed_elsewhere() {
    let home = home!();
    let mut limited = home.command("sh");
    limited.args(["-c", "ulimit -n 128; exec \"$0\""]).arg(home.ttd_path());
    let daemon = Running::start(&mut limited);
    home.wait_for(&daemon);
    raise_limit();
    let tt = |agent: &str, args: &[&str]| run::finish(&mut home.tt_as(agent, args)).ok();
    let room = tt("reader", &["--json", "join"]).json()["room_id"].as_str().unwrap().to_owned();
    let (lines, writer) = std::io::pipe().unwrap();
    let follower = Running::writing_to(&mut home.tt_as("reader", &["msg", "recv", "--follow"]), writer);
    let lines = tt_tests::Lines::of(lines);
    tt("first", &["msg", "send", "reader", "before"]);
    assert_eq!(lines.json()["payload"]["body"], "before");
    let before = process::descriptors(daemon.pid()).len();
    for round in 0..3 {
        let crowd: Vec<_> = (0..4)
            .map(|_| {
                let (socket, room) = (home.paths().socket, room.clone());
                std::thread::spawn(move || (0..200).filter_map(|_| long_call(&socket, &room)).collect::<Vec<Wire>>())
            })
            .collect();
        // New members come in the middle of it, and the room is read.
        for n in 0..3 {
            tt(&format!("new:{round}{n}"), &["--no-autostart", "join"]);
            let state = tt("reader", &["--no-autostart", "state", "--json"]).json();
            let members = state["members"].as_array().unwrap();
            let is_gone = |member: &serde_json::Value| !member["status"].is_null() || member["liveness"] == "gone";
            assert!(!members.iter().any(is_gone), "{state}");
        }
        let crowd: Vec<Vec<Wire>> = crowd.into_iter().map(|some| some.join().unwrap()).collect();
        let connections = home.status()["connections"].as_u64().unwrap();
        assert!(connections <= 32, "{connections}");
        tt("first", &["msg", "send", "reader", "in the middle"]);
        assert_eq!(lines.json()["payload"]["body"], "in the middle", "a follower is worth more than a crowd");
        drop(crowd);
    }
    let log = home.log();
    assert!(!log.contains("os error 24") && !log.contains("accept:"), "{log}");
    let give_up = std::time::Instant::now() + LIMIT;
    while process::descriptors(daemon.pid()).len() > before + 8 {
        assert!(std::time::Instant::now() < give_up, "{:?}", process::descriptors(daemon.pid()));
        tt("first", &["--no-autostart", "state"]);
    }
    drop(follower);
}
