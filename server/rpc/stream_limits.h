// server/rpc/stream_limits.h: how many streams a connection may have.
#pragma once

namespace trainyard::server {

/// The number of watch streams that one connection may have; Config::watch_streams_max limits all
/// connections together. The transport allows more calls (listener.cc), so that a stream beyond
/// this limit gets an error.
inline constexpr int kWatchStreamsPerConnectionMax = 1024;

}  // namespace trainyard::server
