#!/usr/bin/env bash
# Checks the English of Markdown, of Go comments, and of the texts in Go code that users read, with vale and
# the rules of internal/prose/styles. Vale is built from source on the first run (a minute or two) and kept in the
# user's cache under the hash of internal/tools/vale/go.sum. Nothing is fetched afterwards.
#
#   prose.sh              everything
#   prose.sh PATH...      only these files and directories
#   prose.sh -vale        build vale, and print where it is
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=lib/tool.sh
. scripts/lib/tool.sh

bin=$(tool vale github.com/vale-cli/vale/v3/cmd/vale)
case ${1:-} in -vale) echo "$bin"; exit ;; esac
exec go run ./internal/prose -vale "$bin" "$@"
