"""Submissions of lab 02 that attack the grader. Each is the solution with a wrong shard (task 2), which attacks first, or
with an average_gradients (task 3) that only attacks: it deserves the points of the other tasks, whatever happens to this
one. @ROOT@ and @BUILD@ are the workbook's folders, @MARK@ occurs in the names of all files and processes that an attack
leaves, @OFFSET@ leads from the function of the contract to the correct one of the rank program.
"""
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOLUTION = (ROOT / "solutions/02_gradient_allreduce/gradient_allreduce.cpp").read_text(encoding="utf-8")
POINTS = 75
SUCCESS = "it could"

INCLUDES = """
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
extern char** environ;
"""

# `results()` are the files that this rank's process must write; `say()` tells what should not have been possible, after
# SUCCESS in the message of the task.
HELPERS = """
namespace {
[[maybe_unused]] std::vector<std::string> results() {
  std::vector<std::string> found;
  std::ifstream words("/proc/self/cmdline");
  for (std::string word, before; std::getline(words, word, '\\0'); before = word)
    if (before == "--out")
      for (const char* name : {"", "/rank0/result", "/rank1/result", "/rank2/result"}) found.push_back(word + name);
  return found;
}
#pragma GCC diagnostic ignored "-Wunused-result"
#pragma GCC diagnostic ignored "-Winfinite-recursion"
std::string said;
[[maybe_unused]] void say(const char* word) { said += std::string(" ") + word; }
"""

