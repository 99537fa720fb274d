// server/config/values.h: parses the text values of settings and creates the errors for invalid
// ones.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::server {

/// Returns the error CONFIG_INVALID: "name: 'text' is not valid, expected ...".
Error refuse(std::string_view name, std::string_view text, std::string expected);
std::optional<int64_t> parse_integer(std::string_view text);
/// Parses a number from `min` to `max`. Error: refuse() for the setting `name`.
Result<int64_t> read_number(std::string_view name, std::string_view text, int64_t min, int64_t max);
/// Parses a number of bytes from `min` to 2^46, such as "67108864", "64MiB", "64GiB" or "2TiB".
/// Error: refuse().
Result<int64_t> read_bytes(std::string_view name, std::string_view text, int64_t min);

/// Parses a price per hour in a currency of the operator's choice. Error: refuse().
Result<double> read_price(std::string_view name, std::string_view text);

/// Reads YAML lines of the form `key: value` and calls `take` for each value. If `repeats` is true
/// for a key, its value may be a list, and `take` is called for each element. A key must not occur
/// twice. Errors of the form and errors of `take` name `origin` and the line. An empty text is
/// valid.
Status read_settings(
    std::string_view text, const std::string& origin,
    const std::function<bool(const std::string& key)>& repeats,
    const std::function<Status(const std::string& key, const std::string& value)>& take);

}  // namespace trainyard::server
