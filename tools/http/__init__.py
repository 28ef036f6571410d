"""The HTTP door: `[http] port`. twisted.web reads and writes HTTP, on the same `Stream` as all our servers; pages are
functions that are registered by their path in `Pages`, the front door. What nginx asks (`tools/front`) uses it, too.
docs/http.md is for administrators.

It may import the store and `tools/exits`. A process that serves no HTTP does not load `httpchannel`, `session` and
`protocol`.
"""
