#!/usr/bin/env bash
# The model of one key's life (internal/integration/model) and its checker.
#
#   model.sh install    find spin, or install Debian's
#   model.sh check      install, check the model, and see that each planted fault is found
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/proc.sh
. scripts/lib/proc.sh
# shellcheck source=lib/install.sh
. scripts/lib/install.sh

install() {
  local missing=
  command -v spin > /dev/null || missing+=" spin"
  command -v gcc > /dev/null || missing+=" gcc libc6-dev" # spin writes the checker in C
  # shellcheck disable=SC2086
  if [ -n "$missing" ]; then apt_install $missing; fi
}

case "${1:-help}" in
  install) install ;;
  check)
    install
    go -C internal/integration test -tags long -count=1 -timeout 60m -v ./model
    ;;
  *)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2
    exit 2
    ;;
esac
