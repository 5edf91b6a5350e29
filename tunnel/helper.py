import os, selectors, socket, sys

# Bytes that one end may send before the other end has consumed some.
FIRST, MOST, ALL = 256 << 10, 2 << 20, 32 << 20
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

streams = {}
out = []  # for the terminal

def put(kind, id, data=b""):
    out.append(kind + id.to_bytes(4, "big") + len(data).to_bytes(2, "big"))
    out.append(data)

# The other end always reads, so writing does not wait for it.
def flush():
    data = memoryview(b"".join(out))
    out.clear()
    while data:
        data = data[os.write(1, data):]

class Stream:
    def __init__(self, id, port):
        self.id, self.port = id, port
        self.hosts = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
        self.sock, self.events = None, 0
        self.pending = []  # for the server
        self.credit = self.window = FIRST
        self.taken = 0  # of pending, since more was allowed
        self.connected = self.said_all = self.deaf = self.ended = self.closing = False
        self.connect()

    def watch(self):
        events = 0
        if not self.connected:
            events = WRITE
        else:
            if self.credit > 0 and not self.said_all:
                events |= READ
            if self.pending:
                events |= WRITE
        if events != self.events:
            if not self.events:
                servers.register(self.sock, events, self)
            elif not events:
                servers.unregister(self.sock)
            else:
                servers.modify(self.sock, events, self)
            self.events = events

    def drop(self):
        if self.sock is not None:
            if self.events:
                servers.unregister(self.sock)
                self.events = 0
            self.sock.close()
            self.sock = None

    def connect(self):
        while self.hosts:
            family, host = self.hosts.pop(0)
            try:
                self.sock = socket.socket(family, socket.SOCK_STREAM)
                self.sock.setblocking(False)
                self.sock.connect((host, self.port))
            except BlockingIOError:
                return self.watch()
            except OSError:
                self.drop()
                continue
            return self.begin()
        put(b"n", self.id)
        del streams[self.id]

    def begin(self):
        self.connected = True
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        put(b"o", self.id)
        self.watch()

    def ready(self, events):
        if not self.connected:
            if self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.drop()
                return self.connect()
            return self.begin()
        if events & WRITE:
            self.send()
        if events & READ and self.sock is not None and not self.said_all:
            self.receive()
        if self.sock is not None:
            self.watch()

    def receive(self):
        try:
            data = self.sock.recv(min(65535, self.credit))
        except BlockingIOError:
            return
        except OSError:
            self.said_all = self.deaf = True
            put(b"r", self.id)
            self.discard()
            return self.flushed()
        if data:
            self.credit -= len(data)
            put(b"d", self.id, data)
        else:
            self.said_all = True
            put(b"e", self.id)

    def send(self):
        while self.pending and not self.deaf:
            data = self.pending[0]
            try:
                n = self.sock.send(data)
            except BlockingIOError:
                break
            except OSError:
                self.deaf = True
                put(b"x", self.id)
                break
            self.took(n)
            if n < len(data):
                self.pending[0] = data[n:]
                break
            self.pending.pop(0)
        if self.deaf:
            self.discard()
        if not self.pending:
            self.flushed()

    def discard(self):
        self.took(sum(map(len, self.pending)))
        self.pending.clear()

    def took(self, n):
        self.taken += n
        if self.taken < self.window // 4:
            return
        more, window = self.taken, min(MOST, max(FIRST, ALL // len(streams)))
        if window > self.window:
            more += window - self.window
            self.window = window
        self.taken = 0
        put(b"w", self.id, more.to_bytes(4, "big"))

    def flushed(self):
        if self.ended and not self.deaf:
            self.deaf = True
            try:
                self.sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        if self.closing:
            self.drop()
            put(b"c", self.id)
            del streams[self.id]

    def add(self, data):
        self.pending.append(data)
        if self.connected and len(self.pending) == 1:
            self.send()
            if self.sock is not None:
                self.watch()

    def end(self, closing):
        self.ended, self.closing = True, closing
        if not self.pending:
            self.flushed()

def take(kind, id, data):
    if kind == b"q":
        os._exit(0)
    if kind == b"o":
        s = streams[id] = Stream.__new__(Stream)
        return s.__init__(id, int.from_bytes(data, "big"))
    s = streams.get(id)
    if s is None:
        return
    if kind == b"d":
        s.add(bytes(data))
    elif kind == b"w":
        s.credit += int.from_bytes(data, "big")
        if s.connected:
            s.watch()
    elif kind == b"e" or kind == b"c":
        s.end(kind == b"c")
    elif kind == b"k":
        s.drop()
        del streams[id]

input = b""

def feed():
    global input
    try:
        data = os.read(0, 65536)
    except OSError:
        data = b""
    if not data:
        os._exit(0)
    input = input + data if input else data
    view, at = memoryview(input), 0
    while len(input) - at >= 7:
        size = int.from_bytes(view[at + 5:at + 7], "big")
        if len(input) - at < 7 + size:
            break
        take(input[at:at + 1], int.from_bytes(view[at + 1:at + 5], "big"), view[at + 7:at + 7 + size])
        at += 7 + size
    input = input[at:]

servers = selectors.DefaultSelector()
servers.register(0, READ)
out.append(b"\x01sandbox-tunnel-ready\x02")
while True:
    flush()
    for key, events in servers.select():
        s = key.data
        if s is None:
            feed()
        elif s.sock is key.fileobj:
            s.ready(events)
