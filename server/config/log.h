// server/config/log.h: the daemon's log: one event, one line, key=value, on standard error.
//
//   spdlog::info("event=job_started {} attempt={}", kv("job", name), attempt);
#pragma once

#include <string>
#include <string_view>

namespace trainyard::server {

/// Sets the pattern (`time=... level=... <message>`) and the level of the default logger.
void start_logging(std::string_view level);

/// `key=value`, the value quoted and escaped if needed, cut to 512 bytes.
std::string kv(std::string_view key, std::string_view value);

}  // namespace trainyard::server
