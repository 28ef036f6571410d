"""Users moved from one back end to another: what the two say to each other, and what each does to its store."""
