"""Messages for generated stores: the octets of the n-th one follow from its number and the seed alone, so that any
number of processes can make them side by side."""

import base64
import random
from functools import lru_cache

from attrs import frozen

from store.partition.messagereading import summed

WORDS = ("account agenda answer archive attached budget calendar call change client comment contract customer date "
         "delay delivery department document draft estimate evening feedback figure file friday group happy help "
         "idea invoice issue item letter list manager meeting message minutes monday morning network note number "
         "office offer order page partner payment people phone plan please point price problem project proposal "
         "question question reason receipt regards report request result review schedule server service signature "
         "something sorry status store summary support table team thanks thursday ticket time today tomorrow travel "
         "tuesday update version visit week welcome wednesday work year").split()
HOSTS = ("example.org", "example.net", "example.com", "lists.example.net", "mail.example.com")
CORPUS = 1 << 20            # octets from which bodies are cut
MEDIAN, SIGMA = 8 << 10, 1.3            # octets of a body: log-normal
SMALL_MEDIAN, SMALL_SIGMA = 600, 0.5
LARGEST = 2 << 20
SMALL_LARGEST = 3000


@frozen
class Mail:
    """One message: `trace` is the header that a delivery puts in front, b"" for one that a client stored."""

    trace: bytes
    content: bytes


@lru_cache(maxsize=2)
def _corpus(seed: int) -> bytes:
    """Lines of words."""
    chance = random.Random(seed)
    block = "".join(" ".join(chance.choices(WORDS, k=11)) + "\r\n" for _ in range(3000)).encode()
    return block * (-(-(CORPUS + LARGEST) // len(block)))


def message(seed: int, number: int, *, small: bool) -> Mail:
    """The message of that number."""
    chance = random.Random(seed << 40 | number)
    sender = f"{chance.choice(WORDS)}.{chance.choice(WORDS)}@{chance.choice(HOSTS)}"
    size = int(chance.lognormvariate(0, SMALL_SIGMA if small else SIGMA) * (SMALL_MEDIAN if small else MEDIAN))
    size = max(40, min(size, SMALL_LARGEST if small else LARGEST))
    subject = " ".join(chance.choices(WORDS, k=chance.randrange(2, 7)))
    fields = [f"From: {sender.partition('@')[0].replace('.', ' ').title()} <{sender}>",
              f"To: {chance.choice(WORDS)}@example.org", "Date: " + _date(chance),
              f"Message-ID: <{number}.{seed}@{sender.partition('@')[2]}>"]
    if number and chance.random() < 0.35:
        before = max(0, number - 1 - int(chance.expovariate(0.05)))
        fields += [f"In-Reply-To: <{before}.{seed}@example.org>", f"References: <{before}.{seed}@example.org>"]
        subject = "Re: " + subject
    if chance.random() < 0.1:
        fields.append(f"Cc: {chance.choice(WORDS)}@{chance.choice(HOSTS)}, {chance.choice(WORDS)}@example.net")
    header = "\r\n".join([*fields, "Subject: " + subject, "MIME-Version: 1.0", ""])
    body = _body(chance, seed, size)
    trace = b""
    if chance.random() < 0.85:
        front = (f"Return-Path: <{sender}>\r\nReceived: from relay.example.org\r\n"
                 f"\tby store.example.org with LMTP id {number:x}=")
        after = f";\r\n\tMon, {1 + number % 28} Jan 2024 00:{number % 60:02}:00 +0000\r\n"
        trace = summed(front.encode(), after.encode())
    return Mail(trace, header.encode() + body)


def _date(chance: random.Random) -> str:
    return (f"{1 + chance.randrange(28)} {chance.choice(('Jan', 'Mar', 'May', 'Jul', 'Oct'))} "
            f"{chance.randrange(2019, 2026)} {chance.randrange(24):02}:{chance.randrange(60):02}:00 +0000")


def _text(chance: random.Random, seed: int, size: int) -> bytes:
    """So many octets of text, or a few more: whole lines."""
    corpus = _corpus(seed)
    start = corpus.index(b"\n", chance.randrange(CORPUS // 2)) + 1
    return corpus[start:corpus.index(b"\n", min(start + size, len(corpus) - 1)) + 1]


def _body(chance: random.Random, seed: int, size: int) -> bytes:
    """The fields that tell its form, an empty line, and the body."""
    form, mark = chance.random(), b"=_%x" % chance.getrandbits(48)
    if form < 0.5:
        return b"Content-Type: text/plain; charset=utf-8\r\n\r\n" + _text(chance, seed, size)
    text = _text(chance, seed, size // 4)
    if form < 0.75:
        kind, parts = b"alternative", [
            b"Content-Type: text/plain; charset=utf-8\r\n\r\n" + text,
            b"Content-Type: text/html; charset=utf-8\r\n\r\n<html><body><p>\r\n%b</p></body></html>\r\n"
            % _text(chance, seed, size // 2)]
    elif form < 0.95:
        octets = base64.encodebytes(chance.randbytes(size // 2)).replace(b"\n", b"\r\n")
        kind, parts = b"mixed", [
            b"Content-Type: text/plain\r\n\r\n" + text,
            b"Content-Type: application/pdf; name=report.pdf\r\nContent-Transfer-Encoding: base64\r\n"
            b"Content-Disposition: attachment; filename=report.pdf\r\n\r\n" + octets]
    else:
        kind, parts = b"mixed", [
            b"Content-Type: text/plain\r\n\r\n" + text,
            b"Content-Type: message/rfc822\r\n\r\nFrom: <first@example.net>\r\nSubject: forwarded\r\n\r\n"
            + _text(chance, seed, size // 2)]
    inside = b"".join(b"--%b\r\n%b\r\n" % (mark, part) for part in parts)
    return b'Content-Type: multipart/%b; boundary="%b"\r\n\r\n%b--%b--\r\n' % (kind, mark, inside, mark)
