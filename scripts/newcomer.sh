#!/usr/bin/env bash
# Does what docs/getting-started.md says, in a fresh clone with empty Go caches, and prints how long each step took.
# It needs the network, redis-server, and about 3 GB under TMPDIR, which it removes.
# usage: scripts/newcomer.sh [warm]      warm: with the existing caches, to see only the steps
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d "${TMPDIR:-/tmp}/onceward-newcomer.XXXXXX")
redis=
finish() {
  if [ -n "$redis" ]; then kill "$redis" && wait "$redis" || true; fi
  chmod -R u+w "$dir" && rm -rf "$dir" # Go's module cache is read-only
}
trap finish EXIT

step() {
  local name=$1 began=$SECONDS; shift
  echo "--- $name: $*"
  "$@"
  echo "--- $name: $((SECONDS - began)) s"
}

step clone git clone -q . "$dir/onceward"
[ "${1:-}" = warm ] || export GOMODCACHE=$dir/mod GOCACHE=$dir/build
cd "$dir/onceward"
step demo go run ./cmd/onceward demo

mkdir "$dir/pay" && cd "$dir/pay"
awk '/^```go$/ { on = 1; next } /^```$/ { on = 0 } on' ../onceward/docs/getting-started.md > main.go
go mod init example.com/pay
go mod edit -replace github.com/onceward/onceward=../onceward
step modules go mod tidy

port=$((20000 + RANDOM % 10000))
redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$dir" > "$dir/redis.log" &
redis=$!
export REDIS_ADDR=127.0.0.1:$port
until redis-cli -p "$port" ping > /dev/null 2>&1; do sleep 0.1; done
step first go run . evt_1
step duplicate go run . evt_1
cd ../onceward
step inspect go run ./cmd/onceward inspect evt_1 --namespace payments --redis "redis://$REDIS_ADDR" --result
