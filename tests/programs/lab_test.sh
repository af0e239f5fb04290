#!/usr/bin/env bash
# The tools for authors, in a copy of the workbook: `lab new` makes a lab that `lab check` accepts, or
# nothing at all, and `lab check` reports every slip by its file. All labs pass it. Nothing is built.
set -euo pipefail
# shellcheck source=tests/programs/helpers.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/helpers.sh"
command -v python3 >/dev/null || exit 77
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d -t lab-test.XXXXXX)
trap 'rm -rf "$folder"' EXIT
tree=$folder/tree
mkdir "$tree"
cp -r "$root"/{*.md,*.txt,*.json,LICENSE,Dockerfile,workbook,cmake,common,docs,labs,scripts,slides,solutions,tests} "$tree"
ln -s "$root/data" "$tree/data"
cd "$folder"

# The names and contents of all that a lab may change.
state() {
  (cd "$tree" && find . -path ./common -prune -o -type f ! -name '*.pyc' -print0 | sort -z |
    xargs -0 md5sum)
}

# Every lab, as it is. What students have begun is no starter any more; in CI it must be one.
for points in "$tree"/labs/*/points.json; do
  lab=$(basename "$(dirname "$points")")
  if ! "$tree/workbook" lab check "${lab%%_*}" --static >check.log; then
    sed -i '/^lab /d' check.log
    [[ ${CI:-} == true ]] ||
      sed -i -E -e "\|^labs/$lab/${lab#*_}\.cp?[pu]:|d" -e '/: the starter (has no|does not have)/d' check.log
    [[ ! -s check.log ]] || fail "$lab:"$'\n'"$(cat check.log)"
  fi
done

# A lab that cannot be made, which must change nothing. The last one fails when half of it is there.
touch "$tree/tests/labs/98_sample"
state >before
refused "there is labs/06_hybrid_2x3 already" "$tree/workbook" lab new 6 sample
refused "there is labs/01cuda_kernels already" "$tree/workbook" lab new 98 kernels
for name in Sample 2nd sample__lab sample-lab a/b sample_with_a_name_too_long; do
  refused "is not the name of a lab" "$tree/workbook" lab new 98 "$name"
done
for number in seven 007 -1; do refused "the number of a lab" "$tree/workbook" lab new "$number" sample; done
refused "the forms are" "$tree/workbook" lab new 98
refused "nothing has been made" "$tree/workbook" lab new 98 sample
state | cmp - before || fail "lab new has failed, and left something behind"
rm "$tree/tests/labs/98_sample"

"$tree/workbook" lab new 98 sample >new.log || fail "lab new:"$'\n'"$(cat new.log)"
"$tree/workbook" lab check 98 >check.log || fail "the new lab:"$'\n'"$(cat check.log)"
# With an experiment, which the new lab has not.
printf '%s\n' 'options: --ranks 3' '' '# A' 'what: own numbers only' 'mutant: own_number_only' 'look: the numbers' \
  >"$tree/labs/98_sample/experiments.txt"
sed -i 's/^\*Author: wrong versions.*/| A | own numbers only | |/' "$tree/labs/98_sample/README.md"
"$tree/workbook" lab check 98 >check.log || fail "the new lab with an experiment:"$'\n'"$(cat check.log)"
grep -rnE 'NN|NAME|SHORT|TITLE' "$tree"/{labs,solutions,tests/labs}/98_sample "$tree/slides/98_sample.md" &&
  fail "placeholders are left in the new lab"
cp -r "$tree" good

# slip FILE PATTERN SED: lab check reports a file with this mistake, and says PATTERN.
slips=0
slip() {
  local changed=$tree/${4:-$1}
  sed -i -E "$3" "$changed"
  cmp -s "$changed" "good/${4:-$1}" && fail "$3 changes nothing in ${4:-$1}"
  if "$tree/workbook" lab check 98 >check.log 2>&1; then fail "accepted: $3 in ${4:-$1}"; fi
  grep -qE "^$1:[0-9]+: .*$2.*: " check.log || fail "$3: not '$1: $2':"$'\n'"$(cat check.log)"
  grep -vE '^[^ ]+:[0-9]+: .*: |^lab 98: [0-9]+ problems?' check.log && fail "$3: more than its problems"
  cp "good/${4:-$1}" "$changed"
  slips=$((slips + 1))
}
labs=labs/98_sample solutions=solutions/98_sample tests=tests/labs/98_sample

