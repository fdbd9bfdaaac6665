//! `tt status`: the state of the stick in one word. With `--prompt` for a shell prompt, which it must not slow down.

use std::time::Duration;

use serde::Serialize;
use tt_proto::requests::{GetRoomState, RoomState};
use tt_proto::room::StickState;
use tt_proto::turn::TakeoverReason;
use tt_proto::{AgentId, RoomId};

use crate::Context;
use crate::connect::{HttpClient, Settings};
use crate::error::CommandError;
use crate::output::{Format, Output};
use crate::session::{PathArg, Session};
use crate::text::{layout::columns, names, render};

/// How long the daemon may take to answer. A prompt has a few milliseconds, and starting and ending a program takes two.
const PROMPT_DEADLINE: Duration = Duration::from_millis(2);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tt status\n  PS1='$(tt status --prompt)'\"$PS1\"\n\nTT_PROMPT_ICON sets the icon before the word."
)]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
    /// One short word for a shell prompt, or nothing; starts no daemon and takes a few milliseconds at most
    #[arg(long)]
    prompt: bool,
}

/// The state of the stick, as the caller sees it.
#[derive(Debug, Serialize)]
struct Status {
    status: StickStatus,
    turn_id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<AgentId>,
    /// The member that the stick is reserved for.
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved_for: Option<AgentId>,
    /// How many members wait before the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    before_you: Option<usize>,
    /// Every answer has it, and how many of them are interrupts.
    #[serde(skip)]
    unread: usize,
    /// Why the stick may be taken over, if it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    takeover: Option<TakeoverReason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum StickStatus {
    Holding,
    Waiting,
    Idle,
    Held,
    Reserved,
    Closed,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    if args.prompt {
        return prompt(context, &args.path);
    }
    let (session, state) = Session::find_state(context, args.path)?;
    let me = session.client.welcome().identity.agent_id.clone();
    let status = Status::of(&state, &me);
    Ok(session.output.answer(&status, |status, style| {
        let turn = format!("turn {}", status.turn_id);
        let name = |agent: &AgentId| names::name(agent, &state.members);
        let now = match (&status.holder, &status.reserved_for) {
            (Some(_), _) => render::stick_line(&state, &me, style),
            (None, Some(agent)) if *agent == me => format!("{}: tt wait", style.bold("it is yours next")),
            (None, Some(agent)) => format!("{} has the stick next", name(agent)),
            (None, None) => String::new(),
        };
        let also = if now.is_empty() { String::new() } else { format!("; {now}") };
        let unread = if status.unread > 0 { format!(", {} unread: tt msg recv", status.unread) } else { String::new() };
        let line = match (status.status, status.before_you) {
            (StickStatus::Holding, _) => format!("{}, {turn}", style.bold("you hold the stick")),
            (StickStatus::Waiting, Some(0)) if status.reserved_for.is_some() => format!("{now}, then you"),
            (StickStatus::Waiting, Some(0)) => format!("you are next{also}"),
            (StickStatus::Waiting, before) => format!("you wait, {} before you{also}", before.unwrap_or(0)),
            (StickStatus::Idle, _) => render::stick_line(&state, &me, style),
            (StickStatus::Held | StickStatus::Reserved, _) => now,
            (StickStatus::Closed, _) => "the room is closed".into(),
        };
        let takeover = status.takeover.map(|reason| format!(", {}", render::takeover_line(reason, style)));
        format!("{line}{}{unread}", takeover.unwrap_or_default())
    })?)
}

/// Prints the piece of a prompt, or nothing if anything fails or takes longer than a prompt may.
fn prompt(context: &Context, path: &PathArg) -> Result<(), CommandError> {
    let Some(word) = prompt_word(context, path) else { return Ok(()) };
    let icon = context.settings.env.get_str("TT_PROMPT_ICON").unwrap_or("⚑");
    let piece = format!("{icon}{word} ");
    Ok(Output::new(Format::Text, &context.settings.env).text(|_| piece)?)
}

fn prompt_word(context: &Context, path: &PathArg) -> Option<String> {
    let path = path.text().ok()?;
    let settings = Settings { autostart: false, deadline: PROMPT_DEADLINE, ..context.settings_at(Some(path)) };
    let request = GetRoomState { room_id: RoomId::from(RoomId::HERE), ..Default::default() };
    let (client, state) = HttpClient::try_connect_and_call(&settings, &request).ok()??;
    let (state, me) = (state.ok()?, &client.welcome().identity.agent_id);
    Some(Status::of(&state, me).word(&state, me))
}

impl Status {
    fn of(state: &RoomState, me: &AgentId) -> Self {
        let room = &state.room;
        let before_you = state.queue.iter().position(|agent| agent == me);
        let status = match room.state {
            _ if room.owner.as_ref() == Some(me) => StickStatus::Holding,
            StickState::Closed => StickStatus::Closed,
            _ if room.reserved_for.as_ref() == Some(me) => StickStatus::Reserved,
            _ if before_you.is_some() => StickStatus::Waiting,
            StickState::Idle => StickStatus::Idle,
            StickState::Owned => StickStatus::Held,
            StickState::Reserved => StickStatus::Reserved,
        };
        let mine = state.members.iter().find(|member| member.agent_id == *me);
        Self {
            status,
            turn_id: room.turn_id,
            holder: room.owner.clone(),
            reserved_for: room.reserved_for.clone(),
            before_you,
            unread: mine.map_or(0, |member| member.unread),
            takeover: state.takeover.reason,
        }
    }

    /// `T42` holding, `w1` waiting with one before, `idle`, the holder's name, or `next:` and the member that the stick is reserved for.
    fn word(&self, state: &RoomState, me: &AgentId) -> String {
        let name = |agent: &AgentId| prompt_safe(names::name(agent, &state.members).trim_matches('"'));
        let mail = if self.unread > 0 { format!("+{}", self.unread) } else { String::new() };
        let word = match self.status {
            StickStatus::Holding => format!("T{}", self.turn_id),
            StickStatus::Waiting => format!("w{}", self.before_you.unwrap_or(0)),
            StickStatus::Idle => "idle".into(),
            StickStatus::Closed => "closed".into(),
            StickStatus::Held => self.holder.as_ref().map_or_else(String::new, name),
            StickStatus::Reserved if self.reserved_for.as_ref() == Some(me) => "next:you".into(),
            StickStatus::Reserved => format!("next:{}", self.reserved_for.as_ref().map_or_else(String::new, name)),
        };
        format!("{word}{mail}")
    }
}

/// How wide a name may be in a prompt.
const MAX_NAME_COLUMNS: usize = 20;

/// A name that is safe in a prompt. Every shell expands prompts in its own way, and a name is chosen by others, so only
/// characters without a meaning to any shell are kept.
fn prompt_safe(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || (!c.is_ascii() && c.is_alphanumeric()) || "-_.:@".contains(c);
    let mut plain = String::new();
    for c in name.chars().map(|c| if allowed(c) { c } else { '_' }) {
        if columns(&plain) >= MAX_NAME_COLUMNS {
            plain.push('…');
            break;
        }
        plain.push(c);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_shell_finds_a_meaning_in_a_name() {
        assert_eq!(prompt_safe("codex-2.review:a@b_c"), "codex-2.review:a@b_c");
        assert_eq!(prompt_safe("Zoë 漢字"), "Zoë_漢字");
        assert_eq!(prompt_safe("$(rm)`id`%F{a}\\w!\"'"), "__rm__id__F_a__w___");
        assert_eq!(prompt_safe(&"x".repeat(64)), format!("{}…", "x".repeat(20)));
    }
}
