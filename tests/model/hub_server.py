"""A Hugging Face hub of a few small repositories: hub_server.py REPOSITORIES PORT_FILE LOG.

REPOSITORIES holds OWNER/MODEL/files. Each request is a line of the log: its path and its Range. A file whose name begins
with "damaged" comes with one byte changed, one with "broken" loses its connection after half of what is asked for.
"""
import hashlib
import http.server
import json
import os
import sys

ROOT, PORT_FILE, LOG = sys.argv[1:]
COMMIT = "0123456789abcdef" * 2 + "01234567"


def files_of(repository):
    folder = os.path.join(ROOT, repository)
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            yield name, file.read()


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=(), length=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        with open(LOG, "a") as log:
            print(self.command, self.path, self.headers.get("Range", "-"), file=log)
        parts = self.path.strip("/").split("?")[0].split("/")
        repository = "/".join(parts[2:4] if parts[:2] == ["api", "models"] else parts[:2])
        if not os.path.isdir(os.path.join(ROOT, repository)):
            return self.answer(404, b'{"error": "Repository not found"}')
        if parts[-1] == "refs":
            return self.answer(200, json.dumps({"branches": [{"name": "main", "targetCommit": COMMIT}]}).encode())
        if "tree" in parts:
            entries = [{"type": "file", "path": name, "size": len(data),
                        "lfs": {"oid": hashlib.sha256(data).hexdigest()}} for name, data in files_of(repository)]
            return self.answer(200, json.dumps(entries).encode())
        name = parts[-1]
        data = dict(files_of(repository)).get(name)
        if data is None:
            return self.answer(404)
        if name.startswith("damaged"):
            data = data[:-1] + bytes([data[-1] ^ 1])
        headers = [("Accept-Ranges", "bytes"), ("ETag", '"x"')]
        if "Range" not in self.headers:
            status, wanted = 200, data
        else:
            begin = int(self.headers["Range"].split("=")[1].split("-")[0])
            status, wanted = 206, data[begin:]
            headers.append(("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}"))
        if name.startswith("broken") and self.command == "GET" and len(wanted) > 2000:
            self.answer(status, wanted[: len(wanted) // 2], headers, len(wanted))
            self.close_connection = True
            return None
        return self.answer(status, wanted, headers)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
with open(PORT_FILE + ".new", "w") as file:
    file.write(str(server.server_address[1]))
os.rename(PORT_FILE + ".new", PORT_FILE)
server.serve_forever()
