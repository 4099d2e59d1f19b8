#!/usr/bin/env bash
# Runs the linter that internal/tools/golangci-lint pins, over every module of go.work. It is built from source on
# the first run (about a minute) and kept in the user's cache under the hash of internal/tools/golangci-lint/go.sum.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/phase.sh
. scripts/lib/phase.sh

hash=$(cat internal/tools/golangci-lint/go.mod internal/tools/golangci-lint/go.sum | cksum | tr -dc '0-9')
bin=${XDG_CACHE_HOME:-$HOME/.cache}/onceward/bin/golangci-lint-$hash
if [ ! -x "$bin" ]; then
  mkdir -p "$(dirname "$bin")"
  GOWORK=off go -C internal/tools/golangci-lint build -o "$bin.$$" github.com/golangci/golangci-lint/v2/cmd/golangci-lint
  mv "$bin.$$" "$bin"
fi

failed=
mapfile -t dirs < <(modules)
for dir in "${dirs[@]}"; do
  (cd "$dir" && "$bin" run --config "$OLDPWD/.golangci.yml" "$@" ./...) || failed+=" $dir"
done
[ -z "$failed" ] || { echo "lint failed in:$failed" && exit 1; }
