"""What a host of the lab does in its network namespace: `serve` answers with the host's name, the rest asks once.

A probe prints the answer, or one word for why there is none (timeout, refused, no-route) and exits with 3.
"""

import errno
import http.client
import http.server
import socket
import struct
import sys
import threading
import time
import urllib.error
import urllib.request


def serve(name, http_port, udp_port):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(name)))
            self.end_headers()
            self.wfile.write(name.encode())

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6
        # With the default of 5, a moment without CPU loses connections, and that looks like an outage of OVN.
        request_queue_size = 128

    udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    udp.bind(("::", int(udp_port)))

    def answer_datagrams():
        while True:
            _, sender = udp.recvfrom(2048)
            udp.sendto(name.encode(), sender)

    threading.Thread(target=answer_datagrams, daemon=True).start()
    Server(("::", int(http_port)), Handler).serve_forever()


def get(url, seconds, source=None):
    class Handler(urllib.request.HTTPHandler):
        def http_open(self, request):
            return self.do_open(http.client.HTTPConnection, request, source_address=source and (source, 0))

    # No proxy of the machine's environment: none of them knows the lab.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Handler)
    return opener.open(url, timeout=float(seconds)).read().decode()


def many(url, count, seconds):
    return "\n".join(get(url, seconds) for _ in range(int(count)))


def tcp(host, port, seconds):
    socket.create_connection((host, int(port)), timeout=float(seconds)).close()
    return "connected"


def udp(host, port, seconds, source=0):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.settimeout(float(seconds))
        probe.bind(("", int(source)))
        probe.connect((host, int(port)))
        probe.send(b"?")
        return probe.recv(2048).decode()


def arp(address, seconds):
    device, wanted = "eth0", socket.inet_aton(address)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806)) as raw:
        raw.bind((device, 0x0806))
        mac = raw.getsockname()[4]
        # Sender address 0.0.0.0: a probe, as of RFC 5227, which fills nobody's cache.
        raw.send(b"\xff" * 6 + mac + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1)
                 + mac + b"\0" * 4 + b"\0" * 6 + wanted)
        deadline = time.monotonic() + float(seconds)
        while True:
            raw.settimeout(max(deadline - time.monotonic(), 0.001))
            packet = raw.recv(2048)
            if packet[20:22] == b"\0\2" and packet[28:32] == wanted:
                return ":".join(f"{byte:02x}" for byte in packet[22:28])


def reason(error):
    error = getattr(error, "reason", error)
    if isinstance(error, TimeoutError):
        return "timeout"
    return {
        errno.ECONNREFUSED: "refused",
        errno.EHOSTUNREACH: "no-route",
        errno.ENETUNREACH: "no-route",
    }.get(getattr(error, "errno", None), str(error))


verb, *arguments = sys.argv[1:]
try:
    print({"serve": serve, "get": get, "many": many, "tcp": tcp, "udp": udp, "arp": arp}[verb](*arguments))
except OSError as error:
    print(reason(error))
    sys.exit(3)
