#!/usr/bin/env bash
# Runs every test about Redis on the newest servers, which it fetches: Redis 8.6 of Debian
# experimental and Valkey 9.1 of Debian unstable. These suites have other versions next month, so it
# runs by name and in the long tests. Where tests ask for Valkey, for SET IFEQ, they get the same
# server. TESTFLAGS is passed on.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/proc.sh
. scripts/lib/proc.sh
# shellcheck source=lib/debian.sh
. scripts/lib/debian.sh

on() { # NAME PROGRAM
  local server
  server=$(debian_program "$1" "$2")
  say "the shard redis on $("$server" --version)"
  env -u ONCEWARD_RUN ONCEWARD_REDIS_SERVER="$server" ONCEWARD_VALKEY_SERVER="$server" \
    scripts/test.sh full redis
}
debian_fetch redis-experimental redis-server redis-server sid experimental
debian_fetch valkey-sid valkey-server valkey-server sid
failed=
on valkey-sid valkey-server || failed=1
on redis-experimental redis-server || failed=1
[ -z "$failed" ]
