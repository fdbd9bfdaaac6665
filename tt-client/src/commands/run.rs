//! `tt run`: waits for the stick, runs a command with it, and releases it with a handoff that says how the command ended.

use std::io::{IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tt_proto::event::EventType;
use tt_proto::filter::OneOrMany;
use tt_proto::handoff::{Handoff, RawJson};
use tt_proto::requests::{GetRoomEvents, GetRoomState, Heartbeat, ReleaseStick, WaitForTurn};
use tt_proto::turn::{ClaimReason, Reason, WaitStatus};
use tt_proto::{AgentId, Error, ErrorCode, LeaseId};

use super::wait::removed;
use crate::Context;
use crate::connect::{DEADLINE, RECONNECT_DELAY};
use crate::error::CommandError;
use crate::follow::{Signals, block_on, end_typed_line};
use crate::live_session::LiveSession;
use crate::output::{Format, write_error};
use crate::session::{PathArg, PathFlag, fresh_key};
use crate::text::{names, shell::shell_word};

/// How long one call waits. A longer wait is made of several calls.
const MAX_WAIT_PER_CALL: Duration = Duration::from_secs(100);

/// How often the lease is renewed while the command runs.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(60);

/// How long the daemon may take to notice that a wait was given up.
const WAIT_END_TIMEOUT: Duration = Duration::from_secs(2);

/// What a shell answers when it cannot find a command, when it cannot run one, and in addition to the number of a signal.
const EXIT_NOT_FOUND: u8 = 127;
const EXIT_NOT_RUN: u8 = 126;
const EXIT_SIGNAL: u8 = 128;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Its exit status is that of the command. If you hold the stick already, you keep it.\n\nExample:\n  tt run -- make test"
)]
pub(crate) struct Args {
    /// The state of the work, for the handoff
    #[arg(short = 'm', long, value_name = "T")]
    status: Option<String>,
    #[command(flatten)]
    path: PathFlag,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<String>,
}

/// A turn that this command holds.
struct Turn {
    turn_id: i64,
    lease_id: LeaseId,
    /// Whether the caller held it before, and keeps it.
    keep: bool,
}

/// How the command ended, in a word for the handoff and as an exit status.
struct Ended {
    how: String,
    status: u8,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let ended = block_on(run_with_stick(context, args))?;
    match ended {
        0 => Ok(()),
        status => Err(CommandError::Status(status)),
    }
}

async fn run_with_stick(context: &Context, args: Args) -> Result<u8, CommandError> {
    let mut signals = Signals::listen()?;
    let path = PathArg::from(args.path);
    let find = async {
        let mut session = LiveSession::find(context, path.clone()).await?;
        let held = held_turn(&mut session).await?;
        Ok::<_, CommandError>((session, held))
    };
    let (mut session, held) = tokio::select! {
        found = find => found?,
        // Nothing was asked for yet, and a stick that the caller holds stays its own.
        signal = signals.next() => return Ok(exit_of_signal(signal)),
    };
    let waited = match held {
        Some(turn) => Ok(turn),
        None => tokio::select! {
            turn = wait_for_turn(&mut session) => Ok(turn?),
            signal = signals.next() => Err(signal),
        },
    };
    let turn = match waited {
        Ok(turn) => turn,
        Err(signal) => {
            end_typed_line(&session.output, signal);
            if session.output.format == Format::Text {
                let _ = writeln!(std::io::stderr(), "interrupted while waiting for the stick; nothing was run");
            }
            // The connection ends, and with it the wait. A turn that came in the same moment is given back.
            drop(session);
            give_back(context, path).await?;
            return Ok(exit_of_signal(signal));
        }
    };
    let ended = run_command(&mut session, &turn, &args.command, &mut signals).await;
    if !turn.keep {
        let handoff = handoff(args.status.as_deref(), &args.command, &ended);
        if let Err(CommandError::Refused(e) | CommandError::NoDaemon(e)) = release(&mut session, &turn, &handoff).await
        {
            // The command has run; how it ended is what the caller asked for.
            write_error(session.output.format, &e, &context.settings.env);
        }
    }
    Ok(ended.status)
}

/// The turn that the caller holds already.
async fn held_turn(session: &mut LiveSession) -> Result<Option<Turn>, CommandError> {
    let room = session.call(|room_id| GetRoomState { room_id, ..Default::default() }).await?.room;
    Ok(room.lease_id.map(|lease_id| Turn { turn_id: room.turn_id, lease_id, keep: true }))
}

