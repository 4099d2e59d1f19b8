#!/usr/bin/env bash
# Real servers for the tests, on loopback and on ports of their own.
#
#   servers.sh install [mysql]      find Redis, PostgreSQL, MariaDB, RabbitMQ, Java and Kafka, or install them;
#                                   with mysql: only that
#   servers.sh up [KIND...]         start all kinds (or those named), in parallel; again is harmless
#   servers.sh env                  print export lines of the ONCEWARD_* variables that tests read
#   servers.sh status               what runs where, and its memory
#   servers.sh down                 stop what `up` and `private` started, and remove the data
#
# For a test that kills, freezes or reconfigures a server, one of its own:
#
#   servers.sh ports KIND           how many ports in a row a server of this kind needs
#   servers.sh private KIND DIR PORT    start it in DIR on PORT and the ports after it; print addresses
#   servers.sh signal DIR NODE SIG  send SIG (KILL, QUIT, STOP, CONT, TERM) to node 1..n
#   servers.sh start DIR NODE       start a node again after it was killed, with its data
#   servers.sh private-down DIR     stop it and remove DIR
#
# KIND: redis (append-only file), redis-pair (primary, replica), redis-cluster (3 masters,
# 3 replicas), valkey, postgres, mariadb, kafka1, kafka3 (one and three nodes); private only: redis-tls
# (and a user of few rights), redis-sentinel (primary, replica, 3 Sentinels), valkey-pair,
# valkey-cluster, rabbitmq, redis-clock and postgres-clock (whose wall clock is moved by the nanoseconds in DIR/shift, 8 bytes; needs a C compiler).
# By name only, since it comes from Debian unstable: mysql.
#
# Environment: ONCEWARD_RUN (run directory; default $TMPDIR/onceward-servers), ONCEWARD_PORT_BASE
# (default 26300), ONCEWARD_POSTGRES_OPTIONS and ONCEWARD_MARIADB_OPTIONS (more arguments of those
# servers, which win over ours), ONCEWARD_KAFKA_VERSION, ONCEWARD_REDIS_SERVER, ONCEWARD_POSTGRES_BIN,
# ONCEWARD_VALKEY_SERVER, ONCEWARD_DEBIAN (the mirror of packages that are only unpacked).
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
RUN=${ONCEWARD_RUN:-${TMPDIR:-/tmp}/onceward-servers}
KINDS="redis redis-pair redis-cluster valkey postgres mariadb kafka1 kafka3"
NAMED_KINDS="mysql" # not started by a plain up
PRIVATE_KINDS="redis-tls redis-sentinel redis-clock valkey-pair valkey-cluster postgres-clock rabbitmq" # not started by up

# shellcheck source=lib/proc.sh
. "$HERE/lib/proc.sh"
# shellcheck source=lib/debian.sh
. "$HERE/lib/debian.sh"
# shellcheck source=lib/redis.sh
. "$HERE/lib/redis.sh"
# shellcheck source=lib/valkey.sh
. "$HERE/lib/valkey.sh"
# shellcheck source=lib/sql.sh
. "$HERE/lib/sql.sh"
# shellcheck source=lib/mysql.sh
. "$HERE/lib/mysql.sh"
# shellcheck source=lib/rabbitmq.sh
. "$HERE/lib/rabbitmq.sh"
# shellcheck source=kafka/kafka.sh
. "$HERE/kafka/kafka.sh"
# shellcheck source=lib/install.sh
. "$HERE/lib/install.sh"

