//! Every text has a limit, every answer fits, and what is kept for repeated requests is small.

use serde_json::{Value, json};
use tt_proto::ErrorCode;
use tt_proto::page::{MAX_ID_BYTES, MAX_TEXT_BYTES};
use tt_proto::requests::{AddNote, JoinPath, JsonType, LeaveRoom, METHODS};
use tt_tests::golden::Caller;
use tt_tests::{Member, block_on, home};

/// Some value of this type.
fn some(json_type: JsonType) -> Value {
    match json_type {
        JsonType::String => json!("x"),
        JsonType::Boolean => json!(false),
        JsonType::Integer => json!(0),
        JsonType::Integers => json!([1]),
        JsonType::Strings => json!(["claim"]),
        JsonType::Object => json!({}),
        JsonType::Handoff => json!({"status": "s", "next_action": "n"}),
    }
}

#[test]
fn every_text_of_every_request_has_a_limit() {
    let home = home!();
    home.start();
    let mut caller = Caller::connect(&home.paths().socket);
    let mut refused = |method: &str, params: Value, field: &str| {
        caller.send(method, Some(params));
        let answer = caller.receive();
        let error = &answer["error"]["data"];
        if field == "since" || field == "at" {
            // A time is read before anything is checked.
            assert!(answer["error"].is_object() && answer.to_string().len() < 1000, "{method}.{field}: {answer}");
            return;
        }
        assert_eq!(error["error"], "invalid_input", "{method}.{field}: {answer}");
        assert!(answer.to_string().len() < 1000, "{method}.{field}: the refusal repeats the text");
        assert_eq!(error["field"], field, "{method}: {answer}");
    };
    let mut texts = 0;
    for method in METHODS {
        let required = method.fields.iter().filter(|field| field.required);
        let params: serde_json::Map<String, Value> =
            required.map(|field| (field.name.to_owned(), some(field.json_type))).collect();
        // Bodies have limits of their own, which the rules test.
        let long = method.fields.iter().filter(|field| field.name != "body");
        for field in long.filter(|field| matches!(field.json_type, JsonType::String | JsonType::Strings)) {
            let mut params = params.clone();
            params.insert(field.name.to_owned(), json!("\u{1}".repeat(MAX_TEXT_BYTES + 1)));
            refused(method.name, params.into(), field.name);
            texts += 1;
        }
    }
    assert!(texts > 40, "{texts}");
    let hello = |fields: Value| {
        let mut hello = json!({"protocol": 1, "version": "0"});
        hello.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
        json!({"hello": hello})
    };
    let (text, id) = ("x".repeat(MAX_TEXT_BYTES + 1), "x".repeat(MAX_ID_BYTES + 1));
    let many: serde_json::Map<String, Value> = (0..1000).map(|n| (n.to_string(), json!(""))).collect();
    for (field, fields) in [
        ("version", json!({"version": text})),
        ("cwd", json!({"cwd": text})),
        ("context_path", json!({"context_path": text})),
        ("capabilities", json!({"capabilities": [id]})),
        ("capabilities", json!({"capabilities": vec!["x"; 1000]})),
        ("signals.env", json!({"signals": {"env": {"CODEX_THREAD_ID": text}}})),
        ("signals.env", json!({"signals": {"env": {id.as_str(): ""}}})),
        ("signals.env", json!({"signals": {"env": many}})),
        ("client_info", json!({"signals": {"client_info": id}})),
        ("session_id", json!({"signals": {"session_id": id}})),
    ] {
        refused("hello", hello(fields), field);
    }
}

#[test]
fn two_thousand_joins_keep_less_than_two_megabytes_and_a_repeated_one_tells_what_the_first_did() {
    let home = home!();
    const MEMBERS: i64 = 20;
    const JOINS: i64 = 100;
    block_on(async {
        for n in 0..MEMBERS {
            let mut member = Member::join(&home, &format!("member-with-a-name-of-some-length-{n}")).await;
            let path = home.workspace().display().to_string();
            let join = |key: &str| {
                let (context_path, idempotency_key) = (path.clone(), Some(key.to_owned()));
                |_| JoinPath { context_path, idempotency_key, ..Default::default() }
            };
            let first = member.call(join("first")).await;
            let note = member.call(|room_id| AddNote { room_id, body: "n".into(), ..Default::default() }).await;
            for n in 1..JOINS {
                member.call(join(&format!("{:036}", n))).await;
            }
            let again = member.call(join("first")).await;
            assert_eq!(again.cursor_event_seq, first.cursor_event_seq, "and not that of {}", note.note_id);
            assert_eq!((&again.room_id, &again.agent_id), (&first.room_id, &first.agent_id));
            assert_eq!(again.members.len(), first.members.len());
            // A key that was used for another method, or with other parameters.
            let other = |room_id| LeaveRoom { room_id, idempotency_key: Some("first".into()) };
            assert_eq!(member.try_call(other).await.unwrap_err().code, ErrorCode::InvalidInput);
            let named = |_| JoinPath { display_name: Some("me".into()), ..join("first")("".into()) };
            assert_eq!(member.try_call(named).await.unwrap_err().code, ErrorCode::InvalidInput);
        }
    });
    let database = rusqlite::Connection::open(home.paths().database()).unwrap();
    let pages = "SELECT sum(pgsize) FROM dbstat WHERE name LIKE 'idempotency_keys%'";
    let bytes: i64 = database.query_row(pages, [], |row| row.get(0)).unwrap();
    let kept: i64 = database.query_row("SELECT count(*) FROM idempotency_keys", [], |row| row.get(0)).unwrap();
    assert!(kept >= MEMBERS * JOINS, "{kept}");
    assert!(bytes < 2_000_000, "{bytes} bytes for {kept} answers");
    let whole: i64 = database.query_row("SELECT sum(pgsize) FROM dbstat", [], |row| row.get(0)).unwrap();
    assert!(whole < 3_000_000, "nor is anything else kept of a join: {whole} bytes");
}

