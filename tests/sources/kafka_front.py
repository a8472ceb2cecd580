"""What stands before a broker that speaks plain text only: it ends TLS, and asks each client to log in by SASL PLAIN."""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Mapping

_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = 18, 17, 36  # requests
_NO_SUCH_MECHANISM, _REFUSED = 33, 58  # errors


@contextlib.contextmanager
def front(listener: socket.socket, port: int, tls: ssl.SSLContext, users: Mapping[str, str] | None) -> Iterator[None]:
    """Within, what arrives is given on to the broker at this port. users: name -> password, as of each login; None: nobody logs in."""

    def serve(client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            tls.wrap_socket(client, server_side=True) as secure,
            socket.create_connection(("127.0.0.1", port)) as broker,
        ):
            if users is None or _logs_in(secure, broker, users):
                back = threading.Thread(target=_pump, args=(broker, secure))
                back.start()
                _pump(secure, broker)
                back.join()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield
    listener.shutdown(socket.SHUT_RDWR)


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_RDWR)


def _logs_in(client: socket.socket, broker: socket.socket, users: Mapping[str, str]) -> bool:
    """Answer as a broker does that asks for a login; whether the client may go on. What it can do is what the broker behind says."""
    while True:
        request = _read(client)
        kind, version, number, length = struct.unpack_from(">hhih", request)
        body = request[10 + max(0, length) :]
        if kind == _API_VERSIONS:
            _send(broker, request)
            _send(client, _read(broker))
        elif kind == _HANDSHAKE:
            error = 0 if body[2:] == b"PLAIN" else _NO_SUCH_MECHANISM
            _send(client, struct.pack(">ihih", number, error, 1, 5) + b"PLAIN")
        elif kind == _AUTHENTICATE:
            _, name, password = body[4:].decode().split("\0")
            good, told = users.get(name) == password, b"Authentication failed: Invalid username or password"
            error = struct.pack(">hh", 0, -1) if good else struct.pack(f">hh{len(told)}s", _REFUSED, len(told), told)
            _send(client, struct.pack(">i", number) + error + bytes(4 + 8 * version))  # no token; no end of the session
            return good
        else:
            return False  # before a login


def _send(to: socket.socket, message: bytes) -> None:
    to.sendall(struct.pack(">i", len(message)) + message)


def _read(stream: socket.socket) -> bytes:
    """One request or answer."""

    def exactly(size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (more := stream.recv(size - len(data))):
                raise OSError("the connection has ended")
            data += more
        return data

    return exactly(*struct.unpack(">i", exactly(4)))
