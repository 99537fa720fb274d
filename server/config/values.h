// server/config/values.h: values of settings, as text, and what is said of those that are refused.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::server {

/// CONFIG_INVALID: "name: 'text' is not valid, expected ...".
Error refuse(std::string_view name, std::string_view text, std::string expected);
std::optional<int64_t> parse_integer(std::string_view text);
/// A number from `min` to `max`; else a refusal of the setting `name`.
Result<int64_t> read_number(std::string_view name, std::string_view text, int64_t min, int64_t max);
/// "67108864", "64MiB", "64GiB", "2TiB": from `min` to 2^46; else a refusal.
Result<int64_t> read_bytes(std::string_view name, std::string_view text, int64_t min);

/// Of an hour, in a currency of the operator's choice; else a refusal.
Result<double> read_price(std::string_view name, std::string_view text);

/// Reads YAML lines of the form `key: value`, no key twice. Calls `take` for each value, and for
/// each one of a list behind a key that `repeats` is true of. Its refusals, and those of the form,
/// name `origin` and the line. Nothing is wrong with a text without a line.
Status read_settings(
    std::string_view text, const std::string& origin,
    const std::function<bool(const std::string& key)>& repeats,
    const std::function<Status(const std::string& key, const std::string& value)>& take);

}  // namespace trainyard::server
