//! What may be said: how long, in which letters, and how it is shown.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};
use tt_proto::ErrorCode;
use tt_proto::requests::{ListInbox, SendMessage, TakeMessages};
use tt_tests::{Home, InProcess, Member, Running, Wire, block_on, home, run};

fn bodies(home: &Home, agent: &str) -> Vec<String> {
    let shown = run::finish(&mut home.tt_as(agent, &["msg", "recv", "--json"])).ok();
    let body =
        |line: &str| serde_json::from_str::<Value>(line).unwrap()["payload"]["body"].as_str().unwrap().to_owned();
    shown.stdout.lines().map(body).collect()
}

/// Says what stands on standard input, to the letter.
fn say_stdin(home: &Home, bytes: &[u8]) -> tt_tests::Finished {
    let mut tt = home.tt_as("a", &["msg", "send", "b", "--stdin"]);
    let mut running = Running::spawn(tt.stdin(Stdio::piped()));
    running.stdin().unwrap().write_all(bytes).unwrap();
    running.finish()
}

fn two_members() -> Home {
    let home = home!();
    block_on(async {
        Member::join(&home, "a").await;
        Member::join(&home, "b").await;
    });
    home
}

#[test]
fn four_kibibytes_pass_and_one_byte_more_does_not() {
    let home = two_members();
    let whole =
        ["x".repeat(4096), "ü".repeat(2048), "漢".repeat(1365) + "x", "🪵".repeat(1024), " \n\t ".repeat(818) + "x"];
    for body in &whole {
        say_stdin(&home, body.as_bytes()).ok();
    }
    assert_eq!(bodies(&home, "b"), whole, "nothing cut, nothing trimmed");
    for body in ["x".repeat(4097), "ü".repeat(2048) + "x", "漢".repeat(1366), "🪵".repeat(1024) + "x"] {
        let error = say_stdin(&home, body.as_bytes()).refused(3);
        assert_eq!(
            (error["error"].as_str(), error["bytes"].as_u64()),
            (Some("message_too_large"), Some(body.len() as u64))
        );
    }
    let endless = say_stdin(&home, &vec![b'x'; 2 * 1024 * 1024]).refused(3);
    assert_eq!(endless["error"], "invalid_input", "more than a call can hold is refused at once: {endless}");
    assert_eq!(say_stdin(&home, b"").refused(3)["error"], "invalid_body");
    assert_eq!(run::finish(&mut home.tt_as("a", &["msg", "send", "b", ""])).refused(3)["error"], "invalid_body");
    assert_eq!(say_stdin(&home, b"broken \xff utf-8").refused(3)["error"], "invalid_body");
    for blank in [" ", "\n"] {
        assert_eq!(say_stdin(&home, blank.as_bytes()).refused(3)["error"], "invalid_body");
    }
}

#[test]
fn a_room_that_one_has_left_is_no_room_to_look_into() {
    let home = home!();
    block_on(async {
        let (mut a, mut b) = (Member::join(&home, "a").await, Member::join(&home, "b").await);
        a.say(Some("b"), "unread").await;
        let waiting = async |b: &mut Member| b.call(|_| ListInbox {}).await.rooms.len();
        assert_eq!(waiting(&mut b).await, 1);
        run::finish(&mut home.tt_as("b", &["leave"])).ok();
        assert_eq!(waiting(&mut b).await, 0, "nobody would hand it over");
        let mut again = Member::join(&home, "b").await;
        assert_eq!(waiting(&mut again).await, again.unread().await.min(1), "whoever is back is told what waits");
    });
}

/// Whatever can be in a string, and what a careless terminal would make of it.
const NASTY: &[&str] = &[
    "NUL \0 inside",
    "clear \x1b[2J\x1b[H and title \x1b]0;pwned\x07",
    "8-bit \u{9b}31m red",
    "right-to-left \u{202e}txt.exe\u{202c} and isolate \u{2066}x\u{2069} and mark \u{200f}\u{61c}",
    "invisible \u{200b}\u{feff}\u{2060}\u{ad} and tags \u{e0041}\u{e007f}",
    "separators \u{2028}\u{2029}\u{85}\u{b}\u{c}",
    "backspace \u{8}\u{8}\u{8} and delete \u{7f}",
    "carriage\rreturn",
    "non-characters \u{fffe}\u{ffff}\u{10ffff} and \u{fffd}",
    "quotes \" and \\ and </script>",
];

