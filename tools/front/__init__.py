"""What stands in front of back ends: the end point that nginx's mail proxy asks who may log in, and where to.

It answers nginx's `auth_http`: one HTTP request a connection, on a `Stream`; the Authenticator checks the password with
a `Caller` whose `Behind` is the client. docs/front.md is for administrators.
"""
