#!/usr/bin/env bash
# Runs what the tests do on MariaDB on a MySQL from Debian unstable, which it installs, starts and
# stops: store conformance, marks and Generations, the outbox, migrations. PostgreSQL and Kafka are
# not needed; tests of them, or of MariaDB alone, are left out. TESTFLAGS is passed on.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${ONCEWARD_MYSQL:-}" ]; then
  ONCEWARD_RUN=$(mktemp -d "${TMPDIR:-/tmp}/onceward-mysql.XXXXXX")
  export ONCEWARD_RUN
  trap 'scripts/servers.sh down' EXIT
  scripts/servers.sh install mysql
  scripts/servers.sh up mysql
  eval "$(scripts/servers.sh env)"
fi
# A test that asks for MariaDB gets MySQL, and one that asks for another server skips. One that
# would kill a MariaDB of its own skips, too, and would say nothing of MySQL.
export ONCEWARD_MARIADB=$ONCEWARD_MYSQL
unset ONCEWARD_SERVERS ONCEWARD_REQUIRE_SERVERS ONCEWARD_POSTGRES ONCEWARD_KAFKA ONCEWARD_KAFKA3 ONCEWARD_REDIS

without='/sqlite|/postgres|SQLite|SQLServer|Example'
without+='|TestOldSnapshot|TestMariaDBSnapshotIsolation' # innodb_snapshot_isolation is MariaDB's
# shellcheck disable=SC2086
go -C internal/integration test -count=1 -timeout 25m -skip "$without" ${TESTFLAGS:-} ./sql ./outbox ./sqlmigrate
