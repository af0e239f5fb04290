#!/usr/bin/env bash
# The handouts: no command of theirs writes into a folder that another one has filled, and the
# relative links of all texts lead to files and sections that are there. Every task has its hints. A
# pasted command never writes into a program.
#
# Usage: handouts_test.sh [ROOT [NN_name]], the workbook's folder; only the texts of this lab.
set -euo pipefail
# shellcheck source=tests/programs/helpers.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/helpers.sh"
cd "${1:-$(dirname -- "${BASH_SOURCE[0]}")/../..}"
lab=${2:-}
if [[ -n $lab ]]; then
  texts=(README.md "labs/$lab"/*.md "solutions/$lab"/*.md "slides/$lab.md")
else
  texts=(./*.md {labs,slides,docs,solutions}/*.md {labs,solutions}/*/*.md)
fi

# out_folders FILE: the names NAME of `--out runs/NAME`, where a run starts there. (With --resume it
# goes on.) A command that ends in a backslash goes on in the next line.
out_folders() {
  sed -e ':join' -e '/\\$/{N;s/\\\n//;bjoin' -e '}' "$1" |
    { grep -v -e '--resume' || true; } |
    { grep -o -e '--out runs/[^ `;|]*' || true; } | sed 's|^--out runs/||'
}

# links FILE: the targets of its links, outside of code.
links() {
  # shellcheck disable=SC2016  # the backticks are those of Markdown
  sed -e '/^ *```/,/^ *```/d' -e 's/`[^`]*`//g' "$1" |
    { grep -o ']([^) ]*)' || true; } | sed 's/^](//;s/)$//'
}

# anchors FILE: what GitHub calls its headings.
anchors() {
  # shellcheck disable=SC2016  # the backticks are those of Markdown
  sed -n '/^ *```/,/^ *```/d; s/^##* *//p' "$1" | tr '[:upper:]' '[:lower:]' |
    sed -e 's/`//g' -e 's/[^[:alnum:] _-]//g' -e 's/ /-/g'
}

problems=0
problem() {
  printf '%s\n' "$*" >&2
  problems=$((problems + 1))
}

folders=0
for file in labs/${lab:-*}/README.md; do
  number=${file#labs/}
  number=${number%%_*}
  while read -r name; do
    folders=$((folders + 1))
    [[ $name == "${number}_"* ]] || problem "$file: --out runs/$name does not begin with ${number}_"
  done < <(out_folders "$file")
  while read -r name; do
    problem "$file: two runs with --out runs/$name"
  done < <(out_folders "$file" | sort | uniq -d)
done

# "> ./workbook run 1", the continuation of a command, empties ./workbook when it is pasted.
for file in "${texts[@]}"; do
  [[ -f $file ]] || continue
  # shellcheck disable=SC2016  # the backticks are those of Markdown
  while read -r line; do
    problem "$file: a shell would take this for a redirection: $line"
  done < <(sed -n '/^ *```/,/^ *```/{/^ *> /p}' "$file")
done

checked=0
for file in "${texts[@]}"; do
  [[ -f $file ]] || continue
  while read -r link; do
    if [[ $link =~ ^[a-z]+: || $link == '#'* ]]; then continue; fi
    checked=$((checked + 1))
    target=$(dirname -- "$file")/${link%%#*}
    [[ -e $target ]] || problem "$file: $link leads nowhere"
    if [[ $target == *.md && $link == *#* ]]; then
      anchors "$target" | grep -qxF -- "${link#*#}" || problem "$file: $link names no section"
    fi
  done < <(links "$file")
done

hints=0
for file in labs/${lab:-*}/points.json; do
  number=${file#labs/}
  number=${number%%_*}
  while read -r task; do
    for level in 1 2 3; do
      hints=$((hints + 1))
      ./workbook hint "$number" "$task" "$level" >/dev/null || problem "no hint for task $task of lab $number"
    done
  done < <(sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' "$file")
done

((problems == 0)) || fail "$problems problems, listed above"
# What found nothing to look at has tested nothing.
[[ -n $lab ]] || ((folders > 40 && checked > 100 && hints > 90)) ||
  fail "only $folders folders of runs, $checked links and $hints hints found"
echo "$folders folders of runs, $checked links, $hints hints"
