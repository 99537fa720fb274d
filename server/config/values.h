// server/config/values.h: values of settings, as text, and what is said of those that are refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::server {

/// CONFIG_INVALID: "name: 'text' is not valid, expected ...".
Error refuse(std::string_view name, std::string_view text, std::string expected);
std::optional<int64_t> parse_integer(std::string_view text);
/// "67108864", "64MiB", "64GiB", "2TiB"; nothing below `min`, and above 2^50.
std::optional<int64_t> parse_bytes(std::string_view text, int64_t min);

}  // namespace trainyard::server
