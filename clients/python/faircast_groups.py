"""Client of groups of the faircast overlay: one file, standard library only.

    from faircast_groups import Client

    with Client("tcp:127.0.0.1:4803", "alice") as client:
        client.join("chat")
        client.send(["chat"], b"hello", service="agreed")
        for event in client.events():
            if event["event"] == "message":
                print(event["from"]["name"], event["payload"])

A lost connection is opened again, and the session goes on: no event comes twice. The connection is
served while a method of the client runs, so `next` has to be called at least every 30 s; otherwise
the daemon closes the connection, and the next call resumes the session.
docs/overlay.md has a chat, docs/wire/overlay-clients.md the protocol.
"""

import collections
import socket
import ssl
import struct
import time

VERSION = 1
SERVICES = ("unreliable", "reliable", "fifo", "causal", "agreed", "safe")
BENEFITS = ("throughput", "receivers", "concave")
REASONS = ("join", "leave", "disconnect", "network")
CODES = {
    1: "malformed", 2: "version", 3: "name", 4: "session", 5: "replaced", 6: "slow", 7: "idle",
    8: "handshake", 9: "shutdown", 10: "group", 11: "length", 12: "changing", 13: "retention",
    14: "flood", 15: "held", 16: "view", 17: "auth", 18: "price",
}
# Errors after which another connection would end in the same way.
FINAL = ("malformed", "version", "name", "replaced", "auth")
# Most bytes of requests that the daemon has not handled.
WINDOW_BYTES = 1 << 20
# Most bytes of events that wait for `next` while other methods run.
EVENTS_BYTES_MAX = 64 << 20
FRAME_BYTES_MAX = 32 << 20
# Number of the first request. Joins of a new session have smaller ones.
FIRST_REQUEST = 1 << 32
PAUSE_S, PAUSE_MAX_S = 0.05, 5.0


class GroupError(Exception):
    """The daemon refuses the client, or cannot be reached."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def name(text):
    """A name with its length before it."""
    data = text.encode()
    if not 1 <= len(data) <= 64:
        raise ValueError(f"{text!r}: a name has 1 to 64 bytes of UTF-8")
    return bytes([len(data)]) + data


def frame(kind, *fields):
    """A frame with its length."""
    body = bytes([kind]) + b"".join(fields)
    return struct.pack(">I", len(body)) + body


class Fields:
    """Fields of a frame, read one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def numbers(self, layout):
        values = struct.unpack_from(">" + layout, self.data, self.at)
        self.at += struct.calcsize(">" + layout)
        return values

    def number(self, layout):
        return self.numbers(layout)[0]

    def name(self):
        length = self.number("B")
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def rest(self):
        rest, self.at = self.data[self.at:], len(self.data)
        return rest

    def view(self):
        rnd, daemon, run = self.numbers("QQQ")
        return f"{rnd}.{daemon:x}.{run:x}" if rnd else None

    def member(self):
        daemon, run = self.numbers("QQ")
        return {"name": self.name(), "daemon": daemon, "incarnation": run}

    def runs(self):
        return [self.numbers("QQ") for _ in range(self.number("B"))]


def decode_event(kind, fields):
    """The event of a frame as a dictionary."""
    number = fields.number("Q")
    if kind == 16:
        service, view = SERVICES[fields.number("B")], fields.view()
        sequence, sender = fields.number("Q"), fields.member()
        groups = [fields.name() for _ in range(fields.number("B"))]
        event = {"event": "message", "service": service, "view": view, "sequence": sequence,
                 "from": sender, "groups": groups, "payload": fields.rest()}
    elif kind == 17:
        reason, view = REASONS[fields.number("B")], fields.view()
        position, group = fields.numbers("QQQ"), fields.name()
        subject = fields.member() if fields.number("B") else None
        members = [fields.member() for _ in range(fields.number("I"))]
        event = {"event": "group", "group": group, "members": members, "reason": reason,
                 "subject": subject, "position": position, "view": view}
    elif kind == 18:
        event = {"event": "transitional", "closes": fields.view(), "members": fields.runs()}
    elif kind == 19:
        view, previous, members = fields.view(), fields.view(), fields.runs()
        names = [fields.name() for _ in members]
        event = {"event": "view", "id": view, "previous": previous, "members": members,
                 "names": names, "together": fields.runs()}
    elif kind == 20:
        event = {"event": "cut", "lost": fields.numbers("QQ")}
        fields.number("B")
    elif kind == 22:
        request, members = fields.numbers("QI")
        event = {"event": "receipt", "request": request, "members": members,
                 "view": fields.view()}
    elif kind == 23:
        request = fields.number("Q")
        groups = [fields.name() for _ in range(fields.number("B"))]
        event = {"event": "no-members", "request": request, "groups": groups}
    elif kind == 24:
        request, code = fields.numbers("QB")
        event = {"event": "refused", "request": request, "code": CODES.get(code, "other")}
    else:
        raise GroupError("malformed", f"a frame of type {kind}")
    event["number"] = number
    return event


