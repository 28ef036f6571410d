"""The workloads of the load generator. Each is a function of a `Context`: it prepares, measures within `ctx.span()`,
reports with `ctx.rate()`, `ctx.each()` or `ctx.number()`, checks with `ctx.expect()`, and puts everything back.
`catalogue` has them all by name."""
