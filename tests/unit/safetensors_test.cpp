// safetensors: what is written comes back; truncated, damaged and hostile files give an Error.
#include "common/io/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>

#include "common/error.h"
#include "tests/unit/error_of.h"
#include "tests/unit/raw_files.h"
#include "tests/unit/temp_folder.h"

namespace lab::safetensors_test {
namespace {

class SafetensorsTest : public testing::Test {
 protected:
  void write_raw(const std::string& bytes) { write_all(path_, bytes); }

  // A file with this header and this many bytes of data.
  void write_with_header(const std::string& header, size_t data_bytes) {
    const uint64_t length = header.size();
    std::string bytes(sizeof(length), '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    write_raw(bytes + header + std::string(data_bytes, '\0'));
  }

  // The message of the Error that reading gives; "" if it gives none.
  std::string error() {
    return error_of([&] {
      const SafetensorsFile file(path_);
      for (const std::string& name : file.names()) file.read(name);
    });
  }

  TempFolder folder_;
  std::filesystem::path path_ = folder_.path() / "t.safetensors";
};

TEST_F(SafetensorsTest, RoundTripKeepsEveryBit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<NamedTensor> tensors = {
      {"zebra", Tensor::from({1.5F, -0.0F, nan, inf, 1e-45F, 3.0F}, {2, 3})},
      {"a \"quoted\" näme", Tensor::from({7.0F}, {1})},
      {"empty", Tensor::zeros({0, 4})},
  };
  write_safetensors(path_, tensors, {{"format", "pt"}, {"note", "two\nlines"}});
  const SafetensorsFile read(path_);
  EXPECT_EQ(read.metadata(), (Metadata{{"format", "pt"}, {"note", "two\nlines"}}));
  ASSERT_EQ(read.names().size(), tensors.size());
  for (const auto& [name, value] : tensors) {
    const Tensor back = read.read(name);
    ASSERT_EQ(back.shape(), value.shape());
    EXPECT_EQ(std::memcmp(back.data(), value.data(), value.bytes()), 0) << name;
  }
}

TEST_F(SafetensorsTest, WritesTensorsInTheGivenOrderAlignedAndAtomically) {
  const std::vector<NamedTensor> tensors = {{"z", Tensor::from({1.0F, 2.0F}, {2})},
                                            {"a", Tensor::from({3.0F}, {1})}};
  write_safetensors(path_, tensors);
  const std::string bytes = read_all(path_);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  EXPECT_EQ((sizeof(length) + length) % 64, 0U);
  const float expected[] = {1.0F, 2.0F, 3.0F};
  ASSERT_EQ(bytes.size(), sizeof(length) + length + sizeof(expected));
  EXPECT_EQ(std::memcmp(bytes.data() + sizeof(length) + length, expected, sizeof(expected)), 0);
  EXPECT_LT(bytes.find("\"z\""), bytes.find("\"a\""));
  const auto entries = std::filesystem::directory_iterator(folder_.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "a temporary file was left behind";
}

TEST_F(SafetensorsTest, WideningOfHalfPrecisionIsExact) {
  write_with_header(R"({"h":{"dtype":"F16","shape":[7],"data_offsets":[0,14]},)"
                    R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[14,20]}})",
                    0);
  // 1, -2, largest, smallest subnormal, infinity, -0, NaN; then 1, -2, 2^-133 (subnormal).
  const uint16_t bits[] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x7C00,
                           0x8000, 0x7E00, 0x3F80, 0xC000, 0x0001};
  std::ofstream(path_, std::ios::binary | std::ios::app)
      .write(reinterpret_cast<const char*>(bits), sizeof(bits));
  const SafetensorsFile read(path_);
  const Tensor halves = read.read("h");
  const auto h = halves.values();
  EXPECT_EQ(h[0], 1.0F);
  EXPECT_EQ(h[1], -2.0F);
  EXPECT_EQ(h[2], 65504.0F);
  EXPECT_EQ(h[3], 0x1p-24F);
  EXPECT_EQ(h[4], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(h[5] == 0.0F && std::signbit(h[5]));
  EXPECT_TRUE(std::isnan(h[6]));
  const Tensor brains = read.read("b");
  const auto b = brains.values();
  EXPECT_EQ(b[0], 1.0F);
  EXPECT_EQ(b[1], -2.0F);
  EXPECT_EQ(b[2], 0x1p-133F);
}

TEST_F(SafetensorsTest, AskingForWhatIsNotThereNamesFileAndTensor) {
  const std::vector<NamedTensor> tensors = {{"w", Tensor::zeros({2, 3})}};
  write_safetensors(path_, tensors);
  const SafetensorsFile read(path_);
  const std::string missing = error_of([&] { read.read("v"); });
  EXPECT_TRUE(contains(missing, "t.safetensors: has no tensor \"v\"")) << missing;
  const std::string shape = error_of([&] { read.copy_to("w", Tensor::zeros({3, 2})); });
  EXPECT_TRUE(contains(shape, "has shape [2, 3], expected [3, 2]")) << shape;
}

TEST_F(SafetensorsTest, RefusesToWriteANameTwice) {
  const std::vector<NamedTensor> tensors = {{"w", Tensor::zeros({1})}, {"w", Tensor::zeros({1})}};
  EXPECT_THROW(write_safetensors(path_, tensors), Error);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SafetensorsTest, EveryTruncationIsAnError) {
  const std::vector<NamedTensor> tensors = {{"w", Tensor::zeros({3, 2})},
                                            {"v", Tensor::zeros({2})}};
  write_safetensors(path_, tensors, {{"format", "pt"}});
  const std::string whole = read_all(path_);
  for (size_t length = 0; length < whole.size(); ++length) {
    write_raw(whole.substr(0, length));
    EXPECT_NE(error(), "") << "cut to " << length << " of " << whole.size() << " bytes";
  }
  write_raw(whole + '\0');
  EXPECT_NE(error().find("has 1 bytes after its last tensor"), std::string::npos);
}

TEST_F(SafetensorsTest, FlippedBitsNeverCrash) {
  const std::vector<NamedTensor> tensors = {{"w", Tensor::zeros({3, 2})},
                                            {"v", Tensor::zeros({2})}};
  write_safetensors(path_, tensors, {{"format", "pt"}});
  const std::string whole = read_all(path_);
  int errors = 0;
  for (size_t bit = 0; bit < whole.size() * 8; bit += 3) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    write_raw(damaged);
    errors += !error().empty();  // anything but lab::Error ends the test
  }
  EXPECT_GT(errors, 200);  // most of the header matters
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 4; ++i)
      damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
    write_raw(damaged);
    error();
  }
}

