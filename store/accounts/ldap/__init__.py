"""The users of an LDAP directory (RFC 4511): connections, searches, and what entries mean.

Only `ldapwire` imports ldap3. Front door: `ldapdirectory.LdapDirectory`.

`users.db` mirrors those whose mail is here, so `find` and whatever walks the users wait for nothing. Look-ups at RCPT,
logins, tokens and certificates ask the directory at most every `cache_time` (`at_once`, else `fetch` in a thread of the
kind "remote"). A flush raises a number in `users.db`, which each process compares with every look-up. What is not
understood is UNAVAILABLE: nobody gets in, and mail waits. What the directory has proved is remembered for `cache_time`
at most, of the entry as it was (entryUUID, modifyTimestamp, and the last flush): a process that meets the user for the
first time searches, and does not bind. While a user moves, `moves.db` decides where the mail is.

`ldappool` chooses the server; `ldapwire` bounds what ldap3 gets to read. What entries mean is pure: `ldapprofiles`
names the attributes of each schema, `ldapmap.Profile` makes searches of addresses, `ldapreading` an account of entries,
with where each value comes from. What decides who a user is and where the mail belongs must be certain (`BadEntry`:
refused for now); other nonsense is passed over, never in the user's favour.

`store.users.provisioning` sets the limits, `store.mailboxes.firstuse` makes a new user's mailboxes, and
`store.users.directoryremovals` notes who is gone and removes the mail after the delay.
"""
