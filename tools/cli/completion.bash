# Completion of onecopy for bash and zsh, made by `onecopy completion`.
_onecopy() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"
    local at="" words="" options="" valued="" kinds="" places="" repeated=0 place=0 skip=0 first="" i word kind
    local -a store
    store=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${COMP_WORDS[i]}"
        if [ "$skip" = 1 ]; then
            skip=0
            case "${COMP_WORDS[i-1]}" in --root|--config) store+=("${COMP_WORDS[i-1]}" "$word") ;; esac
        elif [ -n "$words" ] || [ -z "$at" ]; then
            at="${at:+$at }$word"
            words=""
            _onecopy_command
        else
            case "$valued" in *" $word "*) skip=1 ;; esac
            case "$word" in
                -*) ;;
                *) [ "$place" = 0 ] && first="$word"; place=$((place + 1)) ;;
            esac
        fi
    done
    COMPREPLY=()
    [ -z "$at" ] && _onecopy_command
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
        return
    fi
    case "$valued" in
        *" $prev "*)
            kind="${kinds#* $prev=}"
            [ "$kind" = "$kinds" ] && return
            _onecopy_offer "${kind%% *}"
            return ;;
    esac
    case "$cur" in -*) COMPREPLY=($(compgen -W "$options" -- "$cur")); return ;; esac
    kind="-"
    i=0
    for word in $(printf '%s' "$places"); do
        if [ "$i" = "$place" ] || [ "$repeated" = 1 ]; then
            kind="$word"
            [ "$i" = "$place" ] && break
        fi
        i=$((i + 1))
    done
    _onecopy_offer "$kind"
}

_onecopy_offer() {
    local found="" word
    case "$1" in
        -|"") return ;;
        file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        users|partitions) found="$(onecopy completion "$1" "${store[@]}" 2>/dev/null)" ;;
        mailboxes) [ -n "$first" ] && found="$(onecopy completion mailboxes "$first" "${store[@]}" 2>/dev/null)" ;;
        *) found="$(printf '%s' "$1" | tr ',' '\n')" ;;
    esac
    # Names of mailboxes are whatever their owners like: compgen -W would expand what looks like a command in them.
    while IFS= read -r word; do
        case "$word" in "$cur"*) [ -n "$word" ] && COMPREPLY+=("$(printf '%q' "$word")") ;; esac
    done <<< "$found"
}

_onecopy_command() {
    case "$at" in
        # the commands
    esac
}

complete -F _onecopy onecopy