# Bodies of `void attack()`.
ATTACKS = {
    # Ends
    "exit": "std::exit(0);",
    "at_exit": 'std::atexit([] { std::puts("lab 02: 100/100"); _exit(0); }); std::exit(0);',
    "killed": "raise(SIGKILL);",
    "stack": "volatile char page[4096]; page[0] = 1; attack(); page[1] = 1;",
    "throws": "throw 7;",
    # Prints
    "prints_scores": r'std::puts("[  PASSED  ] 5 tests.\nlab 02: 100/100\n{\"passed\": true}"); std::fflush(stdout);',
    "prints_for_ever": 'const std::string line(1 << 16, \'x\'); for (;;) std::fwrite(line.data(), 1, line.size(), stdout);',
    # Fills
    "allocates_50_gb": "std::vector<char*> all; for (int i = 0; i < 50; ++i) { all.push_back(new char[1 << 30]); "
                       "std::memset(all.back(), 1, 1 << 30); }",
    "maps_50_gb": "for (int i = 0; i < 50; ++i) std::memset(mmap(nullptr, 1 << 30, PROT_READ | PROT_WRITE, "
                  "MAP_SHARED | MAP_ANONYMOUS, -1, 0), 1, 1 << 30);",
    "children_with_memory": "for (int i = 0; i < 20; ++i) if (fork() == 0) { std::memset(new char[3 << 29], 1, 3 << 29); "
                            "sleep(60); _exit(0); } sleep(5);",
    "fills_disks": 'for (const char* path : {"/tmp/@MARK@", "/dev/shm/@MARK@", "@MARK@", "/var/tmp/@MARK@"}) '
                   '{ std::ofstream file(path); const std::string block(1 << 20, \'x\'); '
                   "for (int i = 0; i < 4000 && file << block; ++i) {} }",
    "fork_bomb": 'for (;;) if (fork() < 0) { prctl(PR_SET_NAME, "@MARK@"); pause(); }',
    "fork_and_go": "for (int i = 0; i < 2000; ++i) if (fork() == 0) { setsid(); signal(SIGTERM, SIG_IGN); pause(); }",
    "threads": "for (int i = 0; i < 5000; ++i) std::thread([] { pause(); }).detach();",
    "daemon": 'if (fork() == 0) { setsid(); if (fork() == 0) execl("/bin/sleep", "@MARK@", "900", nullptr); _exit(0); }',
    # Stops others
    "kills_all": "kill(-1, SIGKILL); kill(getppid(), SIGKILL); kill(0, SIGKILL);",
    "stops_all": "kill(getppid(), SIGSTOP); kill(1, SIGSTOP); kill(0, SIGSTOP);",
    "hangs": "for (;;) pause();",
    "spins": "for (volatile long i = 0;; i = i + 1) {}",
    "closes_descriptors": "for (int i = 0; i < 1024; ++i) close(i);",
    # Forges
    "forges_records": 'for (const char* folder : {".", "..", "/tmp", "results", "@BUILD@/results/lab02_student", '
                      '"@BUILD@/results"}) for (const char* task : {"1", "2", "3", "4", "5", "Program"}) '
                      'std::ofstream(std::string(folder) + "/" + task + ".json") << "{\\"passed\\": true, \\"tests\\": 9, '
                      '\\"failures\\": [], \\"not_graded\\": \\"\\"}";',
    "copies_results": "for (const auto& one : results()) for (const auto& other : results()) if (one != other) { "
                      "std::error_code e; std::filesystem::copy_file(other, one, "
                      "std::filesystem::copy_options::overwrite_existing, e); } _exit(0);",
    "result_is_pipe": "for (const auto& path : results()) { unlink(path.c_str()); mkfifo(path.c_str(), 0666); } _exit(0);",
    "result_is_link": "for (const auto& path : results()) { unlink(path.c_str()); "
                      'symlink("/etc/passwd", path.c_str()); } _exit(0);',
    "result_is_device": "for (const auto& path : results()) { unlink(path.c_str()); "
                        'symlink("/dev/zero", path.c_str()); } _exit(0);',
    "result_is_huge": "for (const auto& path : results()) { std::ofstream(path) << 'x'; "
                      "truncate(path.c_str(), 1L << 40); } _exit(0);",
    "result_is_folder": "for (const auto& path : results()) { unlink(path.c_str()); mkdir(path.c_str(), 0); } _exit(0);",
    "no_folder": "std::error_code e; std::filesystem::remove_all(std::filesystem::current_path(), e); "
                 "for (const auto& path : results()) std::filesystem::remove_all(std::filesystem::path(path).parent_path(), e);",
    "denies_folder": "chmod(\".\", 0); chmod(\"..\", 0);",
    "folder_is_link": 'for (const auto& path : results()) for (const auto& folder : {path, path.substr(0, path.rfind("/"))}) '
                      '{ std::error_code e; std::filesystem::rename(folder, folder + ".moved", e); '
                      'std::filesystem::remove_all(folder, e); '
                      'symlink("@ROOT@/labs/02_gradient_allreduce", folder.c_str()); }',
    "edits_points": 'for (const char* folder : {"@ROOT@", "@ROOT@/labs", "@ROOT@/labs/02_gradient_allreduce"}) '
                    '{ const std::string path = std::string(folder) + "/points.json"; mkdir(folder, 0777); '
                    'if (std::ofstream(path) << "{\\"tasks\\": []}" && access("@ROOT@/labs/01_single_gpu", F_OK) == 0) '
                    'say("wrote"); }',
    "replaces_programs": 'for (const char* name : {"lab02_verdict", "lab02_ranks", "lab02_rehearsal"}) for (const char* other : '
                         '{"/proc/self/exe", "@BUILD@/bin/lab02_solution"}) { std::error_code e; '
                         'const std::string path = std::string("@BUILD@/bin/") + name; '
                         "std::filesystem::copy_file(other, path + \".new\", e); "
                         'if (rename((path + ".new").c_str(), path.c_str()) == 0) say("renamed"); '
                         'if (open(path.c_str(), O_WRONLY | O_TRUNC) >= 0) say("opened"); }',
    # Looks for the solution
    "loads_solution": 'for (const char* path : {"@BUILD@/implementations/lab02/solution.so", "solution.so", '
                      '"../solution.so"}) if (dlopen(path, RTLD_NOW | RTLD_GLOBAL)) say("loaded"); '
                      'if (auto* right = reinterpret_cast<std::vector<int64_t> (*)(std::span<const int64_t>, int, int)>('
                      'dlsym(RTLD_DEFAULT, "_ZN5lab025shardESt4spanIKlLm18446744073709551615EEii"))) '
                      'if (right != &lab02::shard) say("found");',
    "starts_solution": 'for (const char* path : {"@BUILD@/bin/lab02_solution", "@BUILD@/bin/lab02_verdict", '
                       '"@BUILD@/bin/lab02_rehearsal"}) execl(path, path, "--ranks", "2", nullptr);',
    "preloads": 'if (std::getenv("LD_PRELOAD") == nullptr) { Dl_info info; dladdr(reinterpret_cast<void*>(&attack), &info); '
                'setenv("LD_PRELOAD", info.dli_fname, 1); std::ifstream file("/proc/self/cmdline"); std::string word; '
                "static std::vector<std::string> words; while (std::getline(file, word, '\\0')) words.push_back(word); "
                "std::vector<char*> line; for (auto& one : words) line.push_back(one.data()); line.push_back(nullptr); "
                'execv("/proc/self/exe", line.data()); }',
    "traces": "ptrace(PTRACE_ATTACH, getppid(), nullptr, nullptr); ptrace(PTRACE_ATTACH, 1, nullptr, nullptr); "
              'for (int pid = 1; pid < 400; ++pid) { std::ofstream memory("/proc/" + std::to_string(pid) + "/mem"); '
              "if (pid != getpid() && memory.is_open()) say(\"opened\"); }",
    "new_namespaces": 'if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) say("namespaces"); '
                      'if (mount("none", "/", nullptr, MS_REMOUNT | MS_BIND, nullptr) == 0) say("mounted"); '
                      'if (setuid(0) == 0 && geteuid() == 0 && access("/etc/shadow", R_OK) == 0) say("root"); '
                      'if (chroot("/proc/1/root") == 0) say("outside");',
    "raises_limits": "rlimit all{RLIM_INFINITY, RLIM_INFINITY}; for (int i = 0; i < 16; ++i) "
                     "if (setrlimit(static_cast<__rlimit_resource>(i), &all) == 0 && i == RLIMIT_DATA) say(\"raised\"); "
                     'std::ofstream("/proc/self/oom_score_adj") << "-1000";',
    "network": 'if (gethostbyname("deb.debian.org")) say("network"); '
               'if (std::system("exec 3<>/dev/tcp/1.1.1.1/53") == 0) say("network");',
}

