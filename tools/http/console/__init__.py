"""The web console, at /console/: pages that the server makes, for people. docs/console.md is for them.

Whatever a page shows or does is an operation of the API (`tools/http/api`), carried out with the role that the user has
by the settings of `[http]`: `api/permissions` alone decides who may what, and the audit trail names the user.

It may import all of tools/http, `tools/spark/report/charts`, and what is below. A process that serves no HTTP loads
none of it. `consoleframe.Console` is the front door.

A page is made so; `pages/partitionpages.py`, say:

    async def show(visit: Visit) -> Answer:
        rows = await visit.ask("partition list")            # the JSON that `onecopy partition list --json` prints
        return await visit.show("partitions.html", "Partitions", rows=rows)

    async def close(visit: Visit) -> Answer:                # POST: its form is one of ours, when this is called
        given = {"partition": visit.query["partition"], "close": True}
        return await visit.act("partition set", given, back=visit.url("partitions"), done="changed")

    SECTION = Section("partitions", "Partitions", (ADMINISTRATOR, AUDITOR), (
        View("partitions", show), View("partitions/close", close, post=True, roles=(ADMINISTRATOR,))))

and a line in `pages/allpages.py`. Its template extends `layout.html`:

    {% extends "layout.html" %}
    {% block main %}
    <div class="wide"><table><caption>Partitions</caption>
    {% for row in rows %}
    <tr><th scope="row">{{ row.partition }}</th><td class="numbers">{{ row.octets|octets }}</td>
    {% if may("partition set") %}
    <td><form method="post" action="{{ url('partitions/close', partition=row.partition) }}">{{ csrf }}
    <button>Close</button></form></td>
    {% endif %}
    ...

Paths are fixed; names are in the query, where anything can be. What a template prints is escaped, and its invisible
characters are shown (`rendering`). There is no script or style but the two files in `static/`.
"""
