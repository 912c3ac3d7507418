"""An echo server that takes a thread for each connection, as many servers and most textbooks do."""

import socketserver
import sys
import threading

# the default of 8 MiB is address space only, but some limits count it
threading.stack_size(256 * 1024)


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    # a thread that has ended is forgotten
    block_on_close = False
    request_queue_size = 4096


if __name__ == "__main__":
    with Server(("127.0.0.1", int(sys.argv[1])), Echo) as server:
        server.serve_forever()
