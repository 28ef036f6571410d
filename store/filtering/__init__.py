"""What users and the site want done with mail that comes: Sieve scripts where they live, and what becomes of messages.

`userscripts` keeps the scripts of users, `sitescripts` reads those of the site. `knownscripts` compiles them once and
finds them at one look, `filters` runs them (`store.sieve`) for a message and a recipient; `disposition` says what that
means here: mailboxes, answers, mail that leaves. All of it is written by the transaction that delivers the
message. `eventscripts` runs scripts for what IMAP commands did.
"""
