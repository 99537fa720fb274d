// server/rpc/stream_limits.h: how many streams a connection may have.
#pragma once

namespace trainyard::server {

/// Watch streams that one connection may have; Config::watch_streams_max bounds all connections.
/// The transport allows more calls (listener.cc), so that one beyond this limit gets an answer.
inline constexpr int kWatchStreamsPerConnectionMax = 1024;

}  // namespace trainyard::server
