// Reads without waiting, splits lines, writes them.
#include "common/run/launch/prefix_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <tuple>
#include <utility>

namespace lab {
namespace {

constexpr size_t kLongestLine = 64 << 10;

}  // namespace

// A pipe that is ready takes PIPE_BUF bytes at once.
int write_all(int target, const std::string& text, int stop) {
  for (size_t at = 0; at < text.size();) {
    std::array<pollfd, 2> ready{pollfd{target, POLLOUT, 0}, pollfd{stop, POLLIN, 0}};
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return 0;
    if ((ready[0].revents & POLLERR) != 0) return EPIPE;
    if ((ready[0].revents & POLLOUT) == 0) {
      if (ready[0].revents != 0) return EPIPE;  // hung up, or closed
      if ((ready[1].revents & POLLIN) != 0) return 0;
      continue;
    }
    const size_t part = std::min<size_t>(text.size() - at, PIPE_BUF);
    const ssize_t count = write(target, text.data() + at, part);
    if (count < 0 && errno != EINTR && errno != EAGAIN) return errno;
    if (count > 0) at += static_cast<size_t>(count);
  }
  return 0;
}

PrefixOutput::PrefixOutput(std::string prefix, int target, Errors& errors)
    : prefix_(std::move(prefix)), target_(target), errors_(errors) {
  std::tie(reading_, writing_) = make_pipe();
  fcntl(reading_.get(), F_SETFL, O_NONBLOCK);
}

int PrefixOutput::pass_on(int stop) {
  read_available(reading_, pending_);
  const size_t last = pending_.rfind('\n');
  if (last != std::string::npos) return write_lines(last + 1, stop);
  return pending_.size() < kLongestLine ? 0 : write_lines(pending_.size(), stop);
}

int PrefixOutput::finish(int stop) {
  const int error = pass_on(stop);
  const int later_error = write_lines(pending_.size(), stop);
  return error != 0 ? error : later_error;
}

/// The first `end` bytes of what is pending.
int PrefixOutput::write_lines(size_t end, int stop) {
  std::string text;
  for (size_t at = 0; at < end;) {
    const size_t line_end = std::min(pending_.find('\n', at), end - 1);
    std::string line = pending_.substr(at, line_end + 1 - at);
    at = line_end + 1;
    if (line.back() != '\n') line += '\n';
    if (line.starts_with("error: ") && !errors_.insert(line).second) continue;
    text += prefix_ + line;
  }
  pending_.erase(0, end);
  return write_all(target_, text, stop);
}

}  // namespace lab
