"""Broken mail of every kind, made by choices: what senders, gateways and attackers have put into messages."""

BOUNDARIES = (b"b", b"bb", b"b-", b"--b", b"b b ", b"=_b(1)", b"\xe9", b"x" * 70, b"x" * 300, b"", b'q"', b"b\\",
              b"'b'")
BLANKS = (b"", b" ", b"\t", b"\r\n ", b"\n\t", b" (c)", b"(a(b)c)", b"(open", b"\r\n \r\n ", b"\0")
ADDRESSES = (
    b"alice@example.org", b"Alice <alice@example.org>", b'"A \\" B" <a@b>', b"=?utf-8?Q?J=C3=B6rg?= <j@x>",
    b"Group: a@b, c@d;", b"undisclosed-recipients:;", b"<@a,@b:c@d>", b"a@b (comment (nested))", b"a.b.c", b"<>", b"<a",
    b'"unclosed <a@b>', b"(open a@b", b"a@[127.0.0.1]", b"a@[", b"\xff\xfe@\x80", b",,,", b";", b":", b"G: H: a@b;;",
    b"a b c d@e f", b'"\\', b"a@b@c", b"NIL", b"(", b")", b"\\", b'""@x', b"a <b> <c>", b"@", b"{3}\r\n abc")
WORDS = (
    b"plain", b"=?utf-8?B?w6Q=?=", b"=?utf-8?B?w6?=", b"=?utf-8?Q?=C3?= =?utf-8?Q?=A4?=", b"=?x-unknown?q?a?=",
    b"=?utf-16?b?/v8=?=", b"=?utf-8*de?q?a_b?=", b"=?utf-8?q?unclosed", b"=?", b"=?=?=?=?", b"=?a?b?", b"\xe4\xf6\xfc",
    b"\xc3\xa4", b"\xf0\x9f\x98\x80", b"\xff", b"\0", b'"', b"\\", b"\r", b"Re: [list] Fwd: (fwd)", b"[fwd: [fwd: x]]",
    b"a" * 1000, b"=?iso-2022-jp?b?GyRCJCIbKEI=?=", b"=?hz?q?~{<:?=", b"\x7f", b"=?utf-7?q?+AGE-?=", b"{5}")
TYPES = (b"text/plain", b"TEXT/html", b"message/rfc822", b"message/global", b"message/partial", b"multipart/mixed",
         b"multipart/digest", b"multipart/alternative", b"application/octet-stream", b"nonsense", b"/", b"a/", b"text",
         b"multipart/", b"\xe4/\xf6", b"message/rfc822;;;", b"text / plain", b'"text"/plain', b"multipart/mixed/x")
PARAMETERS = (
    b"charset=utf-8", b'charset="us-ascii"', b"charset=\xff", b"name*=utf-8''%e4%f6", b"name*0=a; name*1=b",
    b"name*1=b; name*0*=utf-8'de'%c3; name*01=x", b"name*99999999999999=a", b"name*=%", b"name*=''", b'a="open', b"a=",
    b"=a", b"a", b";", b'a="\\', b"a==b", b'a="b"c', b"a*0*0=b", b"name*0*=x-y'", b"charset*=utf-16''%00")
ENCODINGS = (b"7bit", b"8BIT", b"binary", b"base64", b"quoted-printable", b"x-uuencode", b"", b"base64 (c)", b"\xff",
             b'"base64"', b"(open", b"quoted-printable;")
DATES = (b"Mon, 1 Feb 1994 00:00:00 +0000", b"1 Feb 94 25:61 XXX", b"31 Feb 2020", b"0 Jan 0000", b"1 Jan 99999",
         b"(c) 1", b"Thu, 01 Jan 1970 00:00:60 -2360", b"1 jan 100", b"9" * 500)
BODIES = (
    b"text\r\n", b"", b"\r\n", b"\n", b"no end", b"a\rb\nc\r\r\n", b"\0\0\0", b".\r\n", b"--", b"--b", b"--b--",
    b"--bb", b"\r\n--b\r\n", b"w6TDtg==\r\n", b"w6T=Dtg", b"====", b"=E4=\r\n=", b"=\r\n=ZZ", b"=", b"\xff\xfe",
    b"x" * 3000, b"From alice\r\n", b"Subject: is this a header?\r\n\r\n", b"begin 644 x\r\n", b"\r", b"+AGE-~{",
    b"\x1b$B$\"\x1b(B",
    b"\r\n\r\n\r\n", b"a\n" * 500, b"{3}\r\n")
