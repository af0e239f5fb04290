#!/usr/bin/env bash
# ./workbook lab check N --set: what is said about wrong and right solutions, and about files that are no set.
#
# Usage: judge_set_test.sh FOLDER_OF_PROGRAMS
set -euo pipefail
# shellcheck source=tests/programs/helpers.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/helpers.sh"
command -v python3 >/dev/null || exit 77
build=$(dirname -- "$(readlink -f -- "$1")")
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d -t judge-set-test.XXXXXX)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# judged CODE ENTRY...: the set with these entries ends with this code.
judged() {
  local code=0
  python3 "$root/tests/mutation/judge_set.py" 10_tensor_parallel "$build" set.txt "${@:2}" >said.txt 2>&1 || code=$?
  [[ $code == "$1" ]] || fail "code $code instead of $1:"$'\n'"$(cat said.txt)"
}
says() { grep -qE -- "$1" said.txt || fail "'$1' was not said:"$'\n'"$(cat said.txt)"; }

# entry NAME TASK LINE
entry() {
  printf '%s\n' "# $1" "task: $2" 'why: for this test' '<<<<' \
    '  if (pass == Pass::kBackward && ranks.size() > 1) ranks.all_reduce(x);' '====' "$3" '>>>>' '' >>set.txt
}
entry adds_twice 1 '  for (int i = 0; i < 2 && pass == Pass::kBackward && ranks.size() > 1; ++i) ranks.all_reduce(x);'
entry right none '  if (pass == Pass::kForward || ranks.size() == 1) return;  ranks.all_reduce(x);'
entry harmless 2 '  if (pass == Pass::kForward || ranks.size() == 1) return;  ranks.all_reduce(x);'
entry wrong_elsewhere 3 '  if (ranks.size() > 1) ranks.all_reduce(x);'
entry not_right none '  if (ranks.size() > 1) ranks.all_reduce(x);'
entry no_code 1 '  this is no C++;'
judged 0 right adds_twice
says '^ok    adds_twice: task 1: .'
says '^ok    right: keeps all points$'
says '^lab 10: 1 of 1 wrong solutions lose points in their task, 1 of 1 right ones keep all$'
judged 1
says '^HOLE  harmless: task 2 passes, and so does all else$'
says '^HOLE  wrong_elsewhere: task 3 passes; only another fails: .'
says '^HOLE  not_right: right, but loses points: .'
says '^HOLE  no_code: does not compile, see below$'
says "no_code.cpp:[0-9]+:.*error"
says '^lab 10: 1 of 4 wrong solutions lose points in their task, 1 of 2 right ones keep all$'

judged 1 another
says "^error: set.txt: it has no entry 'another'$"
entry task_of_another_lab 7 ''
judged 1
says '^error: set.txt: task_of_another_lab needs a line .task: TASK., one of 1, 2, 3, 4, 5, 6, or none'
printf '%s\n' '# elsewhere' 'task: 1' '<<<<' 'int no_such_line;' '====' '>>>>' >set.txt
judged 1
says '^error: set.txt: elsewhere replaces lines that the solution has 0 times'
echo >set.txt
judged 1
says '^error: set.txt: it has no entries'
rm set.txt
judged 1
says '^error: set.txt: No such file'
