"""Whole responses and their codes."""

import re

from tests.support.grammar.elements import ATOM, MAX32, MAX63, NUMBER, SET, Incomplete, Ungrammatical, numbers_of
from tests.support.grammar.messages import MessageReader

TAG = re.compile(rb"[!#$&',\-./0-9:;<=>?@A-Z\[^_`a-z|}~\]]+")
TEXT = re.compile(rb"[\x01-\x09\x0b\x0c\x0e-\x7f]+")
BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\r\n")
ATTRIBUTE = re.compile(rb"\\" + ATOM.pattern)
# Codes without arguments: RFC 3501 §7.1, RFC 5530 §3, RFC 3516, 5182, 6154, 7162, 7889, 9585.
PLAIN_CODES = frozenset((
    b"ALERT", b"PARSE", b"READ-ONLY", b"READ-WRITE", b"TRYCREATE", b"UIDNOTSTICKY", b"UNAVAILABLE",
    b"AUTHENTICATIONFAILED", b"AUTHORIZATIONFAILED", b"EXPIRED", b"PRIVACYREQUIRED", b"CONTACTADMIN", b"NOPERM",
    b"INUSE", b"EXPUNGEISSUED", b"CORRUPTION", b"SERVERBUG", b"CLIENTBUG", b"CANNOT", b"LIMIT", b"OVERQUOTA",
    b"ALREADYEXISTS", b"NONEXISTENT", b"NOTSAVED", b"HASCHILDREN", b"CLOSED", b"UNKNOWN-CTE", b"TOOBIG", b"NOMODSEQ",
    b"USEATTR", b"INPROGRESS", b"BADCHARSET"))
STATUS_ITEMS = frozenset((b"MESSAGES", b"RECENT", b"UIDNEXT", b"UIDVALIDITY", b"UNSEEN", b"SIZE", b"DELETED",
                          b"DELETED-STORAGE", b"APPENDLIMIT", b"HIGHESTMODSEQ"))


