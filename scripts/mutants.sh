#!/usr/bin/env bash
# Plants the bugs of internal/mutants/*/*.patch one by one in a copy of the tree and requires that
# the named tests turn red. A patch begins with lines of the form
#     Mutant: what is broken
#     Test: arguments of `go test`, one line a module: [-C module] packages and flags
#     Env: NAME=value, for tests that start servers of their own (optional)
# usage: scripts/mutants.sh [name-part ...]      only patches whose name has one of the parts
#        scripts/mutants.sh -build [...]         only whether they apply and compile: minutes for all, in place of hours
#        scripts/mutants.sh -apply [...]         only whether they apply: seconds
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
only=
case ${1:-} in -build|-apply) only=$1; shift ;; -*) echo "mutants: unknown option $1" >&2; exit 2 ;; esac
copy=$(mktemp -d "${TMPDIR:-/tmp}/onceward-mutant.XXXXXX")
trap 'rm -rf "$copy"' EXIT

wanted() {
  [ $# -gt 1 ] || return 0
  local name=$1 part; shift
  for part in "$@"; do case $name in *"$part"*) return 0 ;; esac; done
  return 1
}

# The copy holds what is tracked, as it is in the working tree.
fresh() {
  find "$copy" -mindepth 1 -delete
  git -C "$root" ls-files -z | tar -C "$root" --null -T - -cf - --ignore-failed-read 2>/dev/null | tar -xf - -C "$copy"
}

# compiles says whether the packages that a patch touches do.
compiles() {
  local dir
  while IFS= read -r dir; do
    (cd "$copy/$dir" && go vet -buildtag . 2>&1) || return 1
  done < <(sed -n 's,^+++ b/\(.*\)/[^/]*\.go$,\1,p' "$1" | sort -u)
}

# quickly is -apply and -build: nothing is tested.
quickly() {
  local patch name bad=0 all=0
  fresh
  for patch in internal/mutants/*/*.patch; do
    name=$(basename "$patch" .patch)
    wanted "$name" "$@" || continue
    all=$((all + 1))
    if ! (cd "$copy" && git apply --check --recount --whitespace=nowarn "$root/$patch"); then
      echo "STALE     $name: the patch does not apply"; bad=$((bad + 1)); continue
    fi
    [ "$only" = -build ] || continue
    (cd "$copy" && git apply --recount --whitespace=nowarn "$root/$patch")
    if ! compiles "$patch" > "$copy/build.log"; then
      echo "BROKEN    $name"; sed 's/^/    /' "$copy/build.log" | tail -n 5; bad=$((bad + 1))
    fi
    (cd "$copy" && git apply --reverse --recount --whitespace=nowarn "$root/$patch")
  done
  echo "$((all - bad)) of $all mutants $([ "$only" = -build ] && echo compile || echo apply)"
  [ "$all" -gt 0 ] && [ "$bad" -eq 0 ]
}

if [ -n "$only" ]; then quickly "$@"; exit; fi
killed=0 failed=0 start=$SECONDS
for patch in internal/mutants/*/*.patch; do
  name=$(basename "$patch" .patch)
  wanted "$name" "$@" || continue
  began=$SECONDS
  fresh
  if ! (cd "$copy" && git apply --recount --whitespace=nowarn "$root/$patch"); then
    echo "STALE     $name: the patch does not apply"; failed=$((failed + 1)); continue
  fi
  verdict=SURVIVED with=$(sed -n 's/^Env: //p' "$patch")
  while IFS= read -r args; do
    limit="-timeout 300s"
    case $args in *-timeout*) limit= ;; esac
    # shellcheck disable=SC2086 # the line is a list of arguments
    (cd "$copy" && env $with go test $args -vet=off -count=1 $limit >"$copy/test.log" 2>&1) && continue
    verdict=killed
    sed -i '/^go: downloading /d' "$copy/test.log" # the first runs on a machine
    if grep -qE '\[(build|setup) failed\]|^no required module|^go: ' "$copy/test.log"; then
      verdict=BROKEN; sed 's/^/    /' "$copy/test.log" | tail -n 5
    fi
    break
  done < <(sed -n 's/^Test: //p' "$patch")
  case $verdict in killed) killed=$((killed + 1)) ;; *) failed=$((failed + 1)) ;; esac
  printf '%-9s %s (%ds): %s\n' "$verdict" "$name" $((SECONDS - began)) "$(sed -n 's/^Mutant: //p' "$patch")"
  [ "$verdict" != killed ] || grep -m1 -E '^ *--- FAIL|^panic:|WARNING: DATA RACE|deadlock' "$copy/test.log" | sed 's/^ */          by /' || true
done
total=$((killed + failed))
echo "$killed of $total mutants killed in $((SECONDS - start))s"
[ "$total" -gt 0 ] && [ "$failed" -eq 0 ]
