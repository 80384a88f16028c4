#!/bin/sh
# Installs Heliograph as a service, in Debian's layout. Changes nothing that is there but the program itself.
#   packaging/install.sh [--prefix DIR] [--extras cluster,spark] [--wheel FILE]
set -eu
cd "$(dirname "$0")"
prefix="" extras="cluster" wheel=""
while [ $# -gt 0 ]; do
    case "$1" in
        --prefix) prefix=${2%/}; shift 2 ;;
        --extras) extras=$2; shift 2 ;;
        --wheel) wheel=$2; shift 2 ;;
        *) echo "install.sh: there is no option $1; see the first lines of this file" >&2; exit 2 ;;
    esac
done
if [ -z "$prefix" ] && [ "$(id -u)" -ne 0 ]; then
    echo "install.sh: only root can install for everybody; try --prefix DIR to look at it first" >&2
    exit 2
fi

: "${PYTHON:=python3}"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "install.sh: Python 3.11 or newer is needed; name one with PYTHON=/usr/bin/python3.12" >&2
    exit 2
}

[ -x "$prefix/opt/heliograph/bin/python" ] || "$PYTHON" -m venv "$prefix/opt/heliograph"
"$prefix/opt/heliograph/bin/python" -m pip install --quiet "${wheel:-..}[$extras]"

install -d -m 755 "$prefix/etc/heliograph" "$prefix/usr/lib/systemd/system" "$prefix/usr/bin"
install -d -m 755 "$prefix/usr/share/bash-completion/completions" "$prefix/usr/share/doc/heliograph"
install -d -m 700 "$prefix/var/lib/heliograph"
[ -e "$prefix/etc/heliograph/heliograph.toml" ] || install -m 644 heliograph.toml "$prefix/etc/heliograph/heliograph.toml"
install -m 644 heliograph.service "$prefix/usr/lib/systemd/system/heliograph.service"
install -m 644 ../README.md ../CHANGELOG.md "$prefix/usr/share/doc/heliograph/"
ln -sfn /opt/heliograph/bin/helio "$prefix/usr/bin/helio"
"$prefix/opt/heliograph/bin/helio" completion bash > "$prefix/usr/share/bash-completion/completions/helio"

if [ -z "$prefix" ]; then
    getent passwd heliograph > /dev/null ||
        useradd --system --home-dir /var/lib/heliograph --shell /usr/sbin/nologin heliograph
    chown heliograph:heliograph /var/lib/heliograph
    [ -d /run/systemd/system ] && systemctl daemon-reload
fi
cat <<TEXT
Heliograph is installed${prefix:+ below $prefix}. Next:
  systemctl enable --now heliograph      # start it, and at every boot
  helio send queue:hello "Hello, world"  # from this machine
Settings: $prefix/etc/heliograph/heliograph.toml. Messages: $prefix/var/lib/heliograph.
TEXT
