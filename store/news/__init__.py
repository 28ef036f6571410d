"""News between the processes of a store: which mailboxes have changed.

Imports `store.changes` and what is below. Front doors: `notify.NewsSocket`, `changeboard.Board`, `turns.Turns` (many
sessions are told a few at a time).

A transaction tells its process's listeners which mailboxes it changed (`store.changes`), and sends a datagram with
their ids to the sockets in `run/news/` (`notify`) of those in which somebody listens to one of them, as these show
(`changeboard`). It is a hint for IDLE and never the truth: a session looks at the state before it says anything, so a
lost datagram delays news and loses none. A full buffer holds ten datagrams on many systems; what finds no room is
kept, joined and sent again after 10 ms. And each mailbox that a session listens to is looked at once a minute without
any news.
"""
