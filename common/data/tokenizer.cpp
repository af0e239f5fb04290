// Tokenizer: wraps a sentencepiece model, with errors a user can understand.
#include "common/data/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <utility>

#include "common/data/model_check.h"
#include "common/error.h"
#include "common/io/files.h"
#include "common/io/utf8.h"

namespace lab {
namespace {

constexpr size_t kMaxModelBytes = size_t{16} << 20;  // models of 250,000 pieces have about 5 MB

/// Loads `bytes`. Returns what is wrong with them, or an empty string.
std::string load(sentencepiece::SentencePieceProcessor& processor, std::string_view bytes) {
  if (bytes.size() > kMaxModelBytes) return "too large for a sentencepiece model";
  if (const std::string_view damage = find_model_damage(bytes); !damage.empty())
    return std::string(damage);
  try {
    const auto status = processor.LoadFromSerializedProto(bytes);
    if (!status.ok()) return status.ToString();
  } catch (const std::exception& error) {  // its trie builder throws
    return error.what();
  }
  for (int id = 0; id < processor.GetPieceSize(); ++id)
    if (!std::isfinite(processor.GetScore(id)))
      return fmt::format("the score of piece {} is not a number", id);
  if (processor.bos_id() < 0) return "it has no BOS piece (begin of sequence)";
  if (processor.eos_id() < 0) return "it has no EOS piece (end of sequence)";
  if (processor.bos_id() == processor.eos_id()) return "its BOS and EOS are the same piece";
  return "";
}

}  // namespace

struct Tokenizer::Impl {
  std::filesystem::path path;
  uint64_t checksum = 0;
  sentencepiece::SentencePieceProcessor processor;

  void check_token(int32_t token) const {
    require(token >= 0 && token < processor.GetPieceSize(),
            "token {} is not in the vocabulary of {} (0 to {})", token, path.string(),
            processor.GetPieceSize() - 1);
  }
};

Tokenizer::Tokenizer(const std::filesystem::path& model) : impl_(std::make_unique<Impl>()) {
  const MappedFile file(model);
  impl_->path = model;
  impl_->checksum = lab::checksum(file.bytes());
  const std::string problem = load(impl_->processor, file.text());
  require(problem.empty(), "cannot use tokenizer {}: {}", model.string(), problem);
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

int64_t Tokenizer::vocab_size() const { return impl_->processor.GetPieceSize(); }
int32_t Tokenizer::bos() const { return impl_->processor.bos_id(); }
int32_t Tokenizer::eos() const { return impl_->processor.eos_id(); }
uint64_t Tokenizer::checksum() const { return impl_->checksum; }
const std::filesystem::path& Tokenizer::path() const { return impl_->path; }

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  const size_t invalid = find_invalid_utf8(text);
  require(invalid == text.size(), "cannot tokenize text that is not valid UTF-8 (byte {})",
          invalid + 1);
  std::vector<int> ids;
  const auto status = impl_->processor.Encode(text, &ids);
  require(status.ok(), "cannot tokenize with {}: {}", impl_->path.string(), status.ToString());
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  for (const int32_t token : tokens) impl_->check_token(token);
  std::string text;
  const auto status =
      impl_->processor.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
  require(status.ok(), "cannot decode with {}: {}", impl_->path.string(), status.ToString());
  return text;
}

std::string Tokenizer::Stream::push(int32_t token) {
  const auto& impl = *tokenizer_.impl_;
  impl.check_token(token);
  tokens_.push_back(token);

  // Byte pieces are named <0x00> to <0xFF>. Those at the end that still lack a continuation are
  // held back.
  std::string last_bytes;
  size_t waiting = 0;
  for (size_t n = 1; n <= 3 && n <= tokens_.size(); ++n) {
    const int32_t id = tokens_[tokens_.size() - n];
    if (!impl.processor.IsByte(id)) break;
    const std::string& piece = impl.processor.IdToPiece(id);
    last_bytes.insert(0, 1, static_cast<char>(std::strtol(piece.c_str() + 1, nullptr, 16)));
    if (is_unfinished_utf8(last_bytes)) waiting = n;
  }

  const std::string text = tokenizer_.decode(std::span(tokens_).first(tokens_.size() - waiting));
  std::string added = text.substr(std::min(printed_, text.size()));
  printed_ = text.size();
  return added;
}

}  // namespace lab
