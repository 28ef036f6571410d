"""Deterministic, realistic mail messages.

A `MessageFactory` made from the same seed yields the same messages in
the same order. Text is drawn from a skewed vocabulary so that it compresses
about as well as prose does, attachments are random bytes in base64, and a
share of the messages are replies whose References name earlier messages.

All messages end their lines in CRLF and are *not* dot-stuffed; use
`Message.lmtp_data` for the form that goes over LMTP.
"""

import binascii
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from random import Random

from attrs import frozen

# A word that only marked messages hold, once, in their text part.
MARKER_WORD = "xylophage"
# Every how many messages one is marked.
MARKER_EVERY = 100
# Share of the messages made with `seen` set.
SEEN_SHARE = 0.75
# First Date; each further message is some minutes later.
EPOCH = datetime(2023, 3, 6, 8, 0, tzinfo=UTC)
# After this many messages the dates jump by three days, so that a SEARCH
# SINCE between the two has one answer whatever the server's time zone.
GAP_EVERY = 1000

_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_DAYS = "Mon Tue Wed Thu Fri Sat Sun".split()

_COMMON = """the of and to a in is that it for on was with as be are this at by
have from or not your an will can we all but has more if which about there were
they their you our new one would been when so no out up time what only other do
than some into could them two may then these its any after also first should
please thanks meeting week project report send attached budget review next team
question update schedule call today tomorrow order invoice account number list
change problem version draft client office plan contract price delivery""".split()
_SYLLABLES = """ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu
bran cler dron flim gran plor stem trin vask wend""".split()
_ACCENTED = "café naïve Übersicht façade señor résumé Ångström œuvre żółw Straße".split()
_FIRST = """Ada Bruno Carla Dmitri Elena Farid Greta Hugo Ines Jonas Karin Luis
Mona Nils Olga Pavel Rosa Stefan Tamar Ugo Vera Wim Yara Zoltan""".split()
_LAST = """Abbott Brandt Castillo Dahl Eriksen Ferrari Garnier Horvat Ivanova
Jansen Keller Lindqvist Moreau Novak Okafor Petrov Quist Rossi Schmidt Tanaka""".split()
_ACCENTED_LAST = ["Müller", "Gonçalves", "Łukasz", "Ångström", "Žižek"]
_DOMAINS = ["example.org", "example.net", "mail.example.com", "corp.example"]


def _vocabulary() -> tuple[list[str], list[float]]:
    """Words and their cumulative weights, roughly in Zipf's proportions."""
    rng = Random("vocabulary")
    made = {"".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4))) for _ in range(4000)}
    words = _COMMON + sorted(made)
    return words, list(accumulate(1 / (rank + 3) for rank in range(len(words))))


_WORDS, _WEIGHTS = _vocabulary()


@frozen
class Person:
    """Someone who writes or receives mail."""

    name: str
    address: str

    def header(self) -> str:
        """The mailbox as it stands in a From or To field."""
        if self.name.isascii():
            return f'"{self.name}" <{self.address}>'
        return f"{encoded_word(self.name)} <{self.address}>"


def _people() -> list[Person]:
    """The fixed set of correspondents."""
    people = []
    for number, first in enumerate(_FIRST):
        for other, last in enumerate(_LAST + _ACCENTED_LAST):
            plain = "".join(c for c in last.lower() if c.isascii())
            address = f"{first.lower()}.{plain}{number}@{_DOMAINS[(number + other) % 4]}"
            people.append(Person(f"{first} {last}", address))
    return people


PEOPLE = _people()


@frozen
class Message:
    """One message and what a test needs to know of it.

    `raw` is the RFC 5322 text with CRLF line ends; `sent` its Date;
    `marked` says that its text holds `MARKER_WORD`.
    """

    raw: bytes
    message_id: str
    sent: datetime
    sender: Person
    seen: bool
    marked: bool

    def internal_date(self) -> str:
        """INTERNALDATE for APPEND, without quotes."""
        d = self.sent
        return f"{d.day:2d}-{_MONTHS[d.month - 1]}-{d.year} {d:%H:%M:%S} +0000"

    def lmtp_data(self) -> bytes:
        """Dot-stuffed text with the closing dot, ready to send after DATA."""
        body = self.raw.replace(b"\r\n.", b"\r\n..")
        if body.startswith(b"."):
            body = b"." + body
        return body + b".\r\n"


def encoded_word(text: str) -> str:
    """An RFC 2047 encoded word, in base64."""
    return "=?utf-8?B?" + binascii.b2a_base64(text.encode(), newline=False).decode() + "?="


def search_date(day: datetime) -> str:
    """A date as SEARCH SINCE takes it."""
    return f"{day.day}-{_MONTHS[day.month - 1]}-{day.year}"


