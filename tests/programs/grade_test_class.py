"""A class for grade_test.py: right, wrong and hostile submissions of lab 02, in all the forms that are taken."""
import csv
import io
import os
import secrets
import tarfile
import zipfile
from pathlib import Path

import hostile_submissions as hostile

ROOT = Path(__file__).resolve().parents[2]
# Of hostile_submissions.py, those that can be in one file. grade_hostile.py tries all of them, one by one.
ATTACKS = ("prints_scores", "forges_records", "loads_solution", "traces", "new_namespaces", "raises_limits", "network",
           "daemon", "fork_and_go", "result_is_link")
FILE = "labs/02_gradient_allreduce/gradient_allreduce.cpp"
SOLUTION = (ROOT / "solutions/02_gradient_allreduce/gradient_allreduce.cpp").read_text(encoding="utf-8")
STARTER = (ROOT / FILE).read_text(encoding="utf-8")
INCLUDES = """
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
"""

# Runs when the file is loaded. What it could see or do is in the message of task 2.
INTRUDER = r"""
std::string visible() {
  std::string found;
  for (const char* path : {"@ROOT@/solutions", "@ROOT@/.git", "@ROOT@/tests", "@ROOT@/README.md", "/etc/passwd",
                           "/etc/shadow", "/home", "/root", "/var", "@BUILD@/bin/lab03_ranks", "@BUILD@/results",
                           "@BUILD@/implementations/lab02/solution.so", "@WORK@"})
    if (access(path, F_OK) == 0) found += std::string(" ") + path;
  for (const char* path : {"@ROOT@/written", "@ROOT@/labs/written", "@BUILD@/written", "/usr/written", "/written"})
    if (std::ofstream(path) << "x" << std::flush) found += std::string(" wrote ") + path;
  std::ofstream("/tmp/@MARK@") << "x";  // in memory
  if (dlsym(RTLD_DEFAULT, "_ZN3lab7grading13scenario_seedEv") != nullptr ||
      dlsym(RTLD_DEFAULT, "_ZN3lab7grading8is_givenERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE") != nullptr)
    found += " the harness";
  for (const char* name : {"LAB_SEED", "LAB_SANDBOX"})
    if (std::getenv(name) != nullptr) found += std::string(" ") + name;
  int processes = 0;
  if (DIR* proc = opendir("/proc"))
    while (const dirent* entry = readdir(proc)) processes += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
  if (processes > 8) found += " other processes";
  const int link = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(53);
  inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);
  if (connect(link, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) found += " the network";
  return found.empty() ? " nothing" : found;
}
const std::string seen = visible();
const bool started = [] {
  std::puts("lab 02: 100/100\n{\"score\": 100}");
  for (int i = 0; i < 3; ++i)
    if (fork() == 0) {
      setsid();
      execl("/usr/bin/sleep", "@MARK@", "600", nullptr);
      _exit(1);
    }
  return true;
}();
"""


def placed(text, build, work, mark):
    for name, value in {"ROOT": ROOT, "BUILD": build, "WORK": work, "MARK": mark}.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def changed(text, before, after):
    assert text.count(before) == 1, before
    return text.replace(before, after)


def with_includes(text, code):
    return INCLUDES + text + "\nnamespace {\n" + code + "\n}  // namespace\n"


