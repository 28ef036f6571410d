# Sourced by the scripts beside it: `setup [LIST...]` makes .venv in the repository, and sees to the system packages that
# packages/LIST.list names, for the tests also to those of packages/unpacked.list and npm.list, to the root folders of
# roots.list, to Spark with its classes and to what builds the site (`setup docs`: to that alone). Leaves $root (the repository) and $venv
# set. The system's own Python is not touched.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# PYTHON, such as python3.13, is used in place of the first that is found, in a virtual environment of its own.
venv=$root/.venv${PYTHON:+-${PYTHON##*/}}
# The host may have an onecopy of its own: nothing of its configuration counts for what the scripts start.
unset ${!ONECOPY_@}
export ONECOPY_CONFIG=/dev/null
# What is compiled at a first start is kept, or each start compiles all of onecopy again, and keeps memory for it.
unset PYTHONDONTWRITEBYTECODE
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# --yes, wherever it stands, is for set-up alone: the other words stay. Tests that run by themselves have nobody to ask.
yes=${CI:+yes}
for word; do
    shift
    if [ "$word" = --yes ]; then yes=yes; else set -- "$@" "$word"; fi
done

fail() {
    echo "${0##*/}: $*" >&2
    exit 2
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

[ -z "${PYTHON-}" ] || is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON is no Python of 3.11 or later"

choose_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do
        if is_new_enough "$candidate"; then
            python=$(command -v "$candidate")
            return
        fi
    done
    python=python3
    return 1
}

# The packages of the lists whose commands fail, in `missing`.
look_for_missing() {
    local list package present
    missing=()
    for list in "$@"; do
        while read -r package present; do
            if [[ $package != '#'* ]] && ! eval "$present" >/dev/null 2>&1 </dev/null; then
                missing+=("$package")
            fi
        done <"$root/tools/packages/$list.list"
    done
}

system_packages() {
    look_for_missing "$@"
    [ ${#missing[@]} -eq 0 ] && return
    local command="apt-get install ${missing[*]}"
    command -v apt-get >/dev/null || fail "missing: ${missing[*]} (names of Debian packages)"
    may_install || fail "missing: ${missing[*]}; as root: $command"
    echo "${0##*/}: $command" >&2
    "${become[@]}" bash "$root/tools/packages/apt.sh" "${missing[@]}" >&2 </dev/null || fail "failed: $command"
    look_for_missing "$@"
    [ ${#missing[@]} -eq 0 ] || fail "still missing after its installation: ${missing[*]}"
}

# Root, or one who becomes it without a password; what does it is in `become`.
may_install() {
    become=()
    [ "$(id -u)" -eq 0 ] && return
    become=(sudo -n)
    sudo -n true 2>/dev/null </dev/null
}

# Once for all lists: may root install what is missing? Who cannot is not asked.
consent() {
    local answer
    [ -z "$yes" ] && look_for_missing "$@" && [ ${#missing[@]} -gt 0 ] && command -v apt-get >/dev/null && may_install || return 0
    local command="apt-get install ${missing[*]}"
    echo "${0##*/}: these packages of Debian are missing: ${missing[*]}" >&2
    asks || fail "there is nobody to ask: $0 --yes installs them as root, or do it: $command"
    read -r -p "${0##*/}: install them as root ($command)? [y/N] " answer || answer=
    [[ $answer = [yY]* ]] || fail "nothing was installed; as root: $command"
}

# Is there a terminal at which somebody can read the question and answer it?
asks() {
    [ -t 0 ] && [ -t 2 ]
}

# Packages that exclude one that is installed.
unpacked_packages() {
    local folder program packages
    while read -r folder program packages; do
        [[ $folder == '#'* ]] && continue
        folder=$venv/unpacked/$folder
        [ -x "$folder/$program" ] && continue
        command -v apt-get >/dev/null || fail "missing: $packages (names of Debian packages)"
        echo "${0##*/}: unpacking $packages into $folder" >&2
        bash "$root/tools/packages/unpack.sh" "$folder" $packages >&2 </dev/null || fail "could not unpack $packages"
        [ -x "$folder/$program" ] || fail "no $program in $packages"
    done <"$root/tools/packages/unpacked.list"
}

# Packages of the npm registry.
npm_packages() {
    local package version file digest folder
    while read -r package version file digest; do
        [[ $package == '#'* ]] && continue
        folder=$venv/unpacked/$package-$version
        [ -e "$folder/$file" ] && continue
        echo "${0##*/}: unpacking $package $version into $folder" >&2
        bash "$root/tools/packages/npm.sh" "$folder" "$package" "$version" "$digest" >&2 </dev/null \
            || fail "could not unpack $package $version of the npm registry"
        [ -e "$folder/$file" ] || fail "no $file in $package $version"
    done <"$root/tools/packages/npm.list"
}

# Root folders of Debian, in which packages are installed and removed. Who is not root does without their tests.
debian_roots() {
    local folder suite packages
    [ "$(id -u)" -eq 0 ] || return 0
    while read -r folder suite packages; do
        [[ $folder == '#'* ]] && continue
        folder=$venv/unpacked/$folder
        [ -e "$folder/etc/debian_version" ] && continue
        echo "${0##*/}: making a root folder of Debian ($suite) in $folder" >&2
        bash "$root/tools/packages/root.sh" "$folder" "$suite" $packages >&2 </dev/null || fail "could not make $folder"
    done <"$root/tools/packages/roots.list"
}

usable() {
    is_new_enough "$venv/bin/python"
}

# What .venv was made of. The names of the packages count: an editable installation knows only those that were there.
ingredients() {
    echo "$root $(cd "$root" && { cat setup.cfg pyproject.toml tools/packages/*.lock; echo ./*/__init__.py; } | sha256sum)"
}

up_to_date() {
    [ "$(cat "$venv/onecopy$1.stamp" 2>/dev/null)" = "$(ingredients)" ] && usable
}

# A link is followed to an environment that was made for this repository, or to an empty folder. What is anything else
# belongs to somebody: it would be emptied, or get our packages.
refuse_other_environment() {
    [ -L "$venv" ] || return 0
    local target
    target=$(readlink -f "$venv") && [ -d "$target" ] ||
        fail "$venv is a link to $(readlink "$venv"), which is no folder: remove the link, or make the folder"
    [ -z "$(ls -A "$target")" ] || [[ $(cat "$target/onecopy.stamp" 2>/dev/null) = "$root "* ]] ||
        fail "$venv is a link to $target, which was not made for $root and stays as it is: remove the link"
}

virtual_environment() {
    up_to_date '' && return
    refuse_other_environment
    system_packages build
    # One that was made elsewhere, or only half, is made anew.
    if ! usable || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 || {
            [ -e "$venv/onecopy.stamp" ] && [[ $(cat "$venv/onecopy.stamp") != "$root "* ]]; }; then
        echo "${0##*/}: making $venv" >&2
        "$python" -m venv --clear "$venv" >&2 || fail "cannot make $venv with $python"
        echo "$root has not got its packages yet" >"$venv/onecopy.stamp"
        # What Debian's packages bring is the same for all.
        [ "$venv" = "$root/.venv" ] || { mkdir -p "$root/.venv/unpacked" && ln -s ../.venv/unpacked "$venv/unpacked"; }
    fi
}

# What onecopy and its tests need, and these extras of setup.cfg, in one go: there is none of them before somebody asks for
# it. Spark is large.
python_packages() {
    local list lists=()
    for list in "$@"; do
        up_to_date ".$list" || lists+=("$list")
    done
    [ ${#lists[@]} -eq 0 ] && up_to_date '' && return
    echo "${0##*/}: installing Python packages into $venv" >&2
    bash "$root/tools/packages/python.sh" --editable "$venv" test "${lists[@]}" >&2 || fail "pip could not install what the lists name"
    for list in '' "${lists[@]/#/.}"; do
        ingredients >"$venv/onecopy$list.stamp"
    done
}

# What Java has loaded for Spark, kept so that the tests' virtual machines begin sooner. They begin without it, too.
java_classes() {
    up_to_date .classes && return
    echo "${0##*/}: making $venv/javaclasses.jsa" >&2
    if (cd "$root" && "$venv/bin/python" -m tests.support.servers.classarchive) >&2 </dev/null; then
        ingredients >"$venv/onecopy.classes.stamp"
    else
        echo "${0##*/}: Java has kept no classes of Spark" >&2
    fi
}

# What was begun beside it ends first: nothing goes on after its lock is gone.
failed() {
    wait "$@" || true
    exit 2
}

# One set-up at a time; the second waits and then finds everything done. The lock is that of the folder itself: who may
# write to it can put nothing there that set-up would open.
setup() {
    local list lists=()
    [ -z "$(find "$root" -maxdepth 0 -perm -002)" ] || fail "every user can write to $root, and so decide what runs" \
        "here: chmod o-w $root"
    {
        flock 9
        local extras=() packages roots
        [[ " $* " != *" test "* ]] || extras=(spark docs)
        [[ " $* " != *" docs "* ]] || extras=(docs)
        up_to_date '' || lists+=(build)
        for list in "$@"; do
            [ "$list" = docs ] || lists+=("$list")
        done
        consent "${lists[@]}" 9>&-
        virtual_environment 9>&-
        python_packages "${extras[@]}" 9>&- &       # apt does not need them, and much of it waits for the network
        packages=$!
        for list in "${lists[@]}"; do
            ( system_packages "$list" ) 9>&- || failed "$packages"
        done
        if [[ " $* " == *" test "* ]]; then
            debian_roots 9>&- &
            roots=$!
            ( unpacked_packages && npm_packages ) 9>&- || failed "$packages" "$roots"
            wait "$roots" || ( debian_roots ) 9>&- || failed "$packages"      # once more, when nothing runs beside it
        fi
        wait "$packages" || exit 2
        [[ " $* " != *" test "* ]] || ( java_classes ) 9>&- || exit 2
    } 9<"$root"
}
