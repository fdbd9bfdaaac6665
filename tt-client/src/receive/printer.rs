//! Prints messages as they are taken, one line each, for `tt msg recv`.

use std::collections::BTreeSet;
use std::time::Duration;

use tt_proto::AgentId;
use tt_proto::delivery::Surface;
use tt_proto::event::Event;
use tt_proto::requests::{Skipped, Taken};

use super::{Receipt, TakeOptions};
use crate::error::CommandError;
use crate::follow::{LineWrite, WriteResult};
use crate::live_session::LiveSession;
use crate::text::{Style, names::Names, render};

/// How long a command that was told to end waits for the line that is being written.
const LAST_LINE_TIMEOUT: Duration = Duration::from_millis(200);

/// How long a command that was told to end waits for the daemon to confirm what was shown.
const LAST_CONFIRM_TIMEOUT: Duration = Duration::from_secs(1);

/// Takes messages, prints them, and confirms those that were written. A call that is dropped in the middle leaves nothing
/// behind that [`InboxPrinter::finish`] does not settle.
pub(crate) struct InboxPrinter {
    pub session: LiveSession,
    receipt: Receipt,
    writing: Option<(LineWrite, Item)>,
    /// The number of the last message that was written.
    pub cursor: i64,
    /// Where a person reads on in the log. Each of its terminals has its own, so that all of them show everything.
    log_cursor: Option<i64>,
    /// Where the log goes on after the inbox, as the first look at it said. It becomes `log_cursor` when the inbox is read.
    inbox_end: Option<i64>,
    /// Messages that came after the first look and were shown from the inbox all the same.
    shown_ahead: BTreeSet<i64>,
}

/// What a line shows.
enum Item {
    Message(Box<Event>),
    /// A note about the messages with these numbers.
    Skipped(Vec<i64>),
}

/// What one round has printed.
pub(crate) struct Round {
    /// Whether there was nothing to print.
    pub is_empty: bool,
    /// Whether more is skipped in the next round: the inbox had too much for one.
    pub skips_on: bool,
    pub result: WriteResult,
}

impl InboxPrinter {
    pub(crate) fn new(session: LiveSession, surface: Surface, from: Option<AgentId>) -> Self {
        Self {
            session,
            receipt: Receipt::new(surface).only_from(from),
            writing: None,
            cursor: 0,
            log_cursor: None,
            inbox_end: None,
            shown_ahead: BTreeSet::new(),
        }
    }

    /// Takes the messages in the inbox, or waits for some, prints and confirms them. What could not be written stays in the
    /// inbox.
    pub(crate) async fn print(&mut self, options: TakeOptions) -> Result<Round, CommandError> {
        let taken = self.take(TakeOptions { after: self.log_cursor, ..options }).await?;
        let (read_on, inbox_is_read) = (taken.cursor_event_seq, taken.more == 0);
        let is_empty = taken.events.is_empty() && taken.skipped.is_none();
        let skips_on = taken.events.is_empty() && taken.skipped.is_some() && taken.more > 0;
        let result = self.show(taken).await?;
        match self.log_cursor {
            Some(_) => self.log_cursor = read_on.or(self.log_cursor),
            None => {
                self.inbox_end = self.inbox_end.or(read_on);
                self.log_cursor = self.inbox_end.filter(|_| inbox_is_read);
            }
        }
        self.receipt.confirm_live(&mut self.session.client).await?;
        Ok(Round { is_empty, skips_on, result })
    }

    async fn take(&mut self, options: TakeOptions) -> Result<Taken, CommandError> {
        let receipt = &self.receipt;
        if options.wait.is_zero() {
            return self.session.call(|room_id| receipt.take_request(room_id, options)).await;
        }
        let request = receipt.take_request(self.session.room_id.clone(), options);
        self.session.call_waiting(options.wait, request).await
    }

    async fn show(&mut self, taken: Taken) -> Result<WriteResult, CommandError> {
        let output = self.session.output.clone();
        let names = if taken.events.is_empty() { Names::default() } else { self.session.names().await? };
        let skipped = Some(taken.skipped_seqs).filter(|seqs| !seqs.is_empty()).map(Item::Skipped);
        // One that was shown before, and could not be confirmed then, is only confirmed now.
        let mut new = taken.events;
        new.retain(|event| !self.receipt.contains(event));
        match (self.log_cursor, self.inbox_end) {
            (None, Some(end)) => self.shown_ahead.extend(new.iter().map(|e| e.event_seq).filter(|seq| *seq > end)),
            _ => new.retain(|event| !self.shown_ahead.remove(&event.event_seq)),
        }
        let messages = new.into_iter().map(|event| Item::Message(Box::new(event)));
        for item in skipped.into_iter().chain(messages) {
            let writing = match &item {
                Item::Message(event) => {
                    LineWrite::start(&output, &**event, |event, style| render::event(event, &names, style))?
                }
                Item::Skipped(seqs) => LineWrite::start(&output, &Skipped::of(seqs), skipped_text)?,
            };
            self.writing = Some((writing, item));
            if self.finish_line().await? == WriteResult::ReaderGone {
                return Ok(WriteResult::ReaderGone);
            }
        }
        Ok(WriteResult::Written)
    }

    /// Waits for the line that is being written and records that it was shown.
    async fn finish_line(&mut self) -> Result<WriteResult, CommandError> {
        let Some((writing, _)) = &mut self.writing else { return Ok(WriteResult::Written) };
        let result = writing.result().await?;
        match self.writing.take().filter(|_| result == WriteResult::Written) {
            Some((_, Item::Message(event))) => {
                self.cursor = self.cursor.max(event.event_seq);
                self.receipt.mark_shown(&event);
            }
            Some((_, Item::Skipped(seqs))) => self.receipt.mark_seqs_shown(&self.session.room_id, &seqs),
            None => {}
        }
        Ok(result)
    }

    /// Confirms what was shown before the command was told to end. What the daemon does not hear is shown again.
    pub(crate) async fn finish(&mut self) {
        // The line that is being written may have reached the reader. A reader that does not read has not seen it.
        let _ = tokio::time::timeout(LAST_LINE_TIMEOUT, self.finish_line()).await;
        let _ = tokio::time::timeout(LAST_CONFIRM_TIMEOUT, self.settle()).await;
    }

    /// Confirms what was shown and could not be confirmed yet, before the command ends.
    pub(crate) async fn settle(&mut self) -> Result<(), CommandError> {
        Ok(self.receipt.settle_live(&mut self.session.client).await?)
    }
}

fn skipped_text(skipped: &Option<Skipped>, style: &Style) -> String {
    let Some(skipped) = skipped else { return String::new() };
    style.dim(&format!(
        "{} older messages are not shown; read them with: tt msg recv --after {}",
        skipped.skipped,
        skipped.from_seq - 1
    ))
}
