#!/usr/bin/env bash
# A browser for the tests of the console.
#
#   browser.sh install    find Chromium, or install Debian's
#   browser.sh shots      install, test the console's pages in it, and write docs/console/*.png
#
# Environment: ONCEWARD_CHROMIUM (the browser's program; default: chromium, or chromium-browser), and what
# TestBrowser of internal/integration/console needs: ONCEWARD_REDIS, or a Redis is started and stopped.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/proc.sh
. scripts/lib/proc.sh
# shellcheck source=lib/install.sh
. scripts/lib/install.sh

# type -P: command -v would find this function.
chromium() { type -P "${ONCEWARD_CHROMIUM:-chromium}" || type -P chromium-browser; }

install() {
  local missing=
  chromium > /dev/null || missing+=" chromium"
  fc-list 2> /dev/null | grep -qi dejavu || missing+=" fontconfig fonts-dejavu-core" # letters of a known shape
  # shellcheck disable=SC2086
  if [ -n "$missing" ]; then apt_install $missing; fi
}

shots() {
  install
  if [ -z "${ONCEWARD_REDIS:-}" ]; then
    ONCEWARD_RUN=$(mktemp -d "${TMPDIR:-/tmp}/onceward-browser.XXXXXX")
    export ONCEWARD_RUN
    trap 'scripts/servers.sh down' EXIT
    scripts/servers.sh up redis
    eval "$(scripts/servers.sh env)"
  fi
  ONCEWARD_CHROMIUM=$(chromium) ONCEWARD_SHOTS=$PWD/docs/console ONCEWARD_REQUIRE_SERVERS=1 \
    go -C internal/integration test -tags browser -count=1 -timeout 20m -v -run Browser ./console
}

case "${1:-help}" in
  install) install ;;
  shots) shots ;;
  *)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2
    exit 2
    ;;
esac
