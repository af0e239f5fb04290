#!/usr/bin/env python3
"""A small file server on 127.0.0.1 for the download test: GET and HEAD, with byte ranges.

usage: range_server.py FOLDER PORT_FILE

Serves the files of FOLDER on a free port and writes the port number to PORT_FILE.  Every answer
has the file's sha256 as X-Linked-Etag, as Hugging Face's have.  Each request is noted on a line
of FOLDER/requests.log: method, path, Range header or "-".
"""

import hashlib
import http.server
import os
import re
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET and HEAD for plain files in one folder."""

    protocol_version = "HTTP/1.1"
    folder = "."

    def answer(self, with_body):
        """Send a file, or the part of it that the Range header asks for."""
        wanted = self.headers.get("Range", "-")
        with open(os.path.join(self.folder, "requests.log"), "a", encoding="ascii") as log:
            log.write("%s %s %s\n" % (self.command, self.path, wanted))
        path = os.path.join(self.folder, os.path.basename(self.path))
        if not os.path.isfile(path):
            self.send_error(404)
            return
        with open(path, "rb") as stream:
            body = stream.read()
        digest = hashlib.sha256(body).hexdigest()
        match = re.match(r"bytes=(\d+)-$", wanted)
        size = len(body)
        if match and int(match.group(1)) >= size:
            self.send_response(416)
            self.send_header("Content-Range", "bytes */%d" % size)
            body = b""
        elif match:
            first = int(match.group(1))
            self.send_response(206)
            self.send_header("Content-Range", "bytes %d-%d/%d" % (first, size - 1, size))
            body = body[first:]
        else:
            self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("X-Linked-Etag", '"%s"' % digest)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def do_GET(self):
        """Answer a GET request."""
        self.answer(True)

    def do_HEAD(self):
        """Answer a HEAD request."""
        self.answer(False)

    def log_message(self, *_):
        """Keep stderr quiet."""


def main():
    """Serve until killed."""
    Handler.folder = sys.argv[1]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with open(sys.argv[2] + ".new", "w", encoding="ascii") as stream:
        stream.write("%d\n" % server.server_address[1])
    os.rename(sys.argv[2] + ".new", sys.argv[2])
    server.serve_forever()


if __name__ == "__main__":
    main()
