"""Stand-ins for the two model services, on loopback. A script says what the model does next; every request is kept, so that a
test can look at what the model was really shown."""
import http.server
import json
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

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
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
