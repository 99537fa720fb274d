// server/rpc/stream_limits.h: how many streams a connection may have.
#pragma once

namespace trainyard::server {

/// Of a connection; of all, Config::watch_streams_max. The transport allows more (listener.cc), so
/// that a call beyond this is answered.
inline constexpr int kWatchStreamsPerConnectionMax = 1024;

}  // namespace trainyard::server
