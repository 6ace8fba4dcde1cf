"""TCP ends that wire.py and beside.py start on hosts: copies to all receivers at once, and one endless stream."""

import argparse
import socket
import sys
import threading
import time

# Time that a receiver tries to reach the sender of copies, in seconds.
CONNECT_MAX_S = 10.0


def copy_send(args):
    """Sends the file to all receivers at once, when all have come."""
    failures = []

    def copy(stream):
        try:
            with stream, open(args.file, "rb") as file:
                stream.sendfile(file)
                stream.shutdown(socket.SHUT_WR)
                # The receiver closes when it has written everything.
                stream.recv(1)
        except OSError as error:
            failures.append(error)

    with socket.create_server((args.sender, args.port), backlog=args.receivers) as server:
        copies = [threading.Thread(target=copy, args=(server.accept()[0],)) for _ in range(args.receivers)]
    for one in copies:
        one.start()
    for one in copies:
        one.join()
    if failures:
        sys.exit(f"the copies over TCP: {failures[0]}")


def copy_receive(args):
    deadline = time.monotonic() + CONNECT_MAX_S
    while True:
        try:
            stream = socket.create_connection((args.sender, args.port), timeout=CONNECT_MAX_S)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"the copies over TCP: {error}")
            time.sleep(0.02)
    stream.settimeout(None)
    buffer = memoryview(bytearray(1 << 18))
    with stream, open(args.file, "wb", buffering=0) as file:
        while length := stream.recv_into(buffer):
            file.write(buffer[:length])


def tcp_source(args):
    """Sends without end over one connection with Reno's congestion control."""
    with socket.create_connection((args.sender, args.port), timeout=5) as stream:
        stream.settimeout(None)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        while True:
            stream.sendall(bytes(65_536))


def tcp_sink(args):
    with socket.create_server(("", args.port)) as server:
        stream, _ = server.accept()
    while stream.recv(65_536):
        pass


ROLES = {
    "copy-send": (copy_send, "sender port file receivers"),
    "copy-receive": (copy_receive, "sender port file"),
    "tcp-source": (tcp_source, "sender port"),
    "tcp-sink": (tcp_sink, "port"),
}


def parse(words):
    parser = argparse.ArgumentParser(description="One end of a reference transfer; wire.py and beside.py start it.")
    roles = parser.add_subparsers(dest="role", required=True)
    for name, (_, places) in ROLES.items():
        role = roles.add_parser(name)
        for place in places.split():
            role.add_argument(place, type=int if place in ("port", "receivers") else str)
    return parser.parse_args(words)


def main(words):
    args = parse(words)
    try:
        ROLES[args.role][0](args)
    except OSError as error:
        sys.exit(f"{args.role}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
