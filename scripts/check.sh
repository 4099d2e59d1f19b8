#!/usr/bin/env bash
# The inner loop: all checks of a change that need no server.
#
#   check.sh            formatting, lint (and vet), workflows, files, modules, commits, prose, and unit tests
#                       with -race; Go keeps the results of packages that did not change
#   check.sh static     all but the tests and the commits: what CI checks first
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/phase.sh
. scripts/lib/phase.sh
# shellcheck source=lib/tool.sh
. scripts/lib/tool.sh

mode=${1:-all}
case $mode in all | static) ;; *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2 && exit 2 ;; esac

formatting() {
  local files
  files=$(gofmt -l .)
  [ -z "$files" ] || { printf 'not formatted (make fmt):\n%s\n' "$files" && return 1; }
}

# workflows: what .github tells GitHub to do.
workflows() { "$(tool actionlint github.com/rhysd/actionlint/cmd/actionlint)"; }

# tracked: listing all modules, as builds and editors do, changes no tracked file.
tracked() {
  local before after
  before=$(git status --porcelain)
  go list -m all > /dev/null
  after=$(git status --porcelain)
  [ "$before" = "$after" ] || { printf 'a build changes tracked files:\n%s\n' "$after" && return 1; }
}

# alone: each module has what it imports in its own go.mod, which a workspace hides.
alone() {
  local dir code=0
  while read -r dir; do
    (cd "$dir" && GOWORK=off go list -test -deps ./... > /dev/null) || { echo "in $dir" && code=1; }
  done < <(modules)
  return $code
}

failed=
try() { # NAME COMMAND...
  phase "$@" || failed+=" $1,"
}
try formatting formatting
try lint scripts/lint.sh
try prose scripts/prose.sh
try workflows workflows
try "tracked files" tracked
try "modules alone" alone
try "mutants apply" scripts/mutants.sh -apply
if [ "$mode" = all ]; then
  try commits scripts/commits.sh
  try "unit tests" scripts/test.sh unit
fi
printf '== check: %d s\n' "$SECONDS"
[ -z "$failed" ] || { echo "failed:${failed%,}" && exit 1; }