slip $labs/sample.cpp "differs from the solution outside" 's/^namespace lab98 \{/&\nint first() { return 0; }/'
slip $labs/sample.cpp "no function with this declaration" 's/\(float number/(double number/'
slip $labs/sample.cpp "no task 2" 's/TODO\(1\)/TODO(2)/'
slip $labs/points.json "no TODO\(1\)" 's/TODO\(1\)/TODO(2)/' $labs/sample.cpp
slip $labs/points.json "no lab::not_implemented" 's/lab::not_implemented.*/return {};/' $labs/sample.cpp
slip $labs/sample.cpp "names another file" 's/(not_implemented.*)sample\.cpp/\1simple.cpp/'
slip $solutions/sample.cpp "the starter does not have this" 's/^namespace lab98 \{/&\nint first() { return 0; }/'
slip $labs/sample.h "must not include" 's|#include "common/comm|#include "common/run/launch/job.h"\n&|'
slip $labs/sample.h "task 1 is not in the contract" 's/Task 1 · //'
slip $labs/points.json "add up to 90" 's/: 100/: 90/'
slip $labs/README.md "table's points" 's/: 100/: 90/' $labs/points.json
slip $labs/README.md "gives task 1 100 points" 's/· 100 points/· 90 points/'
slip $labs/README.md "no section of task 1" 's/^### Task 1/### Task one/'
slip $labs/README.md "do not add up to 3 hours" 's/about 2 hours/about 3 hours/'
slip README.md "the handout says 2" 's/(98_sample\/README.md\) \|) 2/\1 3/'
slip $labs/README.md "about 40 lines" 's/about 6 lines, all/about 40 lines, all/'
slip slides/98_sample.md "the handout says about 6 lines" 's/About 6 lines/About 7 lines/'
slip $labs/README.md "leads nowhere" 's|\]\(hints.md\)|](hint.md)|'
slip $solutions/README.md "names no section" 's|(98_sample/README.md)\)|\1#nowhere)|'
slip $labs/README.md "does not begin with 98_" 's|(run 98 --ranks 3)|\1 --out runs/03_mine|'
# shellcheck disable=SC2016  # the backticks are those of Markdown
slip $labs/README.md "prediction gathered" 's/^\| `gathered`/| `scattered`/'
slip $labs/hints.md "no hint of level 2" 's/<summary>Level 2.*//'
slip $tests/task1_sorted_numbers.cpp "no test of the suite Task1" 's/TEST\(Task1,/TEST(Task2,/'
# shellcheck disable=SC2016  # $ is the last line
slip $tests/mutants.txt "has 2 wrong solutions" '/^# own_number_only/,$d'
slip $tests/mutants.txt "has 0 correct variants" '/^# correct/,/^$/d'
slip $tests/mutants.txt "lines that the solution has 0 times" 's/ranges::sort\(numbers\);/sort(numbers);/'
slip $tests/mutants.txt "task 9, which does not exist" 's/^task: 1/task: 9/'
slip $labs/README.md "has no experiment B" 's/^\| A \| own/| B | own/'
slip $labs/experiments.txt "has no row" 's/^# A/# B/'
slip $labs/experiments.txt "has no entry own_numbers" 's/own_number_only/own_numbers/'
slip $labs/experiments.txt "A has no 'look:'" '/^look/d'
slip $labs/experiments.txt "belongs to no option" 's/^options: /&3 /'
slip $labs/experiments.txt "'runs:' is 1" 's/^look/runs: 0\nlook/'
slip $labs/experiments.txt "not 'hook: the" 's/^look/hook/'
slip CMakeLists.txt "does not mention this lab" '/^add_lab\(98/d'
slip README.md "does not mention this lab" '/98_sample/d'
for file in $labs/{sample.cpp,sample.h,README.md,hints.md,predictions.json} slides/98_sample.md \
  $solutions/{sample.cpp,README.md} $tests/{rank.cpp,mutants.txt,task1_sorted_numbers.cpp}; do
  rm "$tree/$file"
  if "$tree/workbook" lab check 98 >check.log 2>&1; then fail "accepted without $file"; fi
  grep -qE "^${file/sorted_numbers/}:1: .*(missing|no test)" check.log || fail "$file:"$'\n'"$(cat check.log)"
  cp "good/$file" "$tree/$file"
  slips=$((slips + 1))
done
"$tree/workbook" lab check 98 >/dev/null || fail "the slips have not been undone"
echo "$slips slips are reported"
