// Sockets of the TcpStore and its server: non-blocking, not inherited by child programs.
//
// System calls rather than a library: a client needs one deadline over connecting, sending and
// receiving, and must tell "nobody listens there" from "no answer"; a server must end waits of
// other threads. Asio would take more code for the former than these few functions, and seconds of
// every build.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/io/descriptor.h"

namespace lab::tcp_store {

using Clock = std::chrono::steady_clock;
using Socket = Descriptor;

/// "127.0.0.1:29500", "[::1]:29500".
std::string place(const std::string& address, uint16_t port);

/// Listens at exactly this address. Throws Error as TcpStoreServer does.
Socket listen_at(const std::string& address, uint16_t port);
uint16_t own_port(const Socket& socket);

/// One attempt to connect. If it fails, the socket is empty and `error` says why (errno, including
/// ETIMEDOUT). Throws Error if the address is unknown.
Socket connect_to(const std::string& address, uint16_t port, Clock::time_point deadline,
                  int& error);

/// For connections: data is sent at once, and a peer whose machine is gone is noticed within about
/// a minute, unless it still has to acknowledge something.
void prepare(const Socket& socket);
/// Sets how long a peer may leave data unacknowledged, or read nothing, before it counts as gone;
/// by default, the system takes about a quarter of an hour.
void limit_unacknowledged(const Socket& socket, double seconds);

/// Waits until the socket is ready for `events` (as for poll), has failed or was closed. False if
/// the deadline has passed.
bool wait_for(const Socket& socket, short events, Clock::time_point deadline);

/// Does not wait. Returns how many bytes were sent (received and appended); 0: none now; -1: the
/// connection has ended.
int64_t send_some(const Socket& socket, std::string_view bytes);
int64_t receive_some(const Socket& socket, std::string& buffer);

}  // namespace lab::tcp_store
