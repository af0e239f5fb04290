#!/usr/bin/env bash
# Gradescope runs this once, as root, when it makes the image of an autograder (./workbook release --gradescope):
# installs packages, builds what judges the labs, and takes from students' programs what they must not see.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$here/workbook
build=$root/build/student
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"
read -ra labs <"$here/labs"

install_packages build lab grade
# The image may run on another processor than it is made on.
configure -DLAB_NATIVE=OFF -DLAB_CUDA=OFF
python3 - "$root" "$build" "${labs[@]}" <<'PYTHON'
import sys
from pathlib import Path
root, build, *labs = sys.argv[1:]
sys.path.insert(0, f"{root}/scripts")
import grade_kit
grade_kit.built_labs(Path(build), labs)
PYTHON

# The solutions get all points with this seed; run_autograder need not try them again.
mkdir -p "$here/checked"
(cd "$root/solutions" && python3 "$root/scripts/grade.py" "$build" . --labs "$(IFS=,; echo "${labs[*]}")" \
  --seed "$(cat "$here/seed")" --out "$here/checked" --no-sandbox)

# Where bubblewrap may not run, students' programs have accounts of their own (grade_sandbox.py). They may read headers,
# and run the programs that load their files; the lab's program may also load the solution, by its group.
chmod -R go= "$here"
chmod go+x "$here" "$root" "$root/labs" "$root"/labs/* "$root/tests" "$root/build" "$build" "$build/bin" \
  "$build/implementations" "$build"/implementations/*
chmod -R go+rX "$root/common" "$root/data" "$root/tests/emulation"
chmod go+r "$root"/labs/*/*.h
for lab in "${labs[@]}"; do
  for program in "$build/bin/lab${lab}_ranks" "$build/bin/lab${lab}_rehearsal"; do
    [[ ! -f $program ]] || { strip --strip-all "$program" && chmod go+rx "$program"; }
  done
  chgrp "$(python3 -c "import sys; sys.path.insert(0, '$root/scripts'); import grade_sandbox as s; print(s.PROGRAM_GROUP)")" \
    "$build/implementations/lab$lab"/*.so
  chmod g+r "$build/implementations/lab$lab"/*.so
done
