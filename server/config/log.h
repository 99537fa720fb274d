// server/config/log.h: the daemon's log on standard error, with one line of key=value pairs for
// each event.
//
//   spdlog::info("event=job_started {} attempt={}", kv("job", name), attempt);
//
// The name of an event says what happened: a noun and a verb in the past (spool_imported), or a
// noun, `not` and the verb (files_not_deleted).
#pragma once

#include <string>
#include <string_view>

namespace trainyard::server {

/// Sets the pattern (`time=... level=... <message>`) and the level of the default logger.
void start_logging(std::string_view level);

/// Returns `key=value`. The value is truncated to 512 bytes, and quoted and escaped if needed.
std::string kv(std::string_view key, std::string_view value);

}  // namespace trainyard::server
