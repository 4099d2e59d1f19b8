# shellcheck shell=bash
# Processes and ports: start one so that it outlives us, know it again later, stop only it.
#
# A server lives in a directory:   DIR/kind  DIR/port  DIR/nodes
# and each of its processes in:    DIR/1 .. DIR/n, with  pid  log  data

say() { printf '%s\n' "$*" >&2; }
die() { say "servers: $*"; exit 1; }

is_root() { [ "$(id -u)" = 0 ]; }

# birth PID: a value that differs when the kernel has given the number to somebody else; fails for
# a process that is gone or a zombie. Pids are reused: a pid file alone may name a stranger's
# process by the time we signal it.
birth() {
  local stat
  if [ -r /proc/self/stat ]; then
    { read -r stat < "/proc/$1/stat"; } 2>/dev/null || return 1
    # The command name may hold spaces and parentheses: count fields after the last ")".
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    # A zombie that still has threads is a process being killed: its sockets are open yet.
    if [ "$1" = Z ] && [ "${18}" -le 1 ]; then return 1; fi
    echo "${20}"
  else
    ps -o lstart= -p "$1" | tr -d ' :' | grep .
  fi
}

# node_pid DIR NODE: the pid of a node that we started and that still lives.
node_pid() {
  local pid born
  { read -r pid born < "$1/$2/pid"; } 2>/dev/null || return 1
  [ "$(birth "$pid")" = "$born" ] && echo "$pid"
}

# spawn DIR NODE USER COMMAND...: runs the command in the background in a session of its own (a
# Ctrl-C meant for the tests must not reach the servers before `down` does), as USER if we are root.
spawn() {
  local nd=$1/$2 user=$3 as=() pid
  shift 3
  mkdir -p "$nd"
  if [ -s "$nd/log" ]; then cat "$nd/log" >> "$nd/log.old"; fi
  : > "$nd/log"
  if is_root && [ -n "$user" ]; then
    chown -R "$user" "$nd"
    as=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --init-groups)
  fi
  # setsid and setpriv exec what follows, so that $! is the server itself. Descriptor 9 is our lock.
  setsid "${as[@]}" "$@" < /dev/null >> "$nd/log" 2>&1 9>&- &
  pid=$!
  echo "$pid $(birth "$pid")" > "$nd/pid"
}

# clock_prepare DIR: what moves the wall clock of a server, by nothing yet. A server's user must be able to read both.
clock_prepare() {
  head -c 8 /dev/zero > "$1/shift"
  cc -O2 -shared -fPIC -o "$1/clockshift.so" "$HERE/lib/clockshift.c" && chmod 644 "$1/shift" "$1/clockshift.so"
}
# shifted DIR COMMAND...: starts a server under it.
shifted() {
  local dir=$1
  shift
  (export CLOCKSHIFT=$dir/shift LD_PRELOAD=$dir/clockshift.so && "$@")
}

# signal_node DIR NODE SIG. PostgreSQL is a family of processes: freezing or killing the parent
# alone would leave its backends answering. After KILL, and after QUIT, which is PostgreSQL's immediate
# shutdown, it returns when the process is gone, so that `start` may follow at once.
signal_node() {
  local pid family=() i
  pid=$(node_pid "$1" "$2") || { say "servers: node $2 of $1 is not running"; return 1; }
  case "$3" in
    KILL | STOP | CONT)
      if [ "$3" = KILL ]; then halt "$pid"; fi
      mapfile -t family < <(pgrep -P "$pid") # before the parent dies: orphans have no parent
      kill "-$3" "$pid" "${family[@]}" 2> /dev/null || true
      ;;
    *) kill "-$3" "$pid" ;;
  esac
  if [ "$3" = KILL ] || [ "$3" = QUIT ]; then
    for ((i = 0; i < 250; i++)); do
      all_gone "$pid" "${family[@]}" && return
      sleep 0.02
    done
    die "node $2 of $1 survived SIG$3"
  fi
}
# halt PID: returns when it stands still. A child that it had after its children were listed would
# live on, and PostgreSQL does not start while one of the old family holds its shared memory.
halt() {
  local i
  kill -STOP "$1" 2> /dev/null || return 0
  for ((i = 0; i < 50; i++)); do
    case $(ps -o state= -p "$1") in [TZ]* | '') return ;; esac
    sleep 0.01
  done
}
all_gone() {
  local pid
  for pid in "$@"; do
    if birth "$pid" > /dev/null; then return 1; fi
  done
}

# stop_node DIR NODE SIG: asks with SIG, then insists. A frozen process is thawed first.
stop_node() {
  local i
  node_pid "$1" "$2" > /dev/null || return 0
  signal_node "$1" "$2" CONT 2> /dev/null || true
  signal_node "$1" "$2" "$3" 2> /dev/null || true
  for ((i = 0; i < 100; i++)); do
    node_pid "$1" "$2" > /dev/null || return 0
    sleep 0.05
  done
  say "servers: node $2 of $1 ignored SIG$3; killing it"
  signal_node "$1" "$2" KILL || true
}

# port_open PORT: somebody listens there.
port_open() { (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null; }

# wait_until SECONDS DIR NODE WHAT...: polls WHAT; gives up when the node dies or time is out, and
# then says where to read why.
wait_until() {
  local limit=$((SECONDS + $1)) dir=$2 node=$3
  shift 3
  until "$@"; do
    if ! node_pid "$dir" "$node" > /dev/null; then
      say "servers: $(cat "$dir/kind") node $node exited; read $dir/$node/log, which ends:"
    elif [ "$SECONDS" -ge "$limit" ]; then
      say "servers: $(cat "$dir/kind") node $node did not get ready; read $dir/$node/log, which ends:"
    else
      sleep 0.1
      continue
    fi
    tail -n 15 "$dir/$node/log" >&2
    return 1
  done
}
