//! `report_session`, `list_sessions`, `peek_session`.

use std::sync::Arc;

use jsonrpsee::Extensions;
use tt_proto::requests::{ListSessions, Peek, PeekSession, ReportSession, Reported, SessionList};
use tt_proto::room::Liveness;
use tt_proto::session::{Session, SessionEvent, SessionStatus};
use tt_proto::{Error, ErrorCode};
use tt_rules::GiveBackCause;
use tt_store::Page;

use super::daemon::find_server;
use super::register::{Module, register};
use super::speech::say;
use super::{Call, Shared, blocking, guard};
use crate::background;
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
    let mut reported = Reported { agent_id, status, say: None, refusal: None };
    // What it does from now on it does as this member. A hook reports one session; another one's would get nothing.
    if session.member.get_or_init(|| member).agent_id != reported.agent_id {
        return Ok(reported);
    }
    let cause = gives_back(&report, reported.status);
    // As it is before anything is waited for: a turn that begins meanwhile is another one.
    let turns = match cause {
        Some(_) => background::turns_of(&shared.engine, &reported.agent_id).await?,
        None => Vec::new(),
    };
    let can_speak = request.can_speak == Some(true) && report.subagent_id.is_none();
    let edits = request.edits.map(|edits| edits.names().to_vec()).unwrap_or_default();
    let names_edits = !edits.is_empty();
    if event == SessionEvent::ToolStarted {
        let uses = ToolUse { edits, is_shell: request.is_shell == Some(true) };
        if names_edits {
            // A report may be dated by a clock that is ahead.
            let at = report.at.min(shared.engine.clock().now().lease);
            shared.recipients.told().edits(&reported.agent_id, at);
        }
        reported.refusal = guarded(&shared, &call, uses, report.cwd.as_deref(), can_speak).await?;
        if reported.refusal.is_some() {
            return Ok(reported);
        }
    }
    let _ending_as_member = is_end.then(|| shared.recipients.ending(&reported.agent_id));
    if let Some(boundary) = speaks {
        reported.say = say(&shared, &call, boundary, report.cwd.as_deref()).await?;
    }
    if reported.say.as_ref().is_some_and(|say| say.holds) {
        // The turn goes on.
        let busy = Report::of(SessionEvent::Busy, shared.engine.clock().now().lease);
        reported.status = shared.sessions.report(identity, &session_id, &busy, None).1;
        return Ok(reported);
    }
    let agent_id = &reported.agent_id;
    let is_edit = |tool: &str| harness.is_some_and(|harness| harness.tools.edits.iter().any(|edit| edit.name == tool));
    let told = shared.recipients.told();
    if event == SessionEvent::PermissionAsked {
        told.asks(agent_id, names_edits || report.tool_name.as_deref().is_none_or(is_edit));
    } else if reported.status != SessionStatus::Asking {
        told.was_answered(agent_id);
    }
    if told.has_edited_since(agent_id, report.at) {
        // It comes late, from an earlier turn of the session.
        return Ok(reported);
    }
    if let Some(cause) = cause.filter(|cause| *cause != GiveBackCause::Asking || !told.may_ask_to_edit(agent_id)) {
        if cause != GiveBackCause::Asking {
            shared.recipients.told().turn_ended(agent_id);
        }
        background::give_back(&shared.engine, agent_id, &turns, cause).await?;
    }
    Ok(reported)
}

/// What a hook says of the tool that is about to run.
struct ToolUse {
    edits: Vec<String>,
    is_shell: bool,
}

/// Lets the guard look at a tool. Returns why it is not to be run; anything else is said to the session at the next moment.
async fn guarded(
    shared: &Shared,
    call: &Call,
    uses: ToolUse,
    cwd: Option<&str>,
    can_speak: bool,
) -> Result<Option<String>, Error> {
    let me = &call.identity()?.agent_id;
    if !uses.edits.is_empty() {
        let said = guard::check_edits(shared, call, uses.edits).await?;
        let is_news = said.is_given || shared.recipients.told().may_advise(me);
        if is_news && said.refusal.is_none() && !said.lines.is_empty() {
            if !said.is_given {
                shared.recipients.told().advised(me);
            }
            shared.recipients.told().owe(me, said.lines);
        }
        return Ok(said.refusal);
    }
    // A subagent cannot be told, nor can it be told apart from its conversation.
    if uses.is_shell
        && can_speak
        && shared.recipients.told().may_advise(me)
        && let Some(advice) = guard::shell_advice(shared, me, cwd).await?
    {
        shared.recipients.told().advised(me);
        shared.recipients.told().owe(me, vec![advice]);
    }
    Ok(None)
}

/// Why what the guard gave a session is given back after this, if it is.
fn gives_back(report: &Report, status: SessionStatus) -> Option<GiveBackCause> {
    match report.event {
        SessionEvent::TurnEnded if report.subagent_id.is_none() => Some(GiveBackCause::TurnEnded),
        // It went on in the background after the turn of its conversation.
        SessionEvent::SubagentEnded if status == SessionStatus::Idle => Some(GiveBackCause::TurnEnded),
        SessionEvent::Interrupted | SessionEvent::Idle if status == SessionStatus::Idle => {
            Some(GiveBackCause::BrokenOff)
        }
        SessionEvent::PermissionAsked if status == SessionStatus::Asking => Some(GiveBackCause::Asking),
        _ => None,
    }
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
    let shown = shown.map(|session| Session { ways: shared.recipients.ways_of(&session.agent_id), ..session });
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
    let (mut session, transcript) = found;
    session.ways = shared.recipients.ways_of(&agent_id);
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
