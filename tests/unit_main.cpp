// Entry of the unit tests. `--file tensor_test.cpp` runs the tests of one source file, whatever
// their names: one ctest entry per file stays right when tests come and go. Exits with 77 when all
// of them were skipped, which is not a pass.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace {

/// The filter that selects every test of that file; empty if it has none.
std::string filter_for(const std::string& file) {
  std::string filter;
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  for (int s = 0; s < tests.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *tests.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (std::filesystem::path(test.file()).filename() == file)
        filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 3 && std::string(argv[1]) == "--file") {
    const std::string filter = filter_for(argv[2]);
    if (filter.empty()) {
      std::fprintf(stderr, "error: there are no tests of %s in this program\n", argv[2]);
      return 1;
    }
    GTEST_FLAG_SET(filter, filter);
  }
  const int code = RUN_ALL_TESTS();
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  const int run = tests.test_to_run_count();
  return code == 0 && run > 0 && tests.skipped_test_count() == run ? 77 : code;
}
