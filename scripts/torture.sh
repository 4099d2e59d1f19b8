#!/usr/bin/env bash
# Runs internal/integration/torture over real servers, which it starts if they are not up (servers.sh down ends them).
#
#   torture.sh smoke    what `make test` has: every row, over some of its compositions, and every composition in some row
#   torture.sh ci       every row over every composition; writes its rows into bench/results/torture.json and docs/evidence/faults.md
#   torture.sh full     every count of the scoreboard; writes its rows, too
#   torture.sh soak     rounds of other rows, larger, for ONCEWARD_TORTURE_FOR (1h); writes what they counted into bench/results/torture-soak.json
#
# TESTFLAGS is passed on, such as TESTFLAGS='-run Torture/X16'. ONCEWARD_SEED repeats a run.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
  smoke | soak) table= ;;
  ci | full) table=$PWD/bench/results/torture.json ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2 && exit 2 ;;
esac
scripts/servers.sh up redis postgres mariadb
eval "$(scripts/servers.sh env)"
export ONCEWARD_SERVERS=1 ONCEWARD_REQUIRE_SERVERS=1 ONCEWARD_TORTURE=$1 ONCEWARD_TORTURE_TABLE=$table
export ONCEWARD_TORTURE_SOAK=$PWD/bench/results/torture-soak.json
# shellcheck disable=SC2086
go -C internal/integration test -count=1 -timeout 12h -v -run Torture ${TESTFLAGS:-} ./torture
if [ -n "$table" ]; then make --no-print-directory bench-table; fi
