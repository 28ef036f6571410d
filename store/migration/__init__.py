"""Mail from elsewhere (a backup, another server, a folder of files) that is to be here what it was there.

`messageimport` stores octets and adds records to a mailbox that is there; one that is not there yet is made by
`store/rebuild/liveloader.py`. `uidvalidity` has a mailbox that nothing was ever in take on the UIDVALIDITY of its like
elsewhere.
"""
