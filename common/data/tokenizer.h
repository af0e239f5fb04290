// Tokenizer: text to token numbers and back, by a sentencepiece model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lab {

/// Any sentencepiece .model with BOS and EOS: the shipped one (4,096 pieces), LLaMA's (32,000), ...
/// Immutable after loading; several threads may use it at once.
class Tokenizer {
 public:
  /// Throws Error if the file is missing, damaged, not a sentencepiece model, or has no BOS or EOS.
  explicit Tokenizer(const std::filesystem::path& model);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  int64_t vocab_size() const;
  int32_t bos() const;  // begin of sequence
  int32_t eos() const;  // end of sequence

  /// Tokens of `text`, without BOS and EOS. Throws Error if it is not valid UTF-8.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Text of `tokens`; BOS and EOS produce none. Throws Error for a token outside the vocabulary.
  std::string decode(std::span<const int32_t> tokens) const;

  /// Decodes a stream: returns the text that `token` adds to what was returned before; bytes of an
  /// unfinished UTF-8 character are held back until it is complete. The first token of a text loses
  /// the space that sentencepiece puts before it: to continue a prompt, push its tokens too.
  class Stream {
   public:
    explicit Stream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
    std::string push(int32_t token);

   private:
    const Tokenizer& tokenizer_;
    std::vector<int32_t> tokens_;
    size_t printed_ = 0;
  };

  /// Checksum of the model file, the key of token caches.
  uint64_t checksum() const;
  const std::filesystem::path& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lab
