#!/usr/bin/env bash
# Makes .venv with the package in it, and on Debian or Ubuntu installs the system packages that are missing.
# Does nothing, quickly, where nothing is missing. PYTHON=/path/to/python picks the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

STAMP=.venv/.dressi-installed
PACKAGES="mesa-vulkan-drivers libvulkan1 vulkan-validationlayers"

say() { printf 'setup: %s\n' "$*" >&2; }

# The first usable interpreter, Python >= 3.10; prints nothing where there is none.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
}

have_venv() { [ -x .venv/bin/python ] && [ -e .venv/bin/pip ]; }

# Debian ships Python without ensurepip, which venv needs; other Pythons have it.
lacks_venv() {
    local python
    python=$(find_python)
    [ -z "$python" ] || ! "$python" -c 'import ensurepip, venv' 2>/dev/null
}

missing_packages() {
    local package state
    for package in $PACKAGES; do
        state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || state=
        [ "$state" = installed ] || printf '%s ' "$package"
    done
    if ! have_venv && lacks_venv; then printf 'python3-venv '; fi
}

install_system_packages() {
    local missing sudo=
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        # Without a terminal nobody can type a password.
        if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
            sudo=sudo
        else
            say "missing system packages, and no root or sudo to install them: $missing"
            say "ask for: apt-get install $missing"
            return 0
        fi
    fi
    say "installing system packages: $missing"
    # Waits for another apt-get; asks nothing. A failure is reported but not the end: another driver may be there.
    local apt="env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0"
    # shellcheck disable=SC2086 # words are meant to split
    if ! { $sudo $apt update && $sudo $apt install --no-install-recommends $missing; } </dev/null >&2; then
        say "apt-get failed; going on without: $missing"
    fi
}

make_venv() {
    have_venv && return 0
    local python
    python=$(find_python)
    if [ -z "$python" ]; then
        say "Dressi needs Python 3.10 or newer; found: $("${PYTHON:-python3}" --version 2>/dev/null || echo none)"
        say "install one (Debian, Ubuntu: python3 and python3-venv) or name one: PYTHON=/path/to/python3 make setup"
        exit 1
    fi
    rm -f "$STAMP" # what an earlier interpreter installed is of no use to this one
    say "making .venv with $("$python" --version 2>&1)"
    if ! "$python" -m venv .venv >&2; then
        say "could not make .venv; on Debian or Ubuntu: apt-get install python3-venv"
        exit 1
    fi
}

# Again when pyproject.toml is newer, or when the checkout was moved: scripts in .venv hold absolute paths.
install_python_packages() {
    [ -e "$STAMP" ] && [ ! pyproject.toml -nt "$STAMP" ] && [ "$(cat "$STAMP")" = "$PWD" ] && return 0
    if [ -e "$STAMP" ] && [ "$(cat "$STAMP")" != "$PWD" ]; then
        say "the checkout was moved: making .venv anew"
        rm -rf .venv
        make_venv
    fi
    say "installing Python packages into .venv (a minute or two the first time)"
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-input --progress-bar off \
        --prefer-binary -e '.[dev]' </dev/null >&2
    printf '%s\n' "$PWD" >"$STAMP"
    say "ready"
}

if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
    install_system_packages
elif [ ! -e "$STAMP" ]; then
    say "not Debian or Ubuntu: a Vulkan loader and driver must be there already (see README)"
fi
make_venv
install_python_packages