LINE_ENDS = (b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r", b"\r\n\r\n", b"")
LONGEST = 100_000       # octets
MOST_PARTS = 12         # of a multipart, but for one kind of message


def mail(choices, depth=0):
    """One message, or the content of a part."""
    if choices.below(16) == 0:
        return b"".join(choices.one(BODIES) for _ in range(choices.below(6)))
    end = choices.one(LINE_ENDS) if depth == 0 and choices.below(8) == 0 else b"\r\n"
    kind = choices.one((*TYPES[:8], *TYPES[2:8])) if depth < 60 else TYPES[0]
    if choices.below(5) == 0:
        kind = choices.one(TYPES)
    boundary = choices.one(BOUNDARIES)
    fields = [field_of(choices) for _ in range(choices.below(6))]
    fields.insert(choices.below(len(fields) + 1), content_type(choices, kind, boundary))
    if choices.below(3) == 0:
        fields.append(b"Content-Transfer-Encoding:" + choices.one(BLANKS) + choices.one(ENCODINGS))
    if choices.below(64) == 0:
        fields *= (3, 10, 30, 300)[choices.below(4)]
    blank = end if choices.below(12) else choices.one((b"", b" " + end, b"\r", b"\n\r"))
    return end.join(fields) + (end if fields else b"") + blank + content(choices, kind, boundary, depth)


def field_of(choices):
    """A header field, more or less."""
    name = choices.one((b"From", b"To", b"Cc", b"Bcc", b"Sender", b"Reply-To", b"SUBJECT", b"Date", b"Message-ID",
                        b"In-Reply-To", b"References", b"Content-ID", b"Content-Disposition", b"Content-Language",
                        b"Content-Description", b"Content-Location", b"Content-MD5", b"Received", b"X"))
    if name in (b"From", b"To", b"Cc", b"Bcc", b"Sender", b"Reply-To"):
        value = (b"," + choices.one(BLANKS)).join(choices.one(ADDRESSES) for _ in range(choices.below(5)))
    elif name == b"Date":
        value = choices.one(DATES)
    elif name == b"Content-Disposition":
        value = choices.one((b"attachment", b"inline", b"", b"\xff", b"(c")) + parameters(choices)
    elif name in (b"Message-ID", b"In-Reply-To", b"References"):
        value = b" ".join(b"<%d@x>" % choices.below(9) for _ in range(choices.below(4))) + choices.one(BLANKS)
    elif name == b"Content-Language":
        value = b",".join(choices.one((b"de", b"en-GB", b"", b"(c", b"\xff")) for _ in range(choices.below(5)))
    else:
        value = choices.one(BLANKS).join(choices.one(WORDS) for _ in range(choices.below(6)))
    if choices.below(40) == 0:
        value = value * (10, 300)[choices.below(2)]
    colon = choices.one((b":", b": ", b":", b" :", b"\t: ", b"", b"::")) if choices.below(4) == 0 else b": "
    return name + colon + value + (choices.one(BLANKS) if choices.below(6) == 0 else b"")


def content_type(choices, kind, boundary):
    """Content-Type; sometimes its boundary is none, or not the one that is used."""
    how = choices.below(12)
    if how < 7:
        wanted = b'; boundary="' + boundary.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
    elif how == 7:
        wanted = b";\r\n\tboundary=" + boundary
    elif how == 8:
        cut = len(boundary) // 2
        wanted = b'; boundary*0="%b"; boundary*1="%b"' % (boundary[:cut], boundary[cut:])
    elif how == 9:
        wanted = b"; boundary*=us-ascii'en'" + b"".join(b"%%%02X" % octet for octet in boundary)
    else:
        wanted = choices.one((b"", b"; boundary=", b'; boundary="open', b"; boundary=other",
                              b";boundary = " + boundary))
    before = parameters(choices) if choices.below(4) == 0 else b""
    return b"Content-Type: " + kind + (choices.one(BLANKS) if choices.below(8) == 0 else b"") + before + wanted


def parameters(choices):
    """Parameters; seldom very many."""
    count = choices.below(4) if choices.below(64) else (65, 300)[choices.below(2)]
    return b"".join(b";" + choices.one(BLANKS) + choices.one(PARAMETERS) for _ in range(count))


def content(choices, kind, boundary, depth):
    """What follows the header."""
    if kind.startswith((b"message/rfc822", b"message/global")) and choices.below(8):
        return mail(choices, depth + 1)
    if not kind.startswith(b"multipart"):
        return b"".join(choices.one(BODIES) for _ in range(choices.below(4)))
    many = depth == 0 and choices.below(500) == 0
    count = 2500 if many else choices.below(4 if depth else MOST_PARTS)
    pieces = [choices.one(BODIES)] if choices.below(3) == 0 else []
    for _ in range(count):
        delimiter = boundary.rstrip() if choices.below(10) else choices.one(BOUNDARIES)
        line_end = b"\r\n" if choices.below(10) else choices.one(LINE_ENDS)
        pieces += [b"\r\n--", delimiter, choices.one((b"", b" ", b"\t")) if choices.below(8) == 0 else b"", line_end]
        deeper = not many and depth < 60 and choices.below(depth // 2 + 2) == 0
        pieces.append(mail(choices, depth + 1) if deeper else b"\r\npart")
    if choices.below(4):
        pieces += [b"\r\n--", boundary.rstrip(), b"--", choices.one((b"\r\n", b"", b"epilogue", b"\r\n--b\r\n\r\nx"))]
    return b"".join(pieces)


def nested(choices):
    """The same inside itself, many times: deeper than anybody looks."""
    count = (10, 49, 50, 51, 200, 1000)[choices.below(6)]
    how = choices.below(4)
    if how == 0:
        return b"Content-Type: message/rfc822\r\n\r\n" * count + b"Subject: x\r\n\r\ntext\r\n"
    if how == 1:
        opened = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (one, one)
                          for one in range(count))
        closed = b"".join(b"\r\n--b%d--\r\n" % one for one in reversed(range(count)))
        return opened + b"\r\ntext" + closed * choices.below(2)
    if how == 2:
        return b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n" * count + b"\r\n--b--" * choices.below(count)
    prefix = b"".join(b'Content-Type: multipart/mixed; boundary="%b"\r\n\r\n--%b\r\n' % (b"b" * one, b"b" * one)
                      for one in range(1, min(count, 200)))
    return prefix + b"\r\n--" + b"b" * choices.below(200) + b"\r\n\r\nx"


def broken(choices):
    """A message of any kind; some are cut."""
    message = (nested(choices) if choices.below(64) == 0 else mail(choices))[:LONGEST]
    if choices.below(8) == 0:
        message = message[:choices.below(min(len(message), 60_000) + 1)]
    if choices.below(8) == 0:
        at = choices.below(min(len(message), 60_000) + 1)
        message = message[:at] + bytes((choices.below(256),)) + message[at + choices.below(2):]
    return message
