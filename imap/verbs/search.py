"""SEARCH: RFC 3501 §6.4.4."""

import numpy as np
from attrs import evolve

from imap.session import Session
from imap.states import Reply
from imap.view import View
from imap.wire import responses
from imap.wire.numbers import NumberSet
from imap.wire.search import Search
from store.net import offload
from store.search import (
    Among,
    And,
    Body,
    HasFlag,
    Header,
    Key,
    New,
    Not,
    Numbers,
    Old,
    Or,
    Recent,
    SentBefore,
    SentOn,
    SentSince,
    Text,
)
from store.search import search as find
from store.values import Flag

_READS = (Body, Header, SentBefore, SentOn, SentSince, Text)       # keys that look into messages


async def search(session: Session, command: Search) -> Reply:
    """The numbers, or UIDs, of the messages that the key finds."""
    view = session.selected()
    key = _for_session(command.key, view)
    mailbox = evolve(view.mailbox, rows=view.rows)      # with what this session still numbers
    if _reads(key):
        mask = await offload.run(session.store, "search", find, session.store, mailbox, key)
    else:
        mask = find(session.store, mailbox, key)
    found = view.still_there(np.flatnonzero(mask))
    session.stream.write(responses.search(view.uids[found] if command.by_uid else found + 1))
    return Reply("UID SEARCH completed" if command.by_uid else "SEARCH completed")


def _for_session(key: Key, view: View) -> Key:
    r"""The key with what only this session knows put in: sequence numbers, and \Recent.

    Raises SyntaxProblem for a sequence number that is not there.
    """
    match key:
        case And(keys):
            return And(tuple([_for_session(one, view) for one in keys]))
        case Or(first, second):
            return Or(_for_session(first, view), _for_session(second, view))
        case Not(inner):
            return Not(_for_session(inner, view))
        case Numbers(ranges):
            mask = np.zeros(view.exists, np.bool_)
            mask[view.positions(NumberSet(ranges), by_uid=False)] = True
            return Among(mask)
        case Recent():
            return Among(view.recent_of(view.rows))
        case Old():
            return Among(~view.recent_of(view.rows))
        case New():
            return And((Among(view.recent_of(view.rows)), Not(HasFlag(Flag.SEEN))))
    return key


def _reads(key: Key) -> bool:
    match key:
        case And(keys):
            return any(map(_reads, keys))
        case Or(first, second):
            return _reads(first) or _reads(second)
        case Not(inner):
            return _reads(inner)
    return isinstance(key, _READS)
