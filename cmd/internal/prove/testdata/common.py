"""What the programs of the test share: a server, a client of Redis, and the effect."""
import json, os, socket, threading, urllib.parse, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

local = threading.local()


def redis(*args):
    """Sends one command to Redis and returns its simple, integer or bulk reply."""
    if not hasattr(local, "file"):
        host, port = os.environ["TEST_REDIS"].split(":")
        local.file = socket.create_connection((host, int(port))).makefile("rwb")
    f = local.file
    parts = [str(a).encode() for a in args]
    f.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
    f.flush()
    line = f.readline().rstrip()
    if line[:1] != b"$":
        return line[1:].decode()
    size = int(line[1:])
    return None if size < 0 else f.read(size + 2)[:-2].decode()


def effect(id):
    url = os.environ["EFFECTS_URL"] + "?id=" + urllib.parse.quote(id)
    urllib.request.urlopen(urllib.request.Request(url, method="POST")).read()


def serve(handle):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            handle(body["id"])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
