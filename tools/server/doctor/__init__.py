"""What `onecopy doctor` looks at: the host, the relay in front, names and certificates, and how old things are.

`deployment.look_over` is the front door. Nothing is made or changed. It may import tools/server and what is below.
"""
