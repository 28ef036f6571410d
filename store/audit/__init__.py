"""The audit trail: who deleted, shared, exported, searched, acted as whom, changed users, quota and configuration.

One line of JSON a command, in files in `audit/` that are only ever appended to. Each line has the digest of the line
before it, so that one that was changed, removed, inserted or moved is found (`auditverification.verify`); a cut end is
found by `audit/head`, which says how many lines there are and what the last one is, and which `onecopy audit head`
prints, to be kept elsewhere: whoever owns the store can write all of it anew, but not what was printed before. A trail
that is removed whole is found by the file `audited` of the store, which the first line has left beside the folder.

Never in it: text of messages, passwords, what a client searched for. The arguments of a command are in it as they were
typed, but for what is named as a password is, or is in a URL. Control characters are escaped.

`trail.Trail` writes, from any number of processes; `sessionaudit` is what the servers call: it imports the store, and
the rest does not, since many commands of `onecopy` begin with it. A line is on disk before the command begins, or
before a client is answered. What cannot be written (a full disk) goes to the log, or to standard error, and keeps
nobody from repairing the store.

A snapshot or a backup does not contain the trail: what is restored must not replace what has been noted since.
"""
