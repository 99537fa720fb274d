// server/config/log.h: the daemon's log on standard error, with one line of key=value pairs for
// each event.
//
//   spdlog::info("event=job_started {} attempt={}", kv("job", name), attempt);
//
// The name of an event says what happened: a noun and a verb in the past (spool_imported), or a
// noun, `not` and the verb (files_not_deleted).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard::server {

enum class LogFormat : uint8_t {
  kText,  // time=... level=... event=... key=value ...
  kJson   // an object with the same keys for each line
};

/// Sets the format and the level of the default logger.
void start_logging(std::string_view level, LogFormat format);

/// Returns `key=value`. The value is truncated to 512 bytes, made safe by safe_text(), and quoted
/// if needed; in quotes, " and \ have a \ before them.
std::string kv(std::string_view key, std::string_view value);

/// Returns the line of key=value pairs as a JSON object. Numbers stay numbers; a word without a
/// value becomes part of the key `message`.
std::string log_line_to_json(std::string_view pairs);

}  // namespace trainyard::server
