//! Makes tool calls: from the arguments to the answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use jsonrpsee::core::ClientError;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, InitializeResult,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tt_proto::escape::{escape_json, escape_value};
use tt_proto::event::{Event, EventType};
use tt_proto::requests::{JoinPath, LeaveRoom, Method, WaitForTurn};
use tt_proto::{Error, ErrorCode, RoomId, VERSION};

use super::assumed::{HeldTurns, hint_for_tools, name_room_here};
use super::caller::Callers;
use super::inbox::AnswerInbox;
use super::shown::ShownMessages;
use super::tools::{ALL, Kind, ToolSpec};
use super::transport::WrittenAnswers;
use crate::connect::{Client, DEADLINE, Rpc};
use crate::session::fresh_key;

/// The longest a tool call takes: some harnesses give up after a minute.
const MAX_CALL_TIME: Duration = Duration::from_secs(50);

/// The longest the daemon is asked to wait, so that its answer arrives in time.
const MAX_WAIT: Duration = Duration::from_secs(48);

/// How long reading the inbox may take after a call. What is late comes with the next answer.
const INBOX_TIMEOUT: Duration = Duration::from_secs(3);

/// When the answer is sent even if the inbox was not read, counted from the start of the call: before the harness gives up.
const INBOX_DEADLINE: Duration = Duration::from_millis(49_500);

/// An equal call within this time repeats the one that got no answer, as the caller was told to. After it, the call is a
/// new one.
const RETRY_WINDOW: Duration = Duration::from_secs(5 * 60);

/// How often a harness that asked for it is told that a wait continues.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

const INSTRUCTIONS: &str = "Several agents and people may share this workspace. join_path once; hold the stick \
    (wait_for_turn) while you change files; release_stick with a handoff when you stop. Answers may carry an inbox of \
    messages from other members.";

pub(super) struct Server {
    callers: Callers,
    written: WrittenAnswers,
    unsettled: Unsettled,
    held: HeldTurns,
    shown: ShownMessages,
    /// The harness has closed its end.
    closed: watch::Receiver<bool>,
    /// Held by everything that must be finished before the process ends.
    unfinished: mpsc::Sender<()>,
}

impl Server {
    pub(super) fn new(
        callers: Callers,
        written: WrittenAnswers,
        closed: watch::Receiver<bool>,
        unfinished: mpsc::Sender<()>,
    ) -> Self {
        let (unsettled, held, shown) = (Unsettled::default(), HeldTurns::default(), ShownMessages::default());
        Self { callers, written, unsettled, held, shown, closed, unfinished }
    }

    /// Makes the call and composes its answer.
    async fn answer(&self, request: CallToolRequestParams, context: &RequestContext<RoleServer>) -> CallToolResult {
        let started = Instant::now();
        let meta = serde_json::to_value(&context.meta).unwrap_or_default();
        let client_info = context.client_info().map(|client| client.name);
        let mut client = match self.callers.connect(client_info, &meta).await {
            Ok(client) => client,
            Err(e) => return compose(Err(e), None),
        };
        let mut inbox = AnswerInbox::new(client.welcome().identity.agent_id.clone(), self.shown.clone());
        let outcome = self.make(&mut client, request, context, started, &mut inbox).await;
        // The harness does not read the answer, or no daemon answers: what was taken goes back with the connection.
        let is_unreachable = outcome.as_ref().is_err_and(|e| e.code == ErrorCode::DaemonUnreachable);
        if context.ct.is_cancelled() || is_unreachable {
            return compose(outcome, None);
        }
        let read_inbox = async {
            inbox.collect(&mut client).await;
            inbox.return_unshown(&mut client).await;
        };
        // A call that was made must not be reported as failed because reading the inbox hangs. What was taken and did not
        // arrive goes back with the connection.
        let _ =
            tokio::time::timeout_at((Instant::now() + INBOX_TIMEOUT).min(started + INBOX_DEADLINE), read_inbox).await;
        let result = compose(outcome, Some(&inbox));
        if inbox.has_receipt() {
            self.confirm_once_written(client, inbox, context);
        }
        result
    }

