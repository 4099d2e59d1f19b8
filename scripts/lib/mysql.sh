# shellcheck shell=bash
# MySQL, which only Debian unstable has. Unstable has another version next month, so this kind starts
# by name only and is not part of CI.

# mysqld and the directory that it came in. --no-defaults must be its first argument.
mysql_program() { debian_program mysql mysqld; }
mysql_fetch() { debian_fetch mysql mysqld mysql-server-core sid; }

mysql_nodes=1 mysql_span=1
mysql_stopsig=TERM

# mysql_common DIR: --user is for root, who would otherwise be refused; the user mysql may not be
# let into root's cache.
mysql_common() { echo "--no-defaults --basedir=$DEBIAN_CACHE/mysql/root/usr --datadir=$1/1/data --user=$(id -un)"; }

mysql_prepare() {
  mysql_program > /dev/null || die "MySQL is not there; run: $0 install mysql"
  mkdir -p "$1/1"
  # shellcheck disable=SC2046 # the arguments
  "$(mysql_program)" $(mysql_common "$1") --initialize-insecure > "$1/initialize.log" 2>&1 || {
    say "servers: mysqld --initialize failed; read $1/initialize.log, which ends:"
    tail -n 15 "$1/initialize.log" >&2
    return 1
  }
  cat > "$1/1/init.sql" <<'SQL'
CREATE DATABASE IF NOT EXISTS onceward;
CREATE USER IF NOT EXISTS 'onceward'@'127.0.0.1' IDENTIFIED BY 'onceward';
GRANT ALL ON *.* TO 'onceward'@'127.0.0.1' WITH GRANT OPTION;
SQL
}
mysql_launch() {
  # shellcheck disable=SC2046
  spawn "$1" "$2" "" "$(mysql_program)" $(mysql_common "$1") --socket=sock --pid-file=pid \
    --bind-address=127.0.0.1 --port="$(cat "$1/port")" --mysqlx=OFF --init-file="$1/1/init.sql" \
    --secure-file-priv=NULL --skip-name-resolve --skip-log-bin --max-connections=200 \
    --innodb-buffer-pool-size=32M
}
# It opens its port after it has run the init file.
mysql_ready() { port_open "$(cat "$1/port")" && grep -q 'ready for connections' "$1/$2/log"; }
mysql_finish() { :; }
mysql_url() { echo "onceward:onceward@tcp(127.0.0.1:$(cat "$1/port"))/onceward?parseTime=true"; }
