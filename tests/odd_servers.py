"""Servers that misbehave, on a port of this machine. A real one is in test_real_server.py.

`serving(answer)` runs one in a thread; `answer` gets the path, the headers and the body of a
request, and returns a status, a content type and a text.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Answer = tuple[int, str, str]
JSON = "application/json"


@contextmanager
def serving(answer: Callable[[str, Any, dict[str, Any]], Answer]) -> Iterator[str]:
    """Yield the address, with /v1."""

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            status, kind, text = answer(self.path, self.headers, json.loads(body or b"{}"))
            content = text.encode()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            with suppress(ConnectionError):  # the client did not wait
                self.wfile.write(content)

        do_GET = do_POST = respond  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def models(*names: str) -> Answer:
    """The list of a server's models."""
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "a"} for name in names]
    return 200, JSON, json.dumps({"object": "list", "data": data})


def completion(model: str, text: str, **fields: Any) -> Answer:
    """A text as the completions protocol carries it."""
    choice = {"index": 0, "text": text, "finish_reason": "length", "logprobs": None}
    choice |= fields.pop("choice", {})
    usage = {"prompt_tokens": 3, "completion_tokens": len(text), "total_tokens": 3 + len(text)}
    entry = {"id": "1", "object": "text_completion", "created": 0, "model": model}
    return 200, JSON, json.dumps(entry | {"choices": [choice], "usage": usage} | fields)


def echo(path: str, _: Any, body: dict[str, Any]) -> Answer:
    """A server that continues a prompt with its letters backwards."""
    if path.endswith("/models"):
        return models("backwards")
    prompt = body.get("prompt") or body["messages"][0]["content"]
    text = prompt[::-1] if isinstance(prompt, str) else "ids"
    return completion("backwards", text)
