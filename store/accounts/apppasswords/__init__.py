"""App passwords and second factors: what a user has beside the password that the directory keeps.

An app password is one that we make for one mail program, so that it need not know the user's own; a second factor is
asked for by the console beside the password. `accessfiles` has a file of each user who has any of these, in the folder
`access/` of the store. They are no rows of a database, for these reasons:

* A user of an outside directory may have no row here, and the row is the directory's.
* A snapshot that is put back must not give back what has been revoked, nor take a second factor away. For the same
  reason they are in no backup: after a loss of the whole disk users make them again.
* Nobody but who logs in by one pays for it: a login with another password looks once whether there is such a file.

The file is replaced whole, under a lock, so that several processes may change it, and a kill leaves what was or what is
to be. A rename of the user takes the file along, and a move to another back end sends it there; when the user is
removed it goes, and who comes back makes app passwords again.

`apppassword` says what an app password is, `accessrecord` what the file says, `applogins` what a login asks.
`totp` and `passkeys` check second factors, by pyotp and webauthn: only the console loads them.
"""
