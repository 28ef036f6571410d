"""What others feel while one user, one command or an attacker is at their largest: `bystander`, `stormwait`, and what
sharing costs (`sharingtime`); beside commands of an administrator, `besidecommands`; `benchclients` are the clients
that they ask with."""
