# shellcheck shell=bash
# Valkey 8.1: the valkey-server of the machine if that is new enough, or ONCEWARD_VALKEY_SERVER, or
# the package of Debian trixie.

valkey_nodes=1 valkey_span=1 valkey_stopsig=KILL
valkey_pair_nodes=2 valkey_pair_span=2 valkey_pair_stopsig=KILL
valkey_cluster_nodes=6 valkey_cluster_span=12 valkey_cluster_stopsig=KILL

# valkey_new PROGRAM: whether it runs, and is of version 8.1 or newer.
valkey_new() {
  local major minor
  read -r major minor < <("$1" --version 2> /dev/null | sed -n 's/.* v=\([0-9]*\)\.\([0-9]*\)\..*/\1 \2/p') || return 1
  [ "$((major * 100 + minor))" -ge 801 ]
}
valkey_server() {
  local program
  for program in "${ONCEWARD_VALKEY_SERVER:-}" "$(command -v valkey-server)" \
    "$(debian_program valkey-trixie valkey-server)"; do
    if [ -n "$program" ] && valkey_new "$program"; then
      echo "$program"
      return
    fi
  done
  return 1
}
valkey_fetch() {
  valkey_server > /dev/null && return
  debian_fetch valkey-trixie valkey-server valkey-server trixie
  valkey_server > /dev/null || die "Valkey does not start; set ONCEWARD_VALKEY_SERVER to 8.1 or newer"
}

valkey_port() { redis_port "$@"; }
valkey_prepare() { :; }
valkey_launch() { of_valkey redis_start "$1" "$2"; }
valkey_ready() { redis_answers "$1" "$2"; }
valkey_finish() { :; }

valkey_pair_prepare() { :; }
valkey_pair_launch() { of_valkey redis_pair_launch "$1" "$2"; }
valkey_pair_ready() { redis_answers "$1" "$2"; }
valkey_pair_finish() { redis_pair_finish "$1"; }

valkey_cluster_prepare() { :; }
valkey_cluster_launch() { of_valkey redis_cluster_launch "$1" "$2"; }
valkey_cluster_ready() { redis_answers "$1" "$2"; }
valkey_cluster_finish() { redis_cluster_finish "$1"; }

of_valkey() { # COMMAND ARGS...
  local ONCEWARD_REDIS_SERVER
  ONCEWARD_REDIS_SERVER=$(valkey_server) || die "Valkey 8.1 is not there; run: $0 install"
  "$@"
}
