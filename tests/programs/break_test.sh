#!/usr/bin/env bash
# ./workbook break: a wrong version trains, or deadlocks, next to the right one, and a page compares them.
#
# Usage: break_test.sh FOLDER_OF_PROGRAMS
set -euo pipefail
# shellcheck source=tests/programs/helpers.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/helpers.sh"
command -v python3 >/dev/null || exit 77
build=$(dirname -- "$(readlink -f -- "$1")")
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
lab=04_pipeline_1f1b
folder=$(mktemp -d -t break-test.XXXXXX)
command=
trap '[[ -z $command ]] || kill -9 "$command" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
# With the debug preset, AddressSanitizer would refuse to be loaded after LD_PRELOAD's.
export ASAN_OPTIONS=verify_asan_link_order=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
set -m # so that what runs in the background does not ignore SIGINT

# broken POINTS LETTER OUT OPTION...: the command, without its build.
broken() {
  python3 "$root/scripts/break.py" run "${from:-$root}" "$lab" "$build" "$1 points" "$2" --out "$3" \
    --cache "$folder/cache" --dim 48 --heads 4 --context 64 --validation-batches 2 "${@:4}"
}

# has FILE PATTERN, lacks FILE PATTERN
has() { grep -qE -- "$2" "$1" || fail "$1 lacks '$2':"$'\n'"$(cut -c-200 "$1")"; }
lacks() { if grep -qE -- "$2" "$1"; then fail "$1 has '$2'"; fi; }

# page FILE CURVES TIMELINES: an XML document (after its first line) with as many of them.
page() {
  python3 - "$@" <<'PYTHON' || fail "the page $1"
import re, sys, xml.etree.ElementTree as tree
text = open(sys.argv[1], encoding="utf-8").read()
tree.fromstring(text.partition("\n")[2])
found = len(re.findall("<polyline ", text)), len(re.findall("data:image/svg", text))
assert found == (int(sys.argv[2]), int(sys.argv[3])), found
assert not re.search(r'(src|href)="(?!data:)', text), "needs another file"
PYTHON
}

"$root/workbook" break 4 >list.txt
has list.txt '^  A   two lines swapped'
refused "has no experiment Z; it has A, B, " "$root/workbook" break 4 Z
refused "has no experiments" "$root/workbook" break 0
refused "belongs to no option" broken 0/100 A x --steps 3 4

# A wrong version that learns. The first loss tells the two apart, the last line but one where to look.
broken 70/100 A learns --steps 3 >learns.txt
has learns.txt '^right .* done'
has learns.txt '^wrong .* done'
has learns.txt '^look at .* timelines'
page learns/index.html 2 2
has learns/index.html 'task 1 fails: .*has passed on its own input'
lacks learns/index.html 'class="added"'
cmp -s <(grep -o '"loss":[^,]*' learns/right/metrics.jsonl) <(grep -o '"loss":[^,]*' learns/wrong/metrics.jsonl) &&
  fail "the wrong version has the right one's losses"
if compgen -G 'learns/*/checkpoint-*' >/dev/null; then fail "checkpoints of a wrong version are left"; fi
refused "exists already" broken 0/100 A learns

# One that deadlocks, which is no error of the command. Students who have all points see the change.
broken 100/100 d stuck --steps 3 >stuck.txt
has stuck.txt '^wrong .* ended with an error'
has stuck.txt 'circle: rank 0 -> rank 2'
page stuck/index.html 1 1
has stuck/index.html 'class="added">\+    pipeline.recv'

# Without the solutions' sources, by what has been built from them.
mkdir -p shipped/labs/$lab
cp "$root/labs/$lab/experiments.txt" shipped/labs/$lab
printf '\n# Z\nwhat: nothing\nmutant: never_built\nlook: nowhere\n' >>shipped/labs/$lab/experiments.txt
from=$folder/shipped broken 100/100 D built --steps 3 >built.txt
has built.txt 'circle: rank 0 -> rank 2'
lacks built/index.html 'The change'
from=$folder/shipped refused "has neither solutions/$lab" broken 100/100 Z none

# A lab that has no program: its test judges both versions. One is wrong, one is right but slow.
if [[ -x $build/bin/lab01cuda_ranks ]]; then
  kernels() { # LETTER OUT
    python3 "$root/scripts/break.py" run "$root" 01cuda_kernels "$build" "100/100 points" "$1" --out "$2"
  }
  kernels D mask >mask.txt
  has mask.txt '^right .* the test passes'
  has mask.txt '^wrong .* the test fails'
  has mask.txt 'mask 0x0000ffff does not name lane 16'
  lacks mask.txt 'loss'
  page mask/index.html 0 0
  has mask/index.html 'class="added">\+ .*0x0000ffffU'
  kernels G slow >slow.txt
  has slow.txt '^wrong .* the test passes'
  has slow/index.html 'all tasks pass'
fi

# An option that the program refuses; nothing is compared then.
if broken 0/100 A option --step 3 >option.txt 2>&1; then fail "accepted: --step"; fi
has option.txt '^error: the right version fails'

# Ctrl-C ends both programs.
broken 0/100 A interrupted --steps 1000000 >interrupted.txt 2>&1 &
command=$!
until grep -qs 'step [1-9]' interrupted/right.log; do
  kill -0 "$command" 2>/dev/null || fail "it ended before its first step: $(cat interrupted.txt)"
  sleep 0.05
done
kill -INT -- "-$command"
status=0
wait "$command" || status=$?
command=
((status == 130)) || fail "ended with $status: $(cat interrupted.txt)"
has interrupted.txt 'nothing is left running'
if pgrep -f -- "--out $folder/interrupted" >/dev/null; then fail "a program is left running"; fi
echo "experiments that learn, deadlock and fail a test, one without sources, and an interrupted one"
