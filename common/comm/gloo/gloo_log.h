// What Gloo writes to std::cerr.
#pragma once

#include <iostream>
#include <streambuf>
#include <string_view>

namespace lab {

/// While it exists, std::cerr leaves out Gloo's information. Newer versions of Gloo tell about
/// every group that has connected, and have no option that stops them.
class QuietGloo final : std::streambuf {
 public:
  QuietGloo() : cerr_(std::cerr.rdbuf(this)) {}
  ~QuietGloo() override { std::cerr.rdbuf(cerr_); }
  QuietGloo(const QuietGloo&) = delete;
  QuietGloo& operator=(const QuietGloo&) = delete;

 private:
  // Gloo writes a message at once: "[./gloo/transport/tcp/context.cc:243] INFO Rank 0 is ...".
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const std::string_view message(text, static_cast<size_t>(size));
    const bool is_information =
        message.starts_with("[./gloo/") && message.find("] INFO ") != std::string_view::npos;
    return is_information ? size : cerr_->sputn(text, size);
  }
  int overflow(int character) override {
    return character == EOF ? 0 : cerr_->sputc(static_cast<char>(character));
  }
  int sync() override { return cerr_->pubsync(); }

  std::streambuf* cerr_;
};

}  // namespace lab
