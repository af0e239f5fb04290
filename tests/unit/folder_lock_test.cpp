// FolderLock: the second one is refused, and nothing is left over.
#include "common/io/folder_lock.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/error_of.h"
#include "tests/unit/temp_folder.h"

namespace lab::folder_lock_test {
namespace {

TEST(FolderLock, TheSecondIsRefusedUntilTheFirstIsGone) {
  const TempFolder folder;
  std::optional<FolderLock> first(folder.path());
  const std::string error = error_of([&] { FolderLock second(folder.path()); });
  EXPECT_TRUE(contains(error, folder.path().string())) << error;
  EXPECT_TRUE(contains(error, "another run is writing into this folder")) << error;
  first.reset();
  EXPECT_EQ(error_of([&] { FolderLock second(folder.path()); }), "");
}

TEST(FolderLock, WhatCannotBeOpenedIsNotLocked) {
  const TempFolder folder;
  const std::string error = error_of([&] { const FolderLock lock(folder.path() / "absent"); });
  EXPECT_TRUE(contains(error, "absent: cannot be opened: No such file")) << error;
}

TEST(FolderLock, NoticesThatItsFolderIsGone) {
  const TempFolder folder;
  const auto run = folder.path() / "run";
  std::filesystem::create_directory(run);
  const FolderLock lock(run);
  EXPECT_EQ(error_of([&] { lock.check_place(); }), "");
  std::filesystem::rename(run, folder.path() / "elsewhere");
  EXPECT_TRUE(contains(error_of([&] { lock.check_place(); }), "was removed or moved"));
  std::filesystem::create_directory(run);
  EXPECT_TRUE(contains(error_of([&] { lock.check_place(); }), "was removed or moved"));
}

TEST(FolderLock, LeavesNoFile) {
  const TempFolder folder;
  { const FolderLock lock(folder.path()); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace lab::folder_lock_test
