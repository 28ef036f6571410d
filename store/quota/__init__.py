"""Quota: roots and limits, what domains use, fair shares of what is shared, and notices to users.

The use itself changes in `tables.quotatable`, in the transaction that changes the records it sums.
"""
