"""The way back: a machine whose standby has been promoted brings home what only it has, and follows that one
(docs/standby.md).

Front doors: `stranded.find`, `sendinghome.SendingHome` and `returning.follow` on the machine that comes back,
`takinghome.TakingHome` and `givingup.give_up` on the one that serves. May import `store/standby` and what is below it.

The promoted machine keeps what its list of mailboxes and the figures of each mailbox were when it was promoted
(`store.standby.promotion.PROMOTED`): the common place of both. The other one fetches these (`commonplace`). Messages
with UIDs from UIDNEXT of then on are those that only it has: no UID of the promoted machine is one of these, since a
promotion skips ahead. They are delivered there, each as often as it is not there already; so what was cut off is done
again. What else it did since then is told the administrator, and not done.
"""
