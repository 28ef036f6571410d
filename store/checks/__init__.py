"""What `store.check` looks at, by subject."""