struct Hostile {
  const char* name;
  const char* header;
  size_t data_bytes;
  const char* message;  // part of what it should say
};

class HostileHeader : public SafetensorsTest, public testing::WithParamInterface<Hostile> {};

TEST_P(HostileHeader, IsRefused) {
  write_with_header(GetParam().header, GetParam().data_bytes);
  EXPECT_NE(error().find(GetParam().message), std::string::npos) << error();
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors, HostileHeader,
    testing::Values(
        Hostile{"empty", "", 0, "no JSON header"},
        Hostile{"not_an_object", "[1,2]", 0, "no JSON header"},
        Hostile{"not_json", "{\"a\":", 0, "not valid JSON"},
        Hostile{"bad_utf8", "{\"\xFF\":1}", 0, "not valid JSON"},
        Hostile{"not_a_tensor", R"({"a":1})", 0, "no valid \"dtype\""},
        Hostile{"no_shape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "\"shape\""},
        Hostile{"other_type", R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8,
                "type I64"},
        Hostile{"forged", R"({"a":{"dtype":"\nerror: x","shape":[1],"data_offsets":[0,8]}})", 8,
                "type \\x0aerror: x;"},
        Hostile{"negative", R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
                "not a whole number"},
        Hostile{"fraction", R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4,
                "not a whole number"},
        Hostile{"beyond_64_bits",
                R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4,
                "not a whole number"},
        Hostile{"product_overflows",
                R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                "impossibly large"},
        Hostile{"bytes_overflow",
                R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0,
                "does not fill"},
        Hostile{"huge_but_consistent",
                R"({"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}})",
                8, "cut short"},
        Hostile{"backwards", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
                "does not fill"},
        Hostile{"one_offset", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4,
                "two data_offsets"},
        Hostile{"overlap",
                R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                12, "begins at byte 4 of the data, not at 8"},
        Hostile{"hole",
                R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                12, "begins at byte 8 of the data, not at 4"},
        Hostile{"twice",
                R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                8, "has \"a\" twice"},
        Hostile{"metadata_not_text", R"({"__metadata__":{"a":1}})", 0, "is not a string"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(SafetensorsTest, DeepNestingIsRefused) {
  write_with_header("{\"a\":" + std::string(1'000'000, '['), 0);
  EXPECT_NE(error().find("nested too deeply"), std::string::npos) << error();
}

TEST_F(SafetensorsTest, LongShapesAreRefused) {
  std::string shape = "1";
  for (int i = 0; i < 20'000; ++i) shape += ",1";
  write_with_header(R"({"a":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[0,4]}})", 4);
  EXPECT_NE(error().find("an array of more than 10000 values"), std::string::npos) << error();
}

// The test's time limit ends it if the time grows with the square of the number of tensors.
TEST_F(SafetensorsTest, ManyTensorsAreRead) {
  constexpr int kTensors = 300'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i)
    header += fmt::format(R"({}"t{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                          i == 0 ? "" : ",", i);
  write_with_header(header + "}", 0);
  EXPECT_EQ(SafetensorsFile(path_).names().size(), size_t{kTensors});
}

TEST_F(SafetensorsTest, HugeHeaderLengthIsRefused) {
  for (const uint64_t length : {100'000'001ULL, 0x7FFFFFFFFFFFFFFFULL, 0xFFFFFFFFFFFFFFFFULL}) {
    std::string bytes(sizeof(length), '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    write_raw(bytes + "{}");
    EXPECT_NE(error().find("its header would have"), std::string::npos) << error();
  }
}

TEST_F(SafetensorsTest, TensorsMayBeListedInAnyOrder) {
  write_with_header(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                    R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                    8);
  EXPECT_EQ(SafetensorsFile(path_).read("a").numel(), 1);
}

}  // namespace
}  // namespace lab::safetensors_test
