"""The body of a reply, unpacked piece by piece, with a limit on what comes of it."""

import zlib
from typing import NoReturn

from leadsman.errors import GarbledData, PermanentError
from leadsman.text import clean

ACCEPTED = "gzip"
"""What is asked for. ``deflate`` is read as well, since some servers send it unasked."""
_SPARE = 4096
"""Bytes of a packed body beyond the limit of the unpacked one: headers of gzip, and blocks without content."""
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Of zlib (its manual, inflateInit2)."""
_WITHOUT_HEADER = -15
"""Some servers leave out the header that ``deflate`` should have (RFC 9110 §8.4.1.2)."""


class AnswerTooLong(PermanentError):
    """An answer is longer than allowed. The same request would bring as much again."""


class Body:
    """The pieces of a body, unpacked. It never holds more than `most` bytes, and one piece.

    Args:
        encoding: the header ``Content-Encoding``.
        most: bytes.

    Raises:
        PermanentError: at construction: the body is packed in another way.
    """

    def __init__(self, encoding: str, most: int) -> None:
        self._most = most
        self._content = bytearray()
        self._received = 0
        name = encoding.strip().lower()
        if name not in ("", "identity") and name not in _WINDOW_BITS:
            raise PermanentError(f"the answer is packed as {clean(name)!r}, which was not asked for; only gzip is read")
        self._bits = _WINDOW_BITS.get(name, 0)
        self._head = b""
        self._unpacker: zlib._Decompress | None = None

    def __len__(self) -> int:
        return len(self._content)

    @property
    def content(self) -> bytes:
        """What has come so far."""
        return bytes(self._content)

    def feed(self, piece: bytes) -> None:
        """Add a piece.

        Raises:
            AnswerTooLong: the body is longer than allowed.
            GarbledData: it cannot be unpacked.
        """
        self._received += len(piece)
        if self._received > self._most + (_SPARE if self._bits else 0):
            self._refuse()
        if not self._bits:
            self._content += piece
        elif piece:
            self._unpack(piece)

    def finish(self) -> bytes:
        """The whole body. Raises `GarbledData` if it broke off."""
        if self._head or (self._unpacker is not None and not self._unpacker.eof):
            raise GarbledData("the packed answer broke off")
        return self.content

    def _unpack(self, piece: bytes) -> None:
        if self._unpacker is None:
            piece = self._head + piece
            if len(piece) < 2:
                self._head = piece
                return
            self._head = b""
            if self._bits == 15 and (piece[0] & 15 != 8 or int.from_bytes(piece[:2]) % 31):  # RFC 1950 §2.2
                self._bits = _WITHOUT_HEADER
        try:
            while piece:
                if self._unpacker is None or self._unpacker.eof:
                    self._unpacker = zlib.decompressobj(self._bits)
                self._content += self._unpacker.decompress(piece, self._most + 1 - len(self._content))
                if len(self._content) > self._most:
                    self._refuse()
                piece = self._unpacker.unused_data
        except zlib.error as error:
            raise GarbledData(f"the packed answer cannot be read: {error}") from error

    def _refuse(self) -> NoReturn:
        raise AnswerTooLong(f"the answer is longer than {self._most:,} bytes; most_bytes= allows more")
