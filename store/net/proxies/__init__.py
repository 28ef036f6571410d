"""Connections of proxies: the PROXY header that says for whom they connect.

Front door: `proxyconnections.ProxiedFactory`, the outermost layer of every listener. It imports the rooms below and
`store.net`.
"""
