#!/usr/bin/env bash
# Draws the grids of schedules in lab 05's handout into labs/05_microbatches/figures, and those of
# its answers into solutions/05_microbatches/figures, with the lab's own program in simulated time.
#
# Usage: scripts/figures/lab05_grids.sh build/student/bin/lab05_solution
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
handout=$root/labs/05_microbatches/figures
answers=$root/solutions/05_microbatches/figures
(($# == 1)) || { echo "usage: $0 PROGRAM" >&2; exit 2; }
program=$1
folder=$(mktemp -d -t lab05-grids.XXXXXX)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$handout" "$answers"

# grid FOLDER NAME OPTION...
grid() {
  local file=$1/grid_$2.svg
  shift 2
  "$program" --simulate "$@" --svg "$folder/grid.svg" >"$folder/log" || {
    cat "$folder/log" >&2
    exit 1
  }
  cp "$folder/grid.svg" "$file"
  echo "$file"
}

grid "$handout" gpipe_m1 --stages 3 --microbatches 1 --schedule gpipe
grid "$handout" gpipe_m3 --stages 3 --microbatches 3 --schedule gpipe
grid "$handout" gpipe_m6 --stages 3 --microbatches 6 --schedule gpipe
grid "$answers" 1f1b_m2 --stages 3 --microbatches 2 --schedule 1f1b
grid "$answers" 1f1b_m4 --stages 3 --microbatches 4 --schedule 1f1b
grid "$handout" 1f1b_m6 --stages 3 --microbatches 6 --schedule 1f1b
grid "$handout" 1f1b_m6_messages --stages 3 --microbatches 6 --schedule 1f1b --costs 1,2,0.5

# 1F1B whose warm-up has been forgotten: every microbatch goes there and back alone.
cat >"$folder/no_warm_up.txt" <<'PLAN'
stages 3 microbatches 4
0: F0 B0 F1 B1 F2 B2 F3 B3
1: F0 B0 F1 B1 F2 B2 F3 B3
2: F0 B0 F1 B1 F2 B2 F3 B3
PLAN
grid "$answers" no_warm_up --stages 3 --microbatches 4 --schedule "$folder/no_warm_up.txt"