class Reader(MessageReader):
    """Reads responses."""

    # Text and codes

    def text(self):
        """resp-text and its end: the code, or None"""
        end = self.data.find(b"\r\n", self.at)
        if end < 0:
            raise Incomplete
        code = None
        if self.takes(b"["):
            code = self.code()
            self.want(b"]")
            self.space()
        self.match(TEXT, "text")
        self.want(b"\r\n")
        return code

    def code(self):
        """resp-text-code"""
        name = self.match(re.compile(rb"[A-Z0-9-]+"), "a code")
        more = self.data[self.at:self.at + 1] == b" "
        if not more and name in PLAIN_CODES:
            return (name,)
        if name == b"CAPABILITY":
            return name, self.capabilities()
        self.space()
        match name:
            case b"METADATA":                   # RFC 5464 §5
                kind = self.atom()
                return name, kind, None if kind in (b"TOOMANY", b"NOPRIVATE") else (self.space(), self.number())
            case b"BADCHARSET":
                return name, self.list_of(self.astring, least=1)
            case b"PERMANENTFLAGS":
                found = self.list_of(lambda: b"\\*" if self.takes(b"\\*") else self.flag())
                return name, found
            case b"UIDNEXT" | b"UIDVALIDITY" | b"UNSEEN":
                return name, self.nz()
            case b"HIGHESTMODSEQ":
                return name, self.nz(MAX63)
            case b"APPENDUID":
                return name, self.nz(), self.space() or self.set()
            case b"COPYUID":
                found = name, self.nz(), self.space() or self.set(), self.space() or self.set()
                if len(found[2]) != len(found[3]):
                    raise Ungrammatical("COPYUID of two sets that are not as long")
                return found
            case b"MODIFIED":
                return name, self.set()
            case b"INPROGRESS":                     # RFC 9585 §7
                self.want(b"(")
                tag = self.string()
                for most in (MAX63, MAX63):
                    self.space()
                    if not self.takes(b"NIL"):
                        self.number(most)
                self.want(b")")
                return name, tag
        raise Ungrammatical(f"the code {name!r}")

    def capabilities(self):
        """What follows CAPABILITY"""
        found = self.words()
        if b"IMAP4rev1" not in found or b"IMAP4rev2" not in found or len(set(found)) != len(found):
            raise Ungrammatical("a wrong list of capabilities")
        return found

    # Responses

    def response(self):
        """continue-req, response-data or response-tagged"""
        if self.takes(b"+ "):
            if found := BASE64.match(self.data, self.at):
                self.at = found.end()
            else:
                self.text()
            return ("+",)
        if not self.takes(b"* "):
            tag = self.match(TAG, "a tag")
            self.space()
            status = self.atom()
            if status not in (b"OK", b"NO", b"BAD"):
                raise Ungrammatical(f"{status!r} after a tag")
            self.space()
            return "tagged", tag, status.decode(), self.text()
        if NUMBER.match(self.data, self.at):
            return self.message_data()
        name = self.match(re.compile(rb"[A-Z]+"), "a response")
        if name in (b"OK", b"NO", b"BAD", b"BYE"):
            self.space()
            return name.decode(), self.text()
        read = _RESPONSES.get(name)
        if read is None:
            raise Ungrammatical(f"the response {name!r}")
        answer = name.decode(), *read(self)
        self.want(b"\r\n")
        return answer

    def message_data(self):
        """message-data, and the two of mailbox-data that begin with a number"""
        number = self.number()
        self.space()
        name = self.match(re.compile(rb"[A-Z]+"), "a response")
        if name in (b"EXPUNGE", b"FETCH") and not number or name not in (b"EXISTS", b"RECENT", b"EXPUNGE", b"FETCH"):
            raise Ungrammatical(f"{number} {name!r}")
        if name == b"FETCH":
            self.space()
            found = "FETCH", number, self.items()
        else:
            found = name.decode(), number
        self.want(b"\r\n")
        return found

    def vanished(self):
        """VANISHED (RFC 7162 §7)"""
        earlier = self.takes(b" (EARLIER)")
        self.space()
        end = self.data.find(b"\r\n", self.at)
        if end < 0:
            raise Incomplete
        found = self.match(SET, "a set")
        if not earlier:
            return False, numbers_of(found)
        return True, found                          # ranges of UIDs that there may never have been

    def listed(self):
        """mailbox-list (RFC 5258 §6)"""
        self.space()
        attributes = self.list_of(lambda: self.match(ATTRIBUTE, "an attribute"))
        self.space()
        if not self.takes(b"NIL"):
            separator = self.string()
            if len(separator) != 1:
                raise Ungrammatical(f"the separator {separator!r}")
        self.space()
        name = self.mailbox()
        if self.takes(b" ("):
            self.at -= 1
            self.list_of(self.extended)
        if len({attribute.lower() for attribute in attributes}) != len(attributes):
            raise Ungrammatical("an attribute twice")
        return attributes, name

    def extended(self):
        """mbox-list-extended-item, of the kinds that there are"""
        name = self.astring()
        self.space()
        if name == b"CHILDINFO":
            return name, self.list_of(self.string, least=1)
        if name == b"OLDNAME":
            return name, self.list_of(self.mailbox, least=1)
        raise Ungrammatical(f"the extended item {name!r}")

    def status(self):
        """STATUS (RFC 3501 §7.2.4, RFC 8438 §4, RFC 9208 §4.1)"""
        self.space()
        name = self.mailbox()
        self.space()

        def value():
            item = self.atom()
            if item not in STATUS_ITEMS:
                raise Ungrammatical(f"the item {item!r} of STATUS")
            self.space()
            return item, self.number(MAX63)
        return name, dict(self.list_of(value))

    def searched(self):
        """SEARCH, SORT (RFC 7162 §7)"""
        found, modseq = [], None
        while self.takes(b" "):
            if self.takes(b"("):
                self.want(b"MODSEQ ")
                modseq = self.nz(MAX63)
                self.want(b")")
                break
            found.append(self.nz())
        return found, modseq

    def esearch(self):
        """ESEARCH (RFC 4731 §4, RFC 9051 §9)"""
        tag, items = None, {}
        if self.takes(b" ("):
            self.want(b"TAG ")
            tag = self.astring()
            self.want(b")")
        by_uid = self.takes(b" UID")
        while self.takes(b" "):
            name = self.atom()
            self.space()
            if name in items or name not in (b"MIN", b"MAX", b"ALL", b"COUNT", b"MODSEQ"):
                raise Ungrammatical(f"{name!r} of ESEARCH")
            if name == b"ALL":
                items[name] = self.set()
            else:
                items[name] = self.nz(MAX63) if name == b"MODSEQ" else self.number(MAX32, name != b"COUNT")
        return tag, by_uid, items

    def thread(self):
        """thread-data (RFC 5256 §5): all numbers in it"""
        found = []
        if self.takes(b" "):
            self.thread_list(found)
            while self.data[self.at:self.at + 1] == b"(":
                self.thread_list(found)
        return (found,)

    def thread_list(self, found):
        """thread-list"""
        self.want(b"(")
        if self.data[self.at:self.at + 1] != b"(":
            found.append(self.nz())
            while self.takes(b" "):
                if self.data[self.at:self.at + 1] == b"(":
                    self.thread_nested(found)
                    break
                found.append(self.nz())
        else:
            self.thread_nested(found)
        self.want(b")")

    def thread_nested(self, found):
        """thread-nested"""
        self.thread_list(found)
        self.thread_list(found)
        while self.data[self.at:self.at + 1] == b"(":
            self.thread_list(found)

    def namespaces(self):
        """NAMESPACE (RFC 2342 §6)"""
        for _ in range(3):
            self.space()
            if self.takes(b"NIL"):
                continue
            self.want(b"(")
            while True:
                self.want(b"(")
                self.string()
                self.space()
                self.string()
                self.want(b")")
                if self.takes(b")"):
                    break
        return ()

    def identity(self):
        """ID (RFC 2971 §4)"""
        self.space()
        if not self.takes(b"NIL"):
            words = self.list_of(self.nstring, least=2)
            if len(words) % 2 or None in words[::2]:
                raise Ungrammatical("ID with half a pair")
        return ()

    def acl(self):
        """ACL (RFC 4314 §7)"""
        self.space()
        name, found = self.mailbox(), []
        while self.takes(b" "):
            identifier = self.astring()
            self.space()
            found.append((identifier, self.rights()))
        return name, found

    def rights(self):
        """rights"""
        found = self.astring()
        if not re.fullmatch(rb"[a-z0-9]*", found):
            raise Ungrammatical(f"the rights {found!r}")
        return found

    def list_rights(self):
        """LISTRIGHTS"""
        self.space()
        name, _, identifier, _ = self.mailbox(), self.space(), self.astring(), self.space()
        found = [self.rights()]
        while self.takes(b" "):
            found.append(self.rights())
        return name, identifier, found

    def my_rights(self):
        """MYRIGHTS"""
        self.space()
        return self.mailbox(), self.space() or self.rights()

    def quota(self):
        """QUOTA (RFC 9208 §7)"""
        self.space()
        root = self.astring()
        self.space()

        def resource():
            name, _, used, _ = self.atom(), self.space(), self.number(MAX63), self.space()
            return name, used, self.number(MAX63)
        return root, self.list_of(resource)

    def quota_root(self):
        """QUOTAROOT"""
        self.space()
        name, roots = self.mailbox(), []
        while self.takes(b" "):
            roots.append(self.astring())
        return name, roots


    def metadata(self):
        """METADATA with values (RFC 5464 §5)"""
        self.space()
        name = self.mailbox()
        self.space()
        return name, self.list_of(lambda: (self.astring(), self.space(), self.nstring()), least=1)