known() { # KIND LIST
  case " $2 " in
    *" $1 "*) ;;
    *) die "unknown kind \"$1\"; there are: $2" ;;
  esac
}
# attr KIND NAME: a kind's constant, such as redis_pair_nodes. call KIND FUNCTION ARGS...
attr() { local v=${1//-/_}_$2 && echo "${!v}"; }
call() { local f=${1//-/_}_$2 && shift 2 && "$f" "$@"; }
kind_of() { cat "$1/kind" 2> /dev/null || die "$1 holds no server"; }

node_ready_limit=90

# server_up KIND DIR PORT: all the nodes of one server, ready for use.
server_up() {
  local kind=$1 dir=$2 port=$3 i n
  n=$(attr "$kind" nodes)
  for ((i = 0; i < $(attr "$kind" span); i++)); do
    if port_open $((port + i)); then die "$kind: port $((port + i)) is taken"; fi
  done
  mkdir -p "$dir"
  echo "$kind" > "$dir/kind"
  echo "$port" > "$dir/port"
  echo "$n" > "$dir/nodes"
  call "$kind" prepare "$dir"
  for ((i = 1; i <= n; i++)); do call "$kind" launch "$dir" "$i"; done
  for ((i = 1; i <= n; i++)); do
    wait_until $node_ready_limit "$dir" "$i" call "$kind" ready "$dir" "$i"
  done
  call "$kind" finish "$dir"
  touch "$dir/up"
}

server_alive() {
  local i
  [ -f "$1/up" ] || return 1
  for ((i = 1; i <= $(cat "$1/nodes"); i++)); do node_pid "$1" "$i" > /dev/null || return 1; done
}

server_down() { # DIR
  local i kind
  [ -f "$1/nodes" ] || return 0
  kind=$(kind_of "$1")
  for ((i = 1; i <= $(cat "$1/nodes"); i++)); do
    stop_node "$1" "$i" "$(attr "$kind" stopsig)" &
  done
  wait
  if [[ $kind = postgres* ]]; then postgres_sweep "$1"; fi
}

server_start() { # DIR NODE
  local kind
  kind=$(kind_of "$1")
  if node_pid "$1" "$2" > /dev/null; then die "node $2 of $1 runs already"; fi
  call "$kind" launch "$1" "$2"
  wait_until $node_ready_limit "$1" "$2" call "$kind" ready "$1" "$2"
}

# addresses DIR: what a client is given, one per line.
addresses() {
  local i kind
  kind=$(kind_of "$1")
  case "$kind" in
    postgres*) postgres_url "$1" ;;
    mariadb | mysql | rabbitmq) "${kind}_url" "$1" ;;
    *) for ((i = 1; i <= $(cat "$1/nodes"); i++)); do
      case "$kind" in
        kafka*) echo "127.0.0.1:$(kafka_broker_port "$1" "$i")" ;;
        *) echo "127.0.0.1:$(redis_port "$1" "$i")" ;;
      esac
    done ;;
  esac
}

# locked: one `up` or `down` at a time for this user, so that two do not choose the same ports.
locked() {
  if command -v flock > /dev/null; then
    exec 9> "${TMPDIR:-/tmp}/onceward-servers.$(id -u).lock"
    flock -w 300 9 || die "another servers.sh has been busy for five minutes"
  fi
}

# pick_base: the first block of 40 ports nobody listens on. All of them lie below the range from
# which Linux takes the ports of outgoing connections (32768 and up).
pick_base() {
  local base port
  for ((base = ${ONCEWARD_PORT_BASE:-26300}; base < 32000; base += 100)); do
    for ((port = base; port < base + 40; port++)); do
      if port_open "$port"; then continue 2; fi
    done
    echo "$base"
    return
  done
  die "no free ports between ${ONCEWARD_PORT_BASE:-26300} and 32000"
}

up_all() { # KIND...
  local kind base port pids=() failed=
  locked
  mkdir -p "$RUN"
  if [ ! -f "$RUN/base" ]; then pick_base > "$RUN/base.new" && mv "$RUN/base.new" "$RUN/base"; fi
  base=$(cat "$RUN/base")
  port=$base
  for kind in $KINDS $NAMED_KINDS; do
    case " $* " in
      *" $kind "*)
        if ! server_alive "$RUN/$kind"; then
          (
            server_down "$RUN/$kind"
            rm -rf "${RUN:?}/$kind"
            started=$SECONDS
            server_up "$kind" "$RUN/$kind" "$port"
            say "servers: $kind is up after $((SECONDS - started)) s"
          ) &
          pids+=("$!:$kind")
        fi
        ;;
    esac
    port=$((port + $(attr "$kind" span)))
  done
  for kind in "${pids[@]}"; do wait "${kind%%:*}" || failed+=" ${kind#*:}"; done
  if [ -n "$failed" ]; then
    touch "$RUN/failed" # `down` keeps the logs then
    die "did not start:$failed; logs are below $RUN (LOG is KIND/NODE/log)"
  fi
  rm -f "$RUN/failed"
}

