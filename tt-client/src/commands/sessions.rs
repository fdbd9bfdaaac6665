//! `tt sessions`: lists the sessions that are known. `tt peek`: shows what one of them said and did last.

use tt_proto::delivery::WayName;
use tt_proto::escape::escape_text;
use tt_proto::requests::{ListSessions, Peek, PeekSession, SessionList};
use tt_proto::room::Liveness;
use tt_proto::session::{Session as Known, SessionStatus};

use crate::Context;
use crate::error::CommandError;
use crate::session::{PathFlag, Session};
use crate::text::{Style, names, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt sessions")]
pub(crate) struct Args {
    /// Also show sessions that ended
    #[arg(long)]
    all: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt peek codex --lines 5")]
pub(crate) struct PeekArgs {
    /// The member: name, agent id, or the beginning of one
    who: String,
    #[command(flatten)]
    path: PathFlag,
    /// How many lines to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    lines: usize,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let (mut client, output) = context.connect()?;
    let sessions = client.call(&ListSessions { include_gone: args.all.then_some(true) })?;
    Ok(output.answer(&sessions, list_text)?)
}

pub(crate) fn run_peek(context: &Context, args: PeekArgs) -> Result<(), CommandError> {
    let mut session = Session::find(context, args.path)?;
    let agent_id = session.member(&args.who)?;
    let peek = session.client.call(&PeekSession { agent_id, lines: Some(args.lines) })?;
    Ok(session.output.answer(&peek, peek_text)?)
}

fn list_text(list: &SessionList, style: &Style) -> String {
    if list.sessions.is_empty() {
        return "no session is known; one is as soon as an agent calls tt, or a hook reports it".into();
    }
    let more = if list.more { style.row("", &style.dim("there are more")) } else { String::new() };
    list.sessions.iter().map(|session| session_text(session, style)).chain([more]).collect()
}

/// What a session is and does, and the evidence.
fn session_text(session: &Known, style: &Style) -> String {
    let now = render::now();
    let mut text = style.row("", &format!("{}  {}", style.bold(&names::id(&session.agent_id)), doing(session)));
    if let Some(cwd) = &session.cwd {
        text.push_str(&style.row("  ", &escape_text(cwd)));
    }
    if session.status != SessionStatus::Gone || session.liveness != Liveness::Gone {
        let liveness = match session.liveness {
            Liveness::Alive => "alive",
            Liveness::Gone => "gone",
            Liveness::Unknown => "not known to be alive",
        };
        text.push_str(&style.row("  ", &style.dim(&format!("{liveness}: {}", escape_text(&session.because)))));
    }
    if session.liveness != Liveness::Gone {
        text.push_str(&style.row("  ", &style.dim(&ways(session))));
    }
    for evidence in &session.evidence {
        let source = evidence.source.as_str().replace('_', " ");
        let line = format!("{source}: {}, {}", escape_text(&evidence.says), render::ago(evidence.at, now));
        text.push_str(&style.row("  ", &style.dim(&line)));
    }
    text
}

/// What brings it messages, and whether that wakes it.
fn ways(session: &Known) -> String {
    let name = |way: &WayName| match way {
        WayName::Hook => "hooks",
        WayName::NativeInbox => "its harness's inbox, which wakes it",
        WayName::Terminal => "its terminal, which wakes it",
        WayName::Listening => "a wait",
        WayName::ToolResponse => "its tool calls",
    };
    match session.ways.as_slice() {
        [] => "messages: with its calls of tt and our tools alone".to_owned(),
        ways => format!("messages: by {}", ways.iter().map(name).collect::<Vec<_>>().join("; ")),
    }
}

/// `busy for 3m`, `idle`, `gone: its process 12 ended`.
fn doing(session: &Known) -> String {
    let since = session.since.map(|since| render::now().since(since)).filter(|time| time.as_secs() >= 60);
    let since = since.map(|time| format!(" for {}", render::span(time))).unwrap_or_default();
    match session.status {
        SessionStatus::Gone => format!("gone: {}", escape_text(&session.because)),
        SessionStatus::Busy if session.doubted => format!("busy{since}, without a sign since"),
        SessionStatus::Asking => format!("asks its user something{since}"),
        SessionStatus::Unknown => "doing nobody knows what".into(),
        status => format!("{}{since}", status.as_str()),
    }
}

fn peek_text(peek: &Peek, style: &Style) -> String {
    let mut text = session_text(&peek.session, style);
    for line in &peek.lines {
        let mut parts = line.text.lines();
        let first =
            format!("{} {}", style.bold(&escape_text(&line.role)), escape_text(parts.next().unwrap_or_default()));
        text.push_str(&style.row("  ", &first));
        for part in parts {
            text.push_str(&style.row("    ", &escape_text(part)));
        }
    }
    if let Some(warning) = &peek.warning {
        text.push_str(&style.row("  ", &style.dim(&escape_text(warning))));
    }
    text
}
