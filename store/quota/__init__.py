"""Quota: roots and limits, what domains use, fair shares of what is shared, and notices to users.

The use itself changes in `tables.quotatable`, in the transaction that changes the records it sums.

`quota.db` has a row for each quota root: a user, a mailbox with a root of its own (`alice/Archive`, which covers those
below it and does not count for the user), the first level of public mailboxes, and limits of domains. Which root a
mailbox is charged to stands in its figures and changes together with the use of both roots, in one transaction; which
it should be follows from its name and the rows. A renaming changes the list first; if the process ends before the use
has moved, the next start moves it.

The first refused delivery begins the period of grace, recorded in that very transaction: OVER_QUOTA until it ends (452
4.2.2), QUOTA_GRACE_ENDED after it (552 5.2.2), which is also the answer to a message that could never fit. What a
client stores itself does not begin it. The total of a domain is a sum, not a counter: each process remembers it for ten
seconds and adds what it charges itself; no sum is made while a transaction is open.

Over IMAP a user sees the user's own roots and those of public mailboxes that it may read; use and limit are rounded up
to units of 1,024 octets. Users in `imap.admins` may use SETQUOTA, and they alone are told QUOTASET.

With `quota_charge = fair` the administrator's accounts (`onecopy quota show`, the report) charge a user what
`accounting` finds to be the user's part. It reads all index records of a partition into arrays, and divides each
message file among its holders, so that the fair shares add up to the octets of the files, exactly.

No user is told of it, and no limit is held against it: a share moves when a stranger gets or loses the same message.
Rounding would not hide that, since a user can bring the own sum as near to an edge as it takes; neither would a delay,
since a user can wait. What GETQUOTA says, and whether a message is refused, follows from the user's own messages alone.
"""