def date_header(when: datetime) -> str:
    """A Date field's value."""
    return (f"{_DAYS[when.weekday()]}, {when.day} {_MONTHS[when.month - 1]} "
            f"{when.year} {when:%H:%M:%S} +0000")


def base64_lines(data: bytes) -> bytes:
    """Base64 in lines of 76 characters, each ended by CRLF."""
    text = binascii.b2a_base64(data, newline=False)
    lines = [text[at:at + 76] for at in range(0, len(text), 76)]
    return b"\r\n".join(lines) + b"\r\n"


@frozen
class _Thread:
    """What a reply needs to know of the message it answers."""

    subject: str
    references: tuple[str, ...]


class MessageFactory:
    """Makes the sequence of messages that `seed` stands for."""

    def __init__(self, seed: str) -> None:
        self._rng = Random(seed)
        self._token = f"{Random(seed).getrandbits(48):012x}"
        self._count = 0
        self._sent = EPOCH
        self._recent: deque[_Thread] = deque(maxlen=64)

    def small(self) -> Message:
        """A short message of about 2.5 KiB: plain, alternative or with a small file."""
        rng = self._rng
        kind = rng.random()
        size = int(min(4000, max(200, rng.lognormvariate(6.3, 0.8))))
        if kind < 0.6:
            return self._build(self._plain, size)
        if kind < 0.9:
            return self._build(self._alternative, size // 2)
        attachment = rng.randbytes(rng.randint(400, 2000))
        return self._build(lambda text: self._mixed(text, attachment), size // 2)

    def standard(self) -> Message:
        """A multipart/alternative message of about 8 KiB."""
        return self._build(self._alternative, self._rng.randint(1850, 2750))

    def big(self, size: int) -> Message:
        """A message of about `size` bytes, nearly all of it one attachment."""
        attachment = self._rng.randbytes((size - 4096) * 57 // 78)
        return self._build(lambda text: self._mixed(text, attachment), 800)

    # -- the parts ---------------------------------------------------------

    def _text(self, size: int, marked: bool) -> str:
        """About `size` characters of prose in lines of ten words."""
        rng = self._rng
        words = rng.choices(_WORDS, cum_weights=_WEIGHTS, k=max(12, size // 6))
        words[0] = words[0].capitalize()
        if rng.random() < 0.15:
            words[3] = rng.choice(_ACCENTED)
        lines = [" ".join(words[at:at + 10]) for at in range(0, len(words), 10)]
        for at in range(4, len(lines), 5):
            lines[at] += ".\r\n"
        if rng.random() < 0.05:
            lines.append(".hidden files begin with a dot")
        if marked:
            lines.append(f"A {MARKER_WORD} eats wood.")
        return "\r\n".join(lines) + "\r\n"

    def _html(self, text: str) -> str:
        """A text dressed as mail programs dress it."""
        paragraphs = text.split("\r\n\r\n")
        body = "\r\n".join(
            '<p class="MsoNormal" style="margin:0 0 10px 0;font-family:Calibri,sans-serif;'
            f'font-size:11pt;color:#1f2328"><span lang="EN-US">{one}</span></p>'
            for one in paragraphs)
        return ('<html><head><meta http-equiv="Content-Type" content="text/html; '
                'charset=utf-8"><style>body{margin:0;padding:0}a{color:#0563c1;'
                "text-decoration:underline}table{border-collapse:collapse}</style></head>\r\n"
                f'<body lang="EN-US">\r\n<div class="WordSection1">\r\n{body}\r\n</div>\r\n'
                "</body></html>\r\n")

    def _leaf(self, text: str, subtype: str) -> bytes:
        """A text part with its own header, encoded as its content needs."""
        data = text.encode()
        if text.isascii():
            head, body = "7bit", data
        elif self._rng.random() < 0.7:
            head, body = "quoted-printable", binascii.b2a_qp(data, istext=True)
        else:
            head, body = "base64", base64_lines(data)
        return (f"Content-Type: text/{subtype}; charset=utf-8\r\n"
                f"Content-Transfer-Encoding: {head}\r\n\r\n").encode() + body

    def _plain(self, text: str) -> bytes:
        """A message that is one text/plain part."""
        return self._leaf(text, "plain")

    def _alternative(self, text: str) -> bytes:
        """multipart/alternative of plain text and HTML."""
        return self._multipart("alternative",
                               [self._leaf(text, "plain"), self._leaf(self._html(text), "html")])

    def _mixed(self, text: str, attachment: bytes) -> bytes:
        """multipart/mixed of an alternative and one attached file."""
        name = f"report-{self._rng.randint(1, 9999)}.pdf"
        part = (f'Content-Type: application/pdf; name="{name}"\r\n'
                f'Content-Disposition: attachment; filename="{name}"\r\n'
                "Content-Transfer-Encoding: base64\r\n\r\n").encode()
        return self._multipart("mixed", [self._alternative(text), part + base64_lines(attachment)])

    def _multipart(self, subtype: str, parts: Sequence[bytes]) -> bytes:
        """Parts joined under a boundary of their own."""
        boundary = f"=_{self._rng.getrandbits(96):024x}"
        line = b"--" + boundary.encode()
        pieces = [f'Content-Type: multipart/{subtype}; boundary="{boundary}"\r\n\r\n'.encode()]
        for part in parts:
            pieces += [line, b"\r\n", part, b"\r\n"]
        pieces += [line, b"--\r\n"]
        return b"".join(pieces)

    # -- the whole ---------------------------------------------------------

    def _advance(self) -> datetime:
        """The next message's Date: distinct, growing, with the gaps SINCE wants."""
        step = timedelta(seconds=self._rng.randint(60, 1800))
        if self._count and self._count % GAP_EVERY == 0:
            step += timedelta(days=3)
        self._sent += step
        return self._sent

    def _thread(self, message_id: str) -> tuple[_Thread, bool]:
        """Subject and references, and whether it is a reply."""
        rng = self._rng
        if self._recent and rng.random() < 0.4:
            parent = rng.choice(self._recent)
            prefix = "" if parent.subject.startswith("Re: ") else "Re: "
            subject = prefix + parent.subject
            thread = _Thread(subject, (*parent.references[-9:], message_id))
            reply = True
        else:
            words = rng.choices(_WORDS, cum_weights=_WEIGHTS, k=rng.randint(2, 8))
            subject = " ".join(words).capitalize()
            if rng.random() < 0.2:
                subject = encoded_word(f"{rng.choice(_ACCENTED)} {subject[:30]}")
            thread = _Thread(subject, (message_id,))
            reply = False
        self._recent.append(thread)
        return thread, reply

    def _build(self, make_body: Callable[[str], bytes], text_size: int) -> Message:
        """Header and body together."""
        rng = self._rng
        sent = self._advance()
        number = self._count
        self._count += 1
        marked = number % MARKER_EVERY == MARKER_EVERY // 2
        sender = rng.choice(PEOPLE)
        readers = rng.sample(PEOPLE, rng.randint(1, 4))
        domain = sender.address.split("@")[1]
        message_id = f"<{self._token}.{number}.{rng.getrandbits(40):010x}@{domain}>"
        thread, reply = self._thread(message_id)
        fields = self._trace(number, sent, domain, readers[0])
        fields += [f"From: {sender.header()}", _addresses("To", readers[:2])]
        if readers[2:]:
            fields.append(_addresses("Cc", readers[2:]))
        fields += [f"Subject: {thread.subject}", f"Date: {date_header(sent)}",
                   f"Message-ID: {message_id}"]
        if reply:
            fields += [f"In-Reply-To: {thread.references[-2]}",
                       "References: " + "\r\n\t".join(thread.references[:-1])]
        fields += ["User-Agent: Examplebird/115.4", "MIME-Version: 1.0", ""]
        raw = "\r\n".join(fields).encode() + make_body(self._text(text_size, marked))
        return Message(raw, message_id, sent, sender, rng.random() < SEEN_SHARE, marked)

    def _trace(self, number: int, sent: datetime, domain: str, reader: Person) -> list[str]:
        """The fields that servers on the way put on top."""
        rng = self._rng
        relay = f"mx{number % 7}.example.net"
        signature = binascii.b2a_base64(rng.randbytes(192), newline=False).decode()
        return [
            f"Received: from {relay} ({relay} [192.0.2.{number % 250}])",
            f"\tby mx.example.org (Postfix) with ESMTPS id {rng.getrandbits(48):012X}",
            f"\tfor <{reader.address}>; {date_header(sent + timedelta(seconds=2))}",
            f"DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d={domain};",
            f"\ts=s{number % 3}; h=from:to:subject:date:message-id; bh={signature[:44]};",
            f"\tb={signature[44:108]}", f"\t {signature[108:172]}", f"\t {signature[172:]}",
        ]


def _addresses(name: str, people: Sequence[Person]) -> str:
    """An address field, folded."""
    return f"{name}: " + ",\r\n\t".join(one.header() for one in people)


@lru_cache(maxsize=4)
def small_messages(seed: str, count: int) -> list[Message]:
    """`count` short messages."""
    factory = MessageFactory(f"{seed}/small")
    return [factory.small() for _ in range(count)]


@lru_cache(maxsize=4)
def standard_messages(seed: str, count: int) -> list[Message]:
    """`count` messages of about 8 KiB."""
    factory = MessageFactory(f"{seed}/standard")
    return [factory.standard() for _ in range(count)]


@lru_cache(maxsize=1)
def big_messages(seed: str, count: int, size: int) -> list[Message]:
    """`count` messages of about `size` bytes."""
    factory = MessageFactory(f"{seed}/big")
    return [factory.big(size) for _ in range(count)]
