"""Operations that take more than one transaction: the record of each that is under way, and of what became of those
that were cut off. And what the store knows of the time (`clockrecord`).

    <store>/operations/<id>         one that is under way, or was cut off: what it is, with its arguments
    <store>/operations/ended/<id>   one that was cut off, with what was done about it; kept for a month

Front door: `operationrecord.begun`. A command that changes something in several steps writes its record, on disk,
before the first of them, and removes it after the last. The process that does it holds the lock of the file: so a
record whose lock is free is of one that was cut off, which `store.finishing` finishes or undoes. A password is in none.

Two operations that hold the same (`Operation.holds`), such as two imports into one user's mailboxes, are not under way
at once: who comes second waits for the lock of the other's file. To look for a rival and to write one's own record are
one step, under the lock of the folder. Whoever finishes what was cut off has its lock, and so is such a rival, too; a
process that does a command again inherits the lock.
"""
