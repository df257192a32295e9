"""What a connection writes, and when."""

import pytest

from labelfield.serve.connections import _HeadWithBody


class Recorder:
    """A transport that remembers what was written."""

    def __init__(self):
        self.written, self.is_closing, self.close = [], None, None

    def write(self, data):
        self.written.append(data)


@pytest.mark.parametrize(
    ("parts", "written"),
    [
        ([b"head", b"body"], [b"headbody"]),
        ([b"head", b""], [b"head"]),  # an answer without a body
        ([b"head", b"one", b"two"], [b"headone", b"two"]),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"head", b"body"], [b"HTTP/1.1 100 Continue\r\n\r\n", b"headbody"]),
    ],
)
def test_a_head_is_sent_with_what_follows_it(parts, written):
    transport = Recorder()
    own = _HeadWithBody(transport)
    for part in parts:
        own.write(part)
    assert transport.written == written
