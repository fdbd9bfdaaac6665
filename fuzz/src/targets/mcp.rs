//! Lines that a harness sends to `tt mcp`: every request has one answer, nothing else is written, and nothing hides in it.
//!
//! An input is the name of a method on one line and its parameters below, or one line that is sent as it is.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tt_proto::escape::is_harmless;

use super::tool_arguments::parameters;
use crate::daemon::Daemon;
use crate::generate::{json, json_string, object};
use crate::{Random, Target, Verdict, ensure};

/// A new server is started after this many lines.
const LINES_PER_SERVER: u64 = 200;

/// How much the harness and the server can write before the other reads.
const PIPE_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Mcp {
    lines: u64,
    open: Option<Open>,
}

struct Open {
    harness: Harness,
    tasks: tokio::task::LocalSet,
    runtime: tokio::runtime::Runtime,
    room: String,
    daemon: Daemon,
}

/// The harness's end of the pipe.
struct Harness {
    input: WriteHalf<DuplexStream>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    calls: u64,
}

impl Target for Mcp {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let tool = random.pick(&tt_client::fuzz::tool_names());
        let arguments = parameters(random, tool);
        let arguments = object(random, &arguments);
        let (method, parameters) = match random.below(8) {
            0 => ("ping", json(random, 2)),
            1 => ("tools/list", json(random, 2)),
            2 => ("resources/list", "{}".into()),
            3 => ("tools/call", json(random, 3)),
            _ => ("tools/call", format!(r#"{{"name":{},"arguments":{arguments}}}"#, json_string(tool))),
        };
        format!("{method}\n{parameters}").into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let text = String::from_utf8_lossy(input);
        // Waits take as long as they say, by default most of a minute.
        if text.contains("wait_for") {
            return Ok(Verdict::Refused);
        }
        if self.lines.is_multiple_of(LINES_PER_SERVER) {
            self.open = None;
        }
        self.lines += 1;
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(Open::new()?),
        };
        let verdict = open.exchange(&text);
        if verdict.is_err() {
            self.open = None;
        }
        verdict
    }
}

impl Open {
    fn new() -> Result<Self, String> {
        let daemon = Daemon::start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let tasks = tokio::task::LocalSet::new();
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (input, output) = tokio::io::split(theirs);
        tasks.spawn_local(tt_client::fuzz::serve_mcp(daemon.settings(), input, output));
        let (output, input) = tokio::io::split(ours);
        let mut harness = Harness { input, output: BufReader::new(output).lines(), calls: 0 };
        let room = tasks.block_on(&runtime, async {
            let client = json!({"name": "fuzz", "version": "1"});
            let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
            harness.request("initialize", &hello.to_string()).await?;
            harness.line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await?;
            let join = json!({"name": "join_path", "arguments": {"context_path": daemon.workspace()}});
            let joined = harness.request("tools/call", &join.to_string()).await?;
            let room = joined["result"]["structuredContent"]["room_id"].as_str().map(str::to_owned);
            room.ok_or_else(|| format!("no room: {joined}"))
        })?;
        Ok(Self { harness, tasks, runtime, room, daemon })
    }

    fn exchange(&mut self, input: &str) -> Result<Verdict, String> {
        let home = self.daemon.workspace().parent().map(|dir| dir.display().to_string()).unwrap_or_default();
        let input = input.replace("@room", &self.room).replace("@home", &home).replace("@agent", "fuzz");
        let harness = &mut self.harness;
        self.tasks.block_on(&self.runtime, async {
            // Parameters are an object; with others it is not a message of MCP, which the library passes over.
            let call = input
                .split_once('\n')
                .filter(|(_, params)| serde_json::from_str::<Value>(params).is_ok_and(|params| params.is_object()));
            let Some((method, params)) = call else {
                // Whatever it is, the next request is answered.
                harness.line(&input.replace(['\n', '\r'], " ")).await?;
                harness.request("ping", "{}").await?;
                return Ok(Verdict::Refused);
            };
            let params = params.replace(['\n', '\r'], " ");
            let answer = harness.request(method, &params).await?;
            let result = &answer["result"];
            for part in result["content"].as_array().into_iter().flatten() {
                let text = part["text"].as_str().unwrap_or_default();
                ensure!(text.split('\n').all(is_harmless), "a model reads {text:?}");
            }
            let mut visible = result["structuredContent"].clone();
            tt_proto::escape::escape_value(&mut visible);
            ensure!(visible == result["structuredContent"], "something hides in {answer}");
            if result["isError"] == true {
                let error = &result["structuredContent"];
                let has = |field: &str| error[field].as_str().is_some_and(|text| !text.is_empty());
                ensure!(has("error") && has("message") && has("hint"), "an error without a way out: {answer}");
            }
            Ok(if result.is_object() && result["isError"] != true { Verdict::Accepted } else { Verdict::Refused })
        })
    }
}

impl Harness {
    async fn line(&mut self, line: &str) -> Result<(), String> {
        self.input.write_all(format!("{line}\n").as_bytes()).await.map_err(|e| format!("the server is gone: {e}"))
    }

    /// Sends a request and returns its answer, which is the only one.
    async fn request(&mut self, method: &str, params: &str) -> Result<Value, String> {
        self.calls += 1;
        let id = self.calls;
        self.line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{},"params":{params}}}"#, Value::from(method)))
            .await?;
        loop {
            let line = tokio::time::timeout(tt_tests::LIMIT, self.output.next_line()).await;
            let line = line.map_err(|_| "no answer")?.map_err(|e| e.to_string())?.ok_or("the server ended")?;
            let message: Value = serde_json::from_str(&line).map_err(|e| format!("{e}: {line}"))?;
            ensure!(message["jsonrpc"] == "2.0", "not a message: {line}");
            if message["id"] == id {
                return Ok(message);
            }
            ensure!(message["id"].as_u64().is_none_or(|other| other > id), "a second answer: {line}");
        }
    }
}
