// Tests of common/io/files.h: files are whole or absent, and errors say what and where.
#include "common/io/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "tests/unit/error_of.h"
#include "tests/unit/raw_files.h"
#include "tests/unit/temp_folder.h"

namespace lab::files_test {
namespace {

namespace fs = std::filesystem;

class FilesTest : public testing::Test {
 protected:
  /// Names in the folder, sorted.
  std::vector<std::string> listing() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  TempFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(FilesTest, CommitMakesTheFileAppear) {
  const fs::path target = folder_ / "new" / "deeper" / "file";
  AtomicFile file(target);
  file.write("hello ");
  file.write("world");
  EXPECT_FALSE(fs::exists(target)) << "the target must not exist before commit";
  file.commit();
  EXPECT_EQ(read_all(target), "hello world");
}

TEST_F(FilesTest, WithoutCommitTheTargetStaysAndNothingIsLeftBehind) {
  const fs::path target = folder_ / "file";
  write_file(target, "old");
  {
    AtomicFile file(target);
    file.write("half-written");
  }
  EXPECT_EQ(read_all(target), "old");
  EXPECT_EQ(listing(), std::vector<std::string>{"file"});
}

TEST_F(FilesTest, ReplacesAnExistingFile) {
  const fs::path target = folder_ / "file";
  write_file(target, "a long first version");
  write_file(target, "short");
  EXPECT_EQ(read_all(target), "short");
  EXPECT_EQ(listing(), std::vector<std::string>{"file"});
}

TEST_F(FilesTest, TargetInTheCurrentFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  write_file("plain-name", "text");
  fs::current_path(before);
  EXPECT_EQ(read_all(folder_ / "plain-name"), "text");
}

TEST_F(FilesTest, OverwriteChangesBytesInPlace) {
  const fs::path target = folder_ / "file";
  AtomicFile file(target);
  file.write("????rest");
  const std::string head = "HEAD";
  file.overwrite(0, std::as_bytes(std::span(head)));
  file.write(" more");
  EXPECT_THROW(file.overwrite(10, std::as_bytes(std::span(head))), Error) << "beyond the end";
  EXPECT_THROW(file.overwrite(-1, std::as_bytes(std::span(head))), Error);
  file.commit();
  EXPECT_EQ(read_all(target), "HEADrest more");
}

TEST_F(FilesTest, WritingAfterCommitIsAnError) {
  AtomicFile file(folder_ / "file");
  file.commit();
  EXPECT_THROW(file.write("late"), Error);
  EXPECT_THROW(file.commit(), Error);
  EXPECT_EQ(read_all(folder_ / "file"), "");
}

TEST_F(FilesTest, PermissionsFollowTheUmask) {
  const mode_t before = umask(027);
  write_file(folder_ / "file", "text");
  umask(before);
  struct stat status {};
  ASSERT_EQ(stat((folder_ / "file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640U);
}

TEST_F(FilesTest, ThreadsWritingTheSameTargetNeverMix) {
  const fs::path target = folder_ / "file";
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&target, t] {
      for (int round = 0; round < 5; ++round) {
        AtomicFile file(target);
        for (int part = 0; part < 100; ++part)
          file.write(std::string(50, static_cast<char>('a' + t)));
        file.commit();
      }
    });
  for (std::thread& thread : threads) thread.join();
  const std::string text = read_all(target);
  EXPECT_EQ(text, std::string(5000, text.at(0)));
  EXPECT_EQ(listing(), std::vector<std::string>{"file"});
}

TEST_F(FilesTest, AKilledProcessLeavesTheTargetAsItWas) {
  const fs::path target = folder_ / "file";
  write_file(target, "old");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AtomicFile file(target);
    file.write("half-written");
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_all(target), "old");
}

TEST_F(FilesTest, AFailedWriteThrowsAndLeavesTheTargetAsItWas) {
  const fs::path target = folder_ / "file";
  write_file(target, "old");
  // A limit on the size of files replaces a full disk.
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small = limit;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = error_of([&] { write_file(target, std::string(5000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  EXPECT_NE(message.find(target.string()), std::string::npos) << message;
  EXPECT_EQ(read_all(target), "old");
  EXPECT_EQ(listing(), std::vector<std::string>{"file"});
}

TEST_F(FilesTest, ImpossibleTargetsAreNamed) {
  write_file(folder_ / "file", "text");
  const std::string inside_file = error_of([&] { AtomicFile file(folder_ / "file" / "below"); });
  EXPECT_NE(inside_file.find((folder_ / "file").string()), std::string::npos) << inside_file;
  const std::string is_folder = error_of([&] { AtomicFile file{folder_}; });
  EXPECT_NE(is_folder.find("not a regular file"), std::string::npos) << is_folder;
  EXPECT_THROW(AtomicFile("/dev/null"), Error) << "a rename would replace the device";
}

TEST_F(FilesTest, AReadOnlyFolderIsNamed) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  const std::string message = error_of([&] { AtomicFile file(folder_ / "file"); });
  fs::permissions(folder_, fs::perms::owner_all);
  EXPECT_NE(message.find(folder_.string()), std::string::npos) << message;
  EXPECT_NE(message.find("denied"), std::string::npos) << message;
}

TEST_F(FilesTest, MappedFileShowsTheBytes) {
  const std::string text("a\0b\nc", 5);
  write_file(folder_ / "file", text);
  const MappedFile file(folder_ / "file");
  EXPECT_EQ(file.text(), text);
  EXPECT_EQ(file.bytes().size(), 5U);
}

TEST_F(FilesTest, MappedFileSurvivesReplacementOfTheFile) {
  write_file(folder_ / "file", "first");
  const MappedFile file(folder_ / "file");
  write_file(folder_ / "file", "2");
  EXPECT_EQ(file.text(), "first");
}

TEST_F(FilesTest, MappedFileMoves) {
  write_file(folder_ / "a", "text of a");
  write_file(folder_ / "b", "text of b");
  MappedFile a(folder_ / "a");
  MappedFile moved(std::move(a));
  EXPECT_EQ(moved.text(), "text of a");
  MappedFile b(folder_ / "b");
  moved = std::move(b);
  EXPECT_EQ(moved.text(), "text of b");
}

TEST_F(FilesTest, MappedFileMayBeEmpty) {
  write_file(folder_ / "file", "");
  EXPECT_TRUE(MappedFile(folder_ / "file").bytes().empty());
}

TEST_F(FilesTest, MappedFileNamesWhatItCannotOpen) {
  const fs::path missing = folder_ / "missing";
  const std::string message = error_of([&] { MappedFile file(missing); });
  EXPECT_NE(message.find(missing.string()), std::string::npos) << message;
  EXPECT_NE(message.find("No such file"), std::string::npos) << message;
  EXPECT_THROW(MappedFile{folder_}, Error);
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(MappedFile(folder_ / "pipe"), Error) << "and must not wait for a writer";
}

TEST_F(FilesTest, ChecksumIsXxh3) {
  // The first is the value that the XXH3 specification gives for no bytes and seed 0.
  EXPECT_EQ(checksum({}), 0x2D06800538D394C2U);
  const std::string a = "a story";
  const std::string b = "a storz";
  EXPECT_NE(checksum(std::as_bytes(std::span(a))), checksum(std::as_bytes(std::span(b))));
}

TEST_F(FilesTest, SyncFolderNamesAMissingFolder) {
  EXPECT_NO_THROW(sync_folder(folder_));
  EXPECT_THROW(sync_folder(folder_ / "missing"), Error);
}

}  // namespace
}  // namespace lab::files_test
