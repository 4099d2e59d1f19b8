#!/usr/bin/env bash
# Looks for known vulnerabilities in every module of go.work, and for patch releases of what they
# require directly.
#
#   vulncheck.sh               both
#   vulncheck.sh known         what govulncheck knows, from $GOVULNDB (default https://vuln.go.dev;
#                              file:///dir for a copy of that database)
#   vulncheck.sh patches       patch releases that the module proxy has; where the database cannot
#                              be had this is a weak substitute: it does not tell what they fix
#
# Exit: 0 looked and found nothing, 1 found something, 2 could not look. It is not a part of CI, which
# needs no network but the module proxy and the package registry.
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/phase.sh
. scripts/lib/phase.sh

govulncheck=golang.org/x/vuln/cmd/govulncheck@v1.9.0
found=0 blind=0

known() {
  local dir out code
  while read -r dir; do
    out=$(go -C "$dir" run "$govulncheck" -db "${GOVULNDB:-https://vuln.go.dev}" ./... 2>&1)
    code=$?
    case $out in *"No vulnerabilities found"*) [ $code = 0 ] && echo "none known  $dir" && continue ;; esac
    # `go run` says 1 whatever the program has said, and its status after that.
    if [[ $out == *"Your code is affected by"* ]]; then
      found=1
      printf 'VULNERABLE  %s\n%s\n' "$dir" "$out"
    else
      blind=1
      printf 'NOT LOOKED  %s: %s\n' "$dir" "$(tail -n 3 <<<"$out" | tr '\n' ' ')"
    fi
  done < <(modules)
}

# direct prints "module version" of all that is required directly, once each.
direct() {
  local dir
  while read -r dir; do
    go -C "$dir" mod edit -json | awk -F'"' '
      /"Require"/ { in_list = 1 } /^\t\],/ { in_list = 0 }
      in_list && /"Path"/ { path = $4 } in_list && /"Version"/ { version = $4 }
      in_list && /"Indirect"/ { path = "" }
      in_list && /^\t\t}/ { if (path != "") print path, version }'
  done < <(modules) | grep -v '^github.com/onceward/onceward' | sort -u
}

patches() {
  local path version newest all
  while read -r path version; do
    # -e: what the proxy cannot be asked for is an answer without versions.
    if ! all=$(GOWORK=off GOFLAGS=-mod=mod go list -m -versions -f '{{join .Versions "\n"}}' "$path@$version" 2>&1); then
      blind=1
      printf 'NOT LOOKED  %s: %s\n' "$path" "$(tail -n 1 <<<"$all")"
      continue
    fi
    newest=$(grep -E "^${version%.*}\.[0-9]+$" <<<"$all" | sort -V | tail -n 1)
    if [ -z "$newest" ] || [ "$newest" = "$version" ]; then
      echo "newest      $path $version"
    else
      found=1
      echo "BEHIND      $path $version: there is $newest"
    fi
  done < <(direct)
}

case ${1:-both} in
  known) known ;;
  patches) patches ;;
  both) known; patches ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2; exit 2 ;;
esac
[ $found = 0 ] || exit 1
if [ $blind = 1 ]; then
  echo "NOT CHECKED: something could not be looked at, see above; this is no all-clear" >&2
  exit 2
fi