class Class:
    """Submissions in a folder, with the points they deserve."""

    def __init__(self, folder, build, mark):
        self.folder, self.deserved = folder, {}
        intruder = changed(STARTER, 'lab::not_implemented("2"', "throw std::runtime_error(what_it_saw());"
                           ' lab::not_implemented("2"')
        intruder = INCLUDES + "std::string what_it_saw();\n" + intruder + "\nnamespace {\n" + \
            placed(INTRUDER, build, folder, mark) + '}\nstd::string what_it_saw() { return "visible:" + seen; }\n'
        wrong_shard = changed(SOLUTION, "order[i * ranks + static_cast<size_t>(rank)]", "order[i]")
        kills = "const bool killed = (kill(getppid(), SIGKILL), kill(-1, SIGKILL), true);"  # and so itself
        self.add_folder("solution", SOLUTION, 100)
        self.add_zip("starter", {f"course/{FILE}": STARTER}, 0)
        self.add_tar("wrong_shard", {"gradient_allreduce.cpp": wrong_shard}, 75)
        self.add_zip("two_files", {"a/gradient_allreduce.cpp": STARTER, "b/gradient_allreduce.cpp": SOLUTION}, 0)
        self.add_zip("climbs", {f"../../{FILE}": SOLUTION}, 0)
        self.add_folder("huge", SOLUTION + "//" + "x" * (1 << 20), 0)
        self.add_folder("latin1", (SOLUTION + "// \xe9\n").encode("latin-1"), 0)
        self.add_link("link", 0)
        (folder / "nothing").mkdir()
        self.deserved["nothing"] = 0
        (folder / "broken.zip").write_bytes(b"PK\3\4 no archive")
        self.deserved["broken"] = 0
        (folder / "notes.pdf").write_bytes(b"%PDF")
        self.deserved["notes.pdf"] = 0
        self.add_tar("cut", {FILE: SOLUTION + "// " + secrets.token_hex(20_000)}, 0)
        os.truncate(folder / "cut.tar.gz", 20_000)
        self.add_zip("backslashes", {FILE.replace("/", "\\"): STARTER + "#error below backslashes\n"}, 0)
        (folder / "uploaded").mkdir()
        self.add_tar("uploaded/submission-02", {FILE: STARTER + "#error in an upload\n"}, 0)
        self.deserved["uploaded"] = self.deserved.pop("uploaded/submission-02")
        self.add_folder("kills", with_includes(SOLUTION, kills), 0)
        self.add_folder("exits", with_includes(STARTER, "const bool left = (std::exit(0), true);"), 0)
        self.add_folder("intruder", intruder, 0)
        self.add_folder("includes", f'#include "{ROOT}/solutions/02_gradient_allreduce/gradient_allreduce.cpp"\n', 0)
        self.add_folder("password", STARTER + '#include "/etc/passwd"\n', 0)
        self.add_folder("given", "#include <set>\n#include <string>\nnamespace lab::grading { "
                        "void set_given(std::set<std::string>); }\n" + STARTER +
                        '\nconst bool given = (lab::grading::set_given({"1", "2", "3", "4", "5"}), true);\n', 0)
        self.add_folder("names_correct", STARTER + "\nnamespace lab02::given_3 {\nvoid average_gradients("
                        "std::span<const lab::Tensor>, int64_t, lab::ProcessGroup&);\n}\n"
                        "auto* correct = &lab02::given_3::average_gradients;\n", 0)
        self.add_folder("attacks", hostile.placed(hostile.attacking("\n".join(map(hostile.ATTACKS.get, ATTACKS))), build, mark),
                        hostile.POINTS)
        for name, body in hostile.THEFTS.items():
            self.add_folder(name, hostile.placed(hostile.stealing(body), build, mark), hostile.POINTS)
        rows = io.StringIO()
        csv.writer(rows).writerows([["name", "path"], ["Zoë, listed", "solution"]])
        (folder / "list.csv").write_text(rows.getvalue(), encoding="utf-8")

    def add_folder(self, name, text, points):
        file = self.folder / name / FILE
        file.parent.mkdir(parents=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.deserved[name] = points

    def add_link(self, name, points):
        file = self.folder / name / FILE
        file.parent.mkdir(parents=True)
        file.symlink_to(ROOT / "solutions/02_gradient_allreduce/gradient_allreduce.cpp")
        self.deserved[name] = points

    def add_zip(self, name, files, points):
        with zipfile.ZipFile(self.folder / f"{name}.zip", "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        self.deserved[name] = points

    def add_tar(self, name, files, points):
        with tarfile.open(self.folder / f"{name}.tar.gz", "w:gz") as archive:
            for path, text in files.items():
                member = tarfile.TarInfo(path)
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        self.deserved[name] = points

    def paths(self):
        return sorted(path for path in self.folder.iterdir() if path.suffix != ".csv")
