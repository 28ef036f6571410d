"""The one engine that makes databases of a store anew, or puts them right: sources (user area, tables that are left,
the plan of a rebuild) say what each mailbox is to be (`desired.DesiredMailbox`), and the loader (`loader`) puts it into
a partition. It decides nothing about which store, and when: that is for `store/reconstruct` and `store/recovery`.
"""