class Client:
    """Session at a daemon: `tcp:ADDR:PORT`, `unix:/PATH` or `tls:HOST:PORT`. With `virtual_synchrony`
    messages arrive in the view that `next` has returned last, or a `refused` event with code `view`
    comes. `tls` needs `ca`, the file with the CA of the daemon's certificate, and `token` or
    `certificate`, the files with the client's certificate and its key."""

    def __init__(self, address, client_name, incarnation=None, virtual_synchrony=False, token="",
                 ca=None, certificate=None):
        self.address, self.name = address, client_name
        self._token, self._tls = token.encode(), None
        if address.startswith("tls:"):
            if not ca or len(self._token) > 128:
                raise ValueError(f"{address}: expected ca=FILE, and a token of at most 128 bytes")
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_3
            self._tls.load_verify_locations(ca)
            if certificate:
                self._tls.load_cert_chain(*certificate)
        elif token or ca or certificate:
            raise ValueError(f"{address}: expected tls:HOST:PORT for a token, a CA or a certificate")
        self.incarnation = incarnation or time.time_ns() // 1000
        self.full_name = None
        self.waiting = None  # Reason for which the daemon holds requests back.
        self._socket, self._buffer = None, bytearray()
        self._next, self._request = 0, FIRST_REQUEST
        self._groups = {}
        self._is_synchronous, self._view = virtual_synchrony, None
        self._pending, self._pending_bytes = collections.deque(), 0
        self._events, self._events_bytes = collections.deque(), 0
        name(client_name)
        try:
            self._open()
        except OSError as error:
            advice = "expected the address of a daemon, `faircast node` starts one"
            raise GroupError("connect", f"{address}: {error}; {advice}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def join(self, group, hold_senders=False):
        """Requests to join a group. The group's event with this client follows. `hold_senders` asks
        that the group's senders wait while a member is slow, instead of cutting it off."""
        self._groups[group] = hold_senders
        return self._ask(8, bytes([hold_senders]), name(group))

    def leave(self, group):
        """Requests to leave a group. The group's event with this client follows."""
        self._groups.pop(group, None)
        return self._ask(9, name(group))

    def send(self, groups, payload, service="fifo", receipt=False, benefit=None):
        """Sends a message to groups. Waits while the daemon has 1 MB of requests to handle. With
        `receipt` an event tells how many members a causal, agreed or safe message has reached.
        `benefit` is one of `BENEFITS`, or the daemon's choice. Raises `GroupError` with code
        `events` if the message waits, and more than 64 MB of events wait for `next`."""
        names = [name(group) for group in groups]
        if not 1 <= len(names) <= 100:
            raise ValueError("a message has 1 to 100 groups")
        if len(payload) > 16 << 20:
            raise ValueError("a message has at most 16 MB")
        if receipt and SERVICES.index(service) < 3:
            raise ValueError(f"a {service} message has no receipt; use agreed or safe")
        chosen = 0 if benefit is None else BENEFITS.index(benefit) + 1
        head = bytes([SERVICES.index(service) | (0x80 if receipt else 0) | chosen << 4])
        if self._is_synchronous and self._view:
            numbers = (int(part, 16 if i else 10) for i, part in enumerate(self._view.split(".")))
            head = bytes([head[0] | 0x40]) + struct.pack(">QQQ", *numbers)
        return self._ask(10, head, bytes([len(names)]), *names, bytes(payload))

    def next(self, timeout=None):
        """Next event; `None` if none comes within `timeout` seconds. 0 takes what has arrived."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._events:
            left = None if until is None else max(until - time.monotonic(), 0)
            self._serve(left)
            if left == 0 and not self._events:
                return None
        event, size = self._events.popleft()
        self._events_bytes -= size
        if event["event"] == "view":
            self._view = event["id"]
        return event

    def fileno(self):
        """Descriptor for `select`: once it is readable, call `next(0)` until it returns `None`."""
        return self._socket.fileno()

    def events(self):
        """All events, for ever."""
        while True:
            yield self.next()

    def flush(self):
        """Waits until the daemon has handled all requests."""
        while self._pending:
            self._wait()

    def close(self):
        """Ends the session."""
        if self._socket:
            try:
                self._socket.sendall(frame(5))
            except OSError:
                pass  # The session ends by itself after 30 s.
            self._socket.close()
            self._socket = None

    def _ask(self, kind, *fields):
        self._request += 1
        number = self._request
        data = frame(kind, struct.pack(">Q", number), *fields)
        while self._pending and self._pending_bytes + len(data) > WINDOW_BYTES:
            self._wait()
        self._pending.append((number, data))
        self._pending_bytes += len(data)
        self._write(data)
        return number

    def _wait(self):
        """Takes what the daemon has sent, while requests wait."""
        if self._events_bytes > EVENTS_BYTES_MAX:
            raise GroupError("events", "64 MB of events wait; call next() before more requests")
        self._serve(None)

    def _push(self, event, size=0):
        self._events.append((event, size))
        self._events_bytes += size

    def _write(self, data):
        try:
            self._socket.settimeout(None)
            self._socket.sendall(data)
        except OSError:
            self._reopen()

    def _serve(self, timeout):
        """Takes what the daemon has sent."""
        try:
            if self._take_all():
                return
            self._socket.settimeout(timeout)
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the daemon closed the connection")
            self._buffer += data
            self._take_all()
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            self._reopen()

    def _take_all(self):
        """Takes all whole frames. Returns True if there were any."""
        taken = False
        while (found := self._frame()) is not None:
            self._take(*found)
            taken = True
        return taken

    def _frame(self):
        if len(self._buffer) < 5:
            return None
        length = struct.unpack_from(">I", self._buffer)[0]
        if not 1 <= length <= FRAME_BYTES_MAX:
            if length >> 16 == 0x1503:  # An alert of TLS.
                raise GroupError("malformed", f"{self.address}: expected tls:HOST:PORT")
            raise GroupError("malformed", f"a frame of {length} bytes")
        if len(self._buffer) < 4 + length:
            return None
        body = bytes(self._buffer[4:4 + length])
        del self._buffer[:4 + length]
        return body[0], Fields(body[1:])

    def _take(self, kind, fields):
        if kind == 3:
            self._write(frame(4, fields.rest()))
        elif kind == 6:
            code, text = CODES.get(fields.number("B"), "other"), fields.rest().decode()
            if code in FINAL:
                raise GroupError(code, text)
            raise ConnectionError(text)
        elif kind == 11:
            self._handled(fields.number("Q"))
        elif kind == 13:
            self.waiting = CODES.get(fields.number("B"))
        elif kind == 21:
            self._push({"event": "resumed"})
        elif kind != 4:
            event = decode_event(kind, fields)
            # Number 0 repeats a state, whose change is among the events of the next cut.
            self._next = event["number"] + 1 if event["number"] else self._next
            self._push(event, len(fields.data))

    def _handled(self, request):
        while self._pending and self._pending[0][0] <= request:
            self._pending_bytes -= len(self._pending.popleft()[1])

    def _reopen(self):
        pause = PAUSE_S
        while True:
            try:
                return self._open()
            except OSError:
                time.sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)

    def _open(self):
        """Connects, resumes the session if there is one, and sends pending requests again."""
        while True:
            kind, fields = self._hello()
            if kind == 2:
                break
            code, text = CODES.get(fields.number("B"), "other"), fields.rest().decode()
            if code != "session" or not self._next:
                raise GroupError(code, text)
            self._restart()
        fields.numbers("BQQ")
        fields.view()
        self._handled(fields.number("Q"))
        fields.numbers("IBB")
        self.full_name = fields.name()
        self._next = max(self._next, 1)
        self._socket.settimeout(None)
        self._socket.sendall(b"".join(data for _, data in self._pending))

    def _hello(self):
        if self._socket:
            self._socket.close()
        self._buffer = bytearray()
        kind, _, place = self.address.partition(":")
        if kind == "unix":
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(5)
            self._socket.connect(place)
        elif kind in ("tcp", "tls"):
            host, _, port = place.rpartition(":")
            host = host.strip("[]")
            self._socket = socket.create_connection((host, int(port)), timeout=5)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls:
                self._socket = self._tls.wrap_socket(self._socket, server_hostname=host)
        else:
            raise ValueError(f"{self.address!r}: expected tcp:ADDR:PORT, unix:/PATH or tls:HOST:PORT")
        numbers = struct.pack(">BQQ", VERSION, self.incarnation, self._next)
        token = bytes([len(self._token)]) + self._token
        self._socket.sendall(frame(1, numbers, name(self.name), token))
        while (found := self._frame()) is None:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the daemon closed the connection")
            self._buffer += data
        return found

    def _restart(self):
        """The daemon has no session any more: a new one joins all groups. Messages that the daemon
        may have got are not sent again."""
        self.incarnation = max(time.time_ns() // 1000, self.incarnation + 1)
        self._next = 0
        unsure = sum(data[4] == 10 for _, data in self._pending)
        joins = enumerate(self._groups.items(), start=1)
        joins = [(n, frame(8, struct.pack(">QB", n, hold), name(group)))
                 for n, (group, hold) in joins]
        self._pending = collections.deque(joins)
        self._pending_bytes = sum(len(data) for _, data in joins)
        self._push({"event": "restarted", "unsure": unsure})
