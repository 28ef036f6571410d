"""SEARCH, SORT and THREAD over one mailbox (RFC 3501 §6.4.4, RFC 5256).

Front doors: `search.search`, `sort.sort`, `thread.thread`.
"""