/// Waits until the caller has the stick.
async fn wait_for_turn(session: &mut LiveSession) -> Result<Turn, CommandError> {
    let mut told: Option<AgentId> = None;
    loop {
        // Short until the caller knows what it waits for.
        let wait = if told.is_some() { MAX_WAIT_PER_CALL } else { Duration::ZERO };
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let request =
            |room_id| WaitForTurn { room_id, max_wait_ms: Some(wait_ms), claim: Some(true), ..Default::default() };
        let answer = match told {
            None => session.call(request).await?,
            Some(_) => session.client.call_within(wait + DEADLINE, request(session.room_id.clone())).await?,
        };
        let refuse = |code, message: &str, hint: &str| Err(CommandError::Refused(Error::new(code, message).hint(hint)));
        match (answer.status, answer.lease_id.clone()) {
            (WaitStatus::YourTurn, Some(lease_id)) => {
                let keep = answer.reason == Some(Reason::Claim(ClaimReason::AlreadyOwner))
                    && came_by_takeover(session, answer.turn_id).await.unwrap_or(false);
                return Ok(Turn { turn_id: answer.turn_id, lease_id, keep });
            }
            (WaitStatus::NotYet | WaitStatus::YourTurn, _) => {
                let holder = answer.holder.or(answer.reserved_for);
                if told.is_none() && session.output.format == Format::Text {
                    let names = session.names().await.unwrap_or_default();
                    // In the moment after a release it is free, and kept for a member that comes first.
                    let why = holder.as_ref().map_or_else(
                        || "another member comes first for a moment".to_owned(),
                        |agent| format!("{} has it", names.get(agent)),
                    );
                    let _ = writeln!(std::io::stderr(), "waiting for the stick: {why}");
                }
                told = told.or(holder).or_else(|| Some(AgentId::default()));
            }
            (WaitStatus::TakeoverAvailable, _) => {
                let who = answer.from_agent_id.map_or_else(|| "its holder".to_owned(), |agent| names::id(&agent));
                let message = format!("{who} no longer responds and has the stick; nothing was run");
                let hint = "take it over first: tt take --reason \"…\"; you keep it then, also after tt run";
                return refuse(ErrorCode::TakeoverNotAvailable, &message, hint);
            }
            (WaitStatus::Closed, _) => {
                return refuse(ErrorCode::RoomClosed, "the room is closed; nothing was run", "join another workspace");
            }
            (WaitStatus::Removed, _) => {
                let code = if answer.kicked_by.is_some() { ErrorCode::Kicked } else { ErrorCode::UnknownMember };
                let message =
                    format!("{}; nothing was run", removed(&answer, &session.names().await.unwrap_or_default()));
                return refuse(code, &message, answer.hint.as_deref().unwrap_or("join again: tt join"));
            }
        }
    }
}

/// Runs the command to its end. Renews the lease meanwhile, and passes on what ends other programs.
async fn run_command(session: &mut LiveSession, turn: &Turn, words: &[String], signals: &mut Signals) -> Ended {
    let (program, arguments) = words.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let mut child = match Command::new(program).args(arguments).spawn() {
        Ok(child) => child,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "tt: {program} could not be started: {e}");
            let not_found = e.kind() == std::io::ErrorKind::NotFound;
            let status = if not_found { EXIT_NOT_FOUND } else { EXIT_NOT_RUN };
            return Ended { how: format!("could not be started: {e}"), status };
        }
    };
    let pid = i32::try_from(child.id()).map(Pid::from_raw);
    let mut exited = tokio::task::spawn_blocking(move || child.wait());
    let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
    let mut lost = false;
    loop {
        tokio::select! {
            status = &mut exited => return ended(status.map_err(std::io::Error::other).and_then(|status| status)),
            signal = signals.next() => {
                // What is typed at a terminal reaches the command without us.
                let typed = signal == Signal::SIGINT && std::io::stdin().is_terminal();
                if let (false, Ok(pid)) = (typed, pid) {
                    let _ = kill(pid, signal);
                }
            }
            _ = heartbeat.tick(), if !lost => {
                let beat = Heartbeat {
                    room_id: session.room_id.clone(),
                    lease_id: turn.lease_id.clone(),
                    expected_turn_id: turn.turn_id,
                };
                if let Err(e) = session.client.call(beat).await
                    && ends_turn(e.code)
                {
                    lost = true;
                    let _ = writeln!(std::io::stderr(), "tt: the stick was taken while the command runs: {e}");
                }
            }
        }
    }
}

/// Whether a refused heartbeat means that the turn is over.
fn ends_turn(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::StaleLease | ErrorCode::TurnMismatch | ErrorCode::UnknownMember | ErrorCode::Kicked)
}

