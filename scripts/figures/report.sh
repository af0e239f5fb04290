#!/usr/bin/env bash
# Makes docs/figures/report.png of a run's report.html, with Chromium and ImageMagick.
#
# Usage: scripts/figures/report.sh runs/001-train
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
report=$(readlink -f -- "${1:?usage: report.sh RUN}/report.html")
picture=$(mktemp --suffix .png)
trap 'rm -f "$picture"' EXIT
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1100,915 \
  --screenshot="$picture" "file://$report" 2>/dev/null
convert "$picture" -colors 48 -strip "$root/docs/figures/report.png"
