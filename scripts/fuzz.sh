#!/usr/bin/env bash
# Runs every fuzz target of every module, one after the other, each for FUZZTIME (30s), and says how
# many inputs each was given. An input that fails is written to testdata/fuzz of its package, where
# `go test` runs it from then on: fix it and commit both.
#
#   fuzz.sh [name-part ...]     only targets whose package/name has one of the parts
#   fuzz.sh list [name-part ...]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/phase.sh
. scripts/lib/phase.sh

time=${FUZZTIME:-30s} list=
if [ "${1:-}" = list ]; then list=1; shift; fi

# targets: module, package and name of each, tab-separated. Another module below is no part of one.
targets() {
  local module file dir
  while read -r module; do
    while IFS=: read -r file _ name; do
      dir=$(dirname "$file")
      while [ "$dir" != "$module" ] && [ ! -f "$dir/go.mod" ]; do dir=$(dirname "$dir"); done
      if [ "$dir" = "$module" ]; then
        dir=$(dirname "$file")
        printf '%s\t.%s\t%s\n' "$module" "${dir#"$module"}" "$(sed 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/' <<< "$name")"
      fi
    done < <(grep -rn --include='*_test.go' '^func Fuzz' "$module" | sort)
  done < <(modules)
}

wanted() {
  [ $# -gt 1 ] || return 0
  local name=$1 part; shift
  for part in "$@"; do case $name in *"$part"*) return 0 ;; esac; done
  return 1
}

log=$(mktemp "${TMPDIR:-/tmp}/onceward-fuzz.XXXXXX")
trap 'rm -f "$log"' EXIT
ran=0 failed=0 execs=0 root=$PWD
while IFS=$'\t' read -r module package name; do
  full=${module#"$root"}/$package/$name full=${full//\/.\//\/} full=${full#/} full=${full#./}
  wanted "$full" "$@" || continue
  if [ -n "$list" ]; then echo "$full"; continue; fi
  verdict=ok
  go -C "$module" test -run '^$' -fuzz "^$name\$" -fuzztime "$time" ${FUZZFLAGS:-} "$package" > "$log" 2>&1 < /dev/null || verdict=FAILED
  # Until Go 1.27 the end of -fuzztime may be taken for a failure on a busy machine, of no input
  # (golang/go#75804). What fails for an input says which.
  if [ $verdict != ok ] && grep -qx ' *context deadline exceeded' "$log" && ! grep -qE 'Failing input|^panic:|_test\.go:' "$log"; then verdict=ok; fi
  count=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
  # A run that has tried nothing has shown nothing.
  if [ "${count:-0}" = 0 ]; then verdict=FAILED; fi
  printf '%-7s %-60s %11d inputs, %s interesting\n' "$verdict" "$full" "${count:-0}" "$(sed -n 's/.*(total: \([0-9]*\)).*/\1/p' "$log" | tail -n 1)"
  if [ $verdict != ok ]; then failed=$((failed + 1)); sed 's/^/    /' "$log" | tail -n 40; fi
  ran=$((ran + 1)) execs=$((execs + ${count:-0}))
done < <(targets)
[ -z "$list" ] || exit 0
echo "$ran targets, $failed failed, $execs inputs"
[ "$ran" -gt 0 ] && [ "$failed" = 0 ]
