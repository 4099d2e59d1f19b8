#!/usr/bin/env bash
# Runs the tests of every module of go.work.
#
#   test.sh unit          without servers; tests that need one skip, and are listed
#   test.sh full [SHARD]  with all servers, installed, started and stopped; a skipped test is a failure
#   test.sh long          as full, with the build tag `long` and ONCEWARD_LONG=1, then the shard
#                         redis on the newest servers, and every fuzz target; hours
#   test.sh shards        which package belongs to which shard
#
# SHARD is redis, kafka, sql, http, faults or rest; without one all of them run at once. The nested
# modules that users import are tested as their users have them: alone, with GOWORK=off, so with the
# versions that their own go.mod requires. Servers run in a directory of this run, so those of `make
# servers-up` are left alone, unless ONCEWARD_RUN names a directory to share. TESTFLAGS is passed on,
# such as TESTFLAGS='-run Lease'.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/phase.sh
. scripts/lib/phase.sh

mode=${1:-full} only=${2:-}
# The race detector and the compiler make much garbage: with fewer collections a test that is bound by
# the processor takes a fifth less of it, for more memory.
export GOGC=${GOGC:-400}
report=(go run ./internal/testreport)
# Tests that may run side by side wait for servers most of the time: more of them than processors.
# The largest package takes eight minutes on idle processors, and more than 25 on busy ones.
flags=(-race -timeout 45m -parallel 4)
case "$mode" in
  unit | shards) ;;
  # -count=1: a result kept from an earlier run says nothing about the servers of this one. Lint has
  # run go vet's analyzers, all of them.
  full) report+=(-noskip) flags+=(-count=1 -vet=off) ;;
  long) report+=(-noskip) flags=(-race -count=1 -timeout 6h -tags long) && export ONCEWARD_LONG=1 ONCEWARD_TORTURE=${ONCEWARD_TORTURE:-ci} ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2 && exit 2 ;;
esac
case "$only" in
  '' | redis | kafka | sql | http | faults | rest) ;;
  *) echo "test: there is no shard \"$only\": redis, kafka, sql, http, faults, rest" >&2 && exit 2 ;;
esac

# shard DIR: the shard of a package, by its directory from the root.
shard() {
  case $1/ in
    internal/integration/torture/* | internal/integration/guarantees/* | \
      internal/integration/others/* | internal/integration/owned/* | internal/integration/docs/* | \
      cmd/internal/demo/* | examples/* | internal/servertest/*) echo faults ;;
    kafkaadapter/* | internal/integration/kafka/* | contrib/telemetry/* | contrib/watermilladapter/* | \
      outbox/saramapub/* | outbox/franzpub/* | bench/internal/consumer/* | queue/*) echo kafka ;;
    sqladapter/* | outbox/* | internal/sql* | internal/integration/sql/* | \
      internal/integration/sqlmigrate/* | internal/integration/outbox/*) echo sql ;;
    httpadapter/* | retry/* | contrib/grpcadapter/* | internal/integration/http/* | console/* | \
      internal/integration/console/*) echo http ;;
    redisadapter/* | lease/* | contrib/owned/* | internal/redis* | internal/integration/redis/* | \
      internal/integration/layered/* | internal/integration/lostreply/*) echo redis ;;
    *) echo rest ;;
  esac
}

servers_down() {
  local code=$?
  # The marker makes `down` keep the servers' logs.
  if [ $code != 0 ] && [ -d "$ONCEWARD_RUN" ]; then touch "$ONCEWARD_RUN/failed"; fi
  phase "servers down" scripts/servers.sh down || true
  exit $code
}

servers_up() {
  if [ -z "${ONCEWARD_RUN:-}" ]; then
    ONCEWARD_RUN=$(mktemp -d "${TMPDIR:-/tmp}/onceward-test.XXXXXX")
    chmod 755 "$ONCEWARD_RUN" # the databases' own users must get in
  fi
  export ONCEWARD_RUN ONCEWARD_SERVERS=1 ONCEWARD_REQUIRE_SERVERS=1
  trap servers_down EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  phase "servers install" scripts/servers.sh install
  if [ "$mode" = long ]; then phase "spin install" scripts/model.sh install; fi
  phase "servers up" scripts/servers.sh up
  eval "$(scripts/servers.sh env)"
}

# The packages that take longest begin first, or the last of them would end alone.
longest=(internal/integration/sql internal/integration/kafka redisadapter internal/integration/torture internal/integration/redis cmd/internal/demo)

# library DIR: whether a directory is that of a nested module that users import, or below one.
library() {
  case $1/ in
    contrib/* | kafkaadapter/kafkaconfluent/* | kafkaadapter/kafkafranz/* | kafkaadapter/kafkasegmentio/* | \
      outbox/franzpub/* | outbox/saramapub/* | outbox/natspub/* | outbox/rabbitpub/* | outbox/pgxlisten/* | \
      queue/*queue/* | sqladapter/pgxv5/*) ;;
    *) return 1 ;;
  esac
}
# program DIR: whether a directory belongs to a program.
program() {
  case $1/ in
    cmd/* | bench/* | examples/*) ;;
    *) return 1 ;;
  esac
}
wanted() { [ -z "$only" ] || [ "$(shard "$1")" = "$only" ]; }

# packages: the directories of all packages from the root, the longest first.
packages() {
  {
    printf '%s\n' "${longest[@]}"
    list '{{.Dir}}' | sed "s|^$PWD/||; s|^$PWD\$|.|"
  } | awk '!seen[$0]++'
}

# test_modules: the packages of all modules in one go, two at a time on two cores: most of what they
# do is to wait for servers. More than three at a time are more than these can bear. The libraries and
# the programs go next to them, one package at a time; their events come when the others are through,
# because two programs would tear each other's lines.
test_modules() {
  local dirs=() programs=() dir code=0 events
  while read -r dir; do
    if ! wanted "$dir" || library "$dir"; then
      continue
    elif program "$dir"; then
      programs+=("./$dir")
    else
      dirs+=("./$dir")
    fi
  done < <(packages)
  events=$(mktemp "${TMPDIR:-/tmp}/onceward-libraries.XXXXXX")
  test_beside "${programs[@]}" > "$events" &
  test_packages "$(($(getconf _NPROCESSORS_ONLN) < 3 ? 2 : 3))" "${dirs[@]}" || code=$?
  wait $! || code=$?
  cat "$events"
  rm -f "$events"
  return $code
}

# test_packages N DIR...: N packages at a time.
test_packages() {
  local at_once=$1
  shift
  [ $# = 0 ] && return
  # shellcheck disable=SC2086
  go test -json -p "$at_once" "${flags[@]}" ${TESTFLAGS:-} "$@"
}

# test_beside PROGRAM...: the nested modules that users import, each alone, then the programs.
test_beside() {
  local dir code=0
  while read -r dir; do
    dir=${dir#"$PWD/"}
    if wanted "$dir" && library "$dir"; then
      (cd "$dir" && GOWORK=off test_packages 1 ./...) || code=$?
    fi
  done < <(modules)
  test_packages 1 "$@" || code=$?
  return $code
}

if [ "$mode" = shards ]; then
  packages | while read -r dir; do echo "$(shard "$dir") $dir"; done | sort
  exit
fi
if [ "$mode" != unit ]; then servers_up; fi
# The report passes on what is not an event of a test, such as the phases' lines.
phase "tests of ${only:-all modules}" test_modules | "${report[@]}"
if [ "$mode" = long ]; then
  phase "newest servers" scripts/test-newest.sh
  phase "fuzz targets" scripts/fuzz.sh
fi