_RESPONSES = {
    b"CAPABILITY": lambda read: (read.capabilities(),),
    b"ENABLED": lambda read: (read.words(),),
    b"FLAGS": lambda read: (read.space() or read.flags(),),
    b"LIST": Reader.listed, b"LSUB": Reader.listed,
    b"STATUS": Reader.status,
    b"SEARCH": Reader.searched, b"SORT": Reader.searched, b"ESEARCH": Reader.esearch, b"THREAD": Reader.thread,
    b"VANISHED": Reader.vanished,
    b"NAMESPACE": Reader.namespaces, b"ID": Reader.identity,
    b"ACL": Reader.acl, b"LISTRIGHTS": Reader.list_rights, b"MYRIGHTS": Reader.my_rights,
    b"QUOTA": Reader.quota, b"QUOTAROOT": Reader.quota_root, b"METADATA": Reader.metadata,
}


def response_at(octets, at=0, *, utf8=False):
    """The response that begins there, and where it ends. Raises Incomplete, Ungrammatical."""
    read = Reader(octets, at, utf8=utf8)
    return read.response(), read.at


def responses(octets, *, utf8=False):
    """All the responses in octets, of which nothing may be left over. Raises Ungrammatical."""
    found, at = [], 0
    while at < len(octets):
        try:
            response, at = response_at(octets, at, utf8=utf8)
        except Incomplete:
            raise Ungrammatical(f"{octets[at:at + 200]!r} is not complete") from None
        found.append(response)
    return found