print_env() {
  local dir
  dir() { dir=$RUN/$1 && server_alive "$dir"; }
  list() { addresses "$dir" | paste -sd, -; }
  if dir redis; then echo "export ONCEWARD_REDIS='$(list)'"; fi
  if dir redis-pair; then
    echo "export ONCEWARD_REDIS_PRIMARY='$(addresses "$dir" | sed -n 1p)'"
    echo "export ONCEWARD_REDIS_REPLICA='$(addresses "$dir" | sed -n 2p)'"
  fi
  if dir redis-cluster; then echo "export ONCEWARD_REDIS_CLUSTER='$(list)'"; fi
  if dir valkey; then echo "export ONCEWARD_VALKEY='$(list)'"; fi
  if dir postgres; then echo "export ONCEWARD_POSTGRES='$(list)'"; fi
  if dir mariadb; then echo "export ONCEWARD_MARIADB='$(list)'"; fi
  if dir mysql; then echo "export ONCEWARD_MYSQL='$(list)'"; fi
  if dir kafka1; then echo "export ONCEWARD_KAFKA='$(list)'"; fi
  if dir kafka3; then echo "export ONCEWARD_KAFKA3='$(list)'"; fi
}

# each_server: the directories of the run's servers, and of the private ones tests left behind.
each_server() {
  local kind link
  for kind in $KINDS $NAMED_KINDS; do
    if [ -f "$RUN/$kind/kind" ]; then echo "$RUN/$kind"; fi
  done
  for link in "$RUN"/private/*; do
    if [ -f "$link/kind" ]; then readlink "$link"; fi
  done
}

status() {
  local dir i pid
  each_server | while read -r dir; do
    for ((i = 1; i <= $(cat "$dir/nodes"); i++)); do
      if pid=$(node_pid "$dir" "$i"); then
        printf '%-14s node %d  pid %-7s %5d MiB  %s\n' "$(kind_of "$dir")" "$i" "$pid" \
          "$(rss_mib "$pid")" "$(addresses "$dir" | sed -n "${i}p")"
      else
        printf '%-14s node %d  not running; read %s\n' "$(kind_of "$dir")" "$i" "$dir/$i/log"
      fi
    done
  done
}
# rss_mib PID: resident memory, of the children too (PostgreSQL).
rss_mib() {
  ps -o rss= -p "$1" --ppid "$1" | awk '{ kib += $1 } END { print int(kib / 1024) }'
}

down_all() {
  local dir link
  locked
  [ -d "$RUN" ] || return 0
  while read -r dir; do
    server_down "$dir" &
  done < <(each_server)
  wait
  for link in "$RUN"/private/*; do
    if [ -f "$link/kind" ]; then rm -rf "$(readlink "$link")"; fi
  done
  if [ -f "$RUN/failed" ]; then
    find "$RUN" -type f ! -name 'log*' ! -name '*.log' ! -name failed -delete
    say "servers: kept the logs of the failed start below $RUN"
  else
    rm -rf "${RUN:?}"
  fi
}

private_up() { # KIND DIR PORT
  local dir
  [ ! -e "$2/kind" ] || die "$2 holds a server already"
  mkdir -p "$2" "$RUN/private"
  dir=$(cd "$2" && pwd)
  # `down` finds it by this link when the test that owns it died without cleaning up.
  ln -sfn "$dir" "$RUN/private/$3"
  (server_up "$1" "$dir" "$3") &
  wait $! || { # not `if ! (...)`: bash would ignore every failure inside
    server_down "$dir"
    rm -f "$RUN/private/$3"
    exit 1
  }
  addresses "$dir"
}

private_down() { # DIR
  local dir
  dir=$(cd "$1" && pwd)
  kind_of "$dir" > /dev/null
  server_down "$dir"
  rm -f "$RUN/private/$(cat "$dir/port")"
  rm -rf "${dir:?}"
}

need() { [ "$1" -ge "$2" ] || { usage >&2; exit 2; }; }
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"; }

cmd=${1:-help}
shift || true
case "$cmd" in
  install)
    case "$*" in
      '') install_all ;;
      mysql) mysql_fetch ;;
      *) die "install takes nothing or mysql, not \"$*\"" ;;
    esac
    ;;
  up)
    for kind in "$@"; do known "$kind" "$KINDS $NAMED_KINDS"; done
    # shellcheck disable=SC2086
    if [ $# = 0 ]; then set -- $KINDS; fi
    up_all "$@"
    ;;
  env) print_env ;;
  status) status ;;
  down) down_all ;;
  ports) need $# 1 && known "$1" "$KINDS $NAMED_KINDS $PRIVATE_KINDS" && attr "$1" span ;;
  private) need $# 3 && known "$1" "$KINDS $NAMED_KINDS $PRIVATE_KINDS" && private_up "$@" ;;
  private-down) need $# 1 && private_down "$1" ;;
  signal) need $# 3 && kind_of "$1" > /dev/null && signal_node "$@" ;;
  start) need $# 2 && server_start "$@" ;;
  help | -h | --help) usage ;;
  *)
    usage >&2
    exit 2
    ;;
esac
