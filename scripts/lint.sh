#!/usr/bin/env bash
# Runs the linter that internal/tools/golangci-lint pins over every module of go.work; its analyzers
# are those of go vet, too. Building it takes about a minute, once.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/phase.sh
. scripts/lib/phase.sh
# shellcheck source=lib/tool.sh
. scripts/lib/tool.sh

bin=$(tool golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
# All modules at once: what one of them uses of another is looked at once. As the tests are built,
# with -race: what is compiled for one need not be compiled for the other.
mapfile -t dirs < <(modules)
GOFLAGS="${GOFLAGS:-} -race" "$bin" run "$@" "${dirs[@]/%//...}"
