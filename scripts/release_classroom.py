"""./workbook release --classroom: .github/workflows/classroom.yml, which tests a student's copy at every push.

GitHub Classroom runs that file if an assignment's starter repository has it. A task is a step with GitHub's grader of
commands (github.com/classroom-resources/autograding-command-grader), and all of them are reported together
(autograding-grading-reporter). Students can change the file: it is feedback, not a grade.
"""
import json

WORKFLOW = ".github/workflows/classroom.yml"
RUNNER = "ubuntu-24.04"
SETUP_MINUTES, TASK_MINUTES = 30, 10

HEAD = f"""# Made by ./workbook release: tests every push, and tells GitHub Classroom the points.
name: Autograding Tests
on: [push, workflow_dispatch, repository_dispatch]
permissions:
  checks: write
  actions: read
  contents: read
jobs:
  run-autograding-tests:
    runs-on: {RUNNER}
    if: github.actor != 'github-classroom[bot]'
    steps:
      - name: Checkout code
        uses: actions/checkout@v4
      - name: Packages, build
        timeout-minutes: {SETUP_MINUTES}
        run: ./workbook setup
"""


def workflow(book, labs):
    """The file, for these labs of release.py's Workbook. A task has its points if its tests pass, as in the workbook."""
    steps, names = [HEAD], []
    for lab in labs:
        path = f"labs/{book.folders[lab]}/points.json"
        if path not in book.files:
            continue
        for task in json.loads(book.text(path))["tasks"]:
            name = f"lab{lab}task{task['id']}".lower()
            names.append(name)
            steps.append(f"""      - name: "Lab {lab}, task {task['id']}"
        id: {name}
        uses: classroom-resources/autograding-command-grader@v1
        with:
          test-name: {json.dumps(f"Lab {lab}, task {task['id']}: {task['title']}")}
          command: ./workbook test {lab} {task['id']}
          timeout: {TASK_MINUTES}
          max-score: {task['points']}
""")
    results = "".join(f"          {name.upper()}_RESULTS: ${{{{ steps.{name}.outputs.result }}}}\n" for name in names)
    steps.append(f"""      - name: Autograding Reporter
        uses: classroom-resources/autograding-grading-reporter@v1
        env:
{results}        with:
          runners: {','.join(names)}
""")
    return "".join(steps)
