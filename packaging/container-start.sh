#!/bin/sh
# Starts Heliograph in a container: alone, or as node HELIO_NODE of the cluster HELIO_HOSTS="one=ADDRESS two=ADDRESS …".
set -eu
: "${HELIO_PORT:=7700}" "${HELIO_DATA:=/var/lib/heliograph}" "${HELIO_CLUSTER_FILES:=/cluster}"

make_admin() {  # once, in the folder $1: a server that others can reach wants to know its users
    [ -e "$1/users.toml" ] && return
    if [ -z "${HELIO_ADMIN_PASSWORD:-}" ]; then
        echo "set HELIO_ADMIN_PASSWORD: other machines reach a server in a container, so it needs a user" >&2
        exit 2
    fi
    printf '%s\n' "$HELIO_ADMIN_PASSWORD" |
        helio user add admin --role admin --password-stdin --users-file "$1/users.toml" > /dev/null
}

if [ "${1:-}" = "make-cluster" ]; then  # once, for all nodes
    [ -e "$HELIO_CLUSTER_FILES/authkey" ] ||
        helio cluster init $HELIO_HOSTS --output "$HELIO_CLUSTER_FILES"
    make_admin "$HELIO_CLUSTER_FILES"
    exit
fi
if [ $# -gt 0 ]; then
    exec helio "$@"
fi
mkdir -p "$HELIO_DATA"
if [ -n "${HELIO_NODE:-}" ]; then
    install -m 644 "$HELIO_CLUSTER_FILES/corosync.conf" /etc/corosync/corosync.conf
    install -m 400 "$HELIO_CLUSTER_FILES/authkey" /etc/corosync/authkey
    mkdir -p /etc/corosync/uidgid.d
    echo 'uidgid { uid: heliograph }' > /etc/corosync/uidgid.d/heliograph
    corosync
    [ -e "$HELIO_DATA/users.toml" ] || install -m 600 "$HELIO_CLUSTER_FILES/users.toml" "$HELIO_DATA/users.toml"
    set -- --config "$HELIO_CLUSTER_FILES/$HELIO_NODE.toml" --data "$HELIO_DATA"
else
    make_admin "$HELIO_DATA"
    set -- --host 0.0.0.0 --port "$HELIO_PORT" --data "$HELIO_DATA"
fi
if [ "$(id -u)" -eq 0 ]; then
    chown -R heliograph:heliograph "$HELIO_DATA"
    exec setpriv --reuid heliograph --regid heliograph --clear-groups helio serve "$@"
fi
exec helio serve "$@"
