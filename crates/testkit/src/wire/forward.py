"""Carries connections to an address of this network namespace to a unix socket, which all namespaces share."""

import socket
import sys
import threading


def carry(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


host, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
listener = socket.create_server((host, port), backlog=128)
print("listening", flush=True)
while True:
    client, _ = listener.accept()
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(path)
    except OSError:
        client.close()
        continue
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for pair in ((client, server), (server, client)):
        threading.Thread(target=carry, args=pair, daemon=True).start()
