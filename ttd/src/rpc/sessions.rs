//! `report_session`, `list_sessions`, `peek_session`.

use std::sync::Arc;

use jsonrpsee::Extensions;
use tt_proto::requests::{ListSessions, Peek, PeekSession, ReportSession, Reported, SessionList};
use tt_proto::room::Liveness;
use tt_proto::session::SessionEvent;
use tt_proto::{Error, ErrorCode};
use tt_store::Page;

use super::daemon::find_server;
use super::register::{Module, register};
use super::speech::say;
use super::{Call, Shared, blocking};
use crate::delivery::boundary::Boundary;
use crate::sessions::registry::Report;
use crate::sessions::transcript;

/// How long the names that a hook reports may be, in bytes. A harness's own are far shorter.
const MAX_NAME_BYTES: usize = 256;

/// The most sessions that `list_sessions` lists.
const MAX_LISTED_SESSIONS: usize = 250;

/// How many lines are shown unless told, and at most.
const PEEK_LINES: usize = 20;
const MAX_PEEK_LINES: usize = 200;

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<ReportSession, _>(module, report_session)?;
    register::<ListSessions, _>(module, list_sessions)?;
    register::<PeekSession, _>(module, peek_session)
}

async fn report_session(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ReportSession,
) -> Result<Reported, Error> {
    let call = Call::of(&extensions)?;
    let session = call.session()?;
    let identity = &session.identity;
    let event = SessionEvent::required(&request.event)?;
    let harness = tt_harness::by_name(&request.harness);
    if harness.is_none() || identity.harness.as_deref() != Some(request.harness.as_str()) {
        let message = format!("the caller is not in a session of {:?}", request.harness);
        return Err(Error::new(ErrorCode::InvalidInput, message).hint("only a hook of that harness reports this"));
    }
    let session_id = name("session_id", Some(request.session_id))?.unwrap_or_default();
    if session_id.is_empty() {
        return Err(Error::new(ErrorCode::InvalidInput, "session_id is empty"));
    }
    let now = shared.engine.clock().now();
    let began = request.began_ms.and_then(|began| shared.engine.clock().lease_at(began));
    let report = Report {
        event,
        reason: name("reason", request.reason)?,
        at: began.unwrap_or_else(|| request.at.map_or(now.lease, |at| now.to_lease(at))),
        subagent_id: name("subagent_id", request.subagent_id)?.filter(|id| !id.is_empty()),
        tool_use_id: name("tool_use_id", request.tool_use_id)?,
        tool_name: name("tool_name", request.tool_name)?,
        runs_tt: request.runs_tt.unwrap_or(false),
        cwd: request.cwd,
        transcript_path: request.transcript_path,
        previous_session_id: name("previous_session_id", request.previous_session_id)?,
    };
    let server = find_server(&shared, &call, identity, &call.session()?.signals).await?;
    let speaks = Boundary::of(&report).filter(|_| request.can_speak == Some(true));
    let is_end = speaks == Some(Boundary::TurnEnd);
    // Before it is known that the session is idle. Which member it is may be known only afterwards.
    let _ending = is_end.then(|| shared.recipients.ending(&identity.agent_id));
    let (member, status) = shared.sessions.report(identity, &session_id, &report, server);
    let agent_id = member.agent_id.clone();
    if event == SessionEvent::SessionEnded {
        shared.recipients.told().forget(&agent_id);
    }
    shared.engine.seen(&agent_id);
    let mut reported = Reported { agent_id, status, say: None };
    let Some(boundary) = speaks else { return Ok(reported) };
    let _ending_as_member = is_end.then(|| shared.recipients.ending(&reported.agent_id));
    // What it takes from now on it takes as this member. A hook reports one session; another one's would get nothing.
    if session.member.get_or_init(|| member).agent_id == reported.agent_id {
        reported.say = say(&shared, &call, boundary, report.cwd.as_deref()).await?;
    }
    if reported.say.as_ref().is_some_and(|say| say.holds) {
        // The turn goes on.
        let busy = Report::of(SessionEvent::Busy, shared.engine.clock().now().lease);
        reported.status = shared.sessions.report(identity, &session_id, &busy, None).1;
    }
    Ok(reported)
}

async fn list_sessions(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ListSessions,
) -> Result<SessionList, Error> {
    let call = Call::of(&extensions)?;
    let _room = call.answer_room().await;
    let include_gone = request.include_gone.unwrap_or(false);
    let sessions = shared.sessions.list().into_iter();
    let shown = sessions.filter(|session| include_gone || session.liveness != Liveness::Gone);
    let page = Page::of(shown.map(Ok::<_, Error>), MAX_LISTED_SESSIONS)?;
    Ok(SessionList { sessions: page.items, more: page.more })
}

async fn peek_session(shared: Arc<Shared>, extensions: Extensions, request: PeekSession) -> Result<Peek, Error> {
    let _call = Call::of(&extensions)?;
    let PeekSession { agent_id, lines } = request;
    let found = shared.sessions.of_agent(&agent_id).ok_or_else(|| {
        Error::new(ErrorCode::UnknownTarget, format!("no session of {agent_id} is known"))
            .hint("see the sessions that are known: tt sessions")
            .detail("agent_id", agent_id.as_str())
    })?;
    let (session, transcript) = found;
    let limit = lines.unwrap_or(PEEK_LINES).min(MAX_PEEK_LINES);
    let Some(path) = transcript else {
        let warning = Some("no hook has named the transcript of this session".to_owned());
        return Ok(Peek { session, lines: Vec::new(), warning });
    };
    blocking(move || match transcript::last_lines(path.as_ref(), limit) {
        Ok(lines) if lines.is_empty() => {
            Ok(Peek { session, lines, warning: Some(format!("{path} has nothing to show yet")) })
        }
        Ok(lines) => Ok(Peek { session, lines, warning: None }),
        Err(e) => Ok(Peek { session, lines: Vec::new(), warning: Some(format!("cannot read {path}: {e}")) }),
    })
    .await
}

/// Checks that a name a hook reported is one.
fn name(field: &str, value: Option<String>) -> Result<Option<String>, Error> {
    if value.as_ref().is_some_and(|value| value.len() > MAX_NAME_BYTES || value.chars().any(char::is_control)) {
        let message = format!("{field} has more than {MAX_NAME_BYTES} bytes or control characters");
        return Err(Error::new(ErrorCode::InvalidInput, message));
    }
    Ok(value)
}
