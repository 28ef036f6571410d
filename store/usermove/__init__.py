"""A user moves from one back end to another while mail arrives: what the two say, and what each does to its store."""