/// By the clock that leases are measured with, which nobody sets.
#[test]
fn an_answer_is_kept_for_an_hour_and_then_forgotten() {
    const MINUTE: i64 = 60_000;
    let home = home!();
    let note = |key: &str| {
        let key = Some(key.to_owned());
        |room_id| AddNote { room_id, body: "n".into(), idempotency_key: key, ..Default::default() }
    };
    let write = async |key: &str| Member::join(&home, "a").await.call(note(key)).await.note_id;
    let [old, young] = ["old", "young"].map(|key| block_on(write(key)));
    home.kill_daemon();
    let database = rusqlite::Connection::open(home.paths().database()).unwrap();
    for (key, age) in [("old", 61 * MINUTE), ("young", 50 * MINUTE)] {
        let aged = "UPDATE idempotency_keys SET kept_at = kept_at - ?2 WHERE idempotency_key = ?1";
        assert_eq!(database.execute(aged, rusqlite::params![key, age]).unwrap(), 1);
    }
    home.start();
    let kept = || {
        let kept = "SELECT count(*) FROM idempotency_keys WHERE idempotency_key = 'old'";
        database.query_row(kept, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let started = std::time::Instant::now();
    while kept() > 0 {
        assert!(started.elapsed() < tt_tests::LIMIT, "it is kept for ever");
        home.run(&["whoami"]).ok();
    }
    assert_eq!(block_on(write("young")), young);
    assert_ne!(block_on(write("old")), old);
}

#[test]
fn every_list_ends_with_a_mark_where_it_was_cut() {
    let home = home!();
    let path = home.workspace().display().to_string();
    let call = |caller: &mut Caller, method: &str, params: Value| -> Value {
        caller.send(method, Some(params));
        let answer = caller.receive();
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        assert!(answer.to_string().len() < tt_proto::MAX_RESPONSE_BYTES as usize / 2, "{method}");
        answer["result"].clone()
    };
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    home.start();
    let connect = |agent: &str| {
        let mut caller = Caller::connect(&home.paths().socket);
        let env = json!({"TT_HARNESS_AGENT_ID": agent, "CLAUDECODE": "1"});
        let hello = json!({"protocol": 1, "version": "0", "signals": {"env": env, "hook": true}});
        call(&mut caller, "hello", json!({"hello": hello}));
        caller
    };
    // A message to more than an answer names.
    let mut sender = connect("claude:sender");
    let room = call(&mut sender, "join_path", json!({"context_path": path}))["room_id"].clone();
    for n in 0..60 {
        call(&mut connect(&format!("guest:{n}")), "join_path", json!({"context_path": path}));
    }
    let sent = call(&mut sender, "send_message", json!({"room_id": room, "body": "hi", "to": "room"}));
    assert_eq!((count(&sent["recipients"]), &sent["more"]), (50, &10.into()), "{sent}");
    // More sessions than an answer lists, and fewer whose texts are long.
    let mut report = |n: u32, cwd: &str| {
        let start =
            json!({"harness": "claude", "session_id": format!("s-{n}"), "event": "session_started", "cwd": cwd});
        call(&mut sender, "report_session", start);
    };
    (0..250).for_each(|n| report(n, "/work"));
    let mut watcher = connect("watcher");
    let all = |watcher: &mut Caller| call(watcher, "list_sessions", json!({"include_gone": true}));
    let listed = all(&mut watcher);
    assert_eq!((count(&listed["sessions"]), listed.get("more")), (250, None));
    report(250, "/work");
    let listed = all(&mut watcher);
    assert_eq!((count(&listed["sessions"]), &listed["more"]), (250, &true.into()));
    (150..250).for_each(|n| report(n, &"\u{1}".repeat(MAX_TEXT_BYTES)));
    let listed = all(&mut watcher);
    assert!(count(&listed["sessions"]) < 250 && listed["more"] == true, "{} sessions", count(&listed["sessions"]));
}