    async fn make(
        &self,
        client: &mut Client,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        started: Instant,
        inbox: &mut AnswerInbox,
    ) -> Result<Value, Error> {
        let tool = ToolSpec::named(&request.name).ok_or_else(|| {
            let names: Vec<&str> = ALL.iter().map(|tool| tool.name).collect();
            Error::new(ErrorCode::InvalidInput, format!("there is no tool called {:?}", request.name))
                .hint(format!("the tools are {}", names.join(", ")))
        })?;
        let mut arguments = tool.named_arguments(request.arguments.unwrap_or_default())?;
        let joins_here = tool.name == JoinPath::NAME && tool.lacks("context_path", &arguments);
        self.held.fill_in(client, tool, &mut arguments).await?;
        let mut arguments = tool.arguments(arguments)?;
        if tool.name == LeaveRoom::NAME
            && let Some(room) = arguments.get("room_id").and_then(Value::as_str)
        {
            // Afterwards the caller is not a member any more, and has no inbox.
            inbox.collect_from(client, &room.into()).await;
        }
        if tool.name == WaitForTurn::NAME {
            arguments.entry("include_events").or_insert(true.into());
        }
        let made = match tool.kind {
            Kind::Wait => self.wait(client, tool, "max_wait_ms", arguments.clone(), context, started).await,
            Kind::Write => {
                let caller = client.welcome().identity.agent_id.to_string();
                let what = [caller, tool.name.to_owned(), Value::from(arguments.clone()).to_string()];
                let write = self.unsettled.begin(what);
                arguments.insert("idempotency_key".into(), write.key.clone().into());
                let made = if arguments.contains_key("wait_ms") {
                    self.wait(client, tool, "wait_ms", arguments.clone(), context, started).await
                } else {
                    client.repeat_within(DEADLINE, async |rpc| ask(rpc, tool, &arguments).await).await
                };
                write.settle_by(&made);
                made
            }
            Kind::Read | Kind::Repeatable => {
                client.repeat_within(DEADLINE, async |rpc| ask(rpc, tool, &arguments).await).await
            }
        };
        let mut answer = made?;
        if tool.name == WaitForTurn::NAME {
            move_messages(&mut answer, inbox);
        }
        if let Some(reply) = answer.get_mut("reply") {
            // The answer, or the notice that there will be none.
            move_messages(reply, inbox);
            if let Some(reply) = reply.as_object_mut() {
                reply.retain(|_, value| !value.as_array().is_some_and(Vec::is_empty));
            }
        }
        self.held.learn(client, tool, &arguments, &answer);
        name_room_here(client, &mut answer);
        if joins_here {
            answer["room_id"] = RoomId::HERE.into();
        }
        if let Some(Value::String(hint)) = answer.get_mut("hint") {
            *hint = hint_for_tools(hint);
        }
        Ok(answer)
    }

    /// Waits for as long as the harness allows, and reports progress meanwhile. `field` says how long the caller wants to.
    async fn wait(
        &self,
        client: &mut Client,
        tool: &ToolSpec,
        field: &str,
        arguments: Map<String, Value>,
        context: &RequestContext<RoleServer>,
        started: Instant,
    ) -> Result<Value, Error> {
        let asked = arguments.get(field).and_then(Value::as_u64).map_or(MAX_WAIT, Duration::from_millis);
        let asked = asked.min(MAX_WAIT);
        let until = started + asked;
        let call = async |rpc: &Rpc| {
            // A daemon that came back in the middle is asked for the rest only.
            let left = until.saturating_duration_since(Instant::now());
            let mut arguments = arguments.clone();
            arguments.insert(field.to_owned(), u64::try_from(left.as_millis()).unwrap_or(0).into());
            ask(rpc, tool, &arguments).await
        };
        let answer = client.repeat_within(asked + DEADLINE, call);
        tokio::pin!(answer);
        let mut closed = self.closed.clone();
        let mut progress = tokio::time::interval(PROGRESS_INTERVAL);
        let token = context.meta.get_progress_token();
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                () = context.ct.cancelled() => return Err(given_up("the call was cancelled")),
                _ = closed.wait_for(|closed| *closed) => return Err(given_up("the harness has gone")),
                _ = progress.tick(), if token.is_some() => {
                    let Some(token) = token.clone() else { continue };
                    let waited = started.elapsed().min(asked).as_secs_f64();
                    let mut note = ProgressNotificationParam::new(token, waited);
                    note.total = Some(asked.as_secs_f64());
                    note.message = Some("waiting".into());
                    let _ = context.peer.notify_progress(note).await;
                }
            }
        }
    }

    /// Confirms the messages once the answer that carries them was written. The task owns the connection: what was not
    /// confirmed goes back when it ends.
    fn confirm_once_written(&self, mut client: Client, mut inbox: AnswerInbox, context: &RequestContext<RoleServer>) {
        let written = self.written.of(&context.id);
        if context.ct.is_cancelled() {
            self.written.forget(&context.id);
        }
        let unfinished = self.unfinished.clone();
        inbox.compose();
        tokio::task::spawn_local(async move {
            let is_written = written.await.is_ok();
            inbox.finish(is_written);
            if is_written {
                inbox.confirm(&mut client).await;
            }
            drop(unfinished);
        });
    }
}

/// The keys of writes that may or may not have been carried out: a daemon that stalls may still do so. The caller is told
/// to call again, and an equal call by the same caller is then the same write.
#[derive(Debug, Default)]
struct Unsettled(RefCell<HashMap<[String; 3], (String, Instant)>>);

/// One write under way. Unless it is settled, its key is kept, also when the call is dropped in the middle.
struct Write<'a> {
    unsettled: &'a Unsettled,
    what: [String; 3],
    key: String,
    settled: bool,
}

