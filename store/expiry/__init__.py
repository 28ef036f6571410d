"""Expiry: rules that say which messages leave their mailboxes, where rules come from, and the work itself.

Rules are decided over index arrays of one view (`decide`). Each transaction (`work`) first compares the mailbox's
`changed` and UIDVALIDITY with the view's; if they differ, it decides again. `rulebook` says which rules a mailbox has,
`rounds` which mailbox is due. docs/expiry.md is for administrators.
"""
