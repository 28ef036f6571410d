"""The list of mailboxes: names, rights, subscriptions, annotations. It knows no messages.

One Berkeley DB environment, `<root>/mboxlist`, for the whole store. Imports the room `engine` below it and nothing else
of ours. Front door: `table.MailboxList`.

The list is written when a mailbox is made, renamed, shared or removed, so it is never a bottleneck. The last mailbox id
and the last UIDVALIDITY are kept here, are taken in advance and flushed first, and never come again. Its tables:

    mailboxes.db, names.db      name -> id, partition, UIDVALIDITY, ACL, special use; id -> name (`table`)
    rights.db                   identifier -> mailboxes that it may look up, so that LIST need not read every ACL
    deleted.db                  id -> row and time of a deleted mailbox, for undelete
    pending.db                  ids of mailboxes on which something has begun: a start settles only these
    former.db                   name -> highest UIDVALIDITY that it had, for restore
    forgotten.db                removed user -> what to bring back (`store.users.restorable`)
    moves.db                    users on their way between back ends (`usermoves`)
    annotations.db, subscriptions.db
    users.db, aliases.db        the built-in directory, or the mirror of LDAP's (`store.accounts`)

Sharing. A mailbox's row has its ACL (RFC 4314, `acl`): users, `group:NAME` and `anyone`, each also with `-` for rights
that are taken away after all that were granted. No user id may look like another identifier: a user `-bob` would have
what is taken from bob. `rights.db` is written with the row itself (`MailboxList.write`), so LIST costs what a user may
see and not what there is. When a user is renamed or removed the lists follow, also those of deleted mailboxes.

A user who has moved to another back end is guarded by `MailboxList.guard`: it refuses changes of that user's mailboxes.
"""