# Instead of averaging gradients (task 3), by what other ranks were given, or by the correct function for task 4.
THEFTS = {
    "peeks": "std::error_code e; for (const std::filesystem::path path : results()) "
             "for (const auto& folder : {path, path.parent_path(), path.parent_path().parent_path()}) "
             "for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, "
             "std::filesystem::directory_options::skip_permission_denied, e)) "
             'if (entry.path().filename() == "input" || entry.path().extension() == ".in") say("inputs");',
    "starts_itself": 'std::vector<std::string> words; std::ifstream file("/proc/self/cmdline"); std::string word; '
                     "while (std::getline(file, word, '\\0')) words.push_back(word); "
                     'if (std::ranges::find(words, "--given") == words.end()) { words.push_back("--given"); '
                     'words.push_back("3"); std::vector<char*> line; for (auto& one : words) line.push_back(one.data()); '
                     'line.push_back(nullptr); execv("/proc/self/exe", line.data()); }',
    "calls_correct": "volatile auto place = reinterpret_cast<uintptr_t>(&lab02::average_gradients) + @OFFSET@; "
                     "reinterpret_cast<decltype(&lab02::average_gradients)>(place)(gradients, targets, world);",
}

# Files that do not get as far as running: name -> contents. They deserve nothing.
UNBUILT = {
    "includes_solution": '#include "@ROOT@/solutions/02_gradient_allreduce/gradient_allreduce.cpp"\n',
    "embeds_solution": 'asm(".incbin \\"@ROOT@/solutions/02_gradient_allreduce/gradient_allreduce.cpp\\"");\n',
    "includes_passwords": '#include "/etc/passwd"\n',
    "includes_zeros": '#include "/dev/zero"\n',
    "templates": "template <int n> struct Bomb { Bomb<n - 1> a; Bomb<n + 1> b; };\nBomb<1> bomb;\n",
    "constants": "constexpr long slow(long n) { long sum = 0; for (long i = 0; i < 30'000'000; ++i) sum += i ^ n; return sum; }\n"
                 "template <long n> constexpr long all = slow(n) + all<n - 1>;\ntemplate <> constexpr long all<0> = 0;\n"
                 "constexpr long never = all<800>;\n",
    "huge_object": "int everything[1L << 33] = {1};\n",
    "assembler": 'asm(".fill 10000000000, 1, 0");\n',
}


def placed(text, build, mark):
    """With the places of this machine."""
    if "@OFFSET@" in text:
        names = subprocess.run(["nm", "-C", build / "bin/lab02_ranks"], capture_output=True, text=True, check=True).stdout
        contract, correct = (int(re.search(rf"^(\w+) . lab02::{name}\(", names, re.M)[1], 16)
                             for name in ("average_gradients", "given_3::average_gradients"))
        text = text.replace("@OFFSET@", str(correct - contract))
    for word, value in {"@ROOT@": ROOT, "@BUILD@": build, "@MARK@": mark}.items():
        text = text.replace(word, str(value))
    return text


def stealing(body):
    """As `attacking`, in place of averaging gradients."""
    signature = "void average_gradients(std::span<const lab::Tensor> gradients, int64_t targets,\n" \
                "                       lab::ProcessGroup& world) {\n"
    before, found, after = SOLUTION.partition(signature)
    assert found and "}\n\n// Task 4" in after
    head, _, rest = before.partition("namespace lab02 {")
    return head + "#include <algorithm>\n#include <span>\n" + INCLUDES + HELPERS + "}  // namespace\nnamespace lab02 {" + rest + \
        signature + f'  {body}\n  if (!said.empty()) throw std::runtime_error("{SUCCESS}:" + said);\n' + \
        "}\n\n// Task 4" + after.partition("}\n\n// Task 4")[2]


def attacking(body):
    wrong = SOLUTION.replace("share.push_back(order[i * ranks + static_cast<size_t>(rank)]);", "share.push_back(order[i]);")
    start = "  const auto ranks = static_cast<size_t>(world_size);\n  const size_t length"
    assert wrong != SOLUTION and wrong.count(start) == 1
    attack = INCLUDES + HELPERS + """
void attack() {
  @BODY@
  if (!said.empty()) throw std::runtime_error("@SUCCESS@:" + said);
}
}  // namespace
"""
    head, _, rest = wrong.partition("namespace lab02 {")
    assert rest
    return head + "#include <span>\n" + attack.replace("@BODY@", body).replace("@SUCCESS@", SUCCESS) + "namespace lab02 {" + \
        rest.replace(start, "  attack();\n" + start)
