"""Stand-ins for the model services, on loopback. A script says what the model does next; every request is kept, so that a
test can look at what the model was really shown."""
import http.server
import json
import re
import sys
import threading


class Model:
    """One scripted model. `script` is a generator function: it yields steps and is sent what the tool answered.

    A step is ("call", tool, arguments) or ("say", text). A script may block, bounded, to meet the other one's."""

    def __init__(self, name, script):
        self.name, self.requests, self.failure = name, [], None
        self.turns = script()
        self.started = False
        self.lock = threading.Lock()
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.answer(b'{"object":"list","data":[],"models":[]}', "application/json")

            do_HEAD = do_GET

            def do_POST(self):
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                try:
                    request = json.loads(raw)
                except ValueError:
                    request = {}
                body, kind = model.respond(self.path, request)
                self.answer(body, kind)

            def answer(self, body, kind):
                try:
                    self.send_response(200)
                    self.send_header("content-type", kind)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(body)
                except OSError:
                    pass  # the harness was killed in the middle, as one test means it to be

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                if not isinstance(sys.exc_info()[1], ConnectionError):  # a harness that is killed, as tests do
                    super().handle_error(*_)

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def next_step(self, shown):
        with self.lock:
            try:
                step = self.turns.send(shown if self.started else None)
                self.started = True
                return step
            except StopIteration:
                return ("say", "done")
            except Exception as failure:  # told to the test, which is not in this thread
                self.failure = self.failure or failure
                return ("say", f"the script failed: {failure!r}")


def stream(events):
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode(), "text/event-stream"


class Anthropic(Model):
    """The Messages API, as Claude Code speaks it."""

    def respond(self, path, request):
        if "count_tokens" in path:
            return b'{"input_tokens":1}', "application/json"
        if not path.startswith("/v1/messages"):
            return b"{}", "application/json"
        # Titles and summaries are asked for without tools; they are not the conversation.
        if not any(tool.get("name") == "Bash" for tool in request.get("tools", [])):
            step = ("say", "ok")
        else:
            self.requests.append(request)
            step = self.next_step(self.tool_result(request))
        head = {"id": f"msg_{len(self.requests)}", "type": "message", "role": "assistant", "content": [], "stop_reason": None,
                "model": request.get("model", "m"), "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
        if step[0] == "call":
            block = {"type": "tool_use", "id": f"toolu_{len(self.requests)}", "name": step[1], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(step[2])}
        else:
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": step[1]}
        return stream([
            {"type": "message_start", "message": head},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "usage": {"output_tokens": 1},
             "delta": {"stop_reason": "tool_use" if step[0] == "call" else "end_turn", "stop_sequence": None}},
            {"type": "message_stop"}])

    @staticmethod
    def tool_result(request):
        for message in reversed(request.get("messages", [])):
            content = message.get("content")
            for block in reversed(content if isinstance(content, list) else []):
                if block.get("type") == "tool_result":
                    inner = block.get("content")
                    if isinstance(inner, list):
                        return "\n".join(part.get("text", "") for part in inner)
                    return inner or ""
        return ""


class Responses(Model):
    """The Responses API, as Codex speaks it."""

    def respond(self, path, request):
        if not path.endswith("/responses"):
            return b"{}", "application/json"
        self.requests.append(request)
        step = self.next_step(self.tool_result(request))
        number = len(self.requests)
        if step[0] == "call":
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "arguments": json.dumps(step[2]),
                    **self.address(request, step[1])}
        else:
            item = {"type": "message", "id": f"m_{number}", "role": "assistant",
                    "content": [{"type": "output_text", "text": step[1], "annotations": []}]}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": None, "output_tokens_details": None}
        response = {"id": f"resp_{number}"}
        return stream([
            {"type": "response.created", "response": response},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {**response, "usage": usage}}])

    @staticmethod
    def address(request, wanted):
        """How the request names a tool: flat, or inside a namespace."""
        for tool in request.get("tools", []):
            if tool.get("type") == "namespace":
                for inner in tool.get("tools", []):
                    if inner.get("name", "").endswith(wanted):
                        return {"name": inner["name"], "namespace": tool["name"]}
            elif tool.get("name", "").endswith(wanted):
                return {"name": tool["name"]}
        shown = [(tool.get("type"), tool.get("name")) for tool in request.get("tools", [])]
        raise AssertionError(f"no tool {wanted} among {shown}")

    @staticmethod
    def tool_result(request):
        for item in reversed(request.get("input", [])):
            if isinstance(item, dict) and item.get("type", "").endswith("call_output"):
                output = item.get("output")
                if isinstance(output, list):
                    return "\n".join(part.get("text", "") for part in output)
                return output if isinstance(output, str) else json.dumps(output)
        return ""


