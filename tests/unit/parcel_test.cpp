// The files in which rank programs get inputs and leave results.
#include "tests/grading/parcel.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/error.h"
#include "tests/unit/temp_folder.h"

namespace lab::grading::parcel_test {
namespace {

TEST(Parcel, SurvivesItsFile) {
  const TempFolder folder;
  Parcel inner;
  inner.set("numbers", std::vector<double>{1, 0.1, -3e300});
  inner.set("empty", Tensor::empty({0, 3}));
  Parcel parcel;
  parcel.set("call0", inner);
  parcel.set("tensor", Tensor::from({1, 2, 3}, {3, 1}));
  parcel.set("batch", TokenBatch{2, 3, {}});
  parcel.write(folder.path() / "p");
  const Parcel read = Parcel::read(folder.path() / "p");
  EXPECT_EQ(read.part("call0").numbers("numbers"), (std::vector<double>{1, 0.1, -3e300}));
  EXPECT_EQ(read.part("call0").tensor("empty").shape(), (Shape{0, 3}));
  EXPECT_EQ(read.tensor("tensor").values()[2], 3.0F);
  EXPECT_EQ(read.batch("batch").length, 3);
  EXPECT_TRUE(read.part("call1").empty());
}

/// Its other sizes may exceed what is left of the file.
TEST(Parcel, ATensorWithoutElementsMayComeLast) {
  const TempFolder folder;
  for (const Shape& shape : {Shape{0, 4000}, Shape{4000, 0}, Shape{0}, Shape{50, 0, 70}}) {
    Parcel parcel;
    parcel.set("tensor", Tensor::empty(shape));
    parcel.write(folder.path() / "p");
    EXPECT_EQ(Parcel::read(folder.path() / "p").tensor("tensor").shape(), shape);
  }
}

TEST(Parcel, DamagedFilesAreErrors) {
  const TempFolder folder;
  Parcel parcel;
  parcel.set("tensor", Tensor::from({1, 2, 3}, {3}));
  parcel.set_text("text", "abc");
  parcel.write(folder.path() / "p");
  std::ifstream file(folder.path() / "p", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::ofstream(folder.path() / "q", std::ios::binary) << bytes.substr(0, size);
    EXPECT_THROW(Parcel::read(folder.path() / "q"), Error) << size;
    std::string changed = bytes;
    changed[size] = '\xff';
    std::ofstream(folder.path() / "q", std::ios::binary) << changed;
    try {
      Parcel::read(folder.path() / "q");  // numbers may differ
    } catch (const Error&) {
    }
  }
}

TEST(Parcel, WhatWasAppendedIsReadOrLeftOut) {
  const TempFolder folder;
  const auto path = folder.path() / "p";
  Parcel first;
  first.set("tensor", Tensor::from({1, 2, 3}, {3}));
  first.set_text("outcome", "one call");
  first.append(path);  // to no file
  const auto size_of_first = std::filesystem::file_size(path);
  Parcel second;
  second.set("number", 7.0);
  second.set_text("outcome", "two calls");
  second.append(path);
  const Parcel both = Parcel::read(path);
  EXPECT_EQ(both.tensor("tensor").values()[2], 3.0F);
  EXPECT_EQ(both.number("number"), 7);
  EXPECT_EQ(both.text("outcome"), "two calls");
  for (auto size = std::filesystem::file_size(path) - 1; size >= size_of_first; --size) {
    std::filesystem::resize_file(path, size);
    const Parcel rest = Parcel::read(path);
    EXPECT_FALSE(rest.has("number")) << size;
    EXPECT_EQ(rest.text("outcome"), "one call") << size;
  }
}

}  // namespace
}  // namespace lab::grading::parcel_test
