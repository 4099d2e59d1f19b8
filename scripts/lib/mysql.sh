# shellcheck shell=bash
# MySQL, which Debian's stable suites do not have: taken from unstable, with all the libraries that
# it needs and their loader, into a directory of its own. Nothing of it is installed. Unstable has
# another version next month, so this kind starts by name only and is no part of CI.

MYSQL_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/onceward/mysql
mysql_cached() { [ -x "$MYSQL_CACHE/root/usr/sbin/mysqld" ]; }

# mysqld runs the unpacked program with the loader that was unpacked beside it.
mysql_program() {
  local lib=$MYSQL_CACHE/root/usr/lib/x86_64-linux-gnu
  echo "$lib/ld-linux-x86-64.so.2 --library-path $lib $MYSQL_CACHE/root/usr/sbin/mysqld --no-defaults"
}

# mysql_fetch has apt resolve and fetch the packages with lists and a state of its own, in which
# nothing is installed, so that it brings the C library, too.
mysql_fetch() {
  if mysql_cached; then return; fi
  [ "$(uname -m)" = x86_64 ] || die "MySQL: only the packages for x86_64 are known here"
  command -v apt-get > /dev/null || die "MySQL comes from Debian's packages; set ONCEWARD_MYSQL to a server of your own"
  local new=$MYSQL_CACHE.new deb
  rm -rf "$new"
  mkdir -p "$new/apt/lists/partial" "$new/apt/archives/partial" "$new/root"
  touch "$new/apt/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
    "${ONCEWARD_DEBIAN:-http://deb.debian.org/debian} sid main" > "$new/apt/sources.list"
  cat > "$new/apt/conf" <<CONF
Dir::Etc::sourcelist "$new/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$new/apt";
Dir::State::status "$new/apt/status";
Dir::Cache "$new/apt";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
APT::Install-Recommends "false";
APT::Sandbox::User "";
CONF
  say "fetching MySQL from Debian unstable"
  {
    APT_CONFIG=$new/apt/conf apt-get update -qq &&
      APT_CONFIG=$new/apt/conf apt-get install -qq -y --download-only mysql-server-core
  } < /dev/null > "$new/log" 2>&1 || {
    tail -n 15 "$new/log" >&2
    die "apt-get could not fetch MySQL; read $new/log"
  }
  for deb in "$new"/apt/archives/*.deb; do
    case $deb in */perl* | */libperl*) ;; *) dpkg -x "$deb" "$new/root" ;; esac
  done
  rm -rf "$new/apt" "$MYSQL_CACHE"
  mv "$new" "$MYSQL_CACHE"
  # shellcheck disable=SC2046 # the program and its arguments
  say "MySQL: $($(mysql_program) --version)"
}

mysql_nodes=1 mysql_span=1
mysql_stopsig=TERM

# mysql_common DIR: --user is for root, who would otherwise be refused; the user mysql may not be
# let into root's cache.
mysql_common() { echo "--basedir=$MYSQL_CACHE/root/usr --datadir=$1/1/data --user=$(id -un)"; }

mysql_prepare() {
  mysql_cached || die "MySQL is not in $MYSQL_CACHE; run: $0 install mysql"
  mkdir -p "$1/1"
  # shellcheck disable=SC2046
  $(mysql_program) $(mysql_common "$1") --initialize-insecure > "$1/initialize.log" 2>&1 || {
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
  spawn "$1" "$2" "" $(mysql_program) $(mysql_common "$1") --socket=sock --pid-file=pid \
    --bind-address=127.0.0.1 --port="$(cat "$1/port")" --mysqlx=OFF --init-file="$1/1/init.sql" \
    --secure-file-priv=NULL --skip-name-resolve --skip-log-bin --max-connections=200 \
    --performance-schema=OFF --innodb-buffer-pool-size=32M
}
# It opens its port after it has run the init file.
mysql_ready() { port_open "$(cat "$1/port")" && grep -q 'ready for connections' "$1/$2/log"; }
mysql_finish() { :; }
mysql_url() { echo "onceward:onceward@tcp(127.0.0.1:$(cat "$1/port"))/onceward?parseTime=true"; }