/// Whether the caller took this turn itself, with `tt take` in another shell. It keeps such a turn.
async fn came_by_takeover(session: &mut LiveSession, turn_id: i64) -> Result<bool, CommandError> {
    let types = [EventType::Claim, EventType::Takeover].map(|event_type| event_type.as_str().to_owned());
    let newest = GetRoomEvents {
        room_id: session.room_id.clone(),
        limit: Some(1),
        event_type: Some(OneOrMany::Many(types.to_vec())),
        ..Default::default()
    };
    let newest = session.client.call(newest).await?.events;
    Ok(newest.iter().any(|event| event.event_type == EventType::Takeover && event.turn_id == Some(turn_id)))
}

fn ended(status: std::io::Result<ExitStatus>) -> Ended {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Ended { how: format!("exit status {code}"), status: u8::try_from(code).unwrap_or(1) },
            (None, signal) => {
                let number = signal.unwrap_or(0);
                let name = Signal::try_from(number).map_or_else(|_| number.to_string(), |signal| signal.to_string());
                Ended { how: format!("ended by {name}"), status: EXIT_SIGNAL + u8::try_from(number).unwrap_or(0) }
            }
        },
        Err(e) => Ended { how: format!("its end was not seen: {e}"), status: 1 },
    }
}

fn exit_of_signal(signal: Signal) -> u8 {
    EXIT_SIGNAL + u8::try_from(signal as i32).unwrap_or(0)
}

fn handoff(status: Option<&str>, words: &[String], ended: &Ended) -> Handoff {
    let command = words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
    let ran = format!("ran `{command}`: {}", ended.how);
    let next = if ended.status == 0 { "go on".to_owned() } else { format!("see why `{command}` failed") };
    Handoff {
        status: status.map_or_else(|| ran.clone(), |status| format!("{status}\n{ran}")),
        next_action: next,
        artifacts: Vec::new(),
        open_questions: Vec::new(),
        do_not: Vec::new(),
    }
}

async fn release(session: &mut LiveSession, turn: &Turn, handoff: &Handoff) -> Result<(), CommandError> {
    let handoff = RawJson::of(handoff)
        .map_err(|e| CommandError::Refused(Error::new(ErrorCode::InvalidHandoff, e.to_string())))?;
    let request = ReleaseStick {
        room_id: session.room_id.clone(),
        lease_id: turn.lease_id.clone(),
        expected_turn_id: turn.turn_id,
        handoff,
        idempotency_key: fresh_key(),
    };
    session.client.call(request).await?;
    Ok(())
}

/// Releases a turn that was granted in the moment in which the wait was given up.
async fn give_back(context: &Context, path: PathArg) -> Result<(), CommandError> {
    let mut session = LiveSession::find(context, path).await?;
    let give_up = Instant::now() + WAIT_END_TIMEOUT;
    // A member has one wait at a time. Another one that takes no turn is let in once the first has ended, with or without one.
    let after_wait = || WaitForTurn {
        room_id: session.room_id.clone(),
        max_wait_ms: Some(0),
        park: Some(true),
        ..Default::default()
    };
    while let Err(e) = session.client.call(after_wait()).await
        && e.code == ErrorCode::DuplicateListener
        && Instant::now() < give_up
    {
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
    let Some(turn) = held_turn(&mut session).await? else { return Ok(()) };
    if came_by_takeover(&mut session, turn.turn_id).await? {
        return Ok(());
    }
    let nothing = Ended { how: "it was not started".into(), status: 1 };
    release(&mut session, &turn, &handoff(None, &["tt run".to_owned()], &nothing)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kick_ends_the_turn_and_a_lost_daemon_does_not() {
        let codes = [ErrorCode::Kicked, ErrorCode::StaleLease, ErrorCode::DaemonUnreachable, ErrorCode::OutcomeUnknown];
        assert_eq!(codes.map(ends_turn), [true, true, false, false]);
    }

    #[test]
    fn the_handoff_names_the_command_and_how_it_ended() {
        let words = ["make".to_owned(), "test".to_owned()];
        let good = handoff(Some("parser done"), &words, &ended(Ok(ExitStatus::from_raw(0))));
        assert_eq!(good.status, "parser done\nran `make test`: exit status 0");
        let script = ["sh".to_owned(), "-c".to_owned(), "make; make test".to_owned()];
        let quoted = handoff(None, &script, &ended(Ok(ExitStatus::from_raw(0))));
        assert_eq!(quoted.status, "ran `sh -c 'make; make test'`: exit status 0");
        let bad = ended(Ok(ExitStatus::from_raw(7 << 8)));
        assert_eq!((bad.status, handoff(None, &words, &bad).next_action.as_str()), (7, "see why `make test` failed"));
        let interrupted = ended(Ok(ExitStatus::from_raw(2)));
        assert_eq!((interrupted.status, interrupted.how.as_str()), (130, "ended by SIGINT"));
    }
}
