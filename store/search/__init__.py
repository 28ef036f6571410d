"""SEARCH, SORT and THREAD over one mailbox (RFC 3501 §6.4.4, RFC 5256).

Front doors: `mailboxsearch.search`, `sort.sort`, `thread.references`. A new key of SEARCH is a value in `searchkeys`,
its evaluation in `mailboxsearch` (by the index or a column) or `matching` (by the octets of messages), and its parser
in `imap.wire.search`.

SEARCH narrows by what the index knows, as whole arrays, then by columns, before it opens a message; it goes to a thread
when it must open some. TEXT and BODY go through pages of messages (`matching`): the files of a page are read one after
the other and searched together (`prefilter`). What may be in a folded line, an encoded word, an encoded body or a
strange charset is taken apart. A column remembers which bodies must be decoded.

A column (`columns`) is one field of all messages of a mailbox, in memory. Dates are numbers, sort texts have ranks, the
texts to be searched are one string, and message ids are hashes. It is made from cache records as far as messages are
asked for (`projection`); one reading of a record serves all columns that a command needs, and only new messages are
read. Messages go by the first octets of their digests, so a column holds on whichever partition they are. What has not
been used for longest is forgotten first; a column of an empty mailbox counts, too, and what a process holds of a
mailbox goes when it deletes it.

Strings that cannot be converted sort last (RFC 5255 §4.6): their keys begin with an octet that UTF-8 does not have.
`thread` makes all links at once where no links together form a loop, and else one by one as RFC 5256 has it.
"""
