#!/usr/bin/env bash
# Checks the English of Markdown, of Go comments, and of the texts in Go code that users read, with vale and
# the rules of internal/prose/styles. Vale is built from source on the first run (a minute or two) and kept in the
# user's cache under the hash of internal/tools/vale/go.sum. Nothing is fetched afterwards.
#
#   prose.sh              the check: files that internal/prose/unclean.txt does not list must be clean, and listed
#                         ones must exist and not be clean
#   prose.sh PATH...      every finding in these files and directories, whether they are listed or not
#   prose.sh -update      remove from the list what is clean or gone, and follow renames that are in git's index
#   prose.sh -vale        build vale, and print where it is
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=lib/tool.sh
. scripts/lib/tool.sh

bin=$(tool vale github.com/vale-cli/vale/v3/cmd/vale)
case ${1:-} in -vale) echo "$bin"; exit ;; esac
exec go run ./internal/prose -vale "$bin" "$@"
