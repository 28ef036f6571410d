"""Mail that leaves the store for other programs, and mail that comes from theirs."""
