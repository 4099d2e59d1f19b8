# shellcheck shell=bash
# PostgreSQL and MariaDB: their own data directory, loopback TCP, durability as shipped.

postgres_nodes=1 postgres_span=1
postgres_stopsig=INT # fast shutdown

# postgres_bin: Debian keeps the server's programs out of PATH, one directory per version.
postgres_bin() {
  local dir
  for dir in "${ONCEWARD_POSTGRES_BIN:-}" /usr/lib/postgresql/15/bin /usr/lib/postgresql/*/bin \
    "$(pg_config --bindir 2> /dev/null)" "$(dirname "$(command -v initdb || echo /none/x)")"; do
    if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then
      echo "$dir"
      return
    fi
  done
  return 1
}
# as_user USER COMMAND...: the databases refuse to run as root.
as_user() {
  local user=$1
  shift
  if is_root; then
    setpriv "--reuid=$user" "--regid=$(id -g "$user")" --init-groups "$@"
  else
    "$@"
  fi
}

postgres_prepare() {
  local bin
  bin=$(postgres_bin) || die "PostgreSQL is not installed; run: $0 install"
  mkdir -p "$1/1"
  is_root && chown postgres "$1/1"
  # --no-sync only spares the syncs of this first, empty state.
  (cd / && as_user postgres "$bin/initdb" -D "$1/1/data" -U onceward -A trust -E UTF8 --locale=C \
    --no-sync) > "$1/initdb.log" 2>&1 || {
    say "servers: initdb failed (is $1 readable for user postgres?); read $1/initdb.log, which ends:"
    tail -n 15 "$1/initdb.log" >&2
    return 1
  }
}
# A killed server leaves its lock file, which names a pid that may still exist as a zombie or belong
# to a stranger by now; PostgreSQL would then refuse to start. Our caller knows that ours is dead.
postgres_launch() {
  rm -f "$1/$2/data/postmaster.pid"
  # shellcheck disable=SC2086 # ONCEWARD_POSTGRES_OPTIONS is several arguments
  spawn "$1" "$2" postgres env -C / "$(postgres_bin)/postgres" -D "$1/$2/data" -p "$(cat "$1/port")" \
    -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200 \
    -c shared_buffers=32MB -c logging_collector=off ${ONCEWARD_POSTGRES_OPTIONS:-}
}
# postgres_sweep DIR: a killed server also leaves its shared memory segment, which outlives all of
# its processes; the lock file's seventh line names it. (A restart would have taken it over.)
postgres_sweep() {
  local segment
  segment=$(sed -n '7s/^ *[0-9]* *//p' "$1/1/data/postmaster.pid" 2> /dev/null) || return 0
  if [ -n "$segment" ]; then ipcrm -m "$segment" 2> /dev/null || true; fi
}
postgres_ask() { "$(postgres_bin)/psql" -X -q -h 127.0.0.1 -p "$(cat "$1/port")" -U onceward "${@:2}"; }
postgres_ready() { postgres_ask "$1" -d postgres -c 'SELECT 1' > /dev/null 2>&1; }
postgres_finish() { postgres_ask "$1" -d postgres -c 'CREATE DATABASE onceward'; }
postgres_url() { echo "postgres://onceward@127.0.0.1:$(cat "$1/port")/onceward?sslmode=disable"; }

postgres_clock_nodes=1 postgres_clock_span=1
postgres_clock_stopsig=INT
postgres_clock_prepare() { clock_prepare "$1" && postgres_prepare "$1"; }
postgres_clock_launch() { shifted "$1" postgres_launch "$1" "$2"; }
postgres_clock_ready() { postgres_ready "$1"; }
postgres_clock_finish() { postgres_finish "$1"; }

mariadb_nodes=1 mariadb_span=1
mariadb_stopsig=TERM

mariadb_prepare() {
  local as=() nd=$1/1
  mkdir -p "$nd"
  if is_root; then
    chown mysql "$nd"
    as=(--user=mysql)
  fi
  mariadb-install-db --no-defaults "${as[@]}" --datadir="$nd/data" --skip-test-db \
    --auth-root-authentication-method=normal > "$1/install-db.log" 2>&1 || {
    # It ends in general advice; what was wrong stands above that.
    say "servers: mariadb-install-db failed; in $1/install-db.log:"
    { grep -m 10 -i 'error' "$1/install-db.log" || tail -n 15 "$1/install-db.log"; } >&2
    return 1
  }
  cat > "$nd/init.sql" <<'SQL'
CREATE DATABASE IF NOT EXISTS onceward;
CREATE USER IF NOT EXISTS 'onceward'@'127.0.0.1' IDENTIFIED BY 'onceward';
GRANT ALL ON *.* TO 'onceward'@'127.0.0.1' WITH GRANT OPTION;
SQL
}
# The socket's name is relative to the data directory: a full path could exceed the 107 bytes that
# a socket's name may have.
mariadb_launch() {
  # shellcheck disable=SC2086 # ONCEWARD_MARIADB_OPTIONS is several arguments
  spawn "$1" "$2" mysql "$(command -v mariadbd || echo /usr/sbin/mariadbd)" --no-defaults \
    --datadir="$1/$2/data" --socket=sock --pid-file=pid --bind-address=127.0.0.1 \
    --port="$(cat "$1/port")" --init-file="$1/$2/init.sql" --skip-name-resolve --skip-log-bin \
    --max-connections=200 --performance-schema=OFF --innodb-buffer-pool-size=32M \
    --innodb-log-file-size=16M ${ONCEWARD_MARIADB_OPTIONS:-}
}
mariadb_ready() {
  mariadb --no-defaults -h 127.0.0.1 -P "$(cat "$1/port")" -uonceward -ponceward onceward \
    -e 'SELECT 1' > /dev/null 2>&1
}
mariadb_finish() { :; }
mariadb_url() { echo "onceward:onceward@tcp(127.0.0.1:$(cat "$1/port"))/onceward?parseTime=true"; }
