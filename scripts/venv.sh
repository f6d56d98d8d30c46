# Sourced by `check` and `test`: makes the checkout's own environment .venv, once for each state of pyproject.toml.
#
# `ready EXTRAS` installs the project, editable, with these extras (none: the core). The stamp is written last, so an
# interrupted install is repeated; an install that is up to date costs nothing. Package indexes are pip's own configuration.

PYTHON=${PYTHON:-python3}
BIN=$PWD/.venv/bin

ready() {
    local extras=$1 stamp=.venv/installed-${1:-core} state
    if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "${0##*/}: $PYTHON is not Python 3.11 or later: set PYTHON to one that is, as PYTHON=python3.12 $0" >&2
        exit 1
    fi
    state="$(cksum <pyproject.toml) $("$PYTHON" --version) $PWD"
    [ "$(cat "$stamp" 2>/dev/null)" = "$state" ] && return
    echo "${0##*/}: installing into .venv${extras:+ with [$extras]} ..." >&2
    "$PYTHON" -m venv .venv &&
        "$BIN/python" -m pip install --quiet --disable-pip-version-check --editable ".${extras:+[$extras]}" || {
        echo "${0##*/}: the install failed: see pip's message above; a broken .venv can be deleted" >&2
        exit 1
    }
    printf '%s' "$state" >"$stamp"
}
