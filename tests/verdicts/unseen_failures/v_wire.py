"""A small protocol of pickles over sockets, as people write it: part of several definitions."""

WIRE = """import pickle, socket, struct, time


def send(sock, obj):
    data = pickle.dumps(obj)
    sock.sendall(struct.pack("!I", len(data)) + data)


def exactly(sock, n):
    data = b""
    while len(data) < n:
        part = sock.recv(n - len(data))
        if not part:
            raise ConnectionError("peer closed the connection")
        data += part
    return data


def receive(sock):
    return pickle.loads(exactly(sock, struct.unpack("!I", exactly(sock, 4))[0]))


def connect(host, port, patience=20.0):
    end = time.time() + patience
    while True:
        try:
            return socket.create_connection((host, port), timeout=patience)
        except OSError:
            if time.time() > end:
                raise
            time.sleep(0.1)
"""
