"""SORT and THREAD: RFC 5256, RFC 5957, RFC 5267 §3."""

from imap.lines import Positions
from imap.session import Session
from imap.states import Reply
from imap.verbs.search import extended, highest_modseq, matching, numbers_of, write_pieces
from imap.wire import responses
from imap.wire.sorting import Algorithm, Sort, Thread, thread_data
from store.progress import Progress
from store.search.sort import sort as sorted_places
from store.search.thread import ordered_subject, references
from store.tables.state import Mailbox

_ALGORITHMS = {Algorithm.ORDEREDSUBJECT: ordered_subject, Algorithm.REFERENCES: references}


async def sort(session: Session, command: Sort) -> Reply:
    """The messages that the key finds, in the order of the criteria."""
    def work(mailbox: Mailbox, found: Positions, progress: Progress) -> Positions:
        return sorted_places(session.source, mailbox, found, command.criteria, progress)

    found = await matching(session, command, work, thread=True)
    if command.results is None:
        view = session.selected()
        await write_pieces(session, responses.search_pieces(
            b"SORT", numbers_of(view, command, found), highest_modseq(view, command, found)))
    else:
        session.stream.write(await extended(session, command, found, command.results))
    return Reply("UID SORT completed" if command.by_uid else "SORT completed")


async def thread(session: Session, command: Thread) -> Reply:
    """The messages that the key finds, as threads."""
    view = session.selected()

    def work(mailbox: Mailbox, found: Positions, progress: Progress) -> bytes:
        threads = _ALGORITHMS[command.algorithm](session.source, mailbox, found, progress)
        return thread_data(threads.roots, threads.children, numbers_of(view, command, found).tolist())

    session.stream.write(await matching(session, command, work, thread=True))
    return Reply("UID THREAD completed" if command.by_uid else "THREAD completed")