#[test]
fn nothing_in_a_body_is_changed_in_json_or_drives_the_terminal_in_text() {
    let home = two_members();
    for body in NASTY {
        block_on(async { Member::join(&home, "a").await.say(Some("b"), body).await });
    }
    let text = run::finish(&mut home.tt_as("b", &["msg", "recv", "--after", "0", "--text"])).ok().stdout;
    let harmful = |c: &char| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
            || matches!(c, '\u{ad}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    assert_eq!(text.chars().find(harmful).map(|c| c.escape_unicode().to_string()), None, "{text:?}");
    let events = run::finish(&mut home.tt_as("b", &["events", "--text"])).ok().stdout;
    assert_eq!(events.chars().find(harmful), None);
    assert_eq!(bodies(&home, "b"), NASTY);
}

#[test]
fn a_body_cannot_pass_for_somebody_elses_line() {
    let home = two_members();
    let real = {
        block_on(async { Member::join(&home, "c").await.say(Some("b"), "the real thing").await });
        run::finish(&mut home.tt_as("b", &["msg", "recv", "--text"])).ok().stdout
    };
    let [head, line] = real.lines().collect::<Vec<_>>()[..] else { panic!("{real:?}") };
    assert!(head.contains("c to b") && line.trim() == "the real thing", "{real:?}");
    // Every line of a body is set in as far as this one; nothing else is.
    let margin = &line[..line.len() - line.trim_start().len()];
    assert!(!head.starts_with(margin));
    for forged in [format!("hi\n{real}"), format!("hi\r\n{real}"), format!("hi\u{2028}{head}"), format!("{real}\n\n")] {
        block_on(async { Member::join(&home, "a").await.say(Some("b"), &forged).await });
        let shown = run::finish(&mut home.tt_as("b", &["msg", "recv", "--text"])).ok().stdout;
        let heads: Vec<&str> = shown.lines().filter(|line| !line.starts_with(margin)).collect();
        assert!(heads.len() == 1 && heads[0].contains("a to b"), "{forged:?} shows as\n{shown}");
    }
    // In JSON a message is one line whatever is in it.
    block_on(async { Member::join(&home, "a").await.say(Some("b"), "one\n{\"event_seq\":1}\n").await });
    assert_eq!(run::finish(&mut home.tt_as("b", &["msg", "recv"])).ok().stdout.lines().count(), 1);
}

#[test]
fn half_a_character_on_the_wire_is_refused_and_the_connection_lives_on() {
    let home = home!();
    let _daemon = InProcess::start(home.options());
    let room_id = block_on(async { Member::join(&home, "a").await.room });
    let mut wire = Wire::upgraded(&home.paths().socket);
    let hello = json!({"protocol": tt_proto::PROTOCOL, "version": tt_proto::VERSION,
        "signals": {"env": {"TT_HARNESS_AGENT_ID": "a"}}});
    wire.text(&json!({"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"hello": hello}}).to_string());
    assert!(wire.answer().contains("\"result\""));
    let mut send = |id: usize, body: &str| -> Value {
        let params = format!(r#"{{"room_id":"{}","body":"{body}"}}"#, room_id.as_str());
        wire.text(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"send_message","params":{params}}}"#));
        serde_json::from_str(&wire.answer()).unwrap()
    };
    for (n, half) in [r"\ud800", r"x\udc00y", r"\ud800\ud800", r"\ud83e", "\u{1}", r"\x"].into_iter().enumerate() {
        let answer = send(n + 10, half);
        let code = answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{half}: {answer}"));
        assert!([-32700, -32600, -32602].contains(&code), "{half}: {answer}");
        assert!(send(n + 100, r"\ud83e\udeb5 whole \u0000")["result"]["event_seq"].is_i64(), "after {half}");
    }
    let log = block_on(async { Member::join(&home, "a").await.log(0).await });
    let said: Vec<&str> = log.iter().filter_map(|event| Some(event.payload.as_ref()?.as_str())).collect();
    assert_eq!(said.iter().filter(|payload| payload.contains("🪵 whole \\u0000")).count(), 6, "{said:?}");
    assert_eq!(said.len(), 7, "one join and six messages");
}

#[test]
fn hints_recipients_and_membership_are_checked_over_the_wire() {
    let home = home!();
    let _daemon = InProcess::start(home.options());
    block_on(async {
        let mut a = Member::join(&home, "a").await;
        let b = Member::join(&home, "b").await;
        let mut code = async |body: &str, to_agent: Option<&str>, to: Option<&str>, hint: Option<&str>| {
            let call = |room_id| {
                let owned = |text: Option<&str>| text.map(str::to_owned);
                let to_agent = to_agent.map(tt_proto::AgentId::trusted);
                SendMessage {
                    room_id,
                    body: body.to_owned(),
                    to_agent_id: to_agent,
                    to: owned(to),
                    delivery_hint: owned(hint),
                    ..Default::default()
                }
            };
            a.try_call(call).await.map(|sent| sent.recipients.len()).map_err(|e| e.code)
        };
        assert_eq!(code("x", None, None, None).await, Ok(1));
        assert_eq!(code("x", Some("b"), None, Some("important")).await, Ok(1));
        assert_eq!(code("x", None, Some("room"), Some("interrupt")).await, Ok(1));
        assert_eq!(code("x", None, None, Some("urgent")).await, Err(ErrorCode::InvalidDeliveryHint));
        assert_eq!(code("x", Some("stranger"), None, None).await, Err(ErrorCode::UnknownRecipient));
        assert_eq!(code("x", Some("b"), Some("b"), None).await, Err(ErrorCode::InvalidInput));
        assert_eq!(code("", None, None, None).await, Err(ErrorCode::InvalidBody));
        let mut stranger = tt_client::connect::Client::connect(home.settings_of("stranger")).await.unwrap();
        let room = b.room.clone();
        let call = SendMessage { room_id: room.clone(), body: "x".into(), ..Default::default() };
        assert_eq!(stranger.call(call).await.unwrap_err().code, ErrorCode::UnknownMember);
        let take = TakeMessages { room_id: room.clone(), surface: "recv".into(), ..Default::default() };
        assert_eq!(stranger.call(take).await.unwrap_err().code, ErrorCode::UnknownMember);
        let nowhere = SendMessage { room_id: "no-room".into(), body: "x".into(), ..Default::default() };
        assert_eq!(stranger.call(nowhere).await.unwrap_err().code, ErrorCode::RoomNotFound);
    });
}

#[test]
fn whoever_listens_is_named_to_the_sender() {
    let home = two_members();
    let sent = run::finish(&mut home.tt_as("a", &["msg", "send", "b", "anybody?"])).ok().json();
    let waits = json!({"because": "unknown", "text": "nothing is known of what it does: comes with its next call"});
    let recipient = json!({"agent_id": "b", "display_name": "b", "state": "pending", "waits": waits});
    assert_eq!(sent["recipients"], json!([recipient]));
    let (reader, writer) = std::io::pipe().unwrap();
    let follower = Running::writing_to(&mut home.tt_as("b", &["msg", "recv", "--follow"]), writer);
    let lines = tt_tests::Lines::of(reader);
    lines.json();
    let sent = loop {
        let sent = run::finish(&mut home.tt_as("a", &["msg", "send", "b", "you there?"])).ok().json();
        lines.json();
        // Between two takes nobody listens for a moment.
        if sent["recipients"][0].get("surface").is_some() {
            break sent;
        }
    };
    assert_eq!(
        sent["recipients"],
        json!([{"agent_id": "b", "display_name": "b", "state": "pending", "surface": "follow"}])
    );
    drop(follower);
}
