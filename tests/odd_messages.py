"""Messages that nobody should send: whatever a message says, it must not stop a stream."""

from __future__ import annotations

import random

DEEP = 100_000
READING = (
    b'{"id":7,"value":1.5,"name":"a","at":"2026-11-15T12:00:00Z","day":"2026-11-15","amount":1.25,"ok":true,"whole":3}'
)
CHANGE = (
    b'{"op":"c","before":null,"after":{"id":1},"source":{"lsn":7,"txId":3,"ts_ms":1794744000000,"snapshot":"false"}}'
)
#: The columns of `READING`.
SCHEMA = "id BIGINT, value DOUBLE, name STRING, at TIMESTAMP, day DATE, amount DECIMAL(10,2), ok BOOLEAN, whole INT"
VALUES = [
    READING, CHANGE, None, b"", b" \n", b"\x00", b"\xff", b"null", b"1", b'"x"', b"[1]", b"{}", b"{} {}", b'{"id":',
    b"\xef\xbb\xbf" + READING, b"[" * DEEP, b'{"a":' * DEEP,
    b'{"id":' + b"9" * 5000 + b"}", b'{"id":1e400}', b'{"id":true}', b'{"id":1,"id":2}', b'{"ID":1}', b'{"id":[1]}',
    b'{"value":NaN}', b'{"value":-Infinity}', b'{"value":"warm"}', b'{"whole":99999999999}', b'{"amount":1e5000}',
    b'{"amount":"1e999999999"}', b'{"day":-1}', b'{"at":9223372036854775807}', b'{"at":"99999-01-01T00:00:00Z"}',
    b'{"at":"0000-00-00"}', b'{"name":"\\ud800"}', b'{"name":"a\\u0000b"}', b'{"name":{"a":[1,{"b":null}]}}',
    b'{"op":["c"]}', b'{"op":{"c":1}}', b'{"op":"\\ud800"}', b'{"op":"x"}', b'{"payload":null}', b'{"payload":[1]}',
    b'{"schema":1,"payload":"x"}', b'{"op":"c","after":[1]}', b'{"op":"c","after":{"id":"\\ud800"}}',
    b'{"op":"c","source":7}', b'{"op":"c","source":{"lsn":true}}', b'{"op":"c","source":{"lsn":1.5}}',
    b'{"op":"c","source":{"lsn":1,"ts_ms":9223372036854775807}}', b'{"op":"c","source":{"lsn":99999999999999999999}}',
]  # fmt: skip
KEYS = [None, b"", b"k", b"\xff", b"null", b'{"id":1}', b'{"id":"\\ud800"}', b'["x', b'{"schema":1,"payload":2}']
TIMES = [None, -5, 0, 1_794_744_000_000, 10**15, 2**62]


def damaged(seed: int, count: int) -> list[bytes]:
    """A reading and a change with some bytes taken out, doubled or replaced."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        value = bytearray((READING, CHANGE)[number % 2])
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(value))
            part = bytes(
                chance.choice([b"", b'"', b"{", b"]", b"\\", b"\xc3", b",", b"0", b"\x00", value[at : at + 9]])
            )
            value[at : at + chance.randint(0, 3)] = part
        found.append(bytes(value))
    return found
