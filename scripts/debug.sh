#!/usr/bin/env bash
# What the configurations of .vscode/launch.json need before a debugger starts; also useful without an editor. Builds with
# the debug preset, in build/debug.
#
# usage: scripts/debug.sh task LAB TASK RANK      run one task's tests, whose rank RANK waits for a debugger
#        scripts/debug.sh others LAB RANK WORLD   start all ranks of a lab's program except RANK, which you start:
#                                                 build/debug/debugged_program --rank RANK --world-size WORLD --store build/debug/store
#   LAB: 02_gradient_allreduce, or 02
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build="$root/build/debug"
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"
(($# == 4)) || fail "usage: scripts/debug.sh task LAB TASK RANK, or others LAB RANK WORLD"
command -v gdb >/dev/null || fail "gdb is missing: sudo apt-get install gdb"
number=${2%%_*}
[[ -n $(compgen -G "$root/labs/${number}_*") ]] || fail "'$2' is no lab: open its file in the editor, or name it like 02"
lab=lab$number

echo "building $lab with the debug preset" # .vscode/tasks.json waits for this line, and for the last one of each case
cd "$root"
[[ -f $build/build.ninja ]] || cmake --preset debug >/dev/null || fail "cmake --preset debug failed: see above"
export ASAN_OPTIONS=detect_leaks=0 # its leak check does not work in a debugger
case $1 in
  task)
    build_targets "${lab}_verdict" "${lab}_ranks" "${lab}_shared_solution" "${lab}_shared_student"
    ln -sf "bin/${lab}_ranks" "$build/debugged_ranks"
    LAB_DEBUG_RANK=$4 exec "$build/bin/${lab}_verdict" --task "$3"
    ;;
  others)
    [[ $number != *cuda ]] || fail "$lab has no program: choose \"one rank of a task's tests\""
    build_targets "${lab}_student"
    [[ $("$build/bin/${lab}_student" --help) == *--world-size* ]] ||
      fail "the program of $lab is a single process: gdb --args build/debug/bin/${lab}_student"
    ln -sf "bin/${lab}_student" "$build/debugged_program"
    rm -rf "$build/store"
    trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
    for ((rank = 0; rank < $4; rank++)); do
      if ((rank == $3)); then continue; fi
      "$build/debugged_program" --rank "$rank" --world-size "$4" --store "$build/store" &
    done
    echo "the other ranks wait for rank $3"
    wait
    ;;
  *) fail "task or others, not $1" ;;
esac
