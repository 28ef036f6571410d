"""Scripts by which shells complete commands, options and names. shtab makes them from the parsers.

What shtab cannot do is ask the store: for a user, a mailbox or a partition the scripts call `onecopy completion users`
and its like, by a function of ours for each shell.
"""

import argparse
from pathlib import Path

import shtab

from tools.cli.commandtree import Node

SHELLS = tuple(shtab.SUPPORTED_SHELLS)
_KINDS = {"USER": "users", "OWNER": "users", "MAILBOX": "mailboxes", "PARTITION": "partitions"}
_FILES = frozenset({"FILE", "DIR", "FOLDER", "PATH", "ARCHIVE"})

# A mailbox is one of the user who is named before it. --root and --config are handed on.
_BASH = """
_onecopy_words() {
    local -a where=()
    local i user="" word
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${COMP_WORDS[i]}" in
            --root|--config) where+=("${COMP_WORDS[i]}" "${COMP_WORDS[++i]}") ;;
            -*) ;;
            *) user="${COMP_WORDS[i]}" ;;
        esac
    done
    [ "$1" = mailboxes ] || user=""
    while IFS= read -r word; do
        case "$word" in "$2"*) [ -n "$word" ] && printf '%q\\n' "$word" ;; esac
    done <<< "$(onecopy completion "$1" ${user:+"$user"} "${where[@]}" 2>/dev/null)"
}
_onecopy_users() { _onecopy_words users "$1"; }
_onecopy_mailboxes() { _onecopy_words mailboxes "$1"; }
_onecopy_partitions() { _onecopy_words partitions "$1"; }
"""
# The last lines are for those who source the script instead of having it in fpath.
_ZSH = """
_onecopy_words() {
    local -a where found
    local i user=""
    for ((i = 1; i < CURRENT; i++)); do
        case "$words[i]" in
            --root|--config) where+=("$words[i]" "${(Q)words[i+1]}"); ((i++)) ;;
            -*) ;;
            *) user="${(Q)words[i]}" ;;
        esac
    done
    [[ $1 = mailboxes ]] || user=""
    found=("${(@f)$(onecopy completion $1 ${user:+"$user"} $where 2>/dev/null)}")
    compadd -a found
}
_onecopy_users() { _onecopy_words users }
_onecopy_mailboxes() { _onecopy_words mailboxes }
_onecopy_partitions() { _onecopy_words partitions }
if [[ $zsh_eval_context[-1] == file ]]; then
    (( $+functions[compdef] )) || { autoload -U +X compinit && compinit -u }
    compdef _shtab_onecopy onecopy
    return
fi
"""
_FISH = """
function __onecopy_words
    set -l where
    set -l user
    set -l words (commandline -opc)
    for i in (seq 2 (count $words))
        switch $words[$i]
            case --root --config
                set -a where $words[$i] $words[(math $i + 1)]
            case '-*'
            case '*'
                set user $words[$i]
        end
    end
    test $argv[1] = mailboxes; or set user
    onecopy completion $argv[1] $user $where 2>/dev/null
end
"""
_FUNCTIONS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(shell: str, top: Node) -> str:
    """The script for that shell."""
    for command in top.walk():
        command.parser.add_argument("--root", metavar="FOLDER", help="folder of the store")
        command.parser.add_argument("--config", metavar="FILE", help="the file to read")
        for action in command.parser._actions:
            _mark(action)
    made: str = shtab.complete(top.parser, shell, preamble=_FUNCTIONS.get(shell, ""))
    return made


def _mark(action: argparse.Action) -> None:
    """Say what the value of an argument is, as shtab reads it."""
    if action.choices is not None:
        return
    if action.type is Path or action.metavar in _FILES:
        vars(action).update(complete=shtab.FILE)
    elif action.metavar in _KINDS or "--partition" in action.option_strings:
        kind = _KINDS.get(str(action.metavar), "partitions")
        vars(action).update(complete={
            "bash": f"_onecopy_{kind}", "zsh": f"_onecopy_{kind}", "fish": f"(__onecopy_words {kind})"})
