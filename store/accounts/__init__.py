"""Who the users are: directories, passwords, and what a login may do.

`base` is what the store asks of a directory; `builtin` is the one in `users.db`; the room `ldap` is another.
`mechanisms` has each SASL mechanism as a generator of challenges and of questions to the directory; a protocol only
carries the challenges, and the room `sasl` has what they prove. `tools.server.tls.channelbinding` names the TLS channel
for SCRAM-PLUS. Tokens (`tokens`) are remembered no longer than they hold. A login of any protocol goes through
`store.net.authentication`.

Addresses. `store.addresses.canonical` gives an address its one form: lower case and NFC in the local part (no case
folding, which makes one user of two that differ in sharp s), A-labels in the domain. User ids are kept in that form. An
alias is one more address of a user, for mail and not for login. The user's row has the list, `aliases.db` says whose an
address is; one transaction writes both, and recovery makes the table agree with the rows. `base.delivery_problem` says
what each status means for mail, `Status.may_log_in` for logins.

Passwords are scrypt hashes (16 MiB, some 40 ms), checked in a thread, for an unknown user as for a wrong password.
Beside the hash a password has the keys of SCRAM (10,000 rounds); unknown users get a salt that is always the same. A
password that was found right is remembered for five minutes as a digest under a key of this start of the server, shared
by its processes (`passwordcache`, `throttle.sharedcache`), so that a client that comes every minute does not cost a
hash each time. It is forgotten when the user's row changes; a changed password is another key. In memory a password is
a `Secret`, which does not print.

Failed logins slow down by user, address and network, over all processes (the room `throttle`), but not a user where the
user has logged in before. The delay comes before the password is looked at, so that it tells nothing. Two logins of an
address are looked at at a time; the others wait in line without a thread. What is refused is a line of the log in a
fixed form (`refusallines`), and a note for `onecopy explain login` (`rejectedlogins`). Rules of access (`accessrules`,
Sun's form) are checked last, after authentication.

How many connections there are each process writes to its own part of a shared memory (`throttle.sharedcounts`, a
count-min sketch under a secret key); it adds up the others' without a lock, so two that look at the same moment may
both let the last one in.
"""
