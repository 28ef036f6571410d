"""Operations that were cut off (by a kill, by lost power, by a full disk) are finished or undone.

Front doors: `cutoperations.Finishing`: `before_opening`, for what keeps the store from being opened (databases that are
half made, a snapshot that is half put back); `at_start`, for what is done before anybody is served; and `task`,
housekeeping, for what takes long and what could not be done before. One table, `operationkinds.KINDS`, says for each
kind of operation (`store.operations`) who does it. What was done goes to the log, and `onecopy status` shows it.

A function of the table does again what the operation did, as far as it is not done: so it may itself be cut off. What
had not begun is not begun now where that would surprise: a user who is to be removed, and who is another one than the
one that was meant (its INBOX is younger than the operation), stays.
"""