impl Unsettled {
    /// Starts a write, with the key of an earlier attempt if there is one. Two equal calls at the same time are two writes, so
    /// a key is used by one of them only.
    fn begin(&self, what: [String; 3]) -> Write<'_> {
        let mut keys = self.0.borrow_mut();
        keys.retain(|_, (_, since)| since.elapsed() < RETRY_WINDOW);
        let key = keys.remove(&what).map(|(key, _)| key).or_else(fresh_key).unwrap_or_default();
        Write { unsettled: self, what, key, settled: false }
    }
}

impl Write<'_> {
    /// Forgets the key unless the write may still be, or have been, carried out.
    fn settle_by(mut self, made: &Result<Value, Error>) {
        let unknown = [ErrorCode::DaemonUnreachable, ErrorCode::OutcomeUnknown];
        self.settled = !made.as_ref().is_err_and(|e| unknown.contains(&e.code));
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        if !self.settled {
            let (what, key) = (std::mem::take(&mut self.what), std::mem::take(&mut self.key));
            self.unsettled.0.borrow_mut().insert(what, (key, Instant::now()));
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> InitializeResult {
        let mut info = InitializeResult::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("talking-stick", VERSION);
        info.instructions = Some(INSTRUCTIONS.into());
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(ALL.iter().map(ToolSpec::listed).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // What the call held goes back with its connection.
        let answer = tokio::time::timeout(MAX_CALL_TIME, self.answer(request, &context)).await;
        let late = |_| compose(Err(given_up("the daemon did not answer in time")), None);
        Ok(answer.unwrap_or_else(late).into())
    }
}

/// Makes the call of a tool. The answer is passed on whole, with fields that only a newer daemon knows.
async fn ask(rpc: &Rpc, tool: &ToolSpec, arguments: &Map<String, Value>) -> Result<Value, ClientError> {
    rpc.request(tool.name, arguments).await
}

fn given_up(why: &str) -> Error {
    Error::new(ErrorCode::DaemonUnreachable, why).hint("call the tool again")
}

/// The messages a wait brought belong with the others; joins and leaves stay where they are.
fn move_messages(answer: &mut Value, inbox: &mut AnswerInbox) {
    let Some(events) = answer.get_mut("events").and_then(Value::as_array_mut) else { return };
    events.retain(|event| {
        let message = event["event_type"] == EventType::MessageSent.as_str();
        if message && let Ok(event) = serde_json::from_str::<Event>(&event.to_string()) {
            inbox.add(&event);
        }
        !message
    });
}

fn compose(outcome: Result<Value, Error>, inbox: Option<&AnswerInbox>) -> CallToolResult {
    let is_error = outcome.is_err();
    let mut answer = match outcome {
        Ok(answer) => answer,
        Err(e) => {
            let again = e.code == ErrorCode::DaemonUnreachable && !e.hint.contains("again");
            let hint = match hint_for_tools(&e.hint) {
                // No tool takes a key: this server keeps it for an equal call.
                _ if e.code == ErrorCode::OutcomeUnknown => {
                    "call the tool again with the same arguments; it is done once".into()
                }
                hint if again => format!("call the tool again; {hint}"),
                hint => hint,
            };
            serde_json::to_value(e.hint(hint)).unwrap_or_default()
        }
    };
    // Handoffs, notes and events are text of others too.
    let mut content = vec![ContentBlock::text(escape_json(&answer.to_string()))];
    if let Some(inbox) = inbox.filter(|inbox| !inbox.is_empty()) {
        content.push(ContentBlock::text(inbox.text()));
        if let Some(fields) = answer.as_object_mut() {
            fields.insert("inbox".into(), inbox.value());
        }
    }
    // Some harnesses show their model the structured content, decoded.
    escape_value(&mut answer);
    let mut result = if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(answer);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_whose_outcome_is_unknown_is_repeated_under_its_key() {
        let unsettled = Unsettled::default();
        let begin = || unsettled.begin(["codex:1".into(), "send_message".into(), "{}".into()]);
        let failed = |code| Err(Error::new(code, "the disk failed"));
        let write = begin();
        let key = write.key.clone();
        write.settle_by(&failed(ErrorCode::OutcomeUnknown));
        let again = begin();
        assert_eq!(again.key, key);
        again.settle_by(&failed(ErrorCode::DaemonUnreachable));
        let last = begin();
        assert_eq!(last.key, key);
        last.settle_by(&Ok(Value::Null));
        assert_ne!(begin().key, key, "the next equal call is another write");

        let told = compose(failed(ErrorCode::OutcomeUnknown), None);
        let hint = told.structured_content.unwrap()["hint"].as_str().unwrap().to_owned();
        assert!(hint.contains("call the tool again") && !hint.contains("idempotency_key"), "{hint}");
    }
}
