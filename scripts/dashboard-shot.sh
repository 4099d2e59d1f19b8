#!/usr/bin/env bash
# The pictures of contrib/telemetry/dashboard.json: docs/dashboard/*.png.
#
#   dashboard-shot.sh shot     run a service for five minutes under a real Prometheus, ask it for every expression
#                              of the dashboard, and draw it in headless Chromium; installs what is missing
#   dashboard-shot.sh demo     the same with the data of `onceward demo --listen`: docs/dashboard/demo.png
#   dashboard-shot.sh check    hold the dashboard against the types of Grafana's schema
#
# It is drawn with Grafana's component library (scripts/dashboard, whose packages npm fetches), and not by a Grafana
# server. Environment: ONCEWARD_CHROMIUM (the browser's program; default: chromium, or chromium-browser);
# ONCEWARD_DASHBOARD_ANSWERS and ONCEWARD_DASHBOARD_DEMO_ANSWERS, files: if they have answers already, it only
# draws.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/proc.sh
. scripts/lib/proc.sh
# shellcheck source=lib/install.sh
. scripts/lib/install.sh

packages() {
  local missing=
  command -v node > /dev/null || missing+=" nodejs"
  command -v npm > /dev/null || missing+=" npm"
  # shellcheck disable=SC2086
  if [ -n "$missing" ]; then apt_install $missing; fi
  if ! cmp -s scripts/dashboard/package-lock.json scripts/dashboard/node_modules/.onceward-lock; then
    npm --prefix scripts/dashboard ci --no-audit --no-fund
    cp scripts/dashboard/package-lock.json scripts/dashboard/node_modules/.onceward-lock
  fi
}

# answers VARIABLE FILE TEST: about six minutes.
answers() {
  local missing=
  command -v prometheus > /dev/null || missing+=" prometheus"
  command -v redis-server > /dev/null && command -v redis-cli > /dev/null || missing+=" redis-server"
  # shellcheck disable=SC2086
  if [ -n "$missing" ]; then apt_install $missing; fi
  env "$1=$2" ONCEWARD_SERVERS=1 ONCEWARD_REQUIRE_SERVERS=1 \
    go -C internal/integration test -tags browser -count=1 -timeout 12m -v -run "$3" ./dashboard
}

# shot VARIABLE TEST [NAME]
shot() {
  scripts/browser.sh install
  packages
  npm --prefix scripts/dashboard run -s check
  npm --prefix scripts/dashboard run -s build
  local file=${!1:-}
  if [ ! -s "$file" ]; then
    dir=$(mktemp -d "${TMPDIR:-/tmp}/onceward-dashboard.XXXXXX")
    trap 'rm -rf "$dir"' EXIT
    file=$dir/answers.json
    answers "$1" "$file" "$2"
  fi
  ONCEWARD_CHROMIUM=${ONCEWARD_CHROMIUM:-$(command -v chromium || command -v chromium-browser)} \
    node scripts/dashboard/shoot.mjs contrib/telemetry/dashboard.json "$file" docs/dashboard "${@:3}"
}

case "${1:-help}" in
  shot) shot ONCEWARD_DASHBOARD_ANSWERS TestBrowserDashboardHasData ;;
  demo) shot ONCEWARD_DASHBOARD_DEMO_ANSWERS TestBrowserDashboardOfDemo demo ;;
  check)
    packages
    npm --prefix scripts/dashboard run -s check
    ;;
  *)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2
    exit 2
    ;;
esac