class Obedient:
    """Does what the last prompt says that has lines `call TOOL {arguments}`: one call after another, then it says "done". It keeps
    nothing in mind, so any number of sessions and subagents can talk to it at once. `shown` has what each numbered prompt was shown."""

    def __init__(self, name):
        self.shown, self.conversation = {}, threading.local()
        super().__init__(name, lambda: iter(()))

    def respond(self, path, request):
        self.conversation.request = request
        return super().respond(path, request)

    def next_step(self, _):
        if not self.conversation.request.get("tools"):
            return ("say", "ok")  # a title or a summary
        calls, marker, results = [], None, []
        for kind, text in self.entries(self.conversation.request):
            found = re.findall(r"^call (\S+) (\{.*\})$", text, re.M) if kind == "user" else []
            if found:
                calls, marker, results = found, (re.findall(r"^#([\w-]+)$", text, re.M) or [None])[0], []
            elif kind == "result":
                results.append(text)
        if len(results) < len(calls):
            name, arguments = calls[len(results)]
            return ("call", name, json.loads(arguments))
        if marker:
            self.shown[marker] = results
        return ("say", "done")


def text_of(content):
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else json.dumps(content)


class ObedientAnthropic(Obedient, Anthropic):
    @staticmethod
    def entries(request):
        for message in request.get("messages", []):
            content = message.get("content")
            blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
            for block in blocks:
                if block.get("type") == "tool_result":
                    yield "result", text_of(block.get("content") or "")
                elif block.get("type") == "text" and message.get("role") == "user":
                    yield "user", block["text"]


class ObedientResponses(Obedient, Responses):
    @staticmethod
    def entries(request):
        for item in request.get("input", []):
            if item.get("type", "").endswith("call_output"):
                yield "result", text_of(item.get("output") or "")
            elif item.get("role") == "user":
                yield "user", text_of(item.get("content") or "")


class Gemini(Model):
    """`streamGenerateContent`, as Gemini CLI speaks it."""

    def respond(self, path, request):
        if "countTokens" in path:
            return b'{"totalTokens":1}', "application/json"
        if "enerateContent" not in path:
            return b"{}", "application/json"
        request["tools"] = [tool for tools in request.get("tools") or [] for tool in tools.get("functionDeclarations", [])]
        self.requests.append(request)
        step = self.next_step("")
        if step[0] == "call":
            part = {"functionCall": {"name": name_of(request["tools"], step[1]), "args": step[2]}}
        else:
            part = {"text": step[1]}
        answer = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
                  "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
                  "modelVersion": "stand-in", "responseId": f"r{len(self.requests)}"}
        text = json.dumps(answer)
        if "stream" in path:
            return f"data: {text}\n\n".encode(), "text/event-stream"
        return text.encode(), "application/json"


class ObedientGemini(Obedient, Gemini):
    @staticmethod
    def entries(request):
        for content in request.get("contents", []):
            for part in content.get("parts", []):
                if "functionResponse" in part:
                    yield "result", "\n".join(texts_in(part["functionResponse"].get("response")))
                elif "text" in part and content.get("role") == "user":
                    yield "user", part["text"]


class Chat(Model):
    """Chat completions, as OpenCode speaks them to a provider that is compatible with OpenAI."""

    def respond(self, path, request):
        if not path.endswith("/chat/completions"):
            return b"{}", "application/json"
        self.requests.append(request)
        number, step = len(self.requests), self.next_step("")
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": f"c{number}", "created": 1, "model": request.get("model", "m"), "usage": usage}
        message, reason = {"role": "assistant", "content": step[1]}, "stop"
        if step[0] == "call":
            function = {"name": name_of([tool.get("function", {}) for tool in request["tools"]], step[1]), "arguments": json.dumps(step[2])}
            message, reason = {"role": "assistant", "tool_calls": [{"index": 0, "id": f"call_{number}", "type": "function", "function": function}]}, "tool_calls"
        if not request.get("stream"):
            whole = {**head, "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": reason}]}
            return json.dumps(whole).encode(), "application/json"
        chunks = [{**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
                  {**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}]
        return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode() + b"data: [DONE]\n\n", "text/event-stream"


class ObedientChat(Obedient, Chat):
    @staticmethod
    def entries(request):
        for message in request.get("messages", []):
            if message.get("role") == "tool":
                yield "result", text_of(message.get("content") or "")
            elif message.get("role") == "user":
                yield "user", text_of(message.get("content") or "")


def name_of(tools, wanted):
    """How a request names a tool that may have its server's name in front."""
    names = [tool.get("name", "") for tool in tools]
    found = next((name for name in names if name == wanted or name.endswith("_" + wanted)), None)
    assert found, f"no tool {wanted} among {names}"
    return found


def texts_in(value):
    """All texts in a JSON value."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in inner for text in texts_in(part)]
