"""Answers every connection and every datagram, on each of some ports, with a name and the client's address."""

import selectors
import socket
import sys

name, ports = sys.argv[1], [int(port) for port in sys.argv[2:]]
selector = selectors.DefaultSelector()
for port in ports:
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("0.0.0.0", port))
    selector.register(datagrams, selectors.EVENT_READ)
    selector.register(socket.create_server(("0.0.0.0", port), backlog=512), selectors.EVENT_READ)
print("serving", flush=True)
while True:
    for key, _ in selector.select():
        try:
            if key.fileobj.type == socket.SOCK_DGRAM:
                _, client = key.fileobj.recvfrom(100)
                key.fileobj.sendto(f"{name} {client[0]}".encode(), client)
            else:
                connection, client = key.fileobj.accept()
                connection.sendall(f"{name} {client[0]}\n".encode())
                connection.close()
        except OSError:
            # A client that has gone.
            pass
