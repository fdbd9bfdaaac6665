//! The file in which Claude Code says which session a process is in. Whatever it says, the process that lives is not gone.

use tt_harness::SessionFiles as Facts;
use tt_proto::hello::Anchor;
use tt_proto::room::Liveness;
use tt_proto::{AgentId, WallTime};
use tt_rules::{DeadlineTime, LeaseTime, Now};
use ttd::sessions::files;
use ttd::sessions::registry::{CallFacts, Registry};
use ttd::sessions::session::SessionKey;

use crate::generate::{json, json_string, object, text};
use crate::{Random, Target, Verdict, ensure};

pub(super) struct SessionFiles;

const HARNESS: &str = "claude";
const NOW: i64 = 1_800_000_000_000;

impl Target for SessionFiles {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let session = if random.one_in(2) { "s".to_owned() } else { text(random) };
        let millis = |random: &mut Random| match random.below(3) {
            0 => (NOW - 5000).to_string(),
            1 => (NOW + 5000).to_string(),
            _ => json(random, 0),
        };
        let fields = [
            ("pid", "7".to_owned()),
            ("procStart", random.pick(&["12", "\"12\"", "\"13\""]).to_owned()),
            ("sessionId", json_string(&session)),
            ("status", json_string(random.pick(&["idle", "busy", "waiting", "singing"]))),
            ("waitingFor", json_string(&text(random))),
            ("updatedAt", millis(random)),
            ("statusUpdatedAt", millis(random)),
        ];
        object(random, &fields).into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let facts: &Facts = tt_harness::by_name(HARNESS)
            .and_then(|harness| harness.session_files.as_ref())
            .ok_or("Claude Code keeps no session files")?;
        let (lease, deadline) = (LeaseTime::from_millis(NOW), DeadlineTime::from_millis(NOW));
        let now = Now { lease, deadline, wall: WallTime::from_millis(NOW) };
        let input = String::from_utf8_lossy(input);
        let Some(record) = files::parse(facts, &input, "12@boot", &now) else { return Ok(Verdict::Refused) };
        ensure!(!record.session_id.is_empty(), "a session without a name");
        ensure!(record.at <= now.lease && record.status_at <= now.lease, "dated in the future: {record:?}");
        let half = input.trim_end().char_indices().nth_back(0).map_or("", |(end, _)| &input[..end]);
        ensure!(files::parse(facts, half, "12@boot", &now).is_none(), "half a file is read: {half:?}");
        let process = Anchor { host_id: "h".into(), pid: 7, process_started_at: "12@boot".into() };
        let id = |session: &str| AgentId::trusted(format!("{HARNESS}:{session}"));
        let call = CallFacts {
            harness: HARNESS.into(),
            session_id: Some("s".into()),
            fresh: true,
            derived_id: id("s"),
            fixed_id: false,
            process: Some(process.clone()),
            server: None,
        };
        let alive = |_: &Anchor| Liveness::Alive;
        let mut registry = Registry::default();
        registry.bind(&call, &alive, now.lease);
        for _ in 0..2 {
            registry.file_says(HARNESS, &process, id(&record.session_id), &record, &alive, now.lease);
        }
        let bound = registry.bind(&CallFacts { session_id: None, ..call }, &alive, now.lease).0;
        let current = bound.ok_or("the process is in no session")?;
        ensure!(current.agent_id == id("s"), "the member became {:?}", current.agent_id);
        let session = registry.get(&SessionKey::new(HARNESS, &current.key.session_id)).ok_or("no session")?;
        let verdict = session.verdict(&alive, now.lease);
        ensure!(verdict.liveness == Liveness::Alive, "a living process is gone: {verdict:?} after {record:?}");
        Ok(Verdict::Accepted)
    }
}
